"""What was noted of the job and has not been told yet: the ends of phases, and what its optimizers hold."""

from __future__ import annotations  # Python 3.8, which a job may run under, knows no `dict[str, int]`

import time
import weakref
from typing import Any

from . import parts
from .counters import Counters

MOST_MOMENTS = 48  # in one message


class PhasePeaks:
    """The ends of phases on every device in use, and the peaks that were new in them."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._noted: list[dict[str, Any]] = []
        self._peaks: dict[int, tuple[int, int]] = {}

    def note(self, phase: str, step: int, *, every: bool, keep: bool = True) -> None:
        """`phase` of `step` ends; `every` device is looked at. Without `keep` only the peaks are taken down."""
        now = time.time()
        for index, figures in self._counters.read(time.monotonic(), every=every).items():
            peaks = (figures["allocated_peak"] or 0, figures["reserved_peak"] or 0)
            before = self._peaks.get(index, (0, 0))
            self._peaks[index] = peaks
            if keep:
                self._noted.append(
                    {
                        "at": now,
                        "phase": phase,
                        "step": step,
                        "device": index,
                        "allocated": figures["allocated"],
                        "reserved": figures["reserved"],
                        "peak_allocated": peaks[0] if peaks[0] > before[0] else None,
                        "peak_reserved": peaks[1] if peaks[1] > before[1] else None,
                    }
                )
        del self._noted[:-MOST_MOMENTS]

    def pop_all(self) -> list[dict[str, Any]]:
        """What was noted since the last time."""
        noted, self._noted = self._noted, []
        return noted

    def put_back(self, noted: list[dict[str, Any]]) -> None:
        """What was taken could not be told yet."""
        self._noted[:0] = noted


class TensorTotals:
    """The models and optimizers that were seen, and what they held when they were looked at last, in bytes.

    They are referred to weakly: that the job is watched keeps nothing of it alive.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._optimizers: dict[int, weakref.ref[Any]] = {}
        self._modules: dict[int, weakref.ref[Any]] = {}
        self.sizes: dict[str, parts.Sizes] = {}

    def meet_module(self, module: Any) -> bool:
        """Whether `module` is new."""
        return _meet(self._modules, module)

    def meet_optimizer(self, optimizer: Any) -> bool:
        """Whether `optimizer` is new."""
        return _meet(self._optimizers, optimizer)

    def alive(self) -> tuple[list[Any], list[Any]]:
        """The optimizers and the models that are alive."""
        return _alive(self._optimizers), _alive(self._modules)

    def look_before_step(self) -> None:
        """All gradients are there now."""
        optimizers = _alive(self._optimizers)
        self.sizes["gradients"] = parts.gradients_of(optimizers, self._torch)
        self.sizes["weights"] = parts.weights_of(optimizers, _alive(self._modules), self._torch)

    def look_after_step(self) -> None:
        """All states are there now."""
        self.sizes["optimizer"] = parts.states_of(_alive(self._optimizers), self._torch)


def _meet(references: dict[int, weakref.ref[Any]], thing: Any) -> bool:
    reference = references.get(id(thing))
    if reference is not None and reference() is thing:
        return False
    references[id(thing)] = weakref.ref(thing)
    return True


def _alive(references: dict[int, weakref.ref[Any]]) -> list[Any]:
    objects = [reference() for reference in references.values()]
    return [thing for thing in objects if thing is not None]
