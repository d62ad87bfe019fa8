"""Memory that a DataLoader keeps on the host: its workers, how far ahead they load, and page-locked copies.

Traces use it in a Python that may have no msgspec (`dryrun/fake/start.py`): nothing here reads JSON.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from vramtui.core.base.units import format_bytes

Small = Annotated[int, Meta(ge=0, lt=1 << 16)]
Size = Annotated[int, Meta(ge=0, lt=1 << 56)]


class HostBatches(msgspec.Struct, frozen=True, kw_only=True):
    """A loader and one batch of it.

    Attributes:
        workers: processes that fill its queue; 0 where it loads in the job's own.
        prefetch: batches that each worker keeps ahead.
        pinned: whether each batch is copied into page-locked memory.
        batch: bytes of a batch's tensors.
        locked: the same as page-locked memory takes them, each tensor in a power of two.
    """

    workers: Small
    prefetch: Small
    pinned: bool
    batch: Size
    locked: Size

    @property
    def sentence(self) -> str:
        """Describe it in bytes.

        The queue holds `prefetch_factor` batches a worker (torch/utils/data/dataloader.py,
        `_MultiProcessingDataLoaderIter._reset`); page-locked memory is taken in powers of two
        (aten/src/ATen/core/CachingHostAllocator.h: `PowerOf2Ceil`).
        """
        clauses = []
        if self.workers:
            ready = self.workers * self.prefetch
            several = "s keep" if self.workers > 1 else " keeps"
            clauses.append(
                f"{self.workers} worker{several} up to {ready} batches of {format_bytes(self.batch)} ready in the "
                f"host's shared memory, {format_bytes(ready * self.batch)} (prefetch_factor {self.prefetch} each), and "
                f"wait{'' if self.workers > 1 else 's'} once the queue is full"
            )
        if self.pinned:
            clauses.append(
                f"pin_memory copies each into page-locked memory, {format_bytes(self.locked)} in powers of two, from "
                "which the card reads directly"
            )
        return f"DataLoader: {'; '.join(clauses)}"
