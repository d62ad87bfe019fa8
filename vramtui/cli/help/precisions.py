"""`vramtui help precisions`: number formats bit by bit, and what mixed precision keeps and computes in which."""

from collections.abc import Iterator
from typing import NamedTuple

from vramtui.cli.help.words import wrapped


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
    for one in FORMATS:
        least = 2.0 ** (2 - 2 ** (one.exponent - 1)) * 2.0**-one.mantissa
        yield (
            f"{one.name:<10}{1:>5}{one.exponent:>10}{one.mantissa:>10}{one.bytes:>7}{one.largest:>13.5g}{least:>11.2g}"
        )
    yield ""
    for sentence in (TF32, SUMS, SCALING, STATIC, DYNAMIC, MIXED):
        yield from wrapped(sentence)
    for number, step in enumerate(STEPS, 1):
        yield from wrapped(step, f"  {number} ", "    ")
    yield from wrapped(AUTOCAST)
