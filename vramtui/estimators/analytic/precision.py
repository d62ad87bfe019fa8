"""What a precision keeps of each number: bytes per element, by the role it plays in training."""

import msgspec

from vramtui.core.workload import Precision

DTYPE_BYTES: dict[str, int] = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2}


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes per element under one precision.

    Attributes:
        weights: trained parameters, their gradients and their optimizer states.
        frozen: parameters that are not trained.
        compute: what matrix products take and give.
        stream: the residual stream; under autocast it stays in fp32, since embeddings and norms do.
        autocast: whether fp32 weights are cast for each product, and the copies kept for the backward pass.
    """

    weights: int
    frozen: int
    compute: int
    stream: int
    autocast: bool


def recipe(precision: Precision, *, lora: bool) -> Recipe:
    """The recipe of torch for `precision`; with adapters the frozen base is kept in the compute type.

    Adapters beside a half-precision base are kept in fp32 (peft's `autocast_adapter_dtype`).
    """
    if precision.endswith("-mixed"):
        frozen = 2 if lora else 4
        return Recipe(weights=4, frozen=frozen, compute=2, stream=2 if lora else 4, autocast=True)
    size = DTYPE_BYTES[precision]
    return Recipe(weights=4 if lora else size, frozen=size, compute=size, stream=size, autocast=False)
