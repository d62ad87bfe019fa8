"""A decoder of a preset's `[model]` table as what it consists of, its adapters, and models of any other kind."""

from collections.abc import Callable
from functools import lru_cache

import msgspec

from vramtui.core.base.errors import UserError, nearest
from vramtui.core.base.late import late
from vramtui.core.schema import models as kinds
from vramtui.core.schema.workload import DIFFUSERS_MODULES, Lora
from vramtui.models import spec as specs


@lru_cache(maxsize=64)  # one estimate asks for the same model's weights, cache and adapters
def decoder_spec(model: kinds.TransformerModel) -> specs.ModelSpec:
    check_shapes(model)
    hidden = model.hidden_size
    before = [specs.EmbeddingModule(name="embed_tokens", rows=model.vocab_size, width=hidden)]
    if model.position == "learned":
        before.append(
            specs.EmbeddingModule(name="embed_positions", rows=model.max_position_embeddings or 0, width=hidden)
        )
    output = specs.linear("lm_head", hidden, model.vocab_size, bias=model.lm_head_bias, tied=model.tie_word_embeddings)
    # Dense blocks and those with experts; of each those that look back all the way and those that slide.
    layers = model.num_hidden_layers
    dense = layers if model.num_experts is None else min(model.first_k_dense_replace, layers)
    norms = specs.NormModule(name="layer_norm", size=model.hidden_size, style=model.norm, repeat=model.norms_per_layer)
    attention = _attention(model)
    mlp = specs.MlpModule(hidden=model.hidden_size, width=model.ffn_size, gated=model.gated_mlp, bias=model.mlp_bias)
    experts = specs.MoeModule(
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
    return specs.ModelSpec(
        before=tuple(before),
        blocks=tuple(
            specs.RepeatedBlock(
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
        after=(specs.NormModule(name="norm", size=hidden, style=model.norm), output),
        layers=model.num_hidden_layers,
        listed=model.tensors,
        listed_caches=model.caches,
    )


def attention_of(model: kinds.TransformerModel) -> specs.AttentionModule | specs.MlaModule:
    modules = decoder_spec(model).blocks[0].modules
    return next(module for module in modules if isinstance(module, specs.AttentionModule | specs.MlaModule))


def _attention(model: kinds.TransformerModel) -> specs.AttentionModule | specs.MlaModule:
    if model.kv_lora_rank is None:
        return specs.AttentionModule(
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
    return specs.MlaModule(
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


def check_shapes(model: kinds.TransformerModel) -> None:
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


def shape_words(model: kinds.TransformerModel, kind: kinds.LayerCache | None = None) -> str:
    """Size of a token in the cache of one layer (of `kind`), in words."""
    return f"{kind.per_token:,}" if model.caches and kind is not None else attention_of(model).cache_words()


def cache_source(model: kinds.TransformerModel) -> str:
    return attention_of(model).cache_source


def adapter_tensors(spec: specs.ModelSpec, lora: Lora) -> tuple[specs.Parameter, ...]:
    """The A (rank x in) and B (out x rank) matrices of every targeted linear layer; DoRA's magnitudes (out).

    A target that is only in the experts has none, as peft passes over what it does not find as long as it finds another
    (peft 0.21, tuners/tuners_utils.py, `inject_adapter`). Raises UserError if a target is not a linear layer of the
    model's blocks, or all are in the experts.
    """
    layers = linear_layers(spec)
    tensors: list[specs.Parameter] = []
    for target in lora.target_modules:
        if target not in layers:
            guess = nearest(target, layers)
            raise UserError(
                f"run.lora.target_modules: {target!r} is not a linear layer of this model{guess}; "
                f"it has: {', '.join(layers)}"
            )
        layer, count = layers[target]
        if not count:
            continue
        tensors.append(specs.Parameter(target, (lora.rank, layer.in_features), count, layer=True))
        tensors.append(specs.Parameter(target, (layer.out_features, lora.rank), count, layer=True))
        if lora.use_dora:
            tensors.append(specs.Parameter(target, (layer.out_features,), count, layer=True))
    if not tensors and lora.target_modules:
        named = ", ".join(lora.target_modules)
        raise UserError(f"run.lora.target_modules: {named} are in the experts, where peft puts no adapters")
    return tuple(tensors)


def adapted_modules(model: kinds.Model) -> tuple[str, ...]:
    """The linear layers of a model's attentions, by the names it has for them; none if adapters are not known."""
    if isinstance(model, kinds.TransformerModel):
        return tuple(specs.linear_parts(attention_of(model)))
    return (
        DIFFUSERS_MODULES
        if isinstance(model, kinds.UNetModel | kinds.DiffusionTransformerModel | kinds.PipelineModel)
        else ()
    )


def linear_layers(spec: specs.ModelSpec) -> dict[str, tuple[specs.LinearModule, int]]:
    """The linear layers of the blocks by name, and how many there are; none of those that only experts have."""
    layers: dict[str, tuple[specs.LinearModule, int]] = {}
    for block in spec.blocks:
        for module in block.modules:
            routed = module.kind == "moe"
            for name, part in specs.linear_parts(module.adapted()).items():
                first, count = layers.get(name, (part, 0))
                layers[name] = first, count + (0 if routed else block.count(0, spec.layers))
    return layers


# What families of transformers call a linear layer, as peft's `target_modules` has it, and the names used here.
_NAMES_ELSEWHERE: dict[str, tuple[tuple[str, ...], ...]] = {
    **dict.fromkeys(("query_key_value", "Wqkv", "c_attn"), (("qkv_proj",), ("q_proj", "k_proj", "v_proj"))),
    **dict.fromkeys(("dense", "out_proj", "output_proj"), (("o_proj",),)),
    **dict.fromkeys(("dense_h_to_4h", "c_fc", "fc1", "fc_in", "w3"), (("up_proj",),)),
    **dict.fromkeys(("dense_4h_to_h", "fc2", "fc_out", "w2"), (("down_proj",),)),
    "w1": (("gate_proj",),),
}
ALL_LINEAR = "all-linear"  # peft's word for every linear layer but the head


def resolve_target_modules(spec: specs.ModelSpec, lora: Lora) -> Lora:
    """The adapters with their layers named as here, where the model's family calls them otherwise; `all-linear` is
    every linear layer of its blocks. Experts, whose weights are one tensor, have none.
    """
    layers = linear_layers(spec)
    names: list[str] = []
    for target in lora.target_modules:
        if target == ALL_LINEAR:
            names += [name for name, (_, count) in layers.items() if count]
            continue
        known = () if target in layers else _NAMES_ELSEWHERE.get(target, ())
        names += next((own for own in known if layers.keys() >= set(own)), (target,))
    return msgspec.structs.replace(lora, target_modules=tuple(dict.fromkeys(names)))


HERE = __name__.rpartition(".")[0]
# Of one model one of these is needed.
SPECS: dict[type, Callable[..., specs.ModelSpec]] = {
    kinds.TransformerModel: decoder_spec,
    kinds.EncoderModel: late(f"{HERE}.nets:encoder_spec"),
    kinds.EncoderDecoderModel: late(f"{HERE}.nets:encoder_decoder_spec"),
    kinds.UNetModel: late(f"{HERE}.nets:unet_spec"),
    kinds.DiffusionTransformerModel: late(f"{HERE}.nets:diffusion_transformer_spec"),
    kinds.SequentialModel: late(f"{HERE}.layer_list:layer_list_spec"),
    kinds.ConvNetModel: late(f"{HERE}.layer_list:residual_net_spec"),
}


def model_spec(model: kinds.Model) -> specs.ModelSpec | None:
    """Modules of a model; None if only a dry run knows them."""
    if isinstance(model, kinds.PipelineModel):
        return pipeline_spec(model)
    expand = SPECS.get(type(model))
    return None if expand is None else expand(model)


def pipeline_spec(model: kinds.PipelineModel) -> specs.ModelSpec:
    """All parts of a pipeline: the modules of what runs at each step, and every tensor one by one."""
    spec = SPECS[type(model.denoiser)](model.denoiser)
    parts = [group for encoder in model.encoders for group in encoder.tensors]
    inner = []
    for tensor in spec.tensors():
        place: kinds.Place = "layers" if tensor.layer else "outside"
        count = tensor.count * model.denoisers
        inner.append(kinds.TensorGroup(name=tensor.module, shape=tensor.shape, count=count, place=place))
    return msgspec.structs.replace(spec, listed=(*parts, *inner, *model.vae.tensors))
