"""Weights in fewer bits: what each format really takes with its scales."""

from collections.abc import Iterable, Iterator

from vramtui.core.schema.workload import Quantization
from vramtui.estimators.analytic.sizes.precision import BlockBytes
from vramtui.estimators.torch_facts.allocator_sizes import rounded, tail
from vramtui.models.spec import Parameter

# Bits per weight of ggml's types: a block's scales and minima are part of it (ggml-common.h).
GGML_BITS: dict[str, float] = {
    "q2_k": 2.625,
    "q3_k": 3.4375,
    "q4_0": 4.5,
    "q4_1": 5.0,
    "q4_k": 4.5,
    "q5_0": 5.5,
    "q5_1": 6.0,
    "q5_k": 5.5,
    "q6_k": 6.5625,
    "q8_0": 8.5,
    "iq4_xs": 4.25,
}
# llama.cpp's mixes (llama-quant.cpp): the type of most tensors, of the attention's values and of the MLP's down
# projection in the layers that get more bits, and of the output layer.
MIXES: dict[str, tuple[str, str, str]] = {
    "q3_k_m": ("q3_k", "q4_k", "q6_k"),
    "q4_k_m": ("q4_k", "q6_k", "q6_k"),
    "q5_k_m": ("q5_k", "q6_k", "q6_k"),
}
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
    "mxfp4": f"4 bits, and an 8-bit scale for each {MXFP4_BLOCK}; experts alone",
    "nvfp4": f"4 bits, an fp8 scale for each {NVFP4_BLOCK}, and an fp32 one",
}
EVERYTHING = {*GGML_BITS, *MIXES}
# Files of these types keep the output layer in q6_k.
WITH_ROUNDER_OUTPUT = {"q4_0", "q4_1", "q5_0", "q5_1"}
# By which llama.cpp knows models of 70 billion parameters, whose few heads of values it gives more bits.
LAYERS_OF_70B = 80
# With as many experts attention is a small part, and its weights get more bits (Mixtral 8x7B).
EIGHT = 8


def quantizes(tensor: Parameter, quantization: Quantization) -> bool:
    """Return whether `quantization` shrinks this tensor: a block's linear layer, an expert (mxfp4), a matrix (ggml)."""
    if len(tensor.shape) < 2 or tensor.bits is not None:
        return False
    if quantization == "mxfp4":
        return tensor.module.startswith("experts_") and len(tensor.shape) > len(("rows", "columns"))
    return quantization in EVERYTHING or (tensor.layer and tensor.module != "router")


def words_for(quantization: Quantization) -> str:
    if quantization in WORDS:
        return WORDS[quantization]
    if quantization in MIXES:
        most, more, last = MIXES[quantization]
        return f"{most} ({GGML_BITS[most]} bits), {more} where llama.cpp gives more, {last} for the output layer"
    return f"{GGML_BITS[quantization]} bits, scales included"


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
    tied = not any(tensor.module == "lm_head" for tensor in given)
    eight = any(tensor.module == "experts_down_proj" and tensor.shape[0] == EIGHT for tensor in given)
    for tensor in given:
        if not quantizes(tensor, quantization):
            full = tensor.bits or 8 * (4 if quantization in EVERYTHING else itemsize)
            yield tensor, [(-(-tensor.numel * full // 8), tensor.count)]
        elif quantization in EVERYTHING:
            yield tensor, _ggml(tensor, quantization, layers, tied=tied, eight=eight)
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


def _ggml(tensor: Parameter, quantization: str, layers: int, *, tied: bool, eight: bool) -> list[tuple[int, int]]:
    """Bytes and how many tensors of so many, by llama.cpp's own choice (llama-quant.cpp, llama_tensor_get_type)."""

    def size(kind: str) -> int:
        return int(tensor.numel * GGML_BITS[kind]) // 8

    module, output = tensor.module, tensor.module == "lm_head" or (tied and tensor.module == "embed_tokens")
    if quantization not in MIXES:
        return [(size("q6_k" if output and quantization in WITH_ROUNDER_OUTPUT else quantization), tensor.count)]
    most, more, last = MIXES[quantization]
    kinds: list[tuple[str, int]] = []  # types instead of the usual one, and in how many layers
    if output:
        return [(size(last), tensor.count)]
    if eight and module in {"v_proj", "k_proj"}:
        kinds = [("q8_0", layers)]
    elif module == "o_proj" and eight and quantization != "q5_k_m":
        kinds = [("q5_k", layers)]
    elif module == "o_proj" and quantization == "q3_k_m":
        kinds = [("q4_k", layers)]
    elif module in {"v_proj", "down_proj", "experts_down_proj"} and quantization == "q3_k_m":
        first = 2 if module == "v_proj" else layers // 16
        kinds = [("q5_k", min(first, layers)), ("q4_k", max(layers - first, 0))]
    elif module in {"v_proj", "down_proj", "experts_down_proj"}:
        # The first and the last eighth of the layers get more bits, and every third between (use_more_bits).
        first, end = layers // 8, 7 * layers // 8
        favoured = first + (layers - end) + (end - first) // 3
        at_least = "q5_k" if module == "v_proj" and layers == LAYERS_OF_70B and most == "q4_k" else most
        kinds = [(more, favoured), (at_least, layers - favoured)]
    if not kinds:
        return [(size(most), tensor.count)]
    # A rank or a GPU that holds some of the layers holds its part of each kind.
    sizes, left = [], tensor.count
    for kind, times in kinds:
        share = min(left, -(-times * tensor.count // layers))
        sizes.append((size(kind), share))
        left -= share
    return [*sizes, (size(kinds[-1][0]), left)]


def matmul_workspaces(quantization: str, rows: int, inner: int, outer: int, itemsize: int) -> tuple[int, int]:
    """Bytes that multiplying `rows` rows by a packed weight needs beside its result, and that its backward pass needs.

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
