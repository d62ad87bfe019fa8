"""The quantization of a config.json: its method, and the bits of each tensor.

Modules that a config leaves as they were are known by their names: attention, a recurrent mixer, MLP, experts for all
tokens and experts, counted layer by layer.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Any

from vramtui.models.families.keys import Fields, Table
from vramtui.models.readers.bounded import DamagedError

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
    """Return the nearest setting of a run to a quantization_config; unknown methods are passed over.

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
    """Format of most of a compressed-tensors file, by the first group of its layers."""
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


# Lists of what is left as it is, and the names that towers have in them.
LEFT = ("modules_to_not_convert", "ignore", "exclude_modules", "llm_int8_skip_modules", "ignored_layers")
TOWERS = re.compile(r"visual|vision|image|audio|multi_modal|vit\b|mlp1")
UNQUANTIZED, FP8 = 16, 8
LEAST, MOST = 1, 8  # bits of a weight
KEPT = ("router", "conv_")
# Four of a weight and a scale of eight for each 32 (OCP Microscaling Formats 1.0, section 5.1).
MXFP4_BITS = 4.25
# Names that code gives the modules of a layer, by kind.
MODULES: dict[str, tuple[str, ...]] = {
    "attention": ("self_attn", "attn", "mixer"),
    "recurrent": ("linear_attn", "mixer", "mamba", "self_attn"),
    "mlp": ("mlp", "mixer"),
    "shared": ("mlp.shared_experts", "mlp.shared_expert", "ffn.shared_experts", "mixer.shared_experts"),
    "experts": ("mlp.experts.0", "ffn.experts.0", "mixer.experts.0", "block_sparse_moe.experts.0"),
    "experts beside": ("experts.0",),
}
# The same, in the names of layers that are listed with a format each.
LISTED = {
    "shared": re.compile(r"shared_expert"),
    "experts": re.compile(r"\bexperts\b"),
    "recurrent": re.compile(r"linear_attn|mamba|mixer\.(?:in|out)_proj"),
    "attention": re.compile(r"\b(?:self_attn|attn)\b|mixer\.[qkvo]_proj"),
    "mlp": re.compile(r"\bmlp\b|mixer\.(?:up|down)_proj"),
}
PROJECTIONS, RECURRENT = ("gate_proj", "up_proj", "down_proj"), ("in_proj", "out_proj")
# What a stranger's regular expression may be made of, so that trying it takes no time to speak of.
REGEX = re.compile(r"(?:[\w.\\^$-]|\.\*|\((?:\?:)?[\w.\\|]+\))*")
MOST_STARS, MOST_PATTERNS = 3, 20_000
LAYER = re.compile(r"layers\.(\d+)(.*)", re.DOTALL)


class Patterns:
    """The modules that are left as they were.

    Args:
        how: a quantization_config.
    """

    def __init__(self, how: Fields) -> None:
        lists = (how.values.get(name) for name in LEFT)
        patterns = [str(pattern) for names in lists if isinstance(names, list) for pattern in names[:MOST_PATTERNS]]
        self.towers = any(TOWERS.search(pattern) for pattern in patterns)
        self._of_all: list[str] = []
        self._of_layers: dict[int, list[str]] = {}
        for pattern in patterns:
            match = None if pattern.startswith("re:") else LAYER.search(pattern)
            if match is None:
                self._of_all.append(pattern)
            else:
                self._of_layers.setdefault(int(match[1][:6]), []).append(match[2].removeprefix("."))

    def __bool__(self) -> bool:
        return bool(self._of_all or self._of_layers)

    def count(self, kind: str, projection: str, numbers: range) -> int:
        """The number of these layers in which a projection of a kind of module is left."""
        paths = [f"{module}.{projection}" for module in MODULES[kind]]
        if any(_matches(f"model.layers.0.{path}", one) for one in self._of_all for path in paths):
            return len(numbers)
        tails = (self._of_layers.get(number, ()) for number in numbers)
        return sum(any(_matches(path, tail) for tail in of_one for path in paths) for of_one in tails)


def _matches(path: str, pattern: str) -> bool:
    if pattern.startswith("re:"):
        regex = pattern.removeprefix("re:")
        simple = regex.count("*") <= MOST_STARS and REGEX.fullmatch(regex)
        try:
            return bool(simple and re.search(regex, path))
        except re.error:
            return False
    if "*" in pattern:
        return pattern.count("*") <= MOST_STARS and (fnmatchcase(path, pattern) or fnmatchcase(path, f"{pattern}.*"))
    return f".{pattern}." in f".{path}."


