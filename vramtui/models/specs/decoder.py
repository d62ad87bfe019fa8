"""A decoder-only transformer of a preset's `[model]` table, as what it consists of."""

from functools import lru_cache

from vramtui.core.base.errors import UserError
from vramtui.core.schema.models import LayerCache, TransformerModel
from vramtui.models.kinds import (
    AttentionModule,
    EmbeddingModule,
    LinearModule,
    MlaModule,
    MlpModule,
    MoeModule,
    NormModule,
)
from vramtui.models.spec import ModelSpec, RepeatedBlock


@lru_cache(maxsize=64)  # one estimate asks for the same model's weights, cache and adapters
def decoder_spec(model: TransformerModel) -> ModelSpec:
    """Modules of the decoder."""
    check_shapes(model)
    hidden = model.hidden_size
    before = [EmbeddingModule(name="embed_tokens", rows=model.vocab_size, width=hidden)]
    if model.position == "learned":
        before.append(EmbeddingModule(name="embed_positions", rows=model.max_position_embeddings or 0, width=hidden))
    output = LinearModule(
        name="lm_head",
        out_features=model.vocab_size,
        in_features=hidden,
        bias=model.lm_head_bias,
        tied=model.tie_word_embeddings,
    )
    # Dense blocks and those with experts; of each those that look back all the way and those that slide.
    layers = model.num_hidden_layers
    dense = layers if model.num_experts is None else min(model.first_k_dense_replace, layers)
    norms = NormModule(name="layer_norm", size=model.hidden_size, style=model.norm, repeat=model.norms_per_layer)
    attention = _attention(model)
    mlp = MlpModule(hidden=model.hidden_size, width=model.ffn_size, gated=model.gated_mlp, bias=model.mlp_bias)
    experts = MoeModule(
        hidden=model.hidden_size,
        experts=model.num_experts or 0,
        per_token=model.num_experts_per_tok or 0,
        width=model.expert_size,
        gated=model.gated_mlp,
        router_bias=model.router_bias,
        shared=model.shared_size,
        shared_gate=model.shared_expert_gate,
    )
    window, every = model.sliding_window, model.sliding_window_pattern
    sorts = [(None, True), (window, False)] if every is not None and window is not None else [(window, False)]
    return ModelSpec(
        before=tuple(before),
        blocks=tuple(
            RepeatedBlock(
                modules=(norms, attention, feed_forward),
                start=start,
                stop=stop,
                every=every if window is not None else None,
                nth=nth,
                window=looks_back,
            )
            for start, stop, feed_forward in ((0, dense, mlp), (dense, layers, experts))
            for looks_back, nth in sorts
            if start < stop
        ),
        after=(NormModule(name="norm", size=hidden, style=model.norm), output),
        layers=model.num_hidden_layers,
        listed=model.tensors,
        listed_caches=model.caches,
        basis=model.basis,
    )


def attention_of(model: TransformerModel) -> AttentionModule | MlaModule:
    """The attention of its blocks, which all have the same."""
    modules = decoder_spec(model).blocks[0].modules
    return next(module for module in modules if isinstance(module, AttentionModule | MlaModule))


def _attention(model: TransformerModel) -> AttentionModule | MlaModule:
    if model.kv_lora_rank is None:
        return AttentionModule(
            hidden=model.hidden_size,
            heads=model.num_attention_heads,
            kv_heads=model.kv_heads,
            head_dim=model.head_size,
            fused=model.fused_qkv,
            bias=model.attention_bias,
            output_bias=model.output_bias,
            qk_norm=model.qk_norm,
        )
    plain, rotary, values = model.qk_nope_head_dim, model.qk_rope_head_dim, model.v_head_dim
    if plain is None or rotary is None or values is None:
        raise UserError(
            "model.kv_lora_rank makes the attention MLA, which needs model.qk_nope_head_dim, model.qk_rope_head_dim "
            "and model.v_head_dim"
        )
    return MlaModule(
        hidden=model.hidden_size,
        heads=model.num_attention_heads,
        q_rank=model.q_lora_rank,
        kv_rank=model.kv_lora_rank,
        plain_dim=plain,
        rotary_dim=rotary,
        value_dim=values,
        bias=model.attention_bias,
        output_bias=model.output_bias,
        norm=model.norm,
    )


def check_shapes(model: TransformerModel) -> None:
    """Refuse sizes that cannot be."""
    heads = model.num_attention_heads
    if model.head_dim is None and model.hidden_size % heads:
        raise UserError(
            f"model.num_attention_heads = {heads} does not divide model.hidden_size = {model.hidden_size}; "
            "change one of them or give model.head_dim"
        )
    if heads % model.kv_heads:
        raise UserError(
            f"model.num_key_value_heads = {model.kv_heads} does not divide model.num_attention_heads = {heads}"
        )
    if model.position == "rope" and model.kv_lora_rank is None and model.basis == "shapes" and model.head_size % 2:
        raise UserError(f"model.head_dim = {model.head_size} is odd, and rotary positions turn pairs of numbers")
    if model.position == "learned" and model.max_position_embeddings is None:
        raise UserError("model.position = 'learned' needs model.max_position_embeddings, the number of positions")
    if (model.num_experts is None) != (model.num_experts_per_tok is None):
        raise UserError("model.num_experts and model.num_experts_per_tok go together")
    if model.num_experts is not None and (model.num_experts_per_tok or 0) > model.num_experts:
        raise UserError(
            f"model.num_experts_per_tok = {model.num_experts_per_tok} is more than model.num_experts = "
            f"{model.num_experts}"
        )


def shape_words(model: TransformerModel, kind: LayerCache | None = None) -> str:
    """Size of a token in the cache of one layer (of `kind`), in words."""
    if model.caches and kind is not None:
        return f"{kind.per_token:,}"
    return attention_of(model).cache_words()


def cache_source(model: TransformerModel) -> str:
    return attention_of(model).cache_source
