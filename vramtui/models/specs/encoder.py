"""An encoder of a preset's `[model]` table (BERT, ViT, CLIP's towers), as what it consists of."""

from functools import lru_cache

from vramtui.core.base.errors import UserError
from vramtui.core.schema.models import EncoderModel
from vramtui.models.kinds import AttentionModule, ConvModule, EmbeddingModule, LinearModule, NormModule
from vramtui.models.spec import ModelSpec, Module, RepeatedBlock


@lru_cache(maxsize=64)  # as a decoder's
def encoder_spec(model: EncoderModel, *, gated: bool = False, width: int | None = None) -> ModelSpec:
    """Modules of the encoder.

    Args:
        model: as a preset has it.
        gated: whether the MLP's first layer gives a gate beside the values (ModernBERT).
        width: of its words' embeddings and of what words are predicted from; the stream's when None (ALBERT, ELECTRA:
            `embedding_size`).
    """
    check_shapes(model)
    d, ffn = model.hidden_size, model.intermediate_size or 4 * model.hidden_size
    attention = AttentionModule(
        hidden=d,
        heads=model.num_attention_heads,
        kv_heads=model.num_attention_heads,
        head_dim=d // model.num_attention_heads,
        bias=True,
        output_bias=True,
    )
    layers = model.num_hidden_layers
    modules = (
        _norm(model, "attention_norm"),
        attention,
        _norm(model, "mlp_norm"),
        LinearModule(name="fc1", out_features=2 * ffn if gated else ffn, in_features=d, bias=not gated),
        LinearModule(name="fc2", out_features=d, in_features=ffn, bias=not gated),
    )
    width, positions = width or d, positions_of(model)
    before: list[Module] = []
    if positions is None:
        tables = {
            "word_embeddings": model.vocab_size,
            "token_type_embeddings": model.type_vocab_size,
            "position_embeddings": model.max_position_embeddings,
        }
        before += [EmbeddingModule(name=name, rows=rows, width=width) for name, rows in tables.items() if rows]
    else:
        kernel, channels = (model.patch_size, model.patch_size), model.num_channels
        before.append(
            ConvModule(
                name="patch_embeddings", out_channels=d, in_channels=channels, kernel=kernel, bias=model.patch_bias
            )
        )
        rows = {"cls_token": int(model.class_token), "position_embeddings": positions}
        before += [EmbeddingModule(name=name, rows=n, width=d, batched=True) for name, n in rows.items() if n]
    if model.norm_before:
        before.append(_norm(model, "embeddings_norm", width))
    if width != d:
        before.append(LinearModule(name="embeddings_project", out_features=d, in_features=width, bias=True))
    after: list[Module] = [_norm(model, "last_norm")] if model.norm_after else []
    if model.head == "mlm":
        words = model.vocab_size or 0
        after += [
            LinearModule(name="transform", out_features=width, in_features=d, bias=True),
            _norm(model, "transform_norm", width),
            LinearModule(name="decoder", out_features=words, in_features=width, bias=True, tied=True),
        ]
    elif model.pooler:
        after.append(LinearModule(name="pooler", out_features=d, in_features=d, bias=True))
    if model.projection_dim and model.head != "mlm":
        after.append(LinearModule(name="projection", out_features=model.projection_dim, in_features=d))
    if model.head == "classes":
        read = model.projection_dim or d
        after.append(LinearModule(name="classifier", out_features=model.num_labels, in_features=read, bias=True))
    return ModelSpec(
        before=tuple(before),
        blocks=(RepeatedBlock(modules=modules, start=0, stop=layers),),
        after=tuple(after),
        layers=layers,
    )


def positions_of(model: EncoderModel) -> int | None:
    """Positions of one image: its patches, and one for all of it where there is a class token; None for text."""
    if model.image_size is None:
        return None
    return (model.image_size // model.patch_size) ** 2 + model.class_token


def _norm(model: EncoderModel, name: str, size: int | None = None) -> NormModule:
    return NormModule(name=name, size=size or model.hidden_size, style="layernorm")


def check_shapes(model: EncoderModel) -> None:
    """Refuse sizes that cannot be."""
    heads = model.num_attention_heads
    if model.hidden_size % heads:
        raise UserError(f"model.num_attention_heads = {heads} does not divide model.hidden_size = {model.hidden_size}")
    if (model.image_size is None) == (model.vocab_size is None):
        raise UserError("an encoder reads words (model.vocab_size) or images (model.image_size): give one of the two")
    if model.image_size is not None and model.image_size % model.patch_size:
        raise UserError(f"model.patch_size = {model.patch_size} does not divide model.image_size = {model.image_size}")
    if model.head == "mlm" and model.vocab_size is None:
        raise UserError("model.head = 'mlm' predicts words, and the model has none: give model.vocab_size")
