"""`vramtui help allocator`: why PyTorch reserves memory, shown on its allocator, and what each setting does."""

from collections.abc import Iterator
from contextlib import suppress

from vramtui.cli.common.console import wrapped
from vramtui.core.base.units import GIB, MIB, format_bytes
from vramtui.estimators.allocator.caching import AllocatorOutOfMemoryError, CachingAllocator
from vramtui.estimators.allocator.config import AllocatorConfig

WHY = (
    "PyTorch asks the driver for whole segments and keeps them: cudaMalloc and cudaFree take time and wait for the "
    "card, a block out of a segment that is there already costs neither. So more is reserved than allocated, a "
    "tensor that is deleted leaves its block for the next one, and reserved falls only when empty_cache is called or "
    "memory runs out."
)
SIZES = (
    "Blocks are whole multiples of 512 bytes. Requests up to 1 MiB share segments of 2 MiB, those below 10 MiB "
    "segments of 20 MiB; larger ones get a segment of their own, in steps of 2 MiB."
)
SHARING = (
    "So what is needed once shares its memory with what comes after it: autograd lets each intermediate go after its "
    "last use, and its block serves the next request of that size."
)
GROWING = tuple(size * MIB for size in (20, 24, 28, 32, 36, 40, 44, 48))
GROWING_TITLE = "The same eight requests, 20 to 48 MiB, each freed before the next, as batches that grow make them:"
CARD = 80 * GIB
SETTINGS = (
    ("", "freed segments stay, each too small for the next request: fragmentation"),
    ("expandable_segments:True", "one segment grows; the first to try against fragmentation"),
    ("roundup_power2_divisions:4", "sizes rounded up to quarters of a power of two, so that more blocks fit again"),
    ("max_split_size_mb:32", "blocks above 32 MiB are never split for smaller requests; may waste or save"),
    ("large_segment_size_mb:64", "what is taken at once for requests of 1 to 10 MiB; 20 MiB otherwise"),
    (
        "garbage_collection_threshold:0.6",
        "idle blocks are freed above 60 % of the share that per_process_memory_fraction allows; without one, nothing",
    ),
)
HOW = (
    "PYTORCH_CUDA_ALLOC_CONF=KEY:VALUE,KEY:VALUE sets them; `vramtui oom SNAPSHOT.pickle` shows whether memory is "
    "fragmented."
)
WORKSPACES = (
    "cuBLAS's workspaces are allocated as well, one for each thread that multiplies matrices; empty_cache leaves them. "
    "CUBLAS_WORKSPACE_CONFIG=:0:0 takes them away, at the cost of speed."
)
CELLS = 16
SMALL_CARD, PIECE = 1000 * MIB, 7 * MIB


def allocator() -> Iterator[str]:
    """Why memory is reserved, the allocator's own picture of three requests, and its settings."""
    for sentence in (WHY, SIZES, SHARING):
        yield from wrapped(sentence)
    yield ""
    yield f"{'':<24}{'ALLOCATED':>12}{'RESERVED':>14}  SEGMENTS: # in use, · free"
    yield from _picture()
    yield ""
    yield from wrapped(GROWING_TITLE)
    yield f"{'SETTING':<34}{'RESERVED':>12}  WHAT IT DOES"
    for setting, what in SETTINGS:
        reserved = _reserved_by(setting)
        yield from wrapped(what, f"{setting or 'none':<34}{format_bytes(reserved):>12}  ", " " * 48)
    yield ""
    yield from wrapped(_fragments())
    yield from wrapped(HOW)
    yield from wrapped(WORKSPACES)


def _fragments() -> str:
    """A card that is full of blocks with too little between them: out of memory with memory free."""
    memory = CachingAllocator(SMALL_CARD)
    blocks = 0
    with suppress(AllocatorOutOfMemoryError):
        while memory.malloc(PIECE):
            blocks += 1
    free = SMALL_CARD - memory.stats.allocated
    return (
        f"Fragments: on a card of {format_bytes(SMALL_CARD)}, {blocks} tensors of {format_bytes(PIECE)} fill every "
        f"segment of 20 MiB with two, and the next is out of memory with {format_bytes(free)} free, "
        f"{free / SMALL_CARD:.0%}."
    )


def _picture() -> Iterator[str]:
    """Three tensors that come and go."""
    memory = CachingAllocator(CARD)
    yield _row("nothing yet", memory)
    small = memory.malloc(1024 * 4)
    yield _row("1,024 numbers of fp32", memory)
    large = memory.malloc(4 * MIB)
    yield _row("and 4 MiB", memory)
    memory.free(small)
    yield _row("the numbers deleted", memory)
    memory.empty_cache()
    yield _row("empty_cache", memory)
    memory.free(large)
    memory.empty_cache()
    yield _row("4 MiB deleted, again", memory)


def _row(what: str, memory: CachingAllocator) -> str:
    """A line with allocated and reserved memory, and a picture of each segment."""
    drawn = []
    for segment in memory.segments():
        used = sum(block.size for block in segment.blocks if block.number)
        cells = -(-used * CELLS // segment.size)
        drawn.append(f"{format_bytes(segment.size)} [{'#' * cells}{'·' * (CELLS - cells)}]")
    line = f"{what:<24}{memory.stats.allocated:>12,}{memory.stats.reserved:>14,}  {'  '.join(drawn)}"
    return line.rstrip()


def _reserved_by(setting: str) -> int:
    memory = CachingAllocator(CARD, AllocatorConfig.parse(setting))
    for size in GROWING:
        memory.free(memory.malloc(size))
    return memory.stats.reserved
