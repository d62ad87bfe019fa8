"""`vramtui help data`: what a DataLoader holds on the host; and `vramtui help utilization`: why a card is idle."""

from collections.abc import Iterator

from vramtui.cli.help.words import wrapped
from vramtui.core.base.units import format_bytes

IMAGES = 32 * 3 * 224 * 224 * 4  # a batch of 32 images in fp32
PREFETCH = 2  # batches a worker, by default (torch/utils/data/dataloader.py: DataLoader.__init__)
DATA = (
    (
        "A DataLoader's workers are processes that read and prepare batches, and put them into a queue in the host's "
        "shared memory, from which training takes them. The queue holds prefetch_factor batches for each worker (2 "
        "by default); when it is full the workers wait, so that host memory is bounded."
    ),
    (
        "pin_memory copies each batch into page-locked memory, which the card reads directly while it computes. It "
        "is taken in powers of two, and no other program gets it: for hosts with memory to spare."
    ),
    "Nothing of this is on the card: `vramtui trace FILE.py` and `vramtui run` say what your own loader keeps.",
)
RANKS = (
    (
        "With DDP every rank has a loader and workers of its own: ranks x workers x prefetch_factor batches. Read "
        "annotations once, on rank 0, into memory that the others map (torch's share_memory_, numpy.memmap): one "
        "copy, not one a rank."
    ),
    "Read what fits into memory in the dataset's __init__ and not in __getitem__, which runs for every sample again.",
)
IDLE = (
    (
        "`GPU %` of `vramtui ps` and of the dashboard is the share of time in which a kernel ran. Where it is low, "
        "the card waits for data, or for a host that is busy with other things."
    ),
    (
        "1. Raise the batch until the card is nearly full: `vramtui fit PRESET --gpu CARD` has the largest that "
        "fits. Another job in the free half makes both slow."
    ),
    (
        "2. Give the loader more workers: 4 to 8 at first, 8 to 16 with large batches, with pin_memory; and no more "
        "than processors are free, for more of them only share the same processors."
    ),
    "3. Log, print and compute times of arrival rarely: they cost time of the host, and .item() waits for the card.",
)
BATCH = (
    (
        "Without minibatches a wide path stands idle: 1,024 bits take 32 numbers of fp32 at once, {wide} of 16 bits. "
        "So half the precision goes with twice the batch, and saves no memory then."
    ),
    (
        "Twice the batch is half the iterations an epoch: {samples:,} samples are {first:,} iterations of 32, and "
        "{second:,} of 64. A training that ends after epochs needs no change; one that ends after iterations takes "
        "twice as long unless their number is halved."
    ),
)
SAMPLES = 1_281_167  # ImageNet's training set (Russakovsky et al. 2015, table 2)


def data() -> Iterator[str]:
    """What a DataLoader keeps ready on the host, and what that is for one batch of images."""
    for sentence in DATA:
        yield from wrapped(sentence)
    yield ""
    yield f"{'WORKERS':>7}{'BATCHES':>9}{'SHARED MEMORY':>15}   a batch: 32 x 3 x 224 x 224 x 4 B = {IMAGES:,} B"
    for workers in (1, 4, 8, 16):
        ready = workers * PREFETCH
        yield f"{workers:>7}{ready:>9}{format_bytes(ready * IMAGES):>15}"
    yield from wrapped(
        f"page-locked: {format_bytes(1 << (IMAGES - 1).bit_length())} for each of {format_bytes(IMAGES)}"
    )
    yield ""
    for sentence in RANKS:
        yield from wrapped(sentence)


def utilization() -> Iterator[str]:
    """Why a card is idle, and what batches have to do with it."""
    for sentence in IDLE:
        yield from wrapped(sentence, "", "   " if sentence[:1].isdigit() else "")
    yield ""
    first, second = -(-SAMPLES // 32), -(-SAMPLES // 64)
    for sentence in BATCH:
        yield from wrapped(sentence.format(wide=1024 // 16, samples=SAMPLES, first=first, second=second))
