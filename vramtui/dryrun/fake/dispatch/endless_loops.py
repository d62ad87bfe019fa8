"""Loops that go on until a computed value says that they may end, which a constant never does.

A condition that is read often by one call of a function, at a line that decides whether a `while` goes on, is turned
round: iterations of a solver, of a line search or of a fixed point end then. Nobody knows how many there are in truth.
"""

import contextlib
import inspect
import os
import sys
import sysconfig
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from vramtui.dryrun.fake.accounting.memory import SimulatedMemory
from vramtui.probe import guards

NOTE = (
    "the loop at {} ends where a value says so that nobody computes here: it was ended after some {} rounds; what each "
    "round keeps counts so often"
)
_TORCH = str(Path(torch.__file__).parent) + os.sep
_OURS = str(Path(__file__).parents[3]) + os.sep
_STANDARD = sysconfig.get_path("stdlib") + os.sep
# Generators and coroutines: to clear a frame of theirs that waits would end them.
_SUSPENDED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_NUMBERS = (0, 1 << 20, -(1 << 20))


class EndlessLoops:
    """Counts the reads of each line that decides on a loop, for as long as one call of its function goes on."""

    def __init__(self) -> None:
        self._frame: FrameType | None = None
        self._reads: dict[int, int] = {}

    def answer(self, memory: SimulatedMemory, value: Any) -> Any:
        """`value`, a constant that stands for one read just now, or another where a loop waits for one."""
        frame = _reading_frame()
        if (
            frame is None
            or frame.f_code.co_flags & _SUSPENDED
            or not guards.loop_lines(frame.f_code.co_filename).get(frame.f_lineno)
        ):
            return value
        memory.loop_decided = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        if frame is not self._frame:
            self._frame, self._reads = frame, {}
        reads = self._reads[frame.f_lineno] = self._reads.get(frame.f_lineno, 0) + 1
        if reads <= guards.MOST_TURNS:
            return value
        memory.warn(NOTE.format(f"{frame.f_code.co_filename}:{frame.f_lineno}", guards.MOST_TURNS))
        turn = (reads - 1) // guards.MOST_TURNS
        if isinstance(value, bool):
            return value == (turn % 2 == 0)
        return type(value)(_NUMBERS[(turn - 1) % len(_NUMBERS)])

    def let_go(self) -> None:
        """Forget a call that has returned, whose variables its frame would keep on the card. To be called before each
        operator, so that the memory is given back before anything else is asked for.
        """
        if self._frame is not None:
            # A frame that still runs refuses, by an error; there is no other way to ask it.
            with contextlib.suppress(RuntimeError):
                self._frame.clear()
                self._frame = None


def _reading_frame() -> FrameType | None:
    """The frame that reads: the first that is neither PyTorch's nor this program's."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith((_TORCH, _OURS)):
            return None if file.startswith(_STANDARD) and "site-packages" not in file else frame
        frame = frame.f_back
    return None