def with_mixed_bits(tensors: list[Table], layers: int, how: Fields, quantization: str | None) -> list[Table]:
    """The tensors of a model, those that are kept in other bits than `quantization` marked with them.

    Args:
        tensors: as a `[model]` table lists them.
        layers: how many layers the model has.
        how: the quantization_config.
        quantization: the format of most of it.
    """
    left = Patterns(how)
    listed, bits = _by_kind(how), _bits_of_most(how, quantization)
    rest = FP8 if how.text("quant_method", "") == "fp8" and quantization in {"mxfp4", "nvfp4"} else None
    counts = {str(group["name"]): group.get("count", 1) for group in tensors}
    # Gemma 4's stand beside the MLP, not in it.
    has_both = counts.get("gate_proj", 0) + counts.get("experts_down_proj", 0) > layers
    tables: list[Table] = []
    for group in tensors:
        kind = kind_of(group)
        if group.get("place") == "tower":
            tables.append(group | {"bits": UNQUANTIZED} if left.towers else group)
        elif kind is None:
            tables.append(group)
        elif listed:
            own = listed.get(kind, UNQUANTIZED)
            tables.append(group if own is None else group | {"bits": own})
        elif rest is not None:
            tables.append(group if kind == "experts" else group | {"bits": rest})
        elif quantization == "mxfp4" and not in_all_layers(how):
            tables.append(group)  # only experts are kept in it
        else:
            tables += _split(group, _left_count(group, kind, layers, left, has_both=has_both), bits)
    return tables


def in_all_layers(how: Fields) -> bool:
    """Return whether all linear layers have the format: gpt-oss has only experts in MXFP4, compressed-tensors all."""
    return how.text("quant_method", "") == "compressed-tensors"


def kind_of(group: Table) -> str | None:
    """The kind of module that a linear layer of the blocks belongs to; None for anything else."""
    name = str(group["name"])
    if group.get("place", "layers") != "layers" or len(group["shape"]) < 2 or name.startswith(KEPT):
        return None
    if name.startswith("experts_"):
        return "experts"
    if name.startswith("shared_"):
        return "shared"
    if name in PROJECTIONS:
        return "mlp"
    return "recurrent" if name.startswith(RECURRENT) else "attention"


def _by_kind(how: Fields) -> dict[str, int | None]:
    """Bits of each kind of layer, where each is listed with its format; None of the format of most."""
    if how.text("quant_algo", "").upper() != MIXED or how.text("moe_quant_algo", ""):
        return {}
    formats: dict[str, Counter[int | None]] = {}
    for name, layer in list(how.table("quantized_layers").values.items())[: 10 * MOST_PATTERNS]:
        named_kind = next((kind for kind, words in LISTED.items() if words.search(name)), None)
        if named_kind and isinstance(layer, dict):
            algorithm = str(layer.get("quant_algo", "")).upper()
            formats.setdefault(named_kind, Counter())[None if "FP4" in algorithm else FP8] += 1
    return {kind: counts.most_common(1)[0][0] for kind, counts in formats.items()}


def _bits_of_most(how: Fields, quantization: str | None) -> float | None:
    """Bits of one weight with its group's scale and zero, where groups are not of the usual size."""
    if quantization == "mxfp4" and in_all_layers(how):
        return MXFP4_BITS
    usual, width = PER_GROUP.get(quantization or "", (0, 0))
    groups = how.table("config_groups").values.values()
    first = next((group for group in groups if isinstance(group, dict)), {})
    group_size = how.values.get("group_size", Fields(first).table("weights").values.get("group_size"))
    size = group_size if isinstance(group_size, int) and 8 <= group_size <= 1 << 20 else None
    if not usual or size is None or size == usual:
        return None
    zero = width if how.text("quant_method", "") in {"awq", "gptq", "auto-round"} else 0
    return width + (16 + zero) / size


def _split(group: Table, left: int, bits: float | None) -> Iterator[Table]:
    """A group's tensors by their bits, `left` of them as they were."""
    count = group.get("count", 1)
    if left:
        yield group | {"count": left, "bits": UNQUANTIZED}
    if count == left:
        return
    rest = group | {"count": count - left}
    yield from [rest] if bits is None else in_whole_bits(rest, bits)


def in_whole_bits(group: Table, bits: float) -> Iterator[Table]:
    """A group's tensors; where a weight takes no whole number of bits, some are counted with one more."""
    count = group.get("count", 1)
    more = round((bits - int(bits)) * count)
    for number, each in ((count - more, int(bits)), (more, int(bits) + 1)):
        if number:
            yield group | {"count": number, "bits": each}


def _left_count(group: Table, kind: str, layers: int, left: Patterns, *, has_both: bool) -> int:
    """How many of a group's tensors are left as they were."""
    name, count = str(group["name"]), int(group.get("count", 1))
    if not left:
        return 0
    numbers = range(layers)
    if count < layers and kind == "mlp":
        numbers = range(count)
    elif count < layers and kind in {"shared", "experts"}:
        numbers = range(layers - count, layers)
    projection = "gate_proj" if kind == "experts" else name.removeprefix("shared_").replace("indexer_", "indexer.")
    matched = left.count("experts beside" if has_both and kind == "experts" else kind, projection, numbers)
    return min(count, matched if count <= layers else round(count * matched / layers))


