"""The tensors of a decoder-only transformer, by the names Hugging Face gives their modules."""

import msgspec

from vramtui.core.base.errors import UserError, nearest
from vramtui.core.schema.decoder_models import TransformerModel
from vramtui.core.schema.stored_tensors import TensorGroup
from vramtui.core.schema.workload import Lora
from vramtui.models.spec import Parameter


def model_tensors(model: TransformerModel) -> tuple[Parameter, ...]:
    """Every parameter tensor; tied embeddings stand once.

    Raises:
        UserError: the shapes contradict each other.
    """
    check_shapes(model)
    if model.tensors:
        return tuple(map(_listed, model.tensors))
    return (*embedding_tensors(model), *head_tensors(model), *layer_tensors(model, 0, model.num_hidden_layers))


def embedding_tensors(model: TransformerModel) -> tuple[Parameter, ...]:
    """What stands before the first block."""
    if model.tensors:
        return tuple(_listed(group) for group in model.tensors if _before(group))
    words = Parameter("embed_tokens", (model.vocab_size, model.hidden_size))
    if model.position != "learned":
        return (words,)
    return words, Parameter("embed_positions", (model.max_position_embeddings or 0, model.hidden_size))


def head_tensors(model: TransformerModel) -> tuple[Parameter, ...]:
    """What stands after the last block."""
    if model.tensors:
        return tuple(_listed(group) for group in model.tensors if group.place == "outside" and not _before(group))
    tensors = _norm_tensors(model, "norm", 1, layer=False)
    if not model.tie_word_embeddings:
        tensors.append(Parameter("lm_head", (model.vocab_size, model.hidden_size)))
    if model.lm_head_bias:
        tensors.append(Parameter("lm_head", (model.vocab_size,)))
    return tuple(tensors)


def layer_tensors(model: TransformerModel, start: int, stop: int) -> tuple[Parameter, ...]:
    """The tensors of the blocks from `start` to before `stop`; `count` is over all of them."""
    layers = stop - start
    if model.tensors:
        return _listed_layers(model, layers)
    routed = max(0, stop - max(start, model.first_k_dense_replace)) if model.num_experts else 0
    tensors = [
        *_linears(model, attention_shapes(model), layers),
        *_linears(model, mlp_shapes(model), layers - routed),
        *(_expert_tensors(model, routed) if routed else ()),
        *_norm_tensors(model, "layer_norm", layers * model.norms_per_layer, layer=True),
    ]
    if model.qk_norm:
        tensors.append(Parameter("qk_norm", (model.head_size,), 2 * layers, layer=True))
    for rank in (model.q_lora_rank, model.kv_lora_rank):
        if model.kv_lora_rank and rank:
            tensors += [msgspec.structs.replace(t, shape=(rank,)) for t in _norm_tensors(model, "a_norm", layers)]
    return tuple(tensor for tensor in tensors if tensor.count)


def _before(group: TensorGroup) -> bool:
    """Whether a listed tensor belongs before the blocks: embeddings, and towers for images or sound."""
    return group.place == "tower" or (group.place == "outside" and group.name.startswith("embed"))


def _listed(group: TensorGroup) -> Parameter:
    layer = group.place != "outside" and not group.name.rpartition(".")[2].startswith("conv_")
    return Parameter(group.name, group.shape, group.count, layer, group.bits)


