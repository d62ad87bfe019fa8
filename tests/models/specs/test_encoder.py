from collections import Counter

import msgspec
import pytest

from tests.loaded_once import bundled_presets
from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import Device
from vramtui.core.schema.models import EncoderModel
from vramtui.core.schema.workload import InferRun
from vramtui.estimators.analytic.models.registry import program_of
from vramtui.models.families.encoders import FOLLOWED, followed_encoder
from vramtui.models.shapes.known import filled_in, shape_table
from vramtui.models.spec import Parameter
from vramtui.models.specs.nets import encoder_spec

ANY_CARD = Device(name="any", capability=(8, 0), total_memory=0)
TEXT = EncoderModel(
    hidden_size=12, num_hidden_layers=3, num_attention_heads=4, vocab_size=11, type_vocab_size=2,
    max_position_embeddings=9, pooler=True, head="classes", num_labels=5,
)  # fmt: skip
IMAGES = EncoderModel(
    hidden_size=12, num_hidden_layers=2, num_attention_heads=3, image_size=8, patch_size=4, norm_first=True,
    norm_before=True, norm_after=True, patch_bias=False, projection_dim=7,
)  # fmt: skip


def _known() -> dict[str, EncoderModel]:
    models = {found.key: found.preset.model for found in bundled_presets()}
    for name in shape_table().names():
        kind = shape_table().type_of(name)
        if kind not in FOLLOWED:
            continue
        encoder = followed_encoder(filled_in({"model_type": kind, "architectures": [name]}, kind))
        if encoder is not None and encoder.table["kind"] == "encoder":
            models[name] = msgspec.convert(encoder.table, EncoderModel)
    found = {name: model for name, model in models.items() if isinstance(model, EncoderModel)}
    return {"text": TEXT, "images": IMAGES, "words": msgspec.structs.replace(TEXT, head="mlm", pooler=False)} | found


def _counted(tensors: tuple[Parameter, ...]) -> Counter[tuple[str, tuple[int, ...], bool]]:
    counts: Counter[tuple[str, tuple[int, ...], bool]] = Counter()
    for tensor in tensors:
        counts[tensor.module, tensor.shape, tensor.layer] += tensor.count
    return counts


def test_every_tensor_is_one_that_a_pass_uses_and_impossible_sizes_are_refused() -> None:
    known = _known()
    assert len(known) > 12
    for name, model in known.items():
        short = None if model.image_size else 1
        program = program_of(model, InferRun(precision="fp32", sequence_length=short), ANY_CARD)
        assert _counted(encoder_spec(model).tensors()) == _counted(program.frozen), name
    words = encoder_spec(msgspec.structs.replace(TEXT, head="mlm", pooler=False))
    assert [(one.module, one.shape) for one in words.tensors_after()] == [
        ("transform", (12, 12)),
        ("transform", (12,)),
        ("transform_norm", (12,)),
        ("decoder", (11,)),
    ]
    with pytest.raises(UserError, match="does not divide"):
        encoder_spec(msgspec.structs.replace(TEXT, num_attention_heads=5))
    with pytest.raises(UserError, match="give one of the two"):
        encoder_spec(msgspec.structs.replace(TEXT, image_size=8))
