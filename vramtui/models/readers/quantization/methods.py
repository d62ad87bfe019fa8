"""The format of quantised weights by a config's quantization_config, as each tool writes it."""

from collections import Counter
from collections.abc import Callable

from vramtui.models.families.keys import Fields

# NVIDIA's Model Optimizer, where layers are of several formats, each listed by its name.
MIXED = "MIXED_PRECISION"
# Bits, and the numbers that share a scale as a run's quantization counts them: of int8 a whole row.
PER_GROUP = {"int4": (128, 4), "int8": (-1, 8)}
BITS = {4: "int4", 8: "int8"}
# By the method's name, what its linear layers are kept in.
METHODS = {
    "fp8": "fp8", "fbgemm_fp8": "fp8", "finegrained_fp8": "fp8", "mxfp4": "mxfp4", "eetq": "int8",
    "modelopt_fp4": "nvfp4",
}  # fmt: skip


def quantization_of(config: Fields, expert_type: str = "") -> str | None:
    """The nearest that a run can say of a quantization_config; unknown methods are passed over.

    Where experts are kept in fewer bits than the rest (`expert_type`, or NVIDIA's `moe_quant_algo`), that of experts.
    """
    method = config.text("quant_method", "bitsandbytes" if config.has("load_in_4bit") else "")
    if "FP4" in config.text("moe_quant_algo", "").upper():
        return "nvfp4"
    if method == "fp8" and config.text("expert_dtype", expert_type) == "fp4":
        return "mxfp4"
    if not method and config.has("quant_algo"):
        method = "modelopt"
    if not method and config.has("bits") and config.has("group_size"):
        method = "gptq"  # as AutoGPTQ wrote it before files said their method
    read = READERS.get(method)
    return METHODS.get(method) if read is None else read(config)


def _bitsandbytes(config: Fields) -> str | None:
    if not config.has("load_in_4bit"):
        return "int8" if config.has("load_in_8bit") else None
    return "nf4-double" if config.has("bnb_4bit_use_double_quant") else "nf4"


def _whole_numbers(config: Fields) -> str | None:
    return BITS.get(config.whole("bits", config.whole("w_bit", 4)))


def _modelopt(config: Fields) -> str | None:
    algorithm = config.text("quant_algo", "").upper()
    if algorithm == MIXED:
        layers = config.table("quantized_layers").values.values()
        algorithms = Counter(str(layer.get("quant_algo", "")) for layer in layers if isinstance(layer, dict))
        algorithm = max(algorithms, key=lambda name: algorithms[name], default="")
    return "nvfp4" if "FP4" in algorithm else "fp8" if "FP8" in algorithm else None


def _compressed(config: Fields) -> str | None:
    """What most of a compressed-tensors file is in, by the first group of its layers."""
    groups = config.table("config_groups")
    first = next((group for group in groups.values.values() if isinstance(group, dict)), {})
    weights = Fields(first).table("weights")
    bits = weights.whole("num_bits", 0)
    if "mxfp4" in config.text("format", ""):
        return "mxfp4"
    if weights.text("type", "int") == "float":
        return {4: "nvfp4", 8: "fp8"}.get(bits)
    return BITS.get(bits)


READERS: dict[str, Callable[[Fields], str | None]] = {
    **dict.fromkeys(("gptq", "awq", "auto-round", "intel/auto-round"), _whole_numbers),
    "bitsandbytes": _bitsandbytes,
    "compressed-tensors": _compressed,
    "hqq": lambda config: BITS.get(config.table("quant_config").table("weight_quant_params").whole("nbits", 4)),
    "modelopt": _modelopt,
}
