"""Weights in fewer bits: what each format really takes with its scales."""

from collections.abc import Iterable, Iterator

from vramtui.core.base.late import late
from vramtui.core.schema.workload import Quantization
from vramtui.estimators.analytic.sizes.precision import BlockBytes
from vramtui.estimators.torch_facts.allocator_sizes import rounded, tail
from vramtui.models.spec import Parameter

bits_of_type = late("vramtui.models.readers.gguf:bits_of_type")

# How llama-quantize mixes types (llama.cpp 007dbbf3f, src/llama-quant.cpp, llama_tensor_get_type_impl and
# llama_ftype_get_default_type; i-quants as with an importance matrix, as the Hub's files are). For each file type: the
# type of most tensors, and rules for a module: a type and in which layers, `all`, `more` (use_more_bits), the first
# `eighth` or `sixteenth`, all but the outer `eighths`, so many, or `grouped`: all, if four heads or more share a value.
# Other layers keep the type of most. The output layer is q6_k if no rule says otherwise.
Rules = dict[str, tuple[tuple[str, str | int], ...]]
_Q5_K = (("q5_k", "all"),)
_MORE: Rules = dict.fromkeys(("values", "down"), (("q6_k", "more"),))
_ONE_BIT: Rules = {
    "values": (("q4_k", "grouped"), ("q2_k", "all")), "down": (("q2_k", "eighth"),), "answers": (("iq2_xxs", "all"),),
    "words": (("q2_k", "all"),), "output": _Q5_K}  # fmt: skip
_TWO_BITS = dict(_ONE_BIT)
del _TWO_BITS["answers"]
_TWO_BITS_AND_MORE: Rules = {
    "values": (("q4_k", "grouped"), ("iq3_s", "all")), "down": (("iq3_s", "eighth"),), "answers": (("iq3_s", "all"),),
    "words": (("iq3_s", "all"),), "output": _Q5_K}  # fmt: skip
_TERNARY: Rules = {"words": (("q4_k", "all"),)}
_FOUR_BITS: Rules = {"values": (("q5_k", "grouped"),)}
MIXES: dict[str, tuple[str, Rules]] = {
    "q2_k": ("q2_k", {"values": (("q4_k", "grouped"), ("q3_k", "all")), "down": (("q3_k", "all"),),
                      "answers": (("q3_k", "all"),)}),
    "q2_k_s": ("q2_k", {"values": (("q4_k", "grouped"),), "down": (("q4_k", "eighth"),)}),
    "q3_k_s": ("q3_k", {}),
    "q3_k_m": ("q3_k", {"values": (("q5_k", 2), ("q4_k", "all")), "down": (("q5_k", "sixteenth"), ("q4_k", "all")),
                        "answers": (("q4_k", "all"),)}),
    "q3_k_l": ("q3_k", dict.fromkeys(("values", "down", "answers"), (("q5_k", "all"),))),
    "q4_k_s": ("q4_k", {"values": (("q5_k", 4),), "down": (("q5_k", "eighth"),)}),
    "q4_k_m": ("q4_k", _MORE),
    "q5_k_s": ("q5_k", {}),
    "q5_k_m": ("q5_k", _MORE),
    "iq1_s": ("iq1_s", _ONE_BIT),
    "iq1_m": ("iq1_m", _ONE_BIT),
    "iq2_xxs": ("iq2_xxs", _TWO_BITS),
    "iq2_xs": ("iq2_xs", _TWO_BITS),
    "iq2_s": ("iq2_xs", _TWO_BITS_AND_MORE),
    "iq2_m": ("iq2_s", _TWO_BITS_AND_MORE),
    "iq3_xxs": ("iq3_xxs", {"values": (("q4_k", "grouped"),), "queries": (("iq2_s", "all"),), "output": _Q5_K,
                            **dict.fromkeys(("answers", "words"), (("iq3_s", "all"),))}),
    "iq3_xs": ("iq3_s", {"values": (("q4_k", "grouped"),), "queries": (("iq3_xxs", "all"),),
                         "gate": (("iq3_xxs", "eighths"),)}),
    "iq3_s": ("iq3_s", {"values": (("q4_k", "grouped"),)}),
    "iq3_m": ("iq3_s", {"values": (("q4_k", "all"),), "down": (("q4_k", "eighth"),), "answers": (("q4_k", "all"),)}),
    "iq4_nl": ("iq4_nl", _FOUR_BITS),
    "iq4_xs": ("iq4_xs", _FOUR_BITS),
    "tq1_0": ("tq1_0", _TERNARY),
    "tq2_0": ("tq2_0", _TERNARY),
    "mxfp4_moe": ("q8_0", {"experts": (("mxfp4", "all"),), "output": (("q8_0", "all"),)}),
}  # fmt: skip
# Files of one type; all but those of q8_0 and of plain k-quants, which no tool writes, keep the output layer in q6_k.
PLAIN = ("q3_k", "q4_0", "q4_1", "q4_k", "q5_0", "q5_1", "q5_k", "q6_k", "q8_0")
WITH_ROUNDER_OUTPUT = {"q4_0", "q4_1", "q5_0", "q5_1"}
EVERYTHING = {*PLAIN, *MIXES}
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
    if len(tensor.shape) < 2 or tensor.bits is not None:
        return False
    if quantization == "mxfp4":
        return tensor.module.startswith("experts_") and len(tensor.shape) > len(("rows", "columns"))
    return quantization in EVERYTHING or (tensor.layer and tensor.module != "router")


def words_for(quantization: Quantization) -> str:
    if quantization in WORDS:
        return WORDS[quantization]
    if quantization in MIXES:
        most, rules = MIXES[quantization]
        others = sorted({kind for ruled in ({"output": (("q6_k", "all"),)} | rules).values() for kind, _ in ruled})
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
    for tensor in given:
        if not quantizes(tensor, quantization):
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
        return int(tensor.numel * bits_of_type(kind)) // 8

    output = tensor.module == "lm_head" or (tied and tensor.module == "embed_tokens")
    if quantization in PLAIN:
        return [(size("q6_k" if output and quantization in WITH_ROUNDER_OUTPUT else quantization), tensor.count)]
    most, rules = MIXES[quantization]
    if output:
        return [(size(rules.get("output", (("q6_k", "all"),))[0][0]), tensor.count)]
    module = tensor.module.removeprefix("experts_").removeprefix("shared_")
    ruled = "words" if module == "embed_tokens" else _RULED.get(module, "")
    if tensor.module.startswith("experts_") and "experts" in rules:
        ruled = "experts"
    few = quantization.startswith(("iq1", "iq2"))
    chosen = rules.get(ruled, ())
    if eight and module in {"v_proj", "k_proj"}:
        chosen = (("q4_k" if few else "q8_0", "all"),)
    elif eight and module == "o_proj" and quantization not in {"q5_k_m", "q5_k_s", "q3_k_l", "q2_k_s"}:
        chosen = (("q5_k", "all"),)
    elif ruled == "values" and layers == LAYERS_OF_70B and not few:
        chosen = tuple(
            ("q5_k" if kind in {"q3_k", "q4_k"} else kind, where) for kind, where in (*chosen, (most, "all"))
        )
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
