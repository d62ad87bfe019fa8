"""The quantization of a config.json: its method, and the bits of each tensor.

Modules that a config leaves as they were are known by their names: attention, a recurrent mixer, MLP, experts for all
tokens and experts, counted layer by layer.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

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
    match method:
        case "gptq" | "awq" | "auto-round" | "intel/auto-round":
            return BITS.get(config.whole("bits", config.whole("w_bit", 4)))
        case "bitsandbytes":
            if not config.has("load_in_4bit"):
                return "int8" if config.has("load_in_8bit") else None
            return "nf4-double" if config.has("bnb_4bit_use_double_quant") else "nf4"
        case "hqq":
            return BITS.get(config.table("quant_config").table("weight_quant_params").whole("nbits", 4))
        case "modelopt":
            algorithm = config.text("quant_algo", "").upper()
            if algorithm == MIXED:
                layers = config.table("quantized_layers").values.values()
                algorithms = Counter(str(layer.get("quant_algo", "")) for layer in layers if isinstance(layer, dict))
                algorithm = max(algorithms, key=lambda name: algorithms[name], default="")
            return "nvfp4" if "FP4" in algorithm else "fp8" if "FP8" in algorithm else None
        case "compressed-tensors":
            weights = _first_group(config)
            bits = weights.whole("num_bits", 0)
            if "mxfp4" in config.text("format", ""):
                return "mxfp4"
            return {4: "nvfp4", 8: "fp8"}.get(bits) if weights.text("type", "int") == "float" else BITS.get(bits)
    return METHODS.get(method)


def _first_group(config: Fields) -> Fields:
    """The weights' table of the first group of layers of a compressed-tensors file."""
    groups = config.table("config_groups").values.values()
    return Fields(next((group for group in groups if isinstance(group, dict)), {})).table("weights")


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
# Marks a gate of attention, which has the name of an MLP's.
OF_ATTENTION = "of_attention"
PROJECTIONS, RECURRENT = ("gate_proj", "up_proj", "down_proj"), ("in_proj", "out_proj")
# What a stranger's regular expression may be made of, so that trying it takes no time to speak of.
REGEX = re.compile(r"(?:[\w.\\^$-]|\.\*|\((?:\?:)?[\w.\\|]+\))*")
MOST_STARS, MOST_PATTERNS = 3, 20_000
LAYER = re.compile(r"layers\.(\d+)(.*)", re.DOTALL)


class Patterns:
    """The modules that are left as they were."""

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
    """The tensors of a model; those that are kept in other bits than `quantization` are marked with them."""
    left = Patterns(how)
    # The bits of each kind of layer, if each is listed with its format; None for the format of most.
    listed: dict[str, int | None] = {}
    if how.text("quant_algo", "").upper() == MIXED and not how.text("moe_quant_algo", ""):
        formats: dict[str, Counter[int | None]] = {}
        for path, layer in list(how.table("quantized_layers").values.items())[: 10 * MOST_PATTERNS]:
            named = next((kind for kind, words in LISTED.items() if words.search(path)), None)
            if named and isinstance(layer, dict):
                algorithm = str(layer.get("quant_algo", "")).upper()
                formats.setdefault(named, Counter())[None if "FP4" in algorithm else FP8] += 1
        listed = {kind: counts.most_common(1)[0][0] for kind, counts in formats.items()}
    bits = MXFP4_BITS if quantization == "mxfp4" and in_all_layers(how) else None
    # The bits of one weight with its group's scale and zero, if groups are not of the usual size.
    usual, width = PER_GROUP.get(quantization or "", (0, 0))
    size = how.values.get("group_size", _first_group(how).values.get("group_size"))
    if usual and isinstance(size, int) and 8 <= size <= 1 << 20 and size != usual:
        zero = width if how.text("quant_method", "") in {"awq", "gptq", "auto-round"} else 0
        bits = width + (16 + zero) / size
    rest = FP8 if how.text("quant_method", "") == "fp8" and quantization in {"mxfp4", "nvfp4"} else None
    only_experts = quantization == "mxfp4" and not in_all_layers(how)
    tensors = list(_with_gates(tensors))
    counts = {(str(group["name"]), kind_of(group)): group.get("count", 1) for group in tensors}
    # Gemma 4's experts are beside the MLP, not in it.
    has_both = counts.get(("gate_proj", "mlp"), 0) + counts.get(("experts_down_proj", "experts"), 0) > layers
    tables: list[Table] = []
    for group in tensors:
        kind, name, count = kind_of(group), str(group["name"]), int(group.get("count", 1))
        group.pop(OF_ATTENTION, None)
        if group.get("place") == "tower":
            tables.append(group | {"bits": UNQUANTIZED} if left.towers else group)
        elif kind is None or (only_experts and not listed and rest is None):
            tables.append(group)
        elif listed:
            own = listed.get(kind, UNQUANTIZED)
            tables.append(group if own is None else group | {"bits": own})
        elif rest is not None:
            tables.append(group if kind == "experts" else group | {"bits": rest})
        else:
            numbers = range(layers)
            if count < layers and kind == "mlp":
                numbers = range(count)
            elif count < layers and kind in {"shared", "experts"}:
                numbers = range(layers - count, layers)
            projection = (
                "gate_proj" if kind == "experts" else name.removeprefix("shared_").replace("indexer_", "indexer.")
            )
            module = "experts beside" if has_both and kind == "experts" else kind
            matched = left.count(module, projection, numbers) if left else 0
            whole = min(count, matched if count <= layers else round(count * matched / layers))
            if whole:
                tables.append(group | {"count": whole, "bits": UNQUANTIZED})
            if count > whole:
                others = group | {"count": count - whole}
                tables += [others] if bits is None else in_whole_bits(others, bits)
    return tables


