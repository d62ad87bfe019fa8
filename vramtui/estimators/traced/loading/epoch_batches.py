"""Batches of many sizes: the largest of a loader's epoch is run as one of the steps.

Three steps hardly see it. Where batches may differ (two that came do, or a function of the code's own puts samples
together) the loader is gone through once more without the model, if that takes few seconds; the random numbers of that
epoch are drawn again and then put back, so that all else comes as it would. The largest batch takes the place of one
after the first step: by then the optimizer's states are there.
"""

import functools
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.data import DataLoader
from torch.utils.data._utils.collate import default_collate, default_convert
from torch.utils.data.dataloader import _BaseDataLoaderIter, _DatasetKind

from vramtui.core.base.units import format_bytes
from vramtui.estimators.traced.accounting.memory import SimulatedMemory
from vramtui.estimators.traced.accounting.phases import PhaseTracker
from vramtui.estimators.traced.device.patches import Patches

LARGEST = (
    "the loader at {} gives batches of {} to {} of inputs; the largest of the {} in its epoch{}, loaded without the "
    "model, is run in step {}"
)
CHEAP = 5.0  # seconds of the processor for an epoch's loading that nobody has asked for
_LONGEST = 60.0  # seconds where somebody has
_UNDECIDED = 4  # batches by which it is known how long one takes


def install(
    patches: Patches, memory: SimulatedMemory, phases: PhaseTracker, *, steps: int, wanted: bool | None
) -> None:
    """Run the largest batch of each loader's epoch.

    Args:
        patches: where what is replaced is noted.
        memory: is told what was done.
        phases: knows how many steps are done.
        steps: after how many the trace ends.
        wanted: whether that is asked for; None where nobody says, and it is done where it is cheap.
    """
    if wanted is False:
        return
    looks: WeakKeyDictionary[Any, EpochLook] = WeakKeyDictionary()
    running: WeakKeyDictionary[Any, tuple[EpochLook, RandomState]] = WeakKeyDictionary()
    begin: Any = DataLoader._get_iterator
    step: Any = _BaseDataLoaderIter.__next__

    @functools.wraps(begin)
    def get_iterator(loader: Any) -> Any:
        state = RandomState.of(loader)
        batches = begin(loader)
        if loader not in looks:
            looks[loader] = EpochLook(loader, lambda: iter(_Epoch(begin(loader), step)), memory, wanted is True)
        running[batches] = looks[loader], state
        return batches

    @functools.wraps(step)
    def next_batch(batches: Any) -> Any:
        if batches not in running:
            return step(batches)
        look, state = running[batches]
        look.before(state)
        events, began = memory.events, time.process_time()
        batch = step(batches)
        look.came(batch, time.process_time() - began, on_card=memory.events != events)
        look.after(state)
        if look.largest is None or phases.steps_done < min(1, steps - 1):
            return batch
        largest, look.largest = look.largest, None
        memory.largest_run |= torch.is_grad_enabled()
        if bytes_of(largest) <= bytes_of(batch):
            return batch
        memory.warn(look.sentence(memory.user_line(), phases.steps_done))
        return largest

    patches.set(DataLoader, "_get_iterator", get_iterator)
    patches.set(_BaseDataLoaderIter, "__next__", next_batch)


class _Epoch:
    """Goes through a loader's own iterator, whatever `next` of it was replaced by."""

    def __init__(self, batches: Any, step: Callable[[Any], Any]) -> None:
        self._batches, self._step = batches, step

    def __iter__(self) -> "_Epoch":
        return self

    def __next__(self) -> Any:
        return self._step(self._batches)


@dataclass
class RandomState:
    """Where the host's random numbers are: torch's, Python's, NumPy's, and those of a loader's own generators."""

    generators: list[tuple[torch.Generator, torch.Tensor]]
    python: Any
    numpy: Any

    @classmethod
    def of(cls, loader: Any) -> "RandomState":
        """The present states of Python's, NumPy's, torch's and the loader's generators."""
        sampler = getattr(loader, "batch_sampler", None)
        holders = (loader, getattr(loader, "sampler", None), sampler, getattr(sampler, "sampler", None))
        own = {
            id(one): one for holder in holders if isinstance(one := getattr(holder, "generator", None), torch.Generator)
        }
        torch.empty(0, dtype=torch.int64).random_()  # what weights without values owe is drawn before, not within
        with _disable_current_modes():
            states = [(one, one.get_state()) for one in (torch.default_generator, *own.values())]
        numpy = sys.modules.get("numpy")
        return cls(states, random.getstate(), None if numpy is None else numpy.random.get_state())

    def restore(self) -> None:
        """Put them back."""
        with _disable_current_modes():
            for generator, state in self.generators:
                generator.set_state(state)
        random.setstate(self.python)
        if self.numpy is not None:
            sys.modules["numpy"].random.set_state(self.numpy)


