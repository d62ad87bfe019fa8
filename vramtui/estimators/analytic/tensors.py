"""The tensors of a decoder-only transformer, by the names Hugging Face gives their modules."""

from math import prod

import msgspec

from vramtui.core.errors import UserError, nearest
from vramtui.core.models import TransformerModel
from vramtui.core.workload import Lora


class Tensor(msgspec.Struct, frozen=True):
    """`count` tensors of one shape. `module` is the last part of the module's name; `layer` whether it is a block's."""

    module: str
    shape: tuple[int, ...]
    count: int = 1
    layer: bool = False

    @property
    def numel(self) -> int:
        """Elements of one of them."""
        return prod(self.shape)


def model_tensors(model: TransformerModel) -> tuple[Tensor, ...]:
    """Every parameter tensor; tied embeddings stand once.

    Raises:
        UserError: the shapes contradict each other.
    """
    check_shapes(model)
    outside = [Tensor("embed_tokens", (model.vocab_size, model.hidden_size))]
    if model.position == "learned":
        outside.append(Tensor("embed_positions", (model.max_position_embeddings or 0, model.hidden_size)))
    if not model.tie_word_embeddings:
        outside.append(Tensor("lm_head", (model.vocab_size, model.hidden_size)))
    return (*outside, *_norm_tensors(model, "norm", 1, layer=False), *layer_tensors(model))


def layer_tensors(model: TransformerModel) -> tuple[Tensor, ...]:
    """The tensors of all blocks; `count` is over all layers."""
    layers = model.num_hidden_layers
    tensors: list[Tensor] = []
    for module, (rows, columns) in linear_shapes(model).items():
        tensors.append(Tensor(module, (rows, columns), layers, layer=True))
        if _has_bias(model, module):
            tensors.append(Tensor(module, (rows,), layers, layer=True))
    tensors += _norm_tensors(model, "layer_norm", layers * model.norms_per_layer, layer=True)
    if model.qk_norm:
        tensors.append(Tensor("qk_norm", (model.head_size,), 2 * layers, layer=True))
    return tuple(tensors)


def linear_shapes(model: TransformerModel) -> dict[str, tuple[int, int]]:
    """Each linear layer of a block as (out_features, in_features)."""
    d, f = model.hidden_size, model.ffn_size
    queries, keys = model.num_attention_heads * model.head_size, model.kv_heads * model.head_size
    shapes = (
        {"qkv_proj": (queries + 2 * keys, d)}
        if model.fused_qkv
        else {"q_proj": (queries, d), "k_proj": (keys, d), "v_proj": (keys, d)}
    )
    shapes["o_proj"] = (d, queries)
    if model.gated_mlp:
        shapes["gate_proj"] = (f, d)
    return shapes | {"up_proj": (f, d), "down_proj": (d, f)}


def adapter_tensors(model: TransformerModel, lora: Lora) -> tuple[Tensor, ...]:
    """The A (rank x in) and B (out x rank) matrices beside every targeted linear layer.

    Raises:
        UserError: a target is not a linear layer of the model's blocks.
    """
    shapes = linear_shapes(model)
    layers = model.num_hidden_layers
    tensors: list[Tensor] = []
    for target in lora.target_modules:
        if target not in shapes:
            guess = nearest(target, shapes)
            raise UserError(
                f"run.lora.target_modules: {target!r} is not a linear layer of this model{guess}; "
                f"it has: {', '.join(shapes)}"
            )
        rows, columns = shapes[target]
        tensors.append(Tensor(target, (lora.rank, columns), layers, layer=True))
        tensors.append(Tensor(target, (rows, lora.rank), layers, layer=True))
    return tuple(tensors)


def parameter_count(model: TransformerModel) -> int:
    """Parameters of the model, tied weights counted once, as model cards count them."""
    return sum(tensor.numel * tensor.count for tensor in model_tensors(model))


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


def _has_bias(model: TransformerModel, module: str) -> bool:
    if module in {"q_proj", "k_proj", "v_proj", "qkv_proj"}:
        return model.attention_bias
    return model.output_bias if module == "o_proj" else model.mlp_bias


def _norm_tensors(model: TransformerModel, module: str, count: int, *, layer: bool) -> list[Tensor]:
    each = 2 if model.norm == "layernorm" else 1  # a layer norm has a bias, an RMS norm has none
    return [Tensor(module, (model.hidden_size,), count * each, layer)]
