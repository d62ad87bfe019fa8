"""`DataLoader` without worker processes: the batches are the same, and nothing on the card changes.

Datasets of torchvision read files and transform them on the host: so they do here, on real tensors, which takes about
a third of the time.

Threads that the code starts follow its tensors as its first one does.
"""

import functools
import inspect
import threading
from typing import Any

import torch.utils.data._utils.fetch as fetchers
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.data import DataLoader, Subset

from vramtui.estimators.traced.accounting.memory import SimulatedMemory
from vramtui.estimators.traced.device.patches import Patches

NOTE = "DataLoader loads in this process, without its workers: nothing on the card depends on them"
_OF_WORKERS = ("timeout", "prefetch_factor", "multiprocessing_context", "persistent_workers", "in_order")


def install(patches: Patches, memory: SimulatedMemory) -> None:
    """Let every loader load in this process."""
    plain: Any = DataLoader.__init__
    signature = inspect.signature(plain)

    @functools.wraps(plain)
    def construct(loader: Any, *args: Any, **kwargs: Any) -> None:
        given = signature.bind(loader, *args, **kwargs)
        if given.arguments.get("num_workers"):
            memory.warn(NOTE)
            given.arguments["num_workers"] = 0
            for name in _OF_WORKERS:
                given.arguments.pop(name, None)
        given.arguments.pop("pin_memory", None)
        plain(*given.args, **given.kwargs)

    patches.set(DataLoader, "__init__", construct)
    plain_fetch: Any = fetchers._MapDatasetFetcher.fetch

    def fetch(fetcher: Any, places: Any) -> Any:
        if not _reads_files(fetcher.dataset):
            return plain_fetch(fetcher, places)
        try:
            with _disable_current_modes():
                return plain_fetch(fetcher, places)
        except (RuntimeError, AssertionError, NotImplementedError):  # a transform of its own goes to the card
            return plain_fetch(fetcher, places)

    patches.set(fetchers._MapDatasetFetcher, "fetch", fetch)


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