def _listed_layers(model: TransformerModel, layers: int) -> tuple[Parameter, ...]:
    """The listed tensors of so many blocks: of kinds that only some blocks have, their part, rounded up."""
    tensors = []
    for group in model.tensors:
        if group.place == "layers":
            count = -(-group.count * layers // model.num_hidden_layers)
            tensors.append(msgspec.structs.replace(_listed(group), count=count))
    return tuple(tensor for tensor in tensors if tensor.count)


def _linears(model: TransformerModel, shapes: dict[str, tuple[int, int]], count: int) -> list[Parameter]:
    tensors: list[Parameter] = []
    for module, (rows, columns) in shapes.items():
        tensors.append(Parameter(module, (rows, columns), count, layer=True))
        if has_bias(model, module):
            tensors.append(Parameter(module, (rows,), count, layer=True))
    return tensors


def linear_shapes(model: TransformerModel) -> dict[str, tuple[int, int]]:
    """Each linear layer of a dense block as (out_features, in_features)."""
    return attention_shapes(model) | mlp_shapes(model)


def attention_shapes(model: TransformerModel) -> dict[str, tuple[int, int]]:
    """The linear layers of an attention as (out_features, in_features)."""
    d, heads = model.hidden_size, model.num_attention_heads
    if model.kv_lora_rank is not None:
        return _latent_shapes(model, model.kv_lora_rank)
    queries, keys = heads * model.head_size, model.kv_heads * model.head_size
    shapes = (
        {"qkv_proj": (queries + 2 * keys, d)}
        if model.fused_qkv
        else {"q_proj": (queries, d), "k_proj": (keys, d), "v_proj": (keys, d)}
    )
    return shapes | {"o_proj": (d, queries)}


def _latent_shapes(model: TransformerModel, kv_rank: int) -> dict[str, tuple[int, int]]:
    """Multi-head latent attention: queries, keys and values through low ranks (DeepSeek-V2, arXiv 2405.04434)."""
    d, heads = model.hidden_size, model.num_attention_heads
    plain, rope_dim, values = latent_dims(model)
    queries = heads * (plain + rope_dim)
    shapes: dict[str, tuple[int, int]] = (
        {"q_a_proj": (model.q_lora_rank, d), "q_b_proj": (queries, model.q_lora_rank)}
        if model.q_lora_rank
        else {"q_proj": (queries, d)}
    )
    shapes["kv_a_proj_with_mqa"] = (kv_rank + rope_dim, d)
    shapes["kv_b_proj"] = (heads * (plain + values), kv_rank)
    return shapes | {"o_proj": (d, heads * values)}


def latent_dims(model: TransformerModel) -> tuple[int, int, int]:
    """A head's width without positions, its rotary part, and that of its values.

    Raises:
        UserError: one of them is missing.
    """
    dims = (model.qk_nope_head_dim, model.qk_rope_head_dim, model.v_head_dim)
    if any(dim is None for dim in dims):
        raise UserError(
            "model.kv_lora_rank makes the attention MLA, which needs model.qk_nope_head_dim, model.qk_rope_head_dim "
            "and model.v_head_dim"
        )
    plain, rope_dim, values = (dim or 0 for dim in dims)
    return plain, rope_dim, values


def mlp_shapes(model: TransformerModel, width: int | None = None) -> dict[str, tuple[int, int]]:
    """The linear layers of a dense MLP as (out_features, in_features)."""
    d, f = model.hidden_size, width or model.ffn_size
    shapes = {"gate_proj": (f, d)} if model.gated_mlp else {}
    return shapes | {"up_proj": (f, d), "down_proj": (d, f)}


def _expert_tensors(model: TransformerModel, layers: int) -> list[Parameter]:
    """Router, all experts of a layer in two tensors, and the shared expert."""
    d, f, experts = model.hidden_size, model.expert_size, model.num_experts or 0
    tensors = [
        Parameter("router", (experts, d), layers, layer=True),
        Parameter("experts_gate_up_proj", (experts, f * (2 if model.gated_mlp else 1), d), layers, layer=True),
        Parameter("experts_down_proj", (experts, d, f), layers, layer=True),
    ]
    if model.router_bias:
        tensors.append(Parameter("router", (experts,), layers, layer=True))
    if model.shared_size:
        shared = mlp_shapes(model, model.shared_size)
        tensors += [Parameter(f"shared_{name}", shape, layers, layer=True) for name, shape in shared.items()]
    if model.shared_expert_gate:
        tensors.append(Parameter("shared_gate", (1, d), layers, layer=True))
    return tensors


def adapter_tensors(model: TransformerModel, lora: Lora) -> tuple[Parameter, ...]:
    """The A (rank x in) and B (out x rank) matrices beside every targeted linear layer; DoRA's magnitudes (out).

    A target that is in the experts alone has none, as peft passes over what it does not find as long as it finds
    another (peft 0.21, tuners/tuners_utils.py, `inject_adapter`).

    Raises:
        UserError: a target is not a linear layer of the model's blocks, or all are in the experts.
    """
    shapes = linear_shapes(model)
    layers = model.num_hidden_layers
    dense = layers if model.num_experts is None else min(model.first_k_dense_replace, layers)
    tensors: list[Parameter] = []
    for target in lora.target_modules:
        if target not in shapes:
            guess = nearest(target, shapes)
            raise UserError(
                f"run.lora.target_modules: {target!r} is not a linear layer of this model{guess}; "
                f"it has: {', '.join(shapes)}"
            )
        rows, columns = shapes[target]
        count = dense if target in mlp_shapes(model) else layers
        if not count:
            continue
        tensors.append(Parameter(target, (lora.rank, columns), count, layer=True))
        tensors.append(Parameter(target, (rows, lora.rank), count, layer=True))
        if lora.use_dora:
            tensors.append(Parameter(target, (rows,), count, layer=True))
    if not tensors and lora.target_modules:
        named = ", ".join(lora.target_modules)
        raise UserError(f"run.lora.target_modules: {named} are in the experts, where peft puts no adapters")
    return tuple(tensors)


# What families of transformers call a linear layer, as peft's `target_modules` has it, beside the names used here.
_NAMES_ELSEWHERE: dict[str, tuple[tuple[str, ...], ...]] = {
    "query_key_value": (("qkv_proj",), ("q_proj", "k_proj", "v_proj")),
    "Wqkv": (("qkv_proj",), ("q_proj", "k_proj", "v_proj")),
    "c_attn": (("qkv_proj",), ("q_proj", "k_proj", "v_proj")),
    "dense": (("o_proj",),),
    "out_proj": (("o_proj",),),
    "dense_h_to_4h": (("up_proj",),),
    "dense_4h_to_h": (("down_proj",),),
    "c_fc": (("up_proj",),),
    "fc1": (("up_proj",),),
    "fc2": (("down_proj",),),
    "fc_in": (("up_proj",),),
    "fc_out": (("down_proj",),),
    # torchtune's.
    "output_proj": (("o_proj",),),
    "w1": (("gate_proj",),),
    "w2": (("down_proj",),),
    "w3": (("up_proj",),),
}
ALL_LINEAR = "all-linear"  # peft's word for every linear layer but the head


def own_names(model: TransformerModel, lora: Lora) -> Lora:
    """The adapters with their layers named as here, where the model's family calls them otherwise; `all-linear` is
    every linear layer of its blocks. Experts, whose weights are one tensor, have none.
    """
    shapes = linear_shapes(model)
    found: list[str] = []
    for target in lora.target_modules:
        if target == ALL_LINEAR:
            found += shapes if model.num_experts is None or model.first_k_dense_replace else attention_shapes(model)
            continue
        known = () if target in shapes else _NAMES_ELSEWHERE.get(target, ())
        found += next((names for names in known if shapes.keys() >= set(names)), (target,))
    return msgspec.structs.replace(lora, target_modules=tuple(dict.fromkeys(found)))


def check_shapes(model: TransformerModel) -> None:
    """Refuse shapes that cannot be.

    Raises:
        UserError: a sentence naming the keys that contradict each other.
    """
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
    if model.position == "learned" and model.max_position_embeddings is None:
        raise UserError("model.position = 'learned' needs model.max_position_embeddings, the number of positions")
    if (model.num_experts is None) != (model.num_experts_per_tok is None):
        raise UserError("model.num_experts and model.num_experts_per_tok go together")
    if model.num_experts is not None and (model.num_experts_per_tok or 0) > model.num_experts:
        raise UserError(
            f"model.num_experts_per_tok = {model.num_experts_per_tok} is more than model.num_experts = "
            f"{model.num_experts}"
        )


def has_bias(model: TransformerModel, module: str) -> bool:
    """Whether a linear layer of a block has one."""
    if module in {"q_proj", "k_proj", "v_proj", "qkv_proj", "q_a_proj", "kv_a_proj_with_mqa"}:
        return model.attention_bias
    if module in {"q_b_proj", "kv_b_proj"}:
        return False
    return model.output_bias if module == "o_proj" else model.mlp_bias


def _norm_tensors(model: TransformerModel, module: str, count: int, *, layer: bool = True) -> list[Parameter]:
    each = 2 if model.norm == "layernorm" else 1  # a layer norm has a bias, an RMS norm has none
    return [Parameter(module, (model.hidden_size,), count * each, layer)]
