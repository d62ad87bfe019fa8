"""What transformers takes a key of a model's config for where the file does not say it. Printed as JSON.

    python benchmarks/architectures_defaults.py >vramtui/models/shapes/defaults.json

Of every type that the goldens of `architectures_golden.py` name, and of the parts of each: their keys that can shape
a tensor, and the types of the parts that are not free to choose.
"""

import dataclasses
import json
import os
import sys
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}

from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING, AutoConfig

KINDS = (
    "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES",
    "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
    "MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES",
    "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES",
    "MODEL_FOR_CTC_MAPPING_NAMES",
    "MODEL_FOR_TEXT_TO_WAVEFORM_MAPPING_NAMES",
    "MODEL_FOR_IMAGE_MAPPING_NAMES",
    "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES",
    "MODEL_FOR_SEMANTIC_SEGMENTATION_MAPPING_NAMES",
    "MODEL_FOR_UNIVERSAL_SEGMENTATION_MAPPING_NAMES",
    "MODEL_FOR_OBJECT_DETECTION_MAPPING_NAMES",
    "MODEL_FOR_DEPTH_ESTIMATION_MAPPING_NAMES",
    "MODEL_FOR_ZERO_SHOT_IMAGE_CLASSIFICATION_MAPPING_NAMES",
    "MODEL_FOR_ZERO_SHOT_OBJECT_DETECTION_MAPPING_NAMES",
    "MODEL_FOR_MASK_GENERATION_MAPPING_NAMES",
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_TEXT_ENCODING_MAPPING_NAMES",
)
# Keys that shape nothing.
OTHERS = (
    "token_id", "token_index", "dropout", "dropping", "init", "eps", "rope_", "theta", "scaling", "scale_factor_",
    "transformers_version", "output_attentions", "output_hidden", "output_router", "return_dict",
    "chunk_size_feed", "use_cache", "problem_type", "_name_or_path",
    "is_encoder_decoder", "alpha", "aux_loss", "jitter", "logit", "pretraining_tp", "softcap", "temperature",
    "attn_implementation", "beta", "_loss", "ctc_", "mask_time", "mask_feature", "apply_spec", "pdrop", "_coef", "_std",
)  # fmt: skip
LONGEST_TEXT, LONGEST_LIST = 24, 40
# Layers that the longest repetition fits into twice.
LAYERS = 24


def shaping(config_class: Any) -> dict[str, Any]:  # noqa: ANN401 - a class of transformers
    """The defaults of a config's class that can shape a tensor."""
    found = {}
    for field in dataclasses.fields(config_class):
        value = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        if any(part in field.name for part in OTHERS) or not _plain(value):
            continue
        found[field.name] = list(value) if isinstance(value, tuple) else value
    return found


def _plain(value: object) -> bool:
    if isinstance(value, str):
        return 0 < len(value) <= LONGEST_TEXT
    if isinstance(value, (list, tuple)):
        return 0 < len(value) <= LONGEST_LIST and all(isinstance(one, int) for one in value)
    return isinstance(value, (bool, int, float)) and value not in {float("inf"), float("-inf")}


def described(config_class: Any, seen: dict[str, Any]) -> None:  # noqa: ANN401 - as in shaping
    """The defaults of a class and of all its parts."""
    name = config_class.model_type
    if not name or name in seen:
        return
    row: dict[str, Any] = {"keys": shaping(config_class)}
    seen[name] = row
    period = _period(config_class)
    if period:
        row["period"] = period
    aliases = {key: value for key, value in (config_class.attribute_map or {}).items() if isinstance(value, str)}
    if aliases:
        row["aliases"] = aliases
    free, fixed = {}, {}
    for key, part in (config_class.sub_configs or {}).items():
        if part is AutoConfig:
            kind = _chosen(config_class, key)
            if kind:
                free[key] = kind
                described(CONFIG_MAPPING[kind], seen)
        elif part.model_type:
            fixed[key] = part.model_type
            described(part, seen)
    row |= {name: kinds for name, kinds in (("free", free), ("fixed", fixed)) if kinds}


def _period(config_class: Any) -> list[str]:  # noqa: ANN401 - as in shaping
    """The kinds of layers that a config without a list of them repeats; empty where all are alike or none repeats."""
    if "layer_types" not in {field.name for field in dataclasses.fields(config_class)}:
        return []
    try:
        kinds = config_class(num_hidden_layers=LAYERS).layer_types
    except Exception:  # noqa: BLE001 - as in _chosen
        return []
    if not isinstance(kinds, list) or len(kinds) != LAYERS or len(set(kinds)) == 1:
        return []
    fitting = (step for step in range(2, LAYERS // 2 + 1) if kinds == (kinds[:step] * LAYERS)[:LAYERS])
    step = next(fitting, None)
    return [] if step is None else kinds[:step]


def _chosen(config_class: Any, key: str) -> str:  # noqa: ANN401 - as in shaping
    """The type of a part where a config does not choose one."""
    try:
        kind = getattr(getattr(config_class(), key, None), "model_type", "")
    except Exception:  # noqa: BLE001 - a class whose own defaults contradict each other
        return ""
    return kind if kind in CONFIG_MAPPING else ""


def main() -> None:
    """Print them all."""
    seen: dict[str, Any] = {}
    for kind in KINDS:
        for model_type in getattr(modeling_auto, kind):
            if model_type in CONFIG_MAPPING:
                described(CONFIG_MAPPING[model_type], seen)
    rows = (f"{json.dumps(name)}: {json.dumps(row, sort_keys=True)}" for name, row in sorted(seen.items()))
    sys.stdout.write("{\n" + ",\n".join(rows) + "\n}\n")


if __name__ == "__main__":
    main()
