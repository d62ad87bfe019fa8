"""An encoder-decoder of a preset's `[model]` table (T5, BART, Whisper), as what it consists of."""

from functools import lru_cache

from vramtui.core.base.errors import UserError
from vramtui.core.schema.models import EncoderDecoderModel
from vramtui.models.kinds import AttentionModule, ConvModule, EmbeddingModule, LinearModule, NormModule
from vramtui.models.spec import ModelSpec, Module, RepeatedBlock

# What stands before the name of a layer that looks at the encoder.
CROSS = "cross_"
SOURCE_POSITIONS, TARGET_POSITIONS = "encoder.embed_positions", "decoder.embed_positions"


@lru_cache(maxsize=64)  # as a decoder's
def encoder_decoder_spec(model: EncoderDecoderModel) -> ModelSpec:
    """Modules of both sides: the encoder's blocks come first."""
    check_shapes(model)
    first, layers = model.encoder_layers, model.encoder_layers + model.decoder_layers
    starts: tuple[RepeatedBlock, ...] = ()
    if model.relative_attention_num_buckets:
        table = relative_positions(model)
        starts = tuple(RepeatedBlock(modules=(table,), start=at, stop=at + 1) for at in (0, first))
    d, bins = model.d_model, model.num_mel_bins
    modules: list[Module] = [EmbeddingModule(name="shared", rows=model.vocab_size, width=d)]
    if bins is not None:
        modules += [
            ConvModule(name=name, out_channels=d, in_channels=channels, kernel=(3,))
            for name, channels in (("conv1", bins), ("conv2", d))
        ]
    rows = {SOURCE_POSITIONS: model.max_source_positions, TARGET_POSITIONS: model.max_target_positions}
    modules += [
        EmbeddingModule(name=name, rows=count + model.position_offset, width=d) for name, count in rows.items() if count
    ]
    if model.norm_embeddings:
        modules.append(NormModule(name="layernorm_embedding", size=d, style="layernorm", repeat=2))
    after: list[Module] = []
    if model.final_norm:
        after += [_norm(model, f"{side}'s last norm") for side in ("encoder", "decoder")]
    if not model.tie_word_embeddings:
        after.append(LinearModule(name="lm_head", out_features=model.vocab_size, in_features=model.d_model))
    return ModelSpec(
        before=tuple(modules),
        blocks=(
            RepeatedBlock(modules=_modules(model, crosses=False), start=0, stop=first),
            RepeatedBlock(modules=_modules(model, crosses=True), start=first, stop=layers),
            *starts,
        ),
        after=tuple(after),
        layers=layers,
    )


def relative_positions(model: EncoderDecoderModel) -> EmbeddingModule:
    """T5's table of them, in the first block of each side."""
    rows, width = model.relative_attention_num_buckets, model.num_attention_heads
    return EmbeddingModule(name="relative_attention_bias", rows=rows, width=width)


def _norm(model: EncoderDecoderModel, name: str, repeat: int = 1) -> NormModule:
    return NormModule(name=name, size=model.d_model, style=model.norm, repeat=repeat)


def _attention(model: EncoderDecoderModel, prefix: str) -> AttentionModule:
    return AttentionModule(
        name=prefix,
        hidden=model.d_model,
        heads=model.num_attention_heads,
        kv_heads=model.num_attention_heads,
        head_dim=model.d_kv or model.d_model // model.num_attention_heads,
        bias=model.bias,
        key_bias=model.bias and model.key_bias,
        output_bias=model.bias,
    )


def _modules(model: EncoderDecoderModel, *, crosses: bool) -> tuple[Module, ...]:
    d, f, bias = model.d_model, model.d_ff, model.bias
    cross = (_attention(model, CROSS), _norm(model, "cross_attention_norm")) if crosses else ()
    gate = (LinearModule(name="gate", out_features=f, in_features=d, bias=bias),) if model.gated_mlp else ()
    return (
        _attention(model, ""), _norm(model, "self_attention_norm"), *cross,
        LinearModule(name="fc1", out_features=f, in_features=d, bias=bias), *gate,
        LinearModule(name="fc2", out_features=d, in_features=f, bias=bias), _norm(model, "mlp_norm"),
    )  # fmt: skip


def check_shapes(model: EncoderDecoderModel) -> None:
    """Refuse sizes that cannot be."""
    heads = model.num_attention_heads
    if model.d_kv is None and model.d_model % heads:
        raise UserError(
            f"model.num_attention_heads = {heads} does not divide model.d_model = {model.d_model}; change one of them "
            "or give model.d_kv"
        )
    if model.num_mel_bins is not None and model.max_source_positions is None:
        raise UserError("model.num_mel_bins makes the source a spectrogram, which needs model.max_source_positions")
