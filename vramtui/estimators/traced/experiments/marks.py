"""Notes what PyTorch says of its memory at each moment of an experiment, in a file that whoever started it reads."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch


class Marks:
    """Rows of an experiment; the file named on the command line gets all of them at its end.

    Attributes:
        categories: bytes by category at this moment, which a trace knows and a card does not.
    """

    categories: Callable[[], dict[str, int]] = staticmethod(dict)

    def __init__(self) -> None:
        self._rows: list[dict[str, object]] = []
        torch.cuda.reset_peak_memory_stats()

    def mark(self, label: str) -> None:
        """A moment: what is held, and the peaks since the last one."""
        torch.cuda.synchronize()
        self._rows.append(
            {
                "label": label,
                "allocated": torch.cuda.memory_allocated(),
                "reserved": torch.cuda.memory_reserved(),
                "peak_allocated": torch.cuda.max_memory_allocated(),
                "peak_reserved": torch.cuda.max_memory_reserved(),
                "categories": self.categories(),
            }
        )
        torch.cuda.reset_peak_memory_stats()

    def write(self) -> None:
        """The end of the experiment."""
        Path(sys.argv[1]).write_text(json.dumps(self._rows), encoding="utf-8")
