"""Pages of `vramtui help`: what is in memory in training and in inference (`phases`), keys and values (`cache`), number
formats bit by bit and what mixed precision keeps and computes in which (`precisions`), what a DataLoader holds on
the host (`data`), and why a card is idle (`utilization`).
"""

from collections.abc import Iterator
from typing import NamedTuple

from vramtui.cli.common.console import wrapped
from vramtui.core.base.units import format_bytes
from vramtui.estimators.rules import BYTES_PER_PARAMETER, WEIGHTS

PARAMETERS = 7_000_000_000
PHASES = (
    ("pretraining", "mixed bf16", "all weights, gradients, moments; large batches, so activations beside"),
    ("fine-tuning, all of it", "full fp16", "the same in 16 bits alone, smaller batches"),
    ("fine-tuning, LoRA", "LoRA", "frozen weights; gradients and moments of the adapters alone"),
    ("fine-tuning, QLoRA", "QLoRA", "the same with weights in 4 bits"),
    ("inference", "", "weights, and the KV cache of what is asked"),
)
CACHE = (
    (
        "A decoder's token looks only at those before it, so their keys and values never change: kept, each new "
        "token costs one pass of one token. An encoder's tokens look at all others, and there is nothing to keep."
    ),
    "The cache buys time with memory: without it every token runs all before it again.",
)
MADE_ANEW = (
    "generate() keeps it in one tensor a layer, which torch.cat makes anew for every token; a static cache, or pages "
    "as vLLM has them, are taken once."
)
TOKENS = 2048


def phases() -> Iterator[str]:
    """Bytes a parameter of each phase, by the rule of thumb."""
    yield from wrapped(
        f"What is in memory, by phase, for {PARAMETERS / 1e9:g} B parameters; activations come with batch and sequence:"
    )
    yield ""
    yield f"{'PHASE':<24}{'B A PARAMETER':>14}{'GB':>7}  WHAT"
    for title, phase, what in PHASES:
        each = sum(float(size) for size, _ in BYTES_PER_PARAMETER[phase].values()) if phase else float(WEIGHTS["bf16"])
        yield from wrapped(what, f"{title:<24}{each:>14g}{each * PARAMETERS / 1e9:>7.1f}  ", " " * 47)
    yield ""
    yield from wrapped(
        "`vramtui estimate PRESET` has each with its activations; -v has every part with its arithmetic."
    )


def cache() -> Iterator[str]:
    """The purpose and the size of the KV cache."""
    for sentence in CACHE:
        yield from wrapped(sentence)
    yield ""
    again = TOKENS * (TOKENS + 1) // 2
    yield from wrapped(f"{TOKENS:,} tokens: {TOKENS:,} passes of one token with it, {again:,} tokens run without.")
    size = 2 * 32 * 32 * 128 * 2
    yield from wrapped(
        f"Llama 7B in fp16: 2 x 32 layers x 32 heads x 128 x 2 B = {size:,} B a token and sequence, {TOKENS:,} tokens "
        f"{format_bytes(size * TOKENS)}."
    )
    yield from wrapped(MADE_ANEW)


class FloatFormat(NamedTuple):
    """Bits of a number's exponent and mantissa beside its sign, bytes in memory, and the largest one."""

    name: str
    exponent: int
    mantissa: int
    bytes: int
    largest: float


def _ieee(name: str, exponent: int, mantissa: int, size: int) -> FloatFormat:
    """One whose largest exponent is kept for infinity (IEEE 754-2019, 3.3; bfloat16 and TF32 have fp32's exponent)."""
    return FloatFormat(name, exponent, mantissa, size, (2 - 2.0**-mantissa) * 2.0 ** (2 ** (exponent - 1) - 1))


