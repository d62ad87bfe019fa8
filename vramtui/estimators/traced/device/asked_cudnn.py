"""What cuDNN itself asks for where no measured convolution is near: asked of PyTorch's CUDA build on an emulated card.

Without a device cuDNN leaves out engines that it has on a card (`torch_facts/measured_convolutions.py`). Of 7,287
workspaces of convolutions far from measured ones (tests/golden/convolutions_left_out.json.gz, those an H100 ran) it is
right within 5 % or 1 MiB in 90 %, the rule that stands for it otherwise in 76 %; beside measured ones, 60 and 81 %.

A process of its own starts at the first question, which takes some two seconds of the processor; each answer takes
some milliseconds. A trace with PyTorch's CPU build, or where no such process answers, goes by the rule.
"""

import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

from vramtui.core.estimate.devices import vendor_of
from vramtui.estimators.torch_facts.measured_convolutions import ConvolutionCall

_START = Path(__file__).parents[1] / "process" / "start.py"
_DRIVER, ANSWERS = "vramtui.driver.run_python", "vramtui.estimators.traced.process.cudnn_answers"
_MEMORY = 1 << 40
"""Bytes of the emulated card: cuDNN leaves out what finds no room, and the job's own tensors are not there."""
_PATIENCE = 600.0
"""Seconds for an answer on a machine with much to do."""
READY = b"ready\n"
Answer = tuple[int, int]
"""Bytes that are asked for, and of the largest workspace that is tried with `torch.backends.cudnn.benchmark`."""


class AskedCudnn:
    """Asks for one card.

    Args:
        card: its `name` and `limits`.
        has_cudnn: whether this build of PyTorch has one.
    """

    def __init__(self, card: Any, *, has_cudnn: bool) -> None:
        self._card = card
        self._child: subprocess.Popen[bytes] | None = None
        self._known: dict[Any, Answer | None] = {}
        self._answers = has_cudnn and vendor_of(card.name) == "NVIDIA" and sys.platform == "linux"

    def answer(self, call: ConvolutionCall, direction: str, *, output_padding: Any, room: int = 0) -> Answer | None:
        """Bytes for one of the convolution's products under the settings of torch.backends.cudnn; None where nobody
        answers.

        Args:
            call: the convolution.
            direction: forward, input or weight.
            output_padding: as PyTorch has it.
            room: bytes that are free, which bound what is tried; 0: no matter.
        """
        cudnn: Any = torch.backends.cudnn
        deterministic = cudnn.deterministic or torch.are_deterministic_algorithms_enabled()
        settings = cudnn.allow_tf32, deterministic, cudnn.benchmark
        key = call, direction, tuple(output_padding), settings
        if self._answers and key not in self._known:
            names = ("shapes", "dtype", "stride", "padding", "dilation", "transposed", "groups", "channels_last")
            asked = {name: getattr(call, name) for name in names}
            asked |= dict(zip(("tf32", "deterministic", "benchmark"), settings, strict=True))
            asked |= {"direction": direction, "output_padding": list(output_padding), "room": room}
            self._known[key] = self._ask(json.dumps(asked))
        return self._known.get(key)

    def close(self) -> None:
        """End the process that answers."""
        child, self._child = self._child, None
        if child is not None:
            _end(child)

    def _ask(self, line: str) -> Answer | None:
        self._child = self._child or self._start()
        if self._child is None:
            return None
        assert self._child.stdin is not None
        try:
            self._child.stdin.write(line.encode() + b"\n")
            numbers = json.loads(_line_of(self._child))
        except (OSError, ValueError):  # it is gone
            self._answers = False
            self.close()
            return None
        return None if numbers is None else (numbers[0], numbers[1])

    def _start(self) -> "subprocess.Popen[bytes] | None":
        """The process that answers; None, from then on, where it does not start."""
        limits = self._card.limits
        capability = ".".join(map(str, limits.capability))
        described = (self._card.name, capability, str(_MEMORY), str(limits.multiprocessors))
        try:
            child = subprocess.Popen(  # noqa: S603 - our own module, by this Python
                [sys.executable, str(_START), _DRIVER, *described, str(_START), ANSWERS],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
            )
        except OSError:
            self._answers = False
            return None
        if _line_of(child) == READY:
            return child
        self._answers = False
        _end(child)
        return None


def _end(child: "subprocess.Popen[bytes]") -> None:
    child.kill()
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            pipe.close()
    child.wait()


def _line_of(child: "subprocess.Popen[bytes]") -> bytes:
    """The next line that it writes; what there is of it where it ends, or takes too long."""
    assert child.stdout is not None
    text, until = b"", time.monotonic() + _PATIENCE
    while not text.endswith(b"\n"):
        ready, _, _ = select.select([child.stdout], [], [], max(0.0, until - time.monotonic()))
        part = os.read(child.stdout.fileno(), 4096) if ready else b""
        if not part:
            break
        text += part
    return text
