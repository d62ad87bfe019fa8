"""The generated shapes: what transformers builds, every class accounted for, and safe with anybody's config."""

import json
from collections import Counter
from math import prod
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from tests.recorded.architectures import KINDS, recorded
from tests.tables import rows
from vramtui.models.readers.bounded import DamagedError
from vramtui.models.shapes import known
from vramtui.models.shapes.known import shape_table
from vramtui.models.shapes.nets import JOINED, STREAMS, TEXTS, TRANSLATORS

TABLE = shape_table()
# Classes that are not complete, each with what differs; `python -m benchmarks.shapes` writes it.
REST = json.loads((Path(__file__).parents[3] / "benchmarks" / "shapes" / "rest.json").read_text(encoding="utf-8"))


def counted(architecture: str, config: dict[str, Any]) -> int:
    return sum(prod(tensor.shape) * tensor.count for tensor in TABLE.tensors(architecture, config))


@pytest.mark.parametrize("kind", list(KINDS))
def test_every_class_that_is_known_has_the_parameters_of_the_module(kind: str) -> None:
    for row in recorded(kind):
        if "parameters" in row and TABLE.knows(row["architecture"], row["config"]["model_type"]):
            assert counted(row["architecture"], row["config"]) == row["parameters"], row["type"]


def test_classes_are_complete_and_nets_of_timm_are_those_that_were_built() -> None:
    assert not REST.keys() & set(TABLE.names())
    assert all(REST.values())
    folder = Path(known.__file__).parent
    by_hand = json.loads((folder / "by_hand.json").read_text(encoding="utf-8"))
    generated = json.loads((folder / "shapes.json").read_text(encoding="utf-8"))["classes"]
    assert not by_hand.keys() & generated.keys()
    assert all(one["why"] for one in by_hand.values())
    inside_others = {"kosmos_2_text_model", "kosmos_2_5_text_model"}  # their classes are those of the whole
    names = TABLE.names()
    for kind in (JOINED | STREAMS.keys() | TEXTS.keys() | TRANSLATORS) - inside_others:
        assert any(TABLE.knows(name, kind) for name in names), kind
    # GLM-4.5-Air has one shared expert beside one dense layer, and heads that are not its width over their number.
    row = next(row for row in recorded("public") if row["name"] == "glm-4.5-air")
    assert counted("Glm4MoeForCausalLM", row["config"]) == row["parameters"]
    config = {"model_type": "zaya", "num_hidden_layers": 6}
    few, many = (counted("ZayaForCausalLM", config | {"num_hidden_layers": count}) for count in (4, 6))
    assert 0 < few < many
    # Sam3TrackerModel is built from `tracker_config` of a video's config, whose own keys are not its own.
    own = next(row for row in recorded("mask-generation") if row["type"] == "sam3_video")["config"]
    tracker = own["tracker_config"]
    wider = tracker | {"vision_config": tracker["vision_config"] | {"fpn_hidden_size": 512}}
    base = counted("Sam3TrackerModel", own)
    assert counted("Sam3TrackerModel", own | {"tracker_config": wider}) > base
    assert counted("Sam3TrackerModel", own | {"vision_config": wider["vision_config"]}) == base
    assert not TABLE.knows("Sam3TrackerModel", "sam3")
    assert not TABLE.knows("Sam3TrackerModel", ["sam3_video"])

    def numbers(config: dict[str, Any]) -> int:
        tensors = shape_table().tensors("DetrModel", {"model_type": "detr", **config})
        return sum(one.count * prod(one.shape) for one in tensors)

    usual = numbers({})
    assert numbers({"backbone": "resnet50", "use_timm_backbone": True}) == usual
    deeper = numbers({"backbone_config": {"model_type": "timm_backbone", "backbone": "resnet101"}})
    assert numbers({"backbone": "resnet101"}) == deeper
    # Blocks of the third stage (torchvision's nets have 44,549,160 and 25,557,032 parameters).
    assert 18_800_000 < deeper - usual < 19_000_000
    with pytest.raises(DamagedError, match="whose tensors are not known"):
        numbers({"backbone": "swin_large"})


@pytest.mark.torch
@pytest.mark.parametrize(
    ("name", "kind"), rows(__file__, "a_mask_decoder_of_any_depth_has_the_parameters_of_the_module")
)
@pytest.mark.parametrize("layers", [1, 2, 3, 5])
def test_a_mask_decoder_of_any_depth_has_the_parameters_of_the_module(name: str, kind: str, layers: int) -> None:
    """Each layer's network has as many linear layers as the decoder has layers."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    config = transformers.AutoConfig.for_model(kind)
    config.mask_decoder_config.num_hidden_layers = layers
    with torch.device("meta"):
        module = getattr(transformers, name)(config)
    assert counted(name, config.to_dict()) == sum(parameter.numel() for parameter in module.parameters())


# Parts of other models that no mapping of transformers has: the generator walks to them by a list of its own.
LISTED_PARTS = rows(__file__, "listed_parts")


@pytest.mark.torch
@pytest.mark.parametrize(("kind", "name", "changes"), LISTED_PARTS)
def test_a_part_that_no_mapping_has_is_as_transformers_builds_it(kind: str, name: str, changes: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    cls = getattr(transformers, name)
    for keys in ({}, changes):
        config = cls.config_class(**keys)
        with torch.device("meta"):
            module = cls(config)
        built = Counter(tuple(parameter.shape) for parameter in module.parameters())
        shapes = Counter[tuple[int, ...]]()
        for tensor in TABLE.tensors(name, config.to_dict() | {"model_type": kind}):
            shapes[tensor.shape] += tensor.count
        assert shapes == built


def refusal(name: str) -> str:
    try:
        TABLE.tensors(name, {"model_type": TABLE.type_of(name)})
    except DamagedError as error:
        return str(error)
    return ""


@pytest.mark.slow
def test_every_part_that_a_class_is_made_of_is_known() -> None:
    """A part is a class, or the one that a role has for the type of its config; where none is, the walk missed it."""
    refusals = [refusal(name) for name in TABLE.names()]
    assert not [sentence for sentence in refusals if "has a part" in sentence]
    assert sum(map(bool, refusals)) < 0.1 * len(refusals)


@pytest.mark.parametrize(
    "keys",
    [
        {"hidden_size": [1] * 3}, {"hidden_size": "a" * 10}, {"hidden_size": -4}, {"num_hidden_layers": 10**12},
        {"num_hidden_layers": 2.5}, {"head_dim": {"a": 1}}, {"vocab_size": 10**30},
    ],
)  # fmt: skip
def test_what_cannot_be_worked_out_is_one_clear_error(keys: dict[str, Any]) -> None:
    with pytest.raises(DamagedError, match="has "):
        counted("InklingForCausalLM", {"model_type": "inkling_text"} | keys)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**64), 2**64) | st.floats(allow_nan=True) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
KEYS = ("hidden_size", "num_hidden_layers", "layer_types", "text_config", "vision_config", "depths", "id2label")
