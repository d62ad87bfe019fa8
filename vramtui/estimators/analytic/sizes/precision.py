"""Bytes per element of a precision, by the role it plays, of a token in a cache, and of weights in fewer bits."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.late import late
from vramtui.core.base.units import ITEM_BYTES
from vramtui.core.schema.models import LayerCache, TransformerModel
from vramtui.core.schema.workload import CacheType, Lora, Precision, Quantization, TrainRun
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

    Adapters of a half-precision base are kept in fp32, unless peft's `autocast_adapter_dtype` is off.
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
    """Blocks that a tied table's second gradient takes for a moment besides the first, the output layer's.

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
CACHE_BITS: dict[str, float] = {
    "fp32": 32, "bf16": 16, "fp16": 16, "fp8": 8, "int8": 8.5, "int4": 4.5,
    "q4_1": 5, "q5_0": 5.5, "q5_1": 6, "iq4_nl": 4.5,
}  # fmt: skip


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


bits_of_type = late("vramtui.models.readers.gguf:bits_of_type")

# How llama-quantize mixes types (llama.cpp 007dbbf3f, src/llama-quant.cpp, llama_tensor_get_type_impl and
# llama_ftype_get_default_type; i-quants as with an importance matrix, as the Hub's files are). For each file type: the
# type of most tensors, and rules for a module: a type and in which layers, `all`, `more` (use_more_bits), the first
# `eighth` or `sixteenth`, all but the outer `eighths`, so many, or `grouped`: all, if four heads or more share a value.
# Other layers keep the type of most. The output layer is q6_k if no rule says otherwise.
Rules = dict[str, list[tuple[str, str | int]]]
MIXES: dict[str, tuple[str, Rules]] = json.loads(Path(__file__).with_name("llama_quantize.json").read_bytes())
# Files of one type; all but those of q8_0 and of plain k-quants, which no tool writes, keep the output layer in q6_k.
PLAIN = ("q3_k", "q4_0", "q4_1", "q4_k", "q5_0", "q5_1", "q5_k", "q6_k", "q8_0")
WITH_ROUNDER_OUTPUT = {"q4_0", "q4_1", "q5_0", "q5_1"}
EVERYTHING = {*PLAIN, *MIXES}
# What a type of blocks of 256 becomes if a matrix's rows are not as long (`tensor_type_fallback`); i-quants: iq4_nl.
BLOCK = 256
SHORTER_BLOCKS = {"q4_k": "q5_0", "q5_k": "q5_1", "q6_k": "q8_0"}
SHORTER_BLOCKS |= dict.fromkeys(("q2_k", "q3_k", "tq1_0", "tq2_0"), "q4_0")
# Modules by the rules' names; experts that all tokens pass count as the MLP (`tensor_get_category`).
_RULED = {
    "v_proj": "values", "qkv_proj": "values", "kv_b_proj": "values", "q_proj": "queries", "k_proj": "queries",
    "o_proj": "answers", "down_proj": "down", "gate_proj": "gate", "up_proj": "gate", "gate_up_proj": "gate",
}  # fmt: skip
# By which llama.cpp knows models of 70 billion parameters, whose few heads of values it gives more bits; with eight
# experts attention is a small part, and its weights get more bits (Mixtral 8x7B).
LAYERS_OF_70B, EIGHT, GROUPED = 80, 8, 4
GROUP, NF4_BLOCK, NESTED = 128, 64, 256
# OCP Microscaling Formats 1.0, section 5.1; transformers (quantizers/quantizer_mxfp4.py) has experts in it and nothing
# else. NVFP4: NVIDIA, Model Optimizer, modelopt/torch/quantization/qtensor/nvfp4_tensor.py.
MXFP4_BLOCK, NVFP4_BLOCK = 32, 16
WORDS: dict[str, str] = {
    "int8": "1 B, and an fp32 scale for each row",
    "int4": f"4 bits, and a 16-bit scale and a 4-bit zero for each {GROUP}",
    "nf4": f"4 bits, and an fp32 scale for each {NF4_BLOCK}",
    "nf4-double": f"4 bits, an 8-bit scale for each {NF4_BLOCK}, and an fp32 one for each {NESTED} of those",
    "fp8": "1 B, and one fp32 scale",
    "mxfp4": f"4 bits, and an 8-bit scale for each {MXFP4_BLOCK}; experts only",
    "nvfp4": f"4 bits, an fp8 scale for each {NVFP4_BLOCK}, and an fp32 one",
}


