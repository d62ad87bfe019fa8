"""`DataLoader` without worker processes: the batches are the same, and nothing on the card changes; what the
workers would keep ready on the host is a note.

Datasets of torchvision read files and transform them on the host: so they do here, on real tensors, which takes about
a third of the time.

Threads that the code starts follow its tensors as its first one does.
"""

import functools
import inspect
import threading
from dataclasses import dataclass
from typing import Any

import torch.utils.data._utils.fetch as fetchers
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.data import DataLoader, Subset

from vramtui.core.observation.host_batches import HostBatches
from vramtui.estimators.traced.accounting.memory import SimulatedMemory
from vramtui.estimators.traced.device.patches import Patches
from vramtui.estimators.traced.loading.epoch_batches import tensors_of

_OF_WORKERS = ("timeout", "prefetch_factor", "multiprocessing_context", "persistent_workers", "in_order")
PREFETCH = 2  # of each worker, where nothing is asked for (torch/utils/data/dataloader.py: DataLoader.__init__)


@dataclass(frozen=True)
class LoaderSettings:
    """What a loader was made with: its workers, how far ahead each loads, and whether it pins."""

    workers: int
    prefetch: int
    pinned: bool

    def note(self, batch: Any) -> str:
        """What it would keep on the host, by one batch."""
        sizes = [tensor.numel() * tensor.element_size() for tensor in tensors_of(batch)]
        batches = HostBatches(
            workers=self.workers,
            prefetch=self.prefetch,
            pinned=self.pinned,
            batch=sum(sizes),
            locked=sum(1 << (size - 1).bit_length() for size in sizes if size),
        )
        return f"{batches.sentence}. None of it is on the card; the trace loads in its own process"


def install(patches: Patches, memory: SimulatedMemory) -> None:
    """Let every loader load in this process, and say what its workers would hold on the host."""
    plain: Any = DataLoader.__init__
    signature = inspect.signature(plain)
    unsaid: dict[int, LoaderSettings] = {}

    @functools.wraps(plain)
    def construct(loader: Any, *args: Any, **kwargs: Any) -> None:
        given = signature.bind(loader, *args, **kwargs)
        workers = given.arguments.get("num_workers") or 0
        settings = LoaderSettings(
            workers, given.arguments.get("prefetch_factor") or PREFETCH, bool(given.arguments.pop("pin_memory", False))
        )
        if workers:
            given.arguments["num_workers"] = 0
            for name in _OF_WORKERS:
                given.arguments.pop(name, None)
        plain(*given.args, **given.kwargs)
        if workers or settings.pinned:
            unsaid[id(loader.dataset)] = settings

    patches.set(DataLoader, "__init__", construct)
    for kind in (fetchers._MapDatasetFetcher, fetchers._IterableDatasetFetcher):
        patches.set(kind, "fetch", _fetch(kind.fetch, unsaid, memory))


def _fetch(plain: Any, unsaid: dict[int, LoaderSettings], memory: SimulatedMemory) -> Any:
    """`plain` on real tensors where files are read; its first batch is that of the note."""

    @functools.wraps(plain)
    def fetch(fetcher: Any, possibly_batched_index: Any) -> Any:
        batch = _fetched(plain, fetcher, possibly_batched_index)
        settings = unsaid.pop(id(fetcher.dataset), None)
        if settings is not None:
            memory.warn(settings.note(batch))
        return batch

    return fetch


def _fetched(plain: Any, fetcher: Any, places: Any) -> Any:
    if not _reads_files(fetcher.dataset):
        return plain(fetcher, places)
    try:
        with _disable_current_modes():
            return plain(fetcher, places)
    except (RuntimeError, AssertionError, NotImplementedError):  # a transform of its own goes to the card
        return plain(fetcher, places)


def _reads_files(dataset: Any) -> bool:
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    return type(dataset).__module__.startswith("torchvision.datasets.")


def follow_threads(patches: Patches, modes: tuple[Any, ...]) -> None:
    """Enter `modes`, the outermost first, in every thread that is started from now on."""
    plain: Any = threading.Thread.run

    @functools.wraps(plain)
    def run(thread: threading.Thread) -> None:
        for mode in modes:
            mode.__enter__()
        try:
            plain(thread)
        finally:
            for mode in reversed(modes):
                mode.__exit__(None, None, None)

    patches.set(threading.Thread, "run", run)