@dataclass(eq=False)
class EpochLook:
    """What is known of one loader's batches.

    Attributes:
        loader: a `DataLoader`.
        epoch: makes an iterator over its batches.
        memory: the simulated card's, whose events tell whether loading uses the card.
        is_wanted: whether somebody has asked for the largest batch.
        largest: the largest batch, until it is run; None where none was looked for, or all are alike.
    """

    loader: Any
    epoch: Callable[[], Iterator[Any]]
    memory: SimulatedMemory
    is_wanted: bool
    largest: Any = None
    _is_decided: bool = False
    _seen: list[int] = field(default_factory=list)
    _fastest: float = float("inf")
    _sizes: list[int] = field(default_factory=list)
    _is_whole: bool = True

    def before(self, state: RandomState) -> None:
        """A batch is asked for; where it is wanted the epoch comes first."""
        if self.is_wanted and not self._is_decided:
            self._look(state, _LONGEST)

    def came(self, batch: Any, seconds: float, *, on_card: bool) -> None:
        """A batch came, after so many seconds of the processor; `on_card` where the card was used for it."""
        if not self._is_decided:
            self._seen.append(bytes_of(batch))
            self._fastest = min(self._fastest, seconds)
            self._is_decided = on_card or not self._can_begin_again() or len(self._seen) > _UNDECIDED

    def after(self, state: RandomState) -> None:
        """Look where batches may differ and that takes few seconds."""
        if self._is_decided or len(self._seen) >= len(self.loader):  # the last of an epoch may be a rest
            return
        own = self.loader.collate_fn not in (default_collate, default_convert)
        if (own or max(self._seen) > min(self._seen)) and self._fastest * len(self.loader) <= CHEAP:
            self._look(state, CHEAP)

    def sentence(self, line: str, step: int) -> str:
        """What was done."""
        limit = "" if self._is_whole else f" (as far as {_LONGEST:g} s go)"
        sizes = format_bytes(min(self._sizes)), format_bytes(max(self._sizes))
        return LARGEST.format(line, *sizes, len(self._sizes), limit, step)

    def _can_begin_again(self) -> bool:
        """Whether a second pass takes nothing from the first: samples are asked for by their places."""
        samplers = (self.loader.sampler, self.loader.batch_sampler)
        if self.loader._dataset_kind != _DatasetKind.Map or any(isinstance(one, Iterator) for one in samplers):
            return False
        try:
            return len(self.loader) > 1
        except TypeError:
            return False

    def _look(self, state: RandomState, most: float) -> None:
        self._is_decided = True
        now, events = RandomState.of(self.loader), self.memory.events
        clock = time.monotonic if self.is_wanted else time.process_time
        ends = clock() + most
        state.restore()
        try:
            self._go_through(lambda: clock() > ends)
        except Exception:  # noqa: BLE001 - the code's own loading; it comes again, or does not, in the job's order
            self.largest = None
        finally:
            now.restore()
        if self.memory.events != events or not (self._is_whole or self.is_wanted):
            self.largest = None

    def _go_through(self, is_over: Callable[[], bool]) -> None:
        known = len(self.loader) if not self.is_wanted else None  # some samplers never end
        for batch in self.epoch():
            size = bytes_of(batch)
            if size > max(self._sizes, default=-1):
                self.largest = batch
            self._sizes.append(size)
            if len(self._sizes) == known:
                break
            if is_over():
                self._is_whole = False
                break
        if self._sizes and max(self._sizes) == min(self._sizes):
            self.largest = None


def bytes_of(batch: Any) -> int:
    """The bytes of all tensors of a batch."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors_of(batch))


def tensors_of(batch: Any) -> Iterator[torch.Tensor]:
    """Every tensor of a batch, as collating nests them, and those that an object of the code's own holds."""
    if isinstance(batch, torch.Tensor):
        yield batch
    elif isinstance(batch, Mapping):
        for value in batch.values():
            yield from tensors_of(value)
    elif isinstance(batch, Sequence) and not isinstance(batch, (str, bytes)):
        for value in batch:
            yield from tensors_of(value)
    elif callable(getattr(batch, "to_dict", None)):  # a graph of PyTorch Geometric's
        yield from tensors_of(batch.to_dict())
    else:
        yield from (value for value in getattr(batch, "__dict__", {}).values() if isinstance(value, torch.Tensor))