def quantizes(tensor: Parameter, quantization: Quantization) -> bool:
    """Return whether `quantization` shrinks this tensor: a block's linear layer, an expert (mxfp4), a matrix (ggml)."""
    if len(tensor.shape) < 2 or tensor.bits is not None or tensor.module.endswith("_bias"):
        return False
    if quantization == "mxfp4":
        return tensor.module.startswith("experts_") and len(tensor.shape) > len(("rows", "columns"))
    return tensor.module != "router" and (quantization in EVERYTHING or tensor.layer)


def in_mxfp4_files(tensors: Iterable[Parameter]) -> bool:
    """Return whether GGUF files of every type hold the experts in MXFP4, as they were published: gpt-oss, whose experts
    alone have biases. llama-bench reports 10.81 GiB for the 20b in Q4_K_M and 12.83 GiB in F16.
    """
    return any(tensor.module == "experts_down_proj_bias" for tensor in tensors)


def words_for(quantization: Quantization) -> str:
    if quantization in WORDS:
        return WORDS[quantization]
    if quantization in MIXES:
        most, rules = MIXES[quantization]
        others = sorted({kind for ruled in ({"output": [("q6_k", "all")]} | rules).values() for kind, _ in ruled})
        return f"{most} ({bits_of_type(most):g} bits), {', '.join(others)} where llama-quantize takes them"
    return f"{bits_of_type(quantization)} bits, scales included"


def quantized(tensors: Iterable[Parameter], itemsize: int, quantization: Quantization, layers: int) -> BlockBytes:
    """Bytes of `tensors` when those that it applies to are quantised, the others at `itemsize` bytes a number."""
    total = BlockBytes()
    for _, blocks in blocks_of(tensors, itemsize, quantization, layers):
        for size, count in blocks:
            total += BlockBytes(rounded(size) * count, tail(size) * count, count)
    return total


