"""A preset's decoder as what it consists of: weights and cache as they were counted key by key."""

from collections.abc import Iterator

from tests.models.specs.models import known_decoders
from vramtui.core.schema.decoder_models import TransformerModel
from vramtui.estimators.analytic.sizes.kv_cache import cache_layers
from vramtui.estimators.analytic.sizes.parameters import (
    embedding_tensors,
    head_tensors,
    layer_tensors,
    model_tensors,
)
from vramtui.models.specs.decoder import decoder_spec


def _stretches(model: TransformerModel) -> Iterator[tuple[int, int]]:
    layers = model.num_hidden_layers
    yield from ((0, layers), (0, 1), (layers // 3, layers // 2 + 1), (layers - 1, layers))


def _set(tensors: tuple[object, ...]) -> list[str]:
    return sorted(map(str, tensors))


def test_every_model_has_the_tensors_and_caches_that_were_counted_by_hand() -> None:
    assert len(known_decoders()) > 300
    for name, model in known_decoders().items():
        spec = decoder_spec(model)
        assert _set(spec.tensors()) == _set(model_tensors(model)), name
        assert _set(spec.tensors_before()) == _set(embedding_tensors(model)), name
        assert _set(spec.tensors_after()) == _set(head_tensors(model)), name
        for first, stop in _stretches(model):
            assert _set(spec.block_tensors(first, stop)) == _set(layer_tensors(model, first, stop)), name
            old = [
                (kind.count, kind.numbers, kind.window, kind.state, kind.state_fp32)
                for kind in cache_layers(model, first, stop)
            ]
            new = [
                (kind.layers, kind.per_token, kind.window, kind.state, kind.state_fp32)
                for kind in spec.caches(first, stop)
            ]
            assert new == old, name
