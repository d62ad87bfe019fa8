"""Writes the shapes of every class of transformers' auto mappings, and which of them are complete.

python -m benchmarks.shapes             # writes shapes.json and configs.json of vramtui/models/shapes, prints complete
                                        # of all by kind
python -m benchmarks.shapes llama bert  # prints what is wrong with the classes of these types

timm, torchvision and scipy are wanted beside transformers: without them some forty classes cannot be built.
"""

import gc
import json
import logging
import multiprocessing
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from benchmarks.shapes.checks import add_other_type
from benchmarks.shapes.classes import IN_WORK, add_class
from benchmarks.shapes.configs import Gathered, add_config, as_stored

OUT = Path(__file__).parents[2] / "vramtui" / "models" / "shapes"
ROLES = {
    "base": "MODEL_MAPPING_NAMES",
    "causal": "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "seq2seq": "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "backbone": "MODEL_FOR_BACKBONE_MAPPING_NAMES",
    "masked": "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
    "image-text": "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES",
}
KINDS = {
    "causal": "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "image-text": "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES",
    "masked": "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
    "audio-text": "MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES",
    "speech": "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES",
    "ctc": "MODEL_FOR_CTC_MAPPING_NAMES",
    "text-to-speech": "MODEL_FOR_TEXT_TO_WAVEFORM_MAPPING_NAMES",
    "image-classes": "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES",
    "image-models": "MODEL_FOR_IMAGE_MAPPING_NAMES",
    "segmentation": "MODEL_FOR_SEMANTIC_SEGMENTATION_MAPPING_NAMES",
    "masks": "MODEL_FOR_UNIVERSAL_SEGMENTATION_MAPPING_NAMES",
    "detection": "MODEL_FOR_OBJECT_DETECTION_MAPPING_NAMES",
    "depth": "MODEL_FOR_DEPTH_ESTIMATION_MAPPING_NAMES",
    "zero-shot-images": "MODEL_FOR_ZERO_SHOT_IMAGE_CLASSIFICATION_MAPPING_NAMES",
    "zero-shot-detection": "MODEL_FOR_ZERO_SHOT_OBJECT_DETECTION_MAPPING_NAMES",
    "mask-generation": "MODEL_FOR_MASK_GENERATION_MAPPING_NAMES",
    "translation": "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "text-embedding": "MODEL_FOR_TEXT_ENCODING_MAPPING_NAMES",
    "ranking": "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES",
}
# Parts of other models that none of these mappings has, by type; not counted with the classes.
PARTS = (
    ("bit", "BitBackbone"),
    ("owlv2_text_model", "Owlv2TextModel"),
    ("owlv2_vision_model", "Owlv2VisionModel"),
    ("owlvit_text_model", "OwlViTTextModel"),
    ("owlvit_vision_model", "OwlViTVisionModel"),
    ("pvt_v2", "PvtV2Backbone"),
    ("swinv2", "Swinv2Backbone"),
)
# Processes, and seconds of the processor for each class.
WORKERS, SECONDS = 2, 200


class _TooLongError(BaseException):
    """A class takes longer than it is given; no `except Exception` on the way passes over it."""


def classes() -> Iterator[tuple[str, str, str]]:
    """(kind, type, class) of every entry of the mappings."""
    for kind, mapping in (KINDS | {"bare": ROLES["base"]}).items():
        for model_type, names in getattr(modeling_auto, mapping).items():
            for name in (names,) if isinstance(names, str) else names[:1]:
                yield kind, model_type, name


def roles() -> dict[str, dict[str, str]]:
    """The class of each type for each role."""
    found = {role: getattr(modeling_auto, mapping) for role, mapping in ROLES.items()}
    return {role: {k: v if isinstance(v, str) else v[0] for k, v in names.items()} for role, names in found.items()}


def config_class_of(model_type: str, name: str) -> Any:
    """The class of the config of a class."""
    import transformers  # noqa: PLC0415 - thousands of modules, each when it is asked for

    own = getattr(getattr(transformers, name), "config_class", None)
    config_class = CONFIG_MAPPING[model_type]
    return config_class if own is None or issubclass(config_class, own) else own


