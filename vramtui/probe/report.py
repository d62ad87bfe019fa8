"""Facts about the job that are not sent yet: the allocator's counters, the ends of phases, and what models hold."""

from __future__ import annotations  # Python 3.8, which a job may run under, knows no `dict[str, int]`

import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import chain
from typing import TYPE_CHECKING, Any

from .import_hook import around

if TYPE_CHECKING:
    Figures = dict[str, int | None]
    Sizes = dict[str, int]

MOST_MOMENTS = 48  # in one message
MOST_LOADERS = 8  # that are reported
BLOCK = 512  # the CUDA allocator hands out multiples of this
# Passes after which a time limit ends a job as its own end would, and after which it ends by itself: more than most
# samplers have steps, behind which an image is decoded. And the seconds that those take at least.
ALIKE, ENOUGH, LONG = 16, 256, 30.0
AWAITED = 8  # times as many steps as are asked for, in which each optimizer is to have stepped twice
NO_END = 1 << 30  # steps of a job that runs to its own end
SLIGHT, MOST_PASSES = 0.005, 10_000  # of the peak; passes in which memory grows by less than that all in all
LOOK_EVERY = 1.0  # seconds between looks at devices that are not in use
PATHS: dict[str, tuple[str, ...]] = {
    "allocated": ("allocated_bytes", "all", "current"),
    "allocated_peak": ("allocated_bytes", "all", "peak"),
    "reserved": ("reserved_bytes", "all", "current"),
    "reserved_peak": ("reserved_bytes", "all", "peak"),
    "num_alloc_retries": ("num_alloc_retries",),
    "num_ooms": ("num_ooms",),
}


class Counters:
    """`torch.cuda.memory_stats` of each device on which this process has reserved memory."""

    def __init__(self, torch: Any) -> None:
        self._cuda: Any = getattr(torch, "cuda", None)
        self._used: tuple[int, ...] = ()
        self._checked = -1.0

    @property
    def ready(self) -> bool:
        """Return whether the job has begun to use CUDA. Asking does not begin it."""
        return self._cuda is not None and bool(self._cuda.is_initialized())

    def read(self, now: float, *, every: bool = False) -> dict[int, Figures]:
        """Figures by device index; with `every`, or if that was long ago (`now`, seconds), also of unused devices."""
        if not self.ready:
            return {}
        if every or not self._used or now - self._checked >= LOOK_EVERY:
            self._checked = now
            all_of_them = {index: self._figures(index) for index in range(self._cuda.device_count())}
            used = {index: figures for index, figures in all_of_them.items() if figures["reserved_peak"]}
            self._used = tuple(used)
            return used
        return {index: self._figures(index) for index in self._used}

    def devices(self) -> list[dict[str, Any]]:
        """The devices: index, name, total memory in bytes, capability, uuid."""
        devices = map(self._cuda.get_device_properties, range(self._cuda.device_count()) if self.ready else ())
        return [
            {
                "index": index,
                "name": str(one.name),
                "total_memory": int(one.total_memory),
                "capability": [int(one.major), int(one.minor)],
                "uuid": str(one.uuid) if getattr(one, "uuid", None) is not None else None,
            }
            for index, one in enumerate(devices)
        ]

    def _figures(self, index: int) -> Figures:
        # The nested form is what the flat one is made from, at a tenth of its price; both are of PyTorch 1.4.
        whole = self._cuda.memory_stats_as_nested_dict(index)
        figures: Figures = {}
        for name, path in PATHS.items():
            stats = whole
            for key in path:
                stats = stats.get(key) if isinstance(stats, dict) else None
            figures[name] = stats if isinstance(stats, int) else None
        return figures


def _leaves(tree: Any, depth: int = 4) -> Iterable[Any]:
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, (list, tuple)):
        for branch in tree if depth else ():
            yield from _leaves(branch, depth - 1)
    else:
        yield tree


def tensors_of(torch: Any, batch: Any, depth: int = 4) -> Iterable[Any]:
    """The tensors of a batch, and of what its objects have, as a BatchEncoding of transformers or a graph."""
    for leaf in _leaves(batch):
        if isinstance(leaf, torch.Tensor):
            yield leaf
        elif depth and not isinstance(leaf, type) and hasattr(leaf, "__dict__"):
            yield from tensors_of(torch, vars(leaf), depth - 1)


