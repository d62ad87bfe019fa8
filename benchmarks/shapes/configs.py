"""Configs of transformers with some keys changed, and what each type takes a key for where a config leaves it out."""

import contextlib
import dataclasses
import json
from collections.abc import Container, Mapping
from functools import cache
from typing import Any

import msgspec
from transformers import AutoConfig, PreTrainedConfig

from benchmarks.shapes.places import predicates
from benchmarks.shapes.rules import simpler
from benchmarks.shapes.symbols import Real, Size, symbol
from vramtui.models.shapes.known import Generated, ShapeTable, TypeDefaults

_ROPE = {"rope_type": "default", "rope_theta": 10000.0}
COMPASS_ROPE = {"full_attention": _ROPE, "sliding_attention": _ROPE}
DIFFUSION_GEMMA = {"num_experts": 8, "top_k_experts": 2, "moe_intermediate_size": 704}
QSA = {
    "indexer_n_heads": 4, "indexer_kv_heads": 1, "indexer_head_dim": 256, "indexer_budget": 2048,
    "indexer_compress_ratio": 64,
}  # fmt: skip
SHARED_KEYS = {"hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0, "model_type": "gemma4_text"}


class EachLayer(tuple[str, ...]):
    """Kinds that layers repeat in this order, as many as there are."""

    __slots__ = ()


# What is built instead of a type's defaults: where these cannot be built, or leave out parts or kinds of layers that
# most of its models have.
STARTS: dict[str, dict[str, Any]] = {
    **{key: {"prediction_length": 24} for key in ("autoformer", "informer", "time_series_transformer")},
    # Two layers of a mask decoder have none of those between the first and the last of each of their networks.
    **{
        key: {"mask_decoder_config.num_hidden_layers": 3}
        for key in ("edgetam", "edgetam_video", "sam2", "sam2_video", "sam3_tracker", "sam3_tracker_video")
    },
    "aya_vision": {"vision_config.num_attention_heads": 16},
    "beit": {"out_indices": [3, 5, 7, 11]},
    "chameleon": {"vocabulary_map": {"<image>": 4}},
    "cohere_compass": {"text_config.rope_parameters": COMPASS_ROPE},
    "cohere_compass_text": {"rope_parameters": COMPASS_ROPE},
    "dbrx": {"attn_config.rope_theta": 500000.0},
    "deepseek_ocr2": {"text_config.mlp_layer_types": EachLayer(("dense", "sparse"))},
    "deepseek_ocr2_text": {"mlp_layer_types": EachLayer(("dense", "sparse"))},
    "diffusion_gemma": {f"text_config.{key}": value for key, value in DIFFUSION_GEMMA.items()},
    "diffusion_gemma_text": DIFFUSION_GEMMA,
    "dots1": {"n_routed_experts": 16, "n_shared_experts": 2, "num_experts_per_tok": 4},
    "emu3": {"vocabulary_map": {"<image>": 3, "<|extra_200|>": 4, "<|visual token 000000|>": 5}},
    "esm": {"vocab_size": 33, "pad_token_id": 1, "mask_token_id": 32},
    "gemma4": {"vision_config": {}, "audio_config": {}},
    "gemma4_assistant": {"text_config": SHARED_KEYS},
    "gemma4_unified": {"vision_config": {}, "audio_config": {}},
    "granite4_vision": {
        "deepstack_layer_map": [[-19, 9], [-13, 6], [-7, 3], [-1, 0]],
        "downsample_rate": "4/8",
    },
    **{key: {"head_dim": 128} for key in ("hunyuan_v1_dense", "hunyuan_v1_moe", "hunyuan_vl_text", "ministral")},
    "hunyuan_vl": {"text_config.head_dim": 128},
    "lfm2_moe": {"layer_types": EachLayer(("conv", "conv", "full_attention"))},
    "moonshine_streaming": {"num_key_value_heads": 8},
    "nemotron": {"num_key_value_heads": 48},
    "qwen4_exp": {"text_config": QSA | {"model_type": "qwen4_exp_text"}},
    "qwen4_exp_text": QSA,
    "sapiens2": {"head_config": {"upsample_out_channels": [768, 768, 768, 768], "conv_out_channels": [768, 768]}},
    "timm_backbone": {"backbone": "resnet50"},
    "timm_wrapper": {"architecture": "resnet50"},
    **{key: {"vocab_size": 32} for key in ("wav2vec2-bert", "wav2vec2-conformer")},
}


class Gathered:
    """Everything that is known so far, and the table that reads it.

    Attributes:
        classes: as the table has them.
        configs: keys of each type.
        roles: class of each type for each role.
    """

    def __init__(self) -> None:
        self.classes: dict[str, dict[str, Any]] = {}
        self.configs: dict[str, dict[str, Any]] = {}
        self.roles: dict[str, dict[str, str]] = {}
        self.reasons: dict[str, str] = {}

    def table(self) -> ShapeTable:
        """What the program would read."""
        encoded = _Encoded(self.configs)
        generated = Generated(classes=_Encoded(self.classes), roles=self.roles)
        return ShapeTable(
            generated, cache(lambda kind: msgspec.json.decode(encoded.get(kind, b"{}"), type=TypeDefaults))
        )


class _Encoded(dict[str, Any]):
    """Entries as JSON, each when it is asked for."""

    def __getitem__(self, name: str) -> Any:
        return msgspec.Raw(msgspec.json.encode(super().__getitem__(name)))

    def get(self, name: str, default: Any = None) -> Any:
        """As a dict's."""
        return default if name not in self else self[name]  # noqa: SIM401 - a dict's own would not encode it


def fresh(config_class: Any, changes: Mapping[str, Any] | None = None) -> Any:
    """A config with its defaults but for `changes`, by paths."""
    top: dict[str, Any] = {}
    later: dict[str, EachLayer] = {}
    for path, value in (STARTS.get(config_class.model_type, {}) | dict(changes or {})).items():
        *parts, key = path.split(".")
        if isinstance(value, EachLayer):
            later[path] = value
            continue
        if not parts:
            top[key] = value
            continue
        if parts[0] not in top:
            whole = config_class(**{key: value for key, value in top.items() if key != parts[0]})
            top[parts[0]] = _plain_part(getattr(whole, parts[0]))
        inner = top[parts[0]]
        for part in parts[1:]:
            inner = inner[part]
        inner[key] = value
        if "layers" in key:
            inner.pop("layer_types", None)
    for path, kinds in later.items():
        part, _, key = path.rpartition(".")
        inner = top.setdefault(part, _plain_part(getattr(config_class(**top), part))) if part else top
        whole = config_class(**top)
        depth = (getattr(whole, part) if part else whole).num_hidden_layers
        inner[key] = (list(kinds) * depth)[:depth]
    return config_class(**top)


def _plain_part(config: PreTrainedConfig) -> dict[str, Any]:
    return written(config) | {"model_type": config.model_type}


def written(config: PreTrainedConfig) -> dict[str, Any]:
    """As its config.json has it."""
    values: dict[str, Any] = json.loads(config.to_json_string(use_diff=True))
    return values


def values_of(config: PreTrainedConfig, path: str = "") -> dict[str, Any]:
    """Every key by its path."""
    found: dict[str, Any] = {}
    for key, value in vars(config).items():
        if isinstance(value, PreTrainedConfig):
            found |= values_of(value, f"{path}{key}.")
        elif not key.startswith("_"):
            found[path + key] = value
    return found


# Keys that shape nothing.
_OTHERS = (
    "token_id", "token_index", "dropout", "dropping", "init", "eps", "rope_", "theta", "scaling", "scale_factor_",
    "transformers_version", "output_attentions", "output_hidden", "output_router", "return_dict",
    "chunk_size_feed", "use_cache", "problem_type", "_name_or_path",
    "is_encoder_decoder", "alpha", "aux_loss", "jitter", "logit", "pretraining_tp", "softcap", "temperature",
    "attn_implementation", "beta", "_loss", "ctc_", "mask_time", "mask_feature", "apply_spec", "pdrop", "_coef", "_std",
)  # fmt: skip
_LONGEST_TEXT, _LONGEST_LIST = 24, 40
# Layers that the longest repetition fits into twice.
_LAYERS = 24


def add_config(gathered: Gathered, config_class: Any) -> None:
    """What is known of a type and of its parts: its own defaults, and as transformers builds one of them."""
    kind = config_class.model_type
    if not kind or kind in gathered.configs:
        return
    row: dict[str, Any] = {"keys": {}, "aliases": {}, "parts": {}, "fields": _fields(config_class)}
    gathered.configs[kind] = row
    row["aliases"] = {k: v for k, v in (config_class.attribute_map or {}).items() if isinstance(v, str)}
    try:
        config = config_class()
    except Exception:  # noqa: BLE001 - a class whose own defaults contradict each other
        config = None
    for key, value in vars(config).items() if config is not None else ():
        if isinstance(value, PreTrainedConfig):
            different = written(value)
            row["parts"][key] = (
                value.model_type,
                {k: v for k, v in different.items() if k not in {"transformers_version", "model_type"}},
            )
            add_config(gathered, type(value))
        elif not key.startswith("_") and _is_plain(value):
            row["keys"][key] = list(value) if isinstance(value, tuple) else value
    parts = config_class.sub_configs or {}
    row["free"] = [key for key, part in parts.items() if part is AutoConfig]
    for key, part in parts.items():
        if part is not AutoConfig and part.model_type:
            row["parts"].setdefault(key, (part.model_type, None))
            add_config(gathered, part)
    if config is None:
        return
    row["period"] = _period(config_class)
    row["keys"].setdefault("tie_word_embeddings", bool(getattr(config, "tie_word_embeddings", True)))
    labels = config.num_labels
    if labels not in {None, 2}:
        row["keys"]["num_labels"] = labels
    row["keys"] |= _derived(config_class, config)


def as_stored(row: Mapping[str, Any], words: Container[str]) -> dict[str, Any]:
    """A type as the package has it.

    Args:
        row: as `add_config` makes it.
        words: the keys that expressions name.
    """
    fields = row["fields"]
    parts = {
        key: (name, said and {k: v for k, v in said.items() if k in words or isinstance(v, dict)})
        for key, (name, said) in row["parts"].items()
    }
    stored = {
        "keys": fields,
        "derived": {k: v for k, v in row["keys"].items() if k in words and (k not in fields or fields[k] != v)},
        "aliases": row["aliases"],
        "parts": parts,
        "free": [key for key in row["free"] if key in parts],
        "period": row.get("period"),
    }
    return {name: value for name, value in stored.items() if value}


def _fields(config_class: Any) -> dict[str, Any]:
    """The defaults of a config's class that can shape a tensor."""
    found = {}
    for field in dataclasses.fields(config_class):
        value = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        if not any(part in field.name for part in _OTHERS) and _is_short(value):
            found[field.name] = list(value) if isinstance(value, tuple) else value
    return found


def _is_short(value: object) -> bool:
    if isinstance(value, str):
        return 0 < len(value) <= _LONGEST_TEXT
    if isinstance(value, (list, tuple)):
        return 0 < len(value) <= _LONGEST_LIST and all(isinstance(one, int) for one in value)
    return isinstance(value, (bool, int, float)) and value not in {float("inf"), float("-inf")}


def _period(config_class: Any) -> list[str]:
    """The kinds of layers that a config without a list of them repeats; empty where all are alike or none repeats."""
    if "layer_types" not in {field.name for field in dataclasses.fields(config_class)}:
        return []
    try:
        kinds = config_class(num_hidden_layers=_LAYERS).layer_types
    except Exception:  # noqa: BLE001 - as in add_config
        return []
    if not isinstance(kinds, list) or len(kinds) != _LAYERS or len(set(kinds)) == 1:
        return []
    steps = (step for step in range(2, _LAYERS // 2 + 1) if kinds == (kinds[:step] * _LAYERS)[:_LAYERS])
    return kinds[: next(steps, 0)]


def _is_plain(value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return len(value) <= 200 and all(map(_is_plain, value))
    return (
        value is None
        or isinstance(value, (bool, int))
        or (isinstance(value, float) and abs(value) < 1e18)
        or (isinstance(value, str) and len(value) <= 30)
    )


def _derived(config_class: Any, config: PreTrainedConfig) -> dict[str, str]:
    """Keys that transformers works out of others where a config does not say them."""
    fields = {field.name: field for field in dataclasses.fields(config_class)}
    given = {
        name: symbol(value, name)
        for name, value in vars(config).items()
        if name in fields
        and isinstance(value, (int, float))
        and not isinstance(value, bool)
        and isinstance(fields[name].default, (int, float))
    }
    found: dict[str, str] = {}
    with contextlib.suppress(Exception):
        for key, value in vars(config_class(**given)).items():
            if isinstance(value, (Size, Real)) and value.text != key and not key.startswith("_"):
                found[key] = f"= {simpler(value.text)}"
    return found | _derived_lists(config_class, fields)


def _derived_lists(config_class: Any, fields: Mapping[str, Any]) -> dict[str, str]:
    """Lists of a kind for each layer that are worked out where a config has none."""
    depth = next((name for name in ("num_hidden_layers", "num_layers", "n_layer", "n_layers") if name in fields), None)
    if depth is None:
        return {}
    found = {}
    with contextlib.suppress(Exception):
        several = [config_class(**{depth: count}) for count in (24, 31)]
        for key, listed in vars(several[0]).items():
            if not isinstance(listed, (list, tuple)) or len(listed) != 24 or key.startswith("_"):
                continue
            if len(getattr(several[1], key)) != 31 or not all(isinstance(one, (str, int, bool)) for one in listed):
                continue
            text = _listed([(one, getattr(one, key)) for one in several], depth)
            if text:
                found[key] = f"= [{text} for i in range({depth})]"
    return found


def _listed(several: list[tuple[PreTrainedConfig, Any]], depth: str) -> str:
    items = list(dict.fromkeys(one for _config, listed in several for one in listed))
    if len(items) > 4:
        return ""
    text, rest = "", [[(at,) for at in range(len(listed))] for _config, listed in several]
    for item in items[:-1]:
        options = []
        for (config, listed), places in zip(several, rest, strict=True):
            numbers = {
                k: v
                for k, v in values_of(config).items()
                if not isinstance(v, (list, tuple)) and "." not in k and k != depth
            }
            known = predicates([(at,) for at in range(len(listed))], [depth], numbers)
            here = frozenset(place for place in places if listed[place[0]] == item)
            options.append([name for name, members in known if members & frozenset(places) == here])
        both = next((name for name in options[0] if name in options[1]), None)
        if both is None:
            return ""
        text += f"{item!r} if {both} else "
        rest = [[p for p in places if listed[p[0]] != item] for (_c, listed), places in zip(several, rest, strict=True)]
    return text + repr(items[-1])