# What this process has worked out so far: parts of several models are worked out once.
_KEPT = Gathered()


def by_hand() -> dict[str, Any]:
    """The classes that are written by hand, of which others may be made."""
    found: dict[str, Any] = json.loads((OUT / "by_hand.json").read_text(encoding="utf-8"))
    return found


def _stop(*_signal: object) -> None:
    raise _TooLongError


def worked_out(todo: list[tuple[str, str]]) -> Gathered:
    """The shapes of these classes and of their parts that this process has not worked out before."""
    logging.disable(logging.CRITICAL)
    signal.signal(signal.SIGVTALRM, _stop)
    gc.disable()  # a third of the time, of objects that are mostly transformers' own
    if not _KEPT.roles:
        gc.freeze()
        _KEPT.roles = roles()
        mapped = {name for _kind, _type, name in classes()}
        _KEPT.classes |= {name: one for name, one in by_hand().items() if name not in mapped}
        _KEPT.reasons |= dict.fromkeys(_KEPT.classes, "")
    known, types = set(_KEPT.reasons), set(_KEPT.configs)
    for model_type, name in todo:
        signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
        try:
            add_class(_KEPT, name, config_class_of(model_type, name))
        except _TooLongError:
            _KEPT.reasons |= {one: "took too long" for one, why in _KEPT.reasons.items() if why == IN_WORK}
            _KEPT.reasons[name] = "took too long"
        except Exception as error:  # noqa: BLE001 - listed
            _KEPT.reasons[name] = f"not built: {type(error).__name__} {error}"[:120].partition("\n")[0]
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    gc.collect()
    new = Gathered()
    new.roles = _KEPT.roles
    new.reasons = {name: why for name, why in _KEPT.reasons.items() if name not in known}
    new.classes = {name: one for name, one in _KEPT.classes.items() if name not in known}
    new.configs = {kind: row for kind, row in _KEPT.configs.items() if kind not in types}
    return new


def complete(gathered: Gathered) -> dict[str, Any]:
    """The classes in which nothing is wrong, nor in what they are made of that is not written by hand; `reasons` gets
    why for the others.
    """
    hand = by_hand().keys()
    good = {name: one for name, one in gathered.classes.items() if not gathered.reasons.get(name)}
    while True:
        lost = {}
        for name, one in good.items():
            lines = [line for lines in one["loops"].values() for line in lines if line[0].startswith("@")]
            parts = [_part(gathered, one["of"], line[0][1:], line[1]) for line in lines]
            missing = next((part for part in parts if part not in good and part not in hand), None)
            if missing is not None:
                lost[name] = f"its part {missing}"
        if not lost:
            return good
        gathered.reasons |= lost
        good = {name: one for name, one in good.items() if name not in lost}


def _part(gathered: Gathered, kind: str, name: str, path: str) -> str:
    """The class of a part by default, whose name may be a role."""
    if name not in gathered.roles:
        return name
    for key in filter(None, path.split(".")):
        kind = gathered.configs[kind]["parts"].get(key, ("", {}))[0]
    return gathered.roles[name].get(kind, kind)


def used_keys(gathered: Gathered, good: dict[str, Any]) -> set[str]:
    """Every key that an expression of a complete class names, or of a config."""
    found: set[str] = set()
    for one in (*good.values(), *by_hand().values()):
        found |= {key.rpartition(".")[2] for key in one.get("known", ())}
        for loops, lines in one["loops"].items():
            texts = [*loops.split("; "), *(f"({sizes},)" for name, sizes, _c, _n in lines if name[0] != "@")]
            texts += [condition for _name, _sizes, condition, _count in lines]
            for text in filter(None, texts):
                found |= _words(text)
    for row in gathered.configs.values():
        for value in row["keys"].values():
            if isinstance(value, str) and value.startswith("="):
                found |= _words(value[1:])
    return found