# EXL3 keeps a linear layer as a trellis of so many bits a weight and two vectors of fp16, a number for each row and
# column; bits may be a mean: some layers have one more than others (exllamav3 0.0.x, modules/quant/exl3.py).


def exl3_tensors(groups: Iterable[Table], config: Fields) -> list[Table]:
    """The tensors of a model with those of its linear layers as EXL3 keeps them.

    Args:
        groups: as a `[model]` table lists them.
        config: the quantization_config.

    Raises:
        DamagedError: it says no bits, or bits that EXL3 has not.
    """
    bits = config.number("bits", None)
    head = config.number("head_bits", 6)
    for width in (bits, head):
        if width is None or not LEAST <= width <= MOST:
            raise DamagedError(f"has quantization_config.bits or head_bits other than {LEAST:g} to {MOST:g}")
    tables: list[Table] = []
    for group in groups:
        tables += _in_exl3(group, head if group["name"] == "lm_head" else bits)
    return tables


def _in_exl3(group: Table, bits: float) -> Iterator[Table]:
    shape: tuple[Any, ...] = tuple(group["shape"])
    linear = group.get("place", "layers") == "layers" or group["name"] == "lm_head"
    if len(shape) < 2 or not linear or group["name"].rpartition(".")[2].startswith(KEPT):
        yield group | {"bits": UNQUANTIZED}
        return
    yield from in_whole_bits(group, bits)
    scales = (*shape[:-2], shape[-2] + shape[-1])
    yield group | {"name": f"{group['name']}.exl3_scales", "shape": list(scales), "bits": UNQUANTIZED}


KEYS = ("quantization", "quantization_config")
MODES = ("affine", "mxfp4", "nvfp4", "mxfp8")
WIDEST = 1024
Format = tuple[int, int, bool]  # bits, numbers in a group, whether groups have a bias beside their scale


def mlx_quantization(config: Fields) -> Fields | None:
    """The table that MLX's converter wrote; None if it did not write any."""
    for key in KEYS:
        table = config.values.get(key)
        how = Fields(table) if isinstance(table, dict) else Fields({})
        if not how.has("quant_method") and {"bits", "group_size"} <= how.values.keys():
            by_mlx = key == "quantization" or config.has("quantization") or how.text("mode", "") in MODES
            return how if by_mlx else None
    return None


def mlx_tensors(groups: Iterable[Table], how: Fields) -> list[Table]:
    """The tensors of a model by their bits, and their scales.

    Raises:
        DamagedError: it says bits that MLX has not.
    """
    most = _format(how)
    listed: dict[str, Counter[Format | None]] = {}
    for path, settings in list(how.values.items())[:MOST_PATTERNS]:
        if isinstance(settings, dict) or settings is False:
            other = None if settings is False else _format(Fields({**how.values, **settings}))
            listed.setdefault(_group(path), Counter())[other] += 1
    return [one for group in groups for one in _stored(group, most, listed.get(str(group["name"]), Counter()))]


def _format(how: Fields) -> Format:
    bits, size = how.whole("bits", 0), how.whole("group_size", 0)
    if not (LEAST <= bits <= MOST and 1 <= size <= WIDEST):
        raise DamagedError("has quantization.bits or quantization.group_size that MLX has not")
    return bits, size, how.text("mode", "affine") == "affine"


def _group(path: str) -> str:
    """The name of one of MLX's modules among a model's tensors."""
    name = path.rpartition(".")[2]
    if "shared_expert" in path:
        return f"shared_{name}"
    if "switch_mlp" in path or ".experts" in path:
        return {"down_proj": "experts_down_proj", "gate_proj": "experts_gate_up_proj"}.get(name, "")
    return name


def _stored(group: Table, most: Format, listed: "Counter[Format | None]") -> Iterator[Table]:
    name, shape, left = str(group["name"]), tuple(group["shape"]), int(group.get("count", 1))
    inside = group.get("place", "layers") == "layers" or name in {"lm_head", "embed_tokens"}
    if len(shape) < 2 or not inside or name.startswith(KEPT):
        yield group | {"bits": UNQUANTIZED}
        return
    for form, count in (*listed.items(), (most, left)):
        taken = min(count, left)
        left -= taken
        if not taken:
            continue
        yield group | {"count": taken, "bits": UNQUANTIZED if form is None else form[0]}
        if form is not None:
            scales = [*shape[:-1], -(-shape[-1] // form[1]) * (2 if form[2] else 1)]
            bits = UNQUANTIZED if form[2] else 8
            yield group | {"name": f"{name}.mlx_scales", "count": taken, "shape": scales, "bits": bits}
