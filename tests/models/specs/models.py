from functools import cache

from tests.loaded_once import bundled_presets
from vramtui.core.schema.models import TransformerModel
from vramtui.models.stores.resolve import configs_on_hub
from vramtui.presets.model_presets import preset_of_values

EDGE = TransformerModel(
    hidden_size=12, num_hidden_layers=7, num_attention_heads=4, vocab_size=11, num_key_value_heads=2,
    position="learned", max_position_embeddings=9, norm="layernorm", norms_per_layer=3, qk_norm=True,
    attention_bias=True, output_bias=True, mlp_bias=True, lm_head_bias=True, tie_word_embeddings=True,
    sliding_window=8, sliding_window_pattern=3, num_experts=5, num_experts_per_tok=2, n_shared_experts=2,
    shared_expert_gate=True, first_k_dense_replace=2,
)  # fmt: skip


@cache
def known_decoders() -> dict[str, TransformerModel]:
    rows = {row.names[0]: row for _, row in configs_on_hub().values()}
    models = {preset.key: preset.preset.model for preset in bundled_presets()}
    models |= {name: preset_of_values(name, row.config).model for name, row in rows.items()}
    return {"edge": EDGE} | {name: model for name, model in models.items() if isinstance(model, TransformerModel)}