def _words(text: str) -> set[str]:
    import ast  # noqa: PLC0415 - one function's

    nodes = ast.walk(ast.parse(text.strip(), mode="eval"))
    return {n.attr if isinstance(n, ast.Attribute) else n.id for n in nodes if isinstance(n, (ast.Attribute, ast.Name))}


def add_other_types(gathered: Gathered, good: dict[str, Any]) -> None:
    """Adds to classes the other types whose configs the mappings give them."""
    for _kind, model_type, name in classes():
        config_class = CONFIG_MAPPING[model_type]
        if name in good and config_class.model_type not in {good[name]["of"], *good[name].get("also", ())}:
            add_config(gathered, config_class)
            try:
                add_other_type(gathered, name, config_class)
            except Exception as error:  # noqa: BLE001 - of any kind: it stays unknown
                sys.stderr.write(f"{name} is not built from {model_type}: {type(error).__name__}\n")


def write(gathered: Gathered) -> None:
    """The files of the package: complete classes that are not written by hand, and the configs of all."""
    hand = by_hand()
    good = {name: one for name, one in complete(gathered).items() if name not in hand}
    add_other_types(gathered, good)
    write_configs(gathered, good)
    lines = ['{"classes":{']
    lines.append(",\n".join(f"{json.dumps(name)}:{_short(one)}" for name, one in sorted(good.items())))
    lines.append(f'}},"roles":{_short(gathered.roles)}}}')
    (OUT / "shapes.json").write_text("\n".join(lines) + "\n", encoding="utf-8")
    rest = {name: why for name, why in sorted(gathered.reasons.items()) if why and name not in hand}
    (Path(__file__).parent / "rest.json").write_text(json.dumps(rest, indent=0) + "\n", encoding="utf-8")


def write_configs(gathered: Gathered, good: dict[str, Any]) -> None:
    """The file of what each type takes a key for where a config does not say it."""
    for _kind, model_type, _name in classes():
        add_config(gathered, CONFIG_MAPPING[model_type])
    words = used_keys(gathered, good) | {"num_labels"}
    rows = ((kind, as_stored(row, words)) for kind, row in sorted(gathered.configs.items()))
    lines = ",\n".join(f"{json.dumps(kind)}:{_short(row)}" for kind, row in rows)
    (OUT / "configs.json").write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


def _short(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def main() -> None:
    """Write them all, or print those of some types."""
    wanted = set(sys.argv[1:])
    chosen = [one for one in classes() if not wanted or one[1] in wanted]
    shares: dict[str, list[tuple[str, str]]] = {}
    parts = (one for one in PARTS if not wanted or one[0] in wanted)
    for kind, name in dict.fromkeys((*((kind, name) for _kind, kind, name in chosen), *parts)):
        shares.setdefault(kind, []).append((kind, name))
    whole = Gathered()
    with multiprocessing.get_context("fork").Pool(WORKERS) as pool:
        for at, part in enumerate(pool.imap_unordered(worked_out, shares.values())):
            whole.classes |= part.classes
            whole.configs |= {k: v for k, v in part.configs.items() if k not in whole.configs}
            whole.reasons |= part.reasons
            whole.roles = part.roles
            sys.stderr.write(f"{at + 1} of {len(shares)} types: {', '.join(part.reasons)}\n")
    good = complete(whole)
    for kind in dict.fromkeys(kind for kind, _type, _name in chosen):
        names = [name for own, _type, name in chosen if own == kind]
        count = sum(name in good for name in names)
        sys.stdout.write(f"{kind:20} {count:4} of {len(names):4} complete ({count / len(names):.1%})\n")
    different = {name for _kind, _type, name in chosen}
    count = sum(name in good for name in different)
    sys.stdout.write(f"{'all':20} {count:4} of {len(different):4} complete ({count / len(different):.1%})\n")
    if wanted:
        for name, why in whole.reasons.items():
            if why:
                sys.stdout.write(f"{name}: {why}\n")
        return
    write(whole)


if __name__ == "__main__":
    main()