def _with_gates(tensors: list[Table]) -> Iterator[Table]:
    """The tensors, with gates of attention (AFMoE, Beam, HY-V4, HRM) marked: gates without an up projection."""
    ups = Counter[tuple[int, ...]]()
    for group in tensors:
        if group["name"] == "up_proj":
            ups[tuple(group["shape"])] += group.get("count", 1)
    for group in tensors:
        count = group.get("count", 1)
        of_mlp = min(count, ups[tuple(group["shape"])]) if group["name"] == "gate_proj" else count
        if of_mlp:
            yield dict(group) if of_mlp == count else group | {"count": of_mlp}
        if of_mlp < count:
            yield group | {OF_ATTENTION: True, "count": count - of_mlp}


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
    if name in PROJECTIONS and not group.get(OF_ATTENTION):
        return "mlp"
    return "recurrent" if name.startswith(RECURRENT) else "attention"


def in_whole_bits(group: Table, bits: float) -> Iterator[Table]:
    """A group's tensors; where a weight takes no whole number of bits, some are counted with one more."""
    count = group.get("count", 1)
    more = round((bits - int(bits)) * count)
    for number, each in ((count - more, int(bits)), (more, int(bits) + 1)):
        if number:
            yield group | {"count": number, "bits": each}


# EXL3 keeps a linear layer as a trellis of so many bits a weight and two vectors of fp16, a number for each row and
# column; bits may be a mean: some layers have one more than others (exllamav3 0.0.x, modules/quant/exl3.py).


def exl3_tensors(groups: Iterable[Table], config: Fields) -> list[Table]:
    """The tensors of a model with those of its linear layers as EXL3 keeps them.

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
        is_head, shape = group["name"] == "lm_head", tuple(group["shape"])
        linear = is_head or group.get("place", "layers") == "layers"
        if len(shape) < 2 or not linear or group["name"].rpartition(".")[2].startswith(KEPT):
            tables.append(group | {"bits": UNQUANTIZED})
            continue
        tables += in_whole_bits(group, head if is_head else bits)
        scales = [*shape[:-2], shape[-2] + shape[-1]]
        tables.append(group | {"name": f"{group['name']}.exl3_scales", "shape": scales, "bits": UNQUANTIZED})
    return tables


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
            name = path.rpartition(".")[2]
            if "shared_expert" in path:
                name = f"shared_{name}"
            elif "switch_mlp" in path or ".experts" in path:
                name = {"down_proj": "experts_down_proj", "gate_proj": "experts_gate_up_proj"}.get(name, "")
            listed.setdefault(name, Counter())[other] += 1
    tables: list[Table] = []
    for group in groups:
        name, shape, left = str(group["name"]), tuple(group["shape"]), int(group.get("count", 1))
        inside = group.get("place", "layers") == "layers" or name in {"lm_head", "embed_tokens"}
        if len(shape) < 2 or not inside or name.startswith(KEPT):
            tables.append(group | {"bits": UNQUANTIZED})
            continue
        for form, count in (*listed.get(name, {}).items(), (most, left)):
            taken = min(count, left)
            left -= taken
            if taken:
                tables.append(group | {"count": taken, "bits": UNQUANTIZED if form is None else form[0]})
            if taken and form is not None:
                scales = [*shape[:-1], -(-shape[-1] // form[1]) * (2 if form[2] else 1)]
                bits = UNQUANTIZED if form[2] else 8
                tables.append(group | {"name": f"{name}.mlx_scales", "count": taken, "shape": scales, "bits": bits})
    return tables


def _format(how: Fields) -> Format:
    bits, size = how.whole("bits", 0), how.whole("group_size", 0)
    if not (LEAST <= bits <= MOST and 1 <= size <= WIDEST):
        raise DamagedError("has quantization.bits or quantization.group_size that MLX has not")
    return bits, size, how.text("mode", "affine") == "affine"