def _sizes(torch: Any, things: Iterable[Any]) -> Sizes:
    sizes: dict[Any, int] = {}
    seen = set()
    for thing in things:
        if not isinstance(thing, torch.Tensor):
            continue
        tensor = getattr(thing, "_local_tensor", thing)  # a DTensor's own shard
        if tensor.is_meta:
            continue
        device, storage = tensor.device, tensor.untyped_storage()
        address, size = storage.data_ptr(), storage.nbytes()
        if not size or (device, address) in seen:
            continue
        seen.add((device, address))
        if device.type == "cuda":
            size = -(-size // BLOCK) * BLOCK
        sizes[device] = sizes.get(device, 0) + size
    return {str(device): size for device, size in sizes.items()}


class PhasePeaks:
    """The ends of phases on every device in use, and the peaks that were new in them."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self.noted: list[dict[str, Any]] = []  # and not sent yet
        self._peaks: dict[int, tuple[int, int]] = {}

    def note(self, phase: str, step: int, *, every: bool, keep: bool = True) -> None:
        """`phase` of `step` ends; `every` device is looked at. Without `keep` only the peaks are taken down."""
        now = time.time()
        for index, figures in self._counters.read(time.monotonic(), every=every).items():
            peaks = (figures["allocated_peak"] or 0, figures["reserved_peak"] or 0)
            before = self._peaks.get(index, (0, 0))
            self._peaks[index] = peaks
            if keep:
                self.noted.append(
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
        while len(self.noted) > MOST_MOMENTS:  # those with a new peak tell more
            del self.noted[next((at for at, one in enumerate(self.noted) if one["peak_allocated"] is None), 0)]


class RepeatedPasses:
    """Calls of models and backward passes, by their line: how often, and how often since memory grew last."""

    def __init__(self) -> None:
        self.times: Counter[str] = Counter()
        self.alike: Counter[str] = Counter()
        self._base, self._grown, self.since = (0, 0, 0), 0, 0.0

    def begin(self, place: str, figures: tuple[int, int, int], now: float) -> None:
        """A pass begins at a place, with so many bytes allocated, and at the peaks of allocated and reserved so far.
        Growth that would not matter in 10,000 passes, as of a list of losses, is none.
        """
        self._grown = max(now - before for now, before in zip(figures, self._base))  # noqa: B905 - of Python 3.10
        if place not in self.times or self._grown * MOST_PASSES > SLIGHT * figures[1] * sum(self.alike.values()):
            self._base, self._grown, self.since = figures, 0, now
            self.alike.clear()
        self.times[place] += 1
        self.alike[place] += 1

    def summary(self, least: int = ALIKE) -> dict[str, Any]:
        """The most frequent place, and whether its passes repeat: at least so many, and half of all, were alike."""
        line, alike = max(list(self.alike.items()), key=lambda one: one[1], default=("", 0))
        grown, times = self._grown // max(1, sum(self.alike.values())), self.times[line]
        return {"place": line, "times": times, "alike": alike, "grown": grown, "repeat": alike >= max(least, times / 2)}


class TensorTotals:
    """The models and optimizers that were seen, and what they held when they were looked at last, in bytes. References
    are weak: that the job is watched keeps nothing of it alive.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._optimizers: dict[int, weakref.ref[Any]] = {}
        self._modules: dict[int, weakref.ref[Any]] = {}
        self.sizes: dict[str, Sizes] = {}

    def meet(self, thing: Any, *, is_module: bool) -> bool:
        references = self._modules if is_module else self._optimizers
        reference = references.get(id(thing))
        if reference is not None and reference() is thing:
            return False
        references[id(thing)] = weakref.ref(thing)
        return True

    def alive(self) -> Iterable[list[Any]]:  # optimizers, then models
        return (
            [thing for thing in [reference() for reference in references.values()] if thing is not None]
            for references in (self._optimizers, self._modules)
        )

    def look(self, *, stepped: bool) -> None:
        """Look before a step at gradients, which are all there, parameters that are trained, and models with their
        buffers; after it at moments, master copies, step counters: every tensor in the optimizers' states.
        """
        optimizers, modules = self.alive()
        if stepped:
            states = (leaf for optimizer in optimizers for leaf in _leaves(optimizer.state))
            self.sizes["optimizer"] = _sizes(self._torch, states)
            return
        groups = (group for optimizer in optimizers for group in optimizer.param_groups)
        trained = [parameter for group in groups for parameter in group["params"]]
        tensors = (tensor for module in modules for tensor in chain(module.parameters(), module.buffers()))
        self.sizes["gradients"] = _sizes(self._torch, (parameter.grad for parameter in trained))
        self.sizes["weights"] = _sizes(self._torch, chain(trained, tensors))


class Loaders:
    """The DataLoaders that were seen, by their settings, each with its largest first batch. Only the first of each
    pass over a loader is looked at, and nothing is put on a loader or a batch.
    """

    def __init__(self, torch: Any, quiet: Callable[[Any], Any]) -> None:
        self._torch, self._quiet = torch, quiet
        self.seen: dict[tuple[int, int, bool], tuple[int, int]] = {}

    def put_on(self) -> None:
        """Begin to watch: `__next__` of PyTorch's own iterators (torch/utils/data/dataloader.py, 2.13)."""
        from torch.utils.data.dataloader import _BaseDataLoaderIter

        meet = self._quiet(self._meet)

        def load(plain: Any, iterator: Any) -> Any:
            batch = plain(iterator)
            if getattr(iterator, "_num_yielded", 0) == 1:
                meet(iterator, batch)
            return batch

        around(_BaseDataLoaderIter, "__next__", load)

    def sizes(self) -> list[dict[str, Any]]:
        """Each kind of loader: workers, batches ahead for each, and the bytes of a batch, plain and page-locked."""
        return [
            {"workers": workers, "prefetch": prefetch, "pinned": pinned, "batch": batch, "locked": locked}
            for (workers, prefetch, pinned), (batch, locked) in list(self.seen.items())
        ]

    def _meet(self, iterator: Any, batch: Any) -> None:
        workers = int(getattr(iterator, "_num_workers", 0))
        pinned = bool(getattr(iterator, "_pin_memory", False))
        kind = (workers, int(getattr(iterator, "_prefetch_factor", None) or 0), pinned)
        if not (workers or pinned) or (kind not in self.seen and len(self.seen) == MOST_LOADERS):
            return
        sizes = [tensor.numel() * tensor.element_size() for tensor in tensors_of(self._torch, batch)]
        # Page-locked memory is taken in powers of two (aten/src/ATen/core/CachingHostAllocator.h: PowerOf2Ceil).
        totals = sum(sizes), sum(1 << (size - 1).bit_length() for size in sizes if size)
        self.seen[kind] = max(totals, self.seen.get(kind, (0, 0)))
