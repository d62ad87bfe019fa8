"""Public config.json files: the model that one describes, and how its weights are quantized."""

import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from math import prod
from pathlib import Path

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.file_limits import CONFIG
from vramtui.core.base.late import late
from vramtui.core.base.text import printable, shortened
from vramtui.models.families.keys import TEXT_PARTS, Fields, Table
from vramtui.models.named_files import WEIGHTS
from vramtui.models.readers.bounded import DamagedError, decode_object, path_text, read_plain, why_no_object
from vramtui.models.readers.diffusers import INDEX, read_class

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
MXFP4_BITS = 4.25  # four of a weight and a scale of eight for each 32 (OCP Microscaling Formats 1.0, section 5.1)
# Names that code gives the modules of a layer, by kind.
MODULES: dict[str, tuple[str, ...]] = {
    "attention": ("self_attn", "attn", "mixer"),
    "recurrent": ("linear_attn", "mixer", "mamba", "self_attn"),
    "mlp": ("mlp", "mixer"),
    "shared": ("mlp.shared_experts", "mlp.shared_expert", "ffn.shared_experts", "mixer.shared_experts"),
    "experts": ("mlp.experts.0", "ffn.experts.0", "mixer.experts.0", "block_sparse_moe.experts.0"),
    "experts next to it": ("experts.0",),
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
    # Gemma 4's experts are next to the MLP, not in it.
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
            module = "experts next to it" if has_both and kind == "experts" else kind
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
    """The tensors of a model with those of its linear layers as EXL3 keeps them. Raises DamagedError if it says no
    bits, or bits that EXL3 has not.
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
Format = tuple[int, int, bool]  # bits, numbers in a group, whether groups have a bias and a scale


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
    """The tensors of a model by their bits, and their scales; raises DamagedError if it says bits that MLX has not."""
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


# Each of these needs modules that most configs do not.
read_any = late("vramtui.models.families.any_config:read_any")
parts_by_default = late("vramtui.models.shapes.known:parts_by_default")
shape_table = late("vramtui.models.shapes.known:shape_table")
is_net = late("vramtui.models.shapes.nets:is_net")
read_pipeline = late("vramtui.models.readers.diffusers:read_pipeline")
timm_table = late("vramtui.models.readers.torchvision:timm_table")

LANGUAGE = "its language model only"
# Falcon's configs before transformers knew it (`configuration_RW.py` next to its weights).
REFINED_WEB = ("RefinedWeb", "RefinedWebModel")
# Other names of a type in public files: DeepSeek V4 as its FP8 files for SGLang have it.
OTHER_TYPES = {"deepseek_ref": "deepseek_v4"}
REFINED_WEB_KEYS = {
    "n_embed": "hidden_size", "n_head": "num_attention_heads", "n_head_kv": "num_kv_heads",
    "n_layer": "num_hidden_layers",
}  # fmt: skip
# Where detectors and the like name the net that looks at the image: most of their weights, without sizes.
BACKBONES = ("backbone", "backbone_config")
# Files next to a config.json: name, method, and the key of the table where it is not all of the file.
BESIDE = (
    ("hf_quant_config.json", "modelopt", "quantization"),
    ("quantize_config.json", "gptq", ""),
    ("quant_config.json", "awq", ""),
)
# transformers 5.23, configuration_utils.py: ALLOWED_LAYER_TYPES and _LEGACY_LAYER_TYPE_REMAP; then what public configs
# with code of their own say.
KINDS_OF_LAYERS = frozenset(
    {
        "full_attention", "sliding_attention", "chunked_attention", "window_attention", "indexed_attention",
        "compressed_sparse_attention", "heavily_compressed_attention", "minimax_m3_sparse", "conv", "moe", "hybrid",
        "hybrid_sliding", "reference_sliding_attention", "linear_attention", "sparse", "dense", "mamba", "attention",
        "deepseek_sparse_attention", "qwen_sparse_attention",
        "global", "local", "sliding", "mamba2", "recurrent", "mlp", "hash_moe",
    }
)  # fmt: skip
LARGEST_GROUP = 1 << 16
PRECISIONS = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}


class ConfigFile(msgspec.Struct, frozen=True, kw_only=True):
    architecture: str  # as it names it
    model: Table  # a `[model]` table
    precision: str | None = None  # what its weights are kept in, as a preset writes it; None if it does not tell
    quantization: str | None = None  # how they are kept instead, as a preset writes it
    unread: str = ""  # the method of a quantization that is not known; empty if it is known or there is none
    undescribed: str = ""  # the key of a net without sizes; empty if there is none
    partial: str = ""  # the only part that is described, in words; empty if all of it is
    basis: str = "shapes"  # how sure it is, as a decoder's `basis` has it
    mixed: bool = False  # whether some of its layers are kept in other bits than `quantization`, and marked so
    counted: bool = False  # whether every tensor is written down all the same where it is `generic`
    guessed: tuple[str, ...] = ()  # what it says that is not taken at its word, a part of a sentence each


def read_config(path: Path) -> ConfigFile:
    """The config at `path`; of a model_index.json, that of the part that is on the card at each step. Raises UserError
    if it cannot be read, is not a config, or is one of an architecture that is not known.
    """
    values = _decoded(path)
    try:
        if path.name == INDEX:
            name, table, partial = read_pipeline(path, values, _decoded)
            return ConfigFile(architecture=name, model=table, partial=partial)
        if not values.get("quantization_config") and path.name == "config.json":
            for name, method, key in BESIDE:
                decoded = _decoded(file) if (file := path.with_name(name)).is_file() else {}
                table = decoded.get(key) if key else decoded
                if table and isinstance(table, dict):
                    values["quantization_config"] = table | {"quant_method": method}
                    break
        return parse_config(values)
    except DamagedError as error:
        instead = f"; {what_answers(path)}" if error.is_sound else ""
        raise UserError(f"{path_text(path)} {error}{instead}") from None


def what_answers(path: Path) -> str:
    """The command that answers for a model if its config does not."""
    return f"`vramtui estimate {shlex.quote(path_text(path.with_name(WEIGHTS)))}` reads its weights' header"


def _decoded(path: Path) -> dict[str, object]:
    content = read_plain(path, CONFIG)
    values = decode_object(content)
    if values is None:
        raise UserError(f"{path_text(path)} is not a config.json: {why_no_object(content)}")
    return values


def parse_config(values: dict[str, object]) -> ConfigFile:
    """Read a decoded config; raises DamagedError if its architecture is not known, or a key of it is wrong."""
    kind = values.get("model_type")
    if isinstance(kind, str) and kind in OTHER_TYPES:
        values = values | {"model_type": OTHER_TYPES[kind]}
    elif kind == "chatglm" and "ffn_hidden_size" not in values:  # the first has other layers than its successors
        values = values | {"model_type": "chatglm1"}
    elif kind in REFINED_WEB:  # Falcon's own code; `RefinedWeb` is its later architecture
        renamed = {REFINED_WEB_KEYS.get(key, key): value for key, value in values.items()}
        later = {"new_decoder_architecture": kind == "RefinedWeb"}
        values = later | renamed | {"model_type": "falcon", "architectures": ["FalconForCausalLM"]}
    config = Fields(values)
    if config.has("_class_name"):
        name, table = read_class(config)
        return ConfigFile(architecture=name, model=table)
    if config.table("quantization_config").text("quant_method", "") == "exl3":
        return _by_bits(config, exl3_tensors, config.table("quantization_config"))
    by_mlx = mlx_quantization(config) if any(map(config.has, KEYS)) else None
    if by_mlx is not None:
        return _by_bits(config, mlx_tensors, by_mlx)
    if config.has("architecture") and not config.has("architectures"):
        name, table = timm_table(config)
        return ConfigFile(architecture=name, model=table, precision="fp32")
    name = _architecture(config)
    try:
        model_read = read_any(dict(config.values))
    except DamagedError as error:
        is_sound = error.is_sound is not None
        raise DamagedError(f"is of the architecture {printable(name[:60])!r} but {error}", is_sound=is_sound) from None
    if model_read.basis == "shapes" and not config.texts("architectures"):
        name = model_read.architecture or shape_table().class_of("causal", name) or name
    # The table of the part that reads words, if there is one.
    parts = (config.values.get(name) for name in TEXT_PARTS)
    words = Fields(next((part for part in parts if isinstance(part, dict)), {}))
    dtypes = (part.values.get(key) for part in (config, words) for key in ("dtype", "torch_dtype"))
    stored = next(filter(None, dtypes), None)
    how = config.table("quantization_config")
    if not how.values:
        how = words.table("quantization_config")
    quantization = quantization_of(how, config.text("expert_dtype", "")) if how.values else None
    model = {key: value for key, value in model_read.table.items() if value is not None}
    method = how.text("quant_method", "")
    unread = method if quantization is None and method != "bitsandbytes" else ""  # which may be there and be off
    if how.values and quantization is None and not method and not how.has("load_in_8bit"):
        unread = "one without a quant_method"
    precision = PRECISIONS.get(stored.removeprefix("torch.")) if isinstance(stored, str) else None
    layers = model.get("num_hidden_layers", 0)
    if quantization is not None and model.get("kind", "transformer") == "transformer":
        # Mark the tensors that are not in its quantization, and list them if that takes a list.
        with suppress(DamagedError):
            listed = model if "tensors" in model else read_any(dict(config.values), is_listed=True).table
            tensors = with_mixed_bits(listed["tensors"], listed["num_hidden_layers"], how, quantization)
            if listed is model or any("bits" in group for group in tensors if kind_of(group) is not None):
                model = listed | {"tensors": tensors}
    if quantization == "mxfp4" and in_all_layers(how):
        quantization = None  # as a run's it would be only that of experts: each tensor has its bits
    undescribed, is_of_net = "", is_net(config.text("model_type", ""))
    if model_read.basis == "generic" and not model_read.counted and not is_of_net:
        undescribed = next((key for key in BACKBONES if config.values.get(key)), "")
        if not undescribed and model.get("vocab_size", 1) <= 1:  # a net that reads no words
            nested = (
                printable(key[:40]) for key, part in config.values.items() if isinstance(part, dict) and len(part) > 1
            )
            undescribed = next((key for key in nested if key.endswith("_config")), "its keys")
    return ConfigFile(
        architecture=name,
        model=model,
        precision=precision,
        quantization=quantization,
        unread=printable(unread[:40]),
        undescribed=undescribed,
        partial=LANGUAGE if model_read.partial else "",
        basis=model_read.basis,
        counted=model_read.counted or is_of_net,
        guessed=tuple(_guessed_values(config, how, precision, layers if isinstance(layers, int) else 0)),
        mixed=any("bits" in group and kind_of(group) is not None for group in model.get("tensors", ())),
    )


def _guessed_values(config: Fields, how: Fields, precision: str | None, layers: int) -> Iterator[str]:
    """Values that are not taken as they are, part of a sentence each."""
    stored = next((config.values[key] for key in ("dtype", "torch_dtype") if config.values.get(key) is not None), None)
    if stored is not None and stored != "auto" and precision is None:
        yield f"torch_dtype {_short_text(stored)} is not a known type of numbers: bf16 is assumed"
    group = how.values.get("group_size")
    if group is not None and not (group == -1 or (isinstance(group, int) and 0 < group <= LARGEST_GROUP)):
        yield f"group_size {_short_text(group)} is not a size of a group: 128 is assumed"
    blocks = how.values.get("weight_block_size")
    if isinstance(blocks, list) and not all(isinstance(size, int) and size > 0 for size in blocks):
        yield f"weight_block_size {_short_text(blocks)} is not a block: [128, 128] is assumed"
    if how.has("load_in_4bit") and how.has("load_in_8bit"):
        yield "load_in_4bit and load_in_8bit are both set: 4 bits are taken"
    kinds = config.values.get("layer_types")
    if isinstance(kinds, list) and kinds:
        if layers and len(kinds) != layers:
            yield f"layer_types has {len(kinds):,} names for {layers:,} layers"
        odd = next((kind for kind in kinds if not isinstance(kind, str) or kind not in KINDS_OF_LAYERS), None)
        if odd is not None:
            yield f"layer_types names {_short_text(odd)}, which is not known: full attention is taken"
    for part in parts_by_default(config.values):
        yield f"it has no {part}: that of transformers' defaults is counted"


def _short_text(value: object) -> str:
    return printable(shortened(repr(value), 60))


def _by_bits(config: Fields, stored: Callable[[Iterable[Table], Fields], list[Table]], how: Fields) -> ConfigFile:
    """A config of EXL3 or MLX: every tensor by its bits. Its own family's rules say which there are."""
    model = read_any(dict(config.values), is_listed=True)
    tensors = stored(map(msgspec.to_builtins, model.tensors), how)
    numbers = sum(prod(group["shape"]) * group.get("count", 1) for group in tensors)
    return ConfigFile(
        architecture=_architecture(config),
        model=model.table | {"tensors": tensors, "parameters": numbers},
        precision="fp16",
        partial=LANGUAGE if model.partial else "",
        basis=model.basis,
    )


def _architecture(config: Fields) -> str:
    named = config.texts("architectures")
    kind = config.text("model_type", "")
    if named or kind:
        return named[0] if named else kind
    if "zero_optimization" in config.values:
        raise DamagedError("is DeepSpeed's and names no model: give the model, and this file with --job-file")
    raise DamagedError("is not a config.json of a model: it has neither architectures nor model_type")
