"""Loops that go on until a computed value says that they may end, which a constant never does.

A condition that is read often by one call of a function, at a line that decides whether a `while` goes on, is turned
round: iterations of a solver, of a line search or of a fixed point end then. Nobody knows how many there are in truth.
"""

import ast
import contextlib
import functools
import inspect
import linecache
import os
import sys
import sysconfig
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from vramtui.estimators.traced.accounting.memory import SimulatedMemory

MOST_READS = 64  # more than fixed points and line searches mostly take, and few enough to be kept for a backward pass
NOTE = (
    "the loop at {} ends where a value says so that nobody computes here: it was ended after some {} rounds; what each "
    "round keeps counts so often"
)
_TORCH = str(Path(torch.__file__).parent) + os.sep
_OURS = str(Path(__file__).parents[2]) + os.sep
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
            or not _decides(frame.f_code.co_filename, frame.f_lineno)
        ):
            return value
        memory.loop_decided = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        if frame is not self._frame:
            self._frame, self._reads = frame, {}
        reads = self._reads[frame.f_lineno] = self._reads.get(frame.f_lineno, 0) + 1
        if reads <= MOST_READS:
            return value
        memory.warn(NOTE.format(f"{frame.f_code.co_filename}:{frame.f_lineno}", MOST_READS))
        turn = (reads - 1) // MOST_READS
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


@functools.lru_cache(maxsize=1 << 12)
def _decides(file: str, line: int) -> bool:
    """Whether what is read at a line decides if a `while` goes on: in its condition, or in one that leaves it."""
    return line in _deciding_lines(file)


@functools.lru_cache(maxsize=1 << 8)
def _deciding_lines(file: str) -> frozenset[int]:
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return frozenset()
    lines: set[int] = set()
    for loop in (node for node in ast.walk(tree) if isinstance(node, ast.While)):
        tests = [loop.test]
        tests += [node.test for node in ast.walk(loop) if isinstance(node, ast.If) and _leaves(node)]
        for test in tests:
            lines.update(range(test.lineno, (test.end_lineno or test.lineno) + 1))
    return frozenset(lines)


def _leaves(condition: ast.If) -> bool:
    """Whether a branch of its own ends with a way out of the loop."""
    return any(
        branch and isinstance(branch[-1], (ast.Break, ast.Return)) for branch in (condition.body, condition.orelse)
    )