def blocks_of(
    tensors: Iterable[Parameter], itemsize: int, quantization: Quantization, layers: int
) -> Iterator[tuple[Parameter, list[tuple[int, int]]]]:
    """Each tensor with the (bytes, how many) that it becomes when it is quantised, or `itemsize` bytes a number."""
    given = list(tensors)
    rows = {tensor.module: tensor.shape[0] for tensor in given}
    tied, experts = "lm_head" not in rows, rows.get("experts_down_proj", 0)
    grouped = rows.get("q_proj", 0) >= GROUPED * rows.get("v_proj", 1) or experts >= GROUPED
    in_mxfp4 = quantization in EVERYTHING and in_mxfp4_files(given)
    for tensor in given:
        if in_mxfp4 and quantizes(tensor, "mxfp4"):
            yield tensor, [(size, tensor.count) for size in _with_scales(tensor, "mxfp4")]
        elif not quantizes(tensor, quantization):
            full = tensor.bits or 8 * (4 if quantization in EVERYTHING else itemsize)
            yield tensor, [(-(-tensor.numel * full // 8), tensor.count)]
        elif quantization in EVERYTHING:
            yield tensor, _ggml(tensor, quantization, layers, tied=tied, eight=experts == EIGHT, grouped=grouped)
        else:
            yield tensor, [(size, tensor.count) for size in _with_scales(tensor, quantization)]


def _with_scales(tensor: Parameter, quantization: Quantization) -> tuple[int, ...]:
    numel = tensor.numel
    half, groups, blocks = (-(-numel // part) for part in (2, GROUP, NF4_BLOCK))
    sizes: dict[str, tuple[int, ...]] = {
        "int8": (numel, numel // tensor.shape[-1] * 4),
        "fp8": (numel, 4),
        "mxfp4": (half, -(-numel // MXFP4_BLOCK)),
        "nvfp4": (half, -(-numel // NVFP4_BLOCK), 4),
        "int4": (half, groups * 2, -(-groups // 2)),
        "nf4": (half, blocks * 4, 16 * 4),
        "nf4-double": (half, blocks, -(-blocks // NESTED) * 4, 256 * 4, 16 * 4, 4),
    }
    return sizes[quantization]


def _ggml(
    tensor: Parameter, quantization: str, layers: int, *, tied: bool, eight: bool, grouped: bool
) -> list[tuple[int, int]]:
    """Bytes and how many tensors of so many, by llama-quantize's own choice."""

    def size(kind: str) -> int:
        if tensor.shape[-1] % BLOCK and kind != "iq4_nl":
            kind = "iq4_nl" if kind.startswith("iq") else SHORTER_BLOCKS.get(kind, kind)
        return int(tensor.numel * bits_of_type(kind)) // 8

    output = tensor.module == "lm_head" or (tied and tensor.module == "embed_tokens")
    if quantization in PLAIN:
        return [(size("q6_k" if output and quantization in WITH_ROUNDER_OUTPUT else quantization), tensor.count)]
    most, rules = MIXES[quantization]
    if output:
        kind = rules["output"][0][0] if "output" in rules and not tensor.shape[-1] % BLOCK else "q6_k"
        return [(size(kind), tensor.count)]
    module = tensor.module.removeprefix("experts_").removeprefix("shared_")
    ruled = "words" if module == "embed_tokens" else _RULED.get(module, "")
    if tensor.module.startswith("experts_") and "experts" in rules:
        ruled = "experts"
    few = quantization.startswith(("iq1", "iq2"))
    chosen = rules.get(ruled, [])
    if eight and module in {"v_proj", "k_proj"}:
        chosen = [("q4_k" if few else "q8_0", "all")]
    elif eight and module == "o_proj" and quantization not in {"q5_k_m", "q5_k_s", "q3_k_l", "q2_k_s"}:
        chosen = [("q5_k", "all")]
    elif ruled == "values" and layers == LAYERS_OF_70B and not few:
        chosen = [("q5_k" if kind in {"q3_k", "q4_k"} else kind, where) for kind, where in (*chosen, (most, "all"))]
    first, end = layers // 8, 7 * layers // 8
    where_of = {
        "all": layers, "grouped": layers if grouped else 0, "more": first + layers - end + (end - first) // 3,
        "eighth": first, "sixteenth": layers // 16, "eighths": end - first,
    }  # fmt: skip
    # A rank or a GPU that holds some of the layers holds its part of each kind.
    sizes, left, unruled = [], tensor.count, layers
    for kind, where in chosen:
        many = min(unruled, where if isinstance(where, int) else where_of[where])
        unruled -= many
        share = min(left, -(-many * tensor.count // layers))
        if share:
            sizes.append((size(kind), share))
        left -= share
    return [*sizes, (size(most), left)] if left else sizes


def matmul_workspaces(quantization: str, rows: int, inner: int, outer: int, itemsize: int) -> tuple[int, int]:
    """Bytes that multiplying `rows` rows by a packed weight needs besides its result, and that its backward pass needs.

    4-bit weights are unpacked for the product, but for a single row; llama.cpp quantises the input to q8_1 (36 bytes
    for 32 numbers). LLM.int8 looks for outliers in an fp16 copy of the input (its absolute values, which of them are
    large), multiplies 8-bit rows into 32-bit sums, which become fp16, and unpacks the weight in the backward pass
    (bitsandbytes 0.50.2, backends/cuda/ops.py, int8_vectorwise_quant, int8_mixed_scaled_mm, int8_mm_dequant).
    """
    if quantization in EVERYTHING:
        size = rounded(rows * inner * 36 // 32)
    elif quantization == "fp8":
        size = rounded(rows * inner)
    elif quantization == "int8":
        wide, answer = rounded(rows * outer * 2), rounded(rows * outer * itemsize)
        search = rounded(rows * inner * 2) + 2 * rounded(rows * inner) + (itemsize != 2) * rounded(rows * inner * 2)
        product = rounded(rows * inner) + rounded(rows * outer * 4) + wide
        return max(search, product) - answer, rounded(inner * outer * itemsize)
    else:
        size = 0 if rows == 1 else rounded(inner * outer * itemsize)
    return size, size
