"""Bytes per element of a precision, by the role it plays; of tensors in blocks, and of a token in a cache."""

from collections.abc import Iterable

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.units import ITEM_BYTES
from vramtui.core.schema.models import LayerCache, TransformerModel
from vramtui.core.schema.workload import CacheType, Lora, Precision, TrainRun
from vramtui.estimators.torch_facts.allocator_sizes import rounded, tail
from vramtui.models.spec import Parameter
from vramtui.models.specs.decoder import decoder_spec

# Those in which a whole model may be kept.
DTYPE_BYTES = {name: ITEM_BYTES[name] for name in ("fp32", "tf32", "bf16", "fp16")}


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes per element under one precision.

    Attributes:
        weights, frozen: parameters that are trained, with their gradients, and the others.
        compute: what matrix products take and give.
        stream: the residual stream; under autocast it stays in fp32, since embeddings and norms do.
        autocast: fp32 weights are cast for each product, and the copies kept for the backward pass.
        master: the optimizer keeps fp32 copies of the weights.
        fp8, bf16: linear layers multiply in it (fp8: Transformer Engine; GPUs before Ampere have fewer bf16 kernels).
    """

    weights: int
    frozen: int
    compute: int
    stream: int
    states: int
    autocast: bool = False
    master: bool = False
    fp8: bool = False
    bf16: bool = False


def recipe(precision: Precision, *, lora: Lora | None) -> Recipe:
    """The recipe for `precision` in training; with adapters the frozen base is kept in the compute type.

    Adapters beside a half-precision base are kept in fp32, unless peft's `autocast_adapter_dtype` is off.
    After its `prepare_model_for_kbit_training` all that is not quantised is fp32 (peft 0.21, utils/other.py).
    """
    kind, _, how = precision.partition("-")
    fp8, bf16, mixed = kind == "fp8", kind in {"bf16", "fp8"}, how == "mixed"
    size = DTYPE_BYTES.get(kind, 2)
    if lora is not None and lora.prepare_for_kbit_training:
        return Recipe(weights=4, frozen=4, compute=size, stream=4, states=4, autocast=mixed, fp8=fp8, bf16=bf16)
    if mixed:
        base = 2 if lora else 4
        own = base if lora and not lora.autocast_adapter_dtype else 4
        return Recipe(weights=own, frozen=base, compute=2, stream=base, states=own, autocast=True, fp8=fp8, bf16=bf16)
    if lora:
        own = 4 if lora.autocast_adapter_dtype else size
        return Recipe(weights=own, frozen=size, compute=size, stream=size, states=own, bf16=bf16)
    master = how == "master"
    states = 4 if master else size
    return Recipe(weights=size, frozen=size, compute=size, stream=size, states=states, master=master, bf16=bf16)


def inference_recipe(precision: Precision) -> Recipe:
    """The recipe for `precision` without training."""
    if precision not in DTYPE_BYTES:
        plain = "bf16" if precision.startswith(("bf16", "fp8")) else "fp16"
        raise UserError(
            f"run.precision = {precision!r} is a way to train; a model that only answers is kept in {plain}"
        )
    return recipe(precision, lora=None)


def precision_notes(run: TrainRun, recipe: Recipe) -> tuple[str, ...]:
    notes = []
    if recipe.master:
        notes.append(
            f"{run.precision} raises all gradients to fp32 before the step, as a wrapper around a torch optimizer does"
        )
    if recipe.fp8:
        notes.append(
            "fp8-mixed is Transformer Engine's over fp32 weights: linear layers keep their inputs in fp8 and two fp8 "
            "copies of each weight; its amax histories and workspaces are not counted"
        )
    return tuple(notes)


def tied_sum(table: int, recipe: Recipe) -> tuple[int, ...]:
    """Blocks that a tied table's second gradient takes for a moment beside the first, the output layer's.

    It is added in place where autocast's cast has made that one anew. Without a cast it is a transposed view, whose
    base holds its storage as well, so that the sum is a third tensor (torch/csrc/autograd/input_buffer.cpp, PyTorch
    2.13, `can_accumulate_inplace`; within 0.05 % of the CUDA build for Qwen 3 0.6B in fp32).
    """
    return (table,) if recipe.autocast else (table, table)


class BlockBytes(msgspec.Struct, frozen=True):
    """Bytes in 512-byte blocks, the tails that large blocks keep beyond them, and the number of blocks."""

    bytes: int = 0
    tails: int = 0
    count: int = 0

    def __add__(self, other: "BlockBytes") -> "BlockBytes":
        return BlockBytes(self.bytes + other.bytes, self.tails + other.tails, self.count + other.count)


def block_bytes(tensors: Iterable[Parameter], element: int) -> BlockBytes:
    whole = tails = count = 0
    for tensor in tensors:
        size = tensor.numel * element if tensor.bits is None else -(-tensor.numel * tensor.bits // 8)
        whole += rounded(size) * tensor.count
        tails += tail(size) * tensor.count
        count += tensor.count
    return BlockBytes(whole, tails, count)


def numel_of(tensors: Iterable[Parameter]) -> int:
    return sum(tensor.numel * tensor.count for tensor in tensors)


# Bits of one number. Caches in whole numbers keep a 16-bit scale for each 32 (llama.cpp's q8_0 and q4_0), or scale and
# shift for each 64 (transformers' quanto caches): half a bit either way.
CACHE_BITS: dict[str, float] = {"fp32": 32, "bf16": 16, "fp16": 16, "fp8": 8, "int8": 8.5, "int4": 4.5}


def cache_bits(cache: CacheType | None, precision: Precision) -> float:
    """Bits of one number in the cache: of its own type, or else of the precision's."""
    return CACHE_BITS[cache] if cache else 8 * DTYPE_BYTES[precision]


def bytes_per_token(model: TransformerModel, bits: float) -> int:
    """Bytes that every layer together keeps of one token, before any window closes."""
    return int(sum(kind.layers * kind.per_token for kind in decoder_spec(model).caches()) * bits / 8)


def cache_bytes(kinds: tuple[LayerCache, ...], tokens: int, bits: float) -> int:
    """Bytes of one sequence of `tokens` tokens in all of these layers."""
    return sum(
        kind.layers * (int(kind.cached(tokens) * kind.per_token * bits / 8) + state_bytes(kind, 2)) for kind in kinds
    )


def state_bytes(kind: LayerCache, itemsize: int) -> int:
    """Bytes of what one layer keeps of a whole sequence, at `itemsize` bytes a number."""
    return kind.state * itemsize + kind.state_fp32 * 4
