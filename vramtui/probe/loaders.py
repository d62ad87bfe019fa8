"""Memory of DataLoaders on the host: their workers, how far ahead those load, and whether batches are page-locked.

Only the first batch of each pass over a loader is looked at, and nothing is put on a loader or a batch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

MOST_LOADERS = 8  # that are told
DEPTH = 4  # of containers in a batch


class Loaders:
    """The loaders that were seen, by their settings, each with its largest first batch."""

    def __init__(self, torch: Any, quiet: Callable[[Any], Any]) -> None:
        self._torch = torch
        self._quiet = quiet
        self._seen: dict[tuple[int, int, bool], tuple[int, int]] = {}

    def put_on(self) -> None:
        """Begin to watch: `__next__` of PyTorch's own iterators (torch/utils/data/dataloader.py, 2.13)."""
        from torch.utils.data.dataloader import _BaseDataLoaderIter

        meet = self._quiet(self._meet)
        plain = _BaseDataLoaderIter.__next__

        @functools.wraps(plain)
        def load(iterator: Any) -> Any:
            batch = plain(iterator)
            if getattr(iterator, "_num_yielded", 0) == 1:
                meet(iterator, batch)
            return batch

        _BaseDataLoaderIter.__next__ = load  # type: ignore[assignment,method-assign] # calls it and hands on what it gives

    def forget(self) -> None:
        """A forked child has loaders of its own."""
        self._seen = {}

    def sizes(self) -> list[dict[str, Any]]:
        """Each kind of loader: workers, batches ahead for each, and the bytes of a batch, plain and page-locked."""
        return [
            {"workers": workers, "prefetch": prefetch, "pinned": pinned, "batch": batch, "locked": locked}
            for (workers, prefetch, pinned), (batch, locked) in list(self._seen.items())
        ]

    def _meet(self, iterator: Any, batch: Any) -> None:
        workers = int(getattr(iterator, "_num_workers", 0))
        pinned = bool(getattr(iterator, "_pin_memory", False))
        if not workers and not pinned:
            return
        kind = (workers, int(getattr(iterator, "_prefetch_factor", None) or 0), pinned)
        if kind not in self._seen and len(self._seen) == MOST_LOADERS:
            return
        sizes = [tensor.numel() * tensor.element_size() for tensor in self._tensors(batch, DEPTH)]
        # Page-locked memory is taken in powers of two (aten/src/ATen/core/CachingHostAllocator.h: PowerOf2Ceil).
        totals = sum(sizes), sum(1 << (size - 1).bit_length() for size in sizes if size)
        self._seen[kind] = max(totals, self._seen.get(kind, (0, 0)))

    def _tensors(self, batch: Any, depth: int) -> Iterator[Any]:
        if isinstance(batch, self._torch.Tensor):
            yield batch
        elif depth and isinstance(batch, dict):
            for value in batch.values():
                yield from self._tensors(value, depth - 1)
        elif depth and isinstance(batch, (list, tuple)):
            for value in batch:
                yield from self._tensors(value, depth - 1)
        elif depth and isinstance(getattr(batch, "data", None), dict):  # a BatchEncoding of transformers
            yield from self._tensors(batch.data, depth - 1)
