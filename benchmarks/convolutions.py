"""Workspaces of cuDNN under a release of PyTorch: `convolutions.py OUT`, under its CUDA build, on a card.

Each convolution of `torch_facts/convolutions_h200.json` runs forward, for its input's gradient and for its weight's.
OUT gets the rows in which any of the three workspaces is another one than there, in the same form and with cuDNN's
version; `--all` gives every row. The standard library and torch alone.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

MEASURED = Path(__file__).parents[1] / "vramtui" / "estimators" / "torch_facts" / "convolutions_h200.json"


def scratch_of(call: Callable[[], object], result: int) -> int:
    """Bytes that a call asks for beside its result, whose bytes are known."""
    before: int = torch.cuda.memory_stats()["requested_bytes.all.current"]
    torch.cuda.reset_peak_memory_stats()
    kept = call()
    peak: int = torch.cuda.memory_stats()["requested_bytes.all.peak"]
    del kept
    return int(peak - before - result)


def workspaces(form: dict[str, Any], row: list[int]) -> list[int]:
    """Of one convolution, forward, for the input's gradient and for the weight's; in bytes."""
    images, inputs, outputs, height, width, *padding = row[:7]
    groups = form.get("groups", 1)
    how = {"device": "cuda", "dtype": getattr(torch, form["dtype"])}
    layout = torch.channels_last if form.get("channels_last") else torch.contiguous_format
    tensor = torch.empty((images, inputs, height, width), **how).to(memory_format=layout)
    weight = torch.empty((outputs, inputs // groups, *form["window"]), **how).to(memory_format=layout)
    stride, dilation = form.get("stride", [1, 1]), form.get("dilation", [1, 1])

    def forward() -> torch.Tensor:
        found: torch.Tensor = torch.ops.aten.convolution(
            tensor, weight, None, stride, padding, dilation, False, [0, 0], groups
        )
        return found

    gradient = torch.empty_like(forward())
    found = [scratch_of(forward, gradient.nbytes)]
    for at, result in ((0, tensor), (1, weight)):
        wanted = [at == 0, at == 1, False]

        def backward(wanted: list[bool] = wanted) -> object:
            return torch.ops.aten.convolution_backward(
                gradient, tensor, weight, None, stride, padding, dilation, False, [0, 0], groups, wanted
            )

        found.append(scratch_of(backward, result.nbytes))
    return found


def main() -> None:
    """Measure, and write what differs."""
    rows_of_forms = []
    for form, rows in json.loads(MEASURED.read_bytes()):
        measured = [(row, workspaces(form, row)) for row in rows]
        other = [[*row[:7], *now] for row, now in measured if now != row[7:10] or "--all" in sys.argv]
        if other:
            rows_of_forms.append([form, other])
        torch.cuda.empty_cache()
    found = {"cudnn": torch.backends.cudnn.version(), "torch": torch.__version__, "rows": rows_of_forms}
    Path(sys.argv[1]).write_text(json.dumps(found, separators=(",", ":")), encoding="utf-8")


if __name__ == "__main__":
    main()
