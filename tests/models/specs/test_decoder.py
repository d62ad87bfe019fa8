from collections import Counter

import msgspec
import pytest

from tests.models.specs.models import EDGE, known_decoders
from vramtui.core.base.errors import UserError
from vramtui.core.schema.models import LayerCache
from vramtui.models.spec import Parameter
from vramtui.models.specs.decoder import decoder_spec

FIRST_OF_EDGE = [
    ("embed_tokens", (11, 12), 1, False), ("embed_positions", (9, 12), 1, False), ("norm", (12,), 2, False),
    ("lm_head", (11,), 1, False), ("q_proj", (12, 12), 7, True), ("q_proj", (12,), 7, True),
    ("k_proj", (6, 12), 7, True), ("k_proj", (6,), 7, True), ("v_proj", (6, 12), 7, True), ("v_proj", (6,), 7, True),
    ("o_proj", (12, 12), 7, True), ("o_proj", (12,), 7, True), ("gate_proj", (48, 12), 2, True),
    ("gate_proj", (48,), 2, True), ("up_proj", (48, 12), 2, True), ("up_proj", (48,), 2, True),
    ("down_proj", (12, 48), 2, True), ("down_proj", (12,), 2, True), ("router", (5, 12), 5, True),
    ("experts_gate_up_proj", (5, 96, 12), 5, True), ("experts_down_proj", (5, 12, 48), 5, True),
    ("shared_gate_proj", (96, 12), 5, True), ("shared_up_proj", (96, 12), 5, True),
    ("shared_down_proj", (12, 96), 5, True), ("shared_gate", (1, 12), 5, True), ("layer_norm", (12,), 42, True),
    ("qk_norm", (3,), 14, True),
]  # fmt: skip


def test_tensors_stand_alike_together_and_stretches_of_every_decoder_add_up() -> None:
    assert [(one.module, one.shape, one.count, one.layer) for one in decoder_spec(EDGE).tensors()] == FIRST_OF_EDGE
    latent = msgspec.structs.replace(
        EDGE, kv_lora_rank=5, q_lora_rank=4, qk_nope_head_dim=3, qk_rope_head_dim=2, v_head_dim=7, attention_bias=False
    )
    shapes = {
        (one.module, one.shape) for one in decoder_spec(latent).tensors() if one.module.endswith(("_proj", "mqa"))
    }
    assert {("q_a_proj", (4, 12)), ("q_b_proj", (20, 4)), ("kv_a_proj_with_mqa", (7, 12))} <= shapes
    assert {("kv_b_proj", (40, 5)), ("o_proj", (12, 28))} <= shapes
    assert {kind.per_token for kind in decoder_spec(latent).caches()} == {7}
    with pytest.raises(UserError, match=r"needs model\.qk_nope_head_dim"):
        decoder_spec(msgspec.structs.replace(latent, v_head_dim=None))
    kept = 2 * 2 * 3
    spec = decoder_spec(EDGE)
    assert spec.caches() == (LayerCache(layers=2, per_token=kept), LayerCache(layers=5, per_token=kept, window=8))
    assert [kind.layers for kind in spec.caches(2, 4)] == [1, 1]
    assert [kind.layers for kind in spec.caches(3, 5)] == [2]
    assert len(known_decoders()) > 300
    for name, model in known_decoders().items():
        spec, layers = decoder_spec(model), model.num_hidden_layers
        parts = (*spec.tensors_before(), *spec.block_tensors(0, layers), *spec.tensors_after())
        assert _counted(parts) == _counted(spec.tensors()), name
        if not spec.listed:
            cut = layers // 3
            halves = (*spec.block_tensors(0, cut), *spec.block_tensors(cut, layers))
            assert _counted(halves) == _counted(spec.block_tensors(0, layers)), name
            assert sum(kind.layers for kind in spec.caches_by_kind(0, layers)) == layers, name


def _counted(tensors: tuple[Parameter, ...]) -> Counter[tuple[str, tuple[int, ...]]]:
    counts: Counter[tuple[str, tuple[int, ...]]] = Counter()
    for tensor in tensors:
        counts[tensor.module, tensor.shape] += tensor.count
    return counts
