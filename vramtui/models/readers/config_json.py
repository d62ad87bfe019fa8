"""A Hugging Face config.json as the `[model]` table of a preset, by the architecture it names."""

import shlex
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
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
from vramtui.models.readers.quantization import (
    KEYS,
    exl3_tensors,
    in_all_layers,
    kind_of,
    mlx_quantization,
    mlx_tensors,
    quantization_of,
    with_mixed_bits,
)

# Each of these needs modules that most configs do not.
read_any = late("vramtui.models.families.any_config:read_any")
parts_by_default = late("vramtui.models.shapes.known:parts_by_default")
shape_table = late("vramtui.models.shapes.known:shape_table")
is_net = late("vramtui.models.shapes.nets:is_net")
read_pipeline = late("vramtui.models.readers.diffusers:read_pipeline")
timm_table = late("vramtui.models.readers.torchvision:timm_table")

LANGUAGE = "its language model only"
# Falcon's configs before transformers knew it (`configuration_RW.py` beside its weights).
REFINED_WEB = ("RefinedWeb", "RefinedWebModel")
# Other names of a type in public files: DeepSeek V4 as its FP8 files for SGLang have it.
OTHER_TYPES = {"deepseek_ref": "deepseek_v4"}
REFINED_WEB_KEYS = {
    "n_embed": "hidden_size", "n_head": "num_attention_heads", "n_head_kv": "num_kv_heads",
    "n_layer": "num_hidden_layers",
}  # fmt: skip
# Where detectors and the like name the net that looks at the image: most of their weights, without sizes.
BACKBONES = ("backbone", "backbone_config")
# Files beside a config.json: name, method, and the key of the table where it is not all of the file.
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
    """Contents of a config.json.

    Attributes:
        architecture: as it names it.
        model: a `[model]` table.
        precision: what its weights are kept in, as a preset writes it; None if it does not tell.
        quantization: how they are kept instead, as a preset writes it.
        unread: the method of a quantization that is not known; empty if it is known or there is none.
        partial: the only part that is described, in words; empty if all of it is.
        basis: how sure it is, as a decoder's `basis` has it.
        undescribed: the key of a net without sizes; empty if there is none.
        mixed: whether some of its layers are kept in other bits than `quantization`, and marked so.
        counted: whether every tensor is written down all the same where it is `generic`.
        guessed: what it says that is not taken at its word, a part of a sentence each.
    """

    architecture: str
    model: Table
    precision: str | None = None
    quantization: str | None = None
    unread: str = ""
    undescribed: str = ""
    partial: str = ""
    basis: str = "shapes"
    mixed: bool = False
    counted: bool = False
    guessed: tuple[str, ...] = ()


def read_config(path: Path) -> ConfigFile:
    """The config at `path`; of a model_index.json, that of the part that is on the card at each step.

    Raises:
        UserError: it cannot be read, is not a config, or is one of an architecture that is not known.
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
    """Read a decoded config.

    Raises:
        DamagedError: its architecture is not known, or a key of it is wrong.
    """
    kind = values.get("model_type")
    if isinstance(kind, str) and kind in OTHER_TYPES:
        values = values | {"model_type": OTHER_TYPES[kind]}
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
    return ConfigFile(
        architecture=name,
        model=model,
        precision=precision,
        quantization=quantization,
        unread=printable(unread[:40]),
        undescribed=_undescribed(config, model) if model_read.basis == "generic" and not model_read.counted else "",
        partial=LANGUAGE if model_read.partial else "",
        basis=model_read.basis,
        counted=model_read.counted or is_net(config.text("model_type", "")),
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


def _undescribed(config: Fields, model: Table) -> str:
    """The key of a net without sizes: a backbone, or all that reads no words."""
    if is_net(config.text("model_type", "")):
        return ""
    backbone = next((key for key in BACKBONES if config.values.get(key)), "")
    if backbone or model.get("vocab_size", 1) > 1:
        return backbone
    parts = (printable(key[:40]) for key, part in config.values.items() if isinstance(part, dict) and len(part) > 1)
    return next((key for key in parts if key.endswith("_config")), "its keys")


def _architecture(config: Fields) -> str:
    named = config.texts("architectures")
    kind = config.text("model_type", "")
    if named or kind:
        return named[0] if named else kind
    if "zero_optimization" in config.values:
        raise DamagedError("is DeepSpeed's and names no model: give the model, and this file with --job-file")
    raise DamagedError("is not a config.json of a model: it has neither architectures nor model_type")