FORMATS = (
    _ieee("fp64", 11, 52, 8),
    _ieee("fp32", 8, 23, 4),
    _ieee("tf32", 8, 10, 4),
    _ieee("bf16", 8, 7, 2),
    _ieee("fp16", 5, 10, 2),
    _ieee("fp8 e5m2", 5, 2, 1),
    # It has no infinity, and of its largest exponent only the last number is none (Micikevicius et al. 2022, table 1).
    FloatFormat("fp8 e4m3", 4, 3, 1, 448.0),
)
TF32 = (
    "TF32 is a way to compute, not to keep: a product takes fp32 numbers from memory, 4 bytes each, and uses 19 of "
    "their 32 bits. It saves time and no memory."
)
SUMS = (
    "Products of fp16, bf16 and fp8 numbers are added up in fp32. The sums stand in registers until the result is "
    "rounded; they take no memory of the card."
)
SCALING = (
    "Gradients below the smallest number of fp16 become 0. Loss scaling multiplies the loss, and so every gradient, by "
    "a large factor before the backward pass, and divides the gradients by it before the step. bf16 has fp32's "
    "exponent and needs none."
)
STATIC = (
    "Static scaling keeps one factor for the whole training: too large, and gradients overflow; too small, and they "
    "vanish."
)
DYNAMIC = (  # torch/amp/grad_scaler.py: GradScaler.__init__
    "Dynamic scaling, torch's GradScaler: it begins at 65,536, doubles the factor after 2,000 steps without inf or "
    "NaN, and on the first of either halves it and skips the step. The factor and its counter are on the card, a "
    "block of 512 bytes each."
)
MIXED = "Mixed precision keeps fp32 weights beside copies in 16 bits, for updates too small for 16 bits are lost:"
STEPS = (
    "fp32 weights and two fp32 moments are made: 4 + 8 bytes a parameter",
    "the weights are copied to 16 bits: 2 bytes",
    "forward and backward run in 16 bits: activations, and gradients of 2 bytes a parameter",
    "the optimizer updates the fp32 weights by the 16-bit gradients and the fp32 moments",
    "steps 2 to 4 again, until it is trained: 16 bytes a parameter in all",
)
AUTOCAST = (
    "torch.autocast does it another way (bf16-mixed, fp16-mixed here): weights and gradients are fp32, and 16-bit "
    "copies of the weights live within a pass, 4 + 4 + 8 bytes a parameter. bf16-master and fp16-master here are the "
    "five steps."
)


def precisions() -> Iterator[str]:
    """Each number format bit by bit, and what is kept and what is computed in which."""
    yield f"{'FORMAT':<10}{'SIGN':>5}{'EXPONENT':>10}{'MANTISSA':>10}{'BYTES':>7}{'LARGEST':>13}{'SMALLEST':>11}"
    for form in FORMATS:
        least = 2.0 ** (2 - 2 ** (form.exponent - 1)) * 2.0**-form.mantissa
        yield (
            f"{form.name:<10}{1:>5}{form.exponent:>10}{form.mantissa:>10}{form.bytes:>7}{form.largest:>13.5g}{least:>11.2g}"
        )
    yield ""
    for sentence in (TF32, SUMS, SCALING, STATIC, DYNAMIC, MIXED):
        yield from wrapped(sentence)
    for number, step in enumerate(STEPS, 1):
        yield from wrapped(step, f"  {number} ", "    ")
    yield from wrapped(AUTOCAST)


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
    "Nothing of this is on the card: `vramtui dry-run FILE.py` and `vramtui run` say what your own loader keeps.",
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
    """The host memory of a DataLoader, with the example of a batch of images."""
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
    """Why a GPU is idle, and how the batch changes that."""
    for sentence in IDLE:
        yield from wrapped(sentence, "", "   " if sentence[:1].isdigit() else "")
    yield ""
    first, second = -(-SAMPLES // 32), -(-SAMPLES // 64)
    for sentence in BATCH:
        yield from wrapped(sentence.format(wide=1024 // 16, samples=SAMPLES, first=first, second=second))
