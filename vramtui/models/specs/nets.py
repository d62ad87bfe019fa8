"""Encoders, encoder-decoders, UNets and diffusion transformers of a preset's `[model]` table, as what they consist of.

Layers are named as in transformers, and as in diffusers' UNet2DConditionModel, FluxTransformer2DModel,
SD3Transformer2DModel, QwenImageTransformer2DModel and WanTransformer3DModel. A UNet's blocks are in the order in which
they run: residual ones, transformers between them (what is around a transformer's blocks, and three parts of each of
these), and samplers.
"""

from collections.abc import Iterator
from functools import lru_cache

from vramtui.core.base.errors import UserError
from vramtui.core.schema.models import DiffusionTransformerModel, EncoderDecoderModel, EncoderModel, UNetModel
from vramtui.models.spec import (
    AttentionModule,
    ConvModule,
    EmbeddingModule,
    ModelSpec,
    Module,
    NormModule,
    RepeatedBlock,
    conv,
    layer_norm,
    linear,
)


@lru_cache(maxsize=64)  # as a decoder's
def encoder_spec(model: EncoderModel, *, gated: bool = False, width: int | None = None) -> ModelSpec:
    """Modules of the encoder; if `gated` the MLP's first layer also gives a gate (ModernBERT), and `width` is that of
    its words' embeddings and of what words are predicted from, if not the stream's (ALBERT, ELECTRA: `embedding_size`).
    """
    check_encoder(model)
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
        layer_norm("attention_norm", d),
        attention,
        layer_norm("mlp_norm", d),
        linear("fc1", d, 2 * ffn if gated else ffn, bias=not gated),
        linear("fc2", ffn, d, bias=not gated),
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
        before.append(conv("patch_embeddings", model.num_channels, d, model.patch_size, bias=model.patch_bias))
        rows = {"cls_token": int(model.class_token), "position_embeddings": positions}
        before += [EmbeddingModule(name=name, rows=n, width=d, batched=True) for name, n in rows.items() if n]
    if model.norm_before:
        before.append(layer_norm("embeddings_norm", width))
    if width != d:
        before.append(linear("embeddings_project", width, d))
    after: list[Module] = [layer_norm("last_norm", d)] if model.norm_after else []
    if model.head == "mlm":
        words = model.vocab_size or 0
        after += [
            linear("transform", d, width),
            layer_norm("transform_norm", width),
            linear("decoder", width, words, tied=True),
        ]
    elif model.pooler:
        after.append(linear("pooler", d, d))
    if model.projection_dim and model.head != "mlm":
        after.append(linear("projection", d, model.projection_dim, bias=False))
    if model.head == "classes":
        after.append(linear("classifier", model.projection_dim or d, model.num_labels))
    return ModelSpec(
        before=tuple(before),
        blocks=(RepeatedBlock(modules=modules, start=0, stop=layers),),
        after=tuple(after),
        layers=layers,
    )


def positions_of(model: EncoderModel) -> int | None:
    """Positions of one image: its patches, and one for all of it where there is a class token; None for text."""
    return None if model.image_size is None else (model.image_size // model.patch_size) ** 2 + model.class_token


def check_encoder(model: EncoderModel) -> None:
    heads = model.num_attention_heads
    if model.hidden_size % heads:
        raise UserError(f"model.num_attention_heads = {heads} does not divide model.hidden_size = {model.hidden_size}")
    if (model.image_size is None) == (model.vocab_size is None):
        raise UserError("an encoder reads words (model.vocab_size) or images (model.image_size): give one of the two")
    if model.image_size is not None and model.image_size % model.patch_size:
        raise UserError(f"model.patch_size = {model.patch_size} does not divide model.image_size = {model.image_size}")
    if model.head == "mlm" and model.vocab_size is None:
        raise UserError("model.head = 'mlm' predicts words, and the model has none: give model.vocab_size")


# What stands before the name of a layer that looks at the encoder.
CROSS = "cross_"
SOURCE_POSITIONS, TARGET_POSITIONS = "encoder.embed_positions", "decoder.embed_positions"


@lru_cache(maxsize=64)  # as a decoder's
def encoder_decoder_spec(model: EncoderDecoderModel) -> ModelSpec:
    """Modules of both sides: the encoder's blocks come first."""
    check_encoder_decoder(model)
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
        modules.append(layer_norm("layernorm_embedding", d, repeat=2))
    after: list[Module] = []
    if model.final_norm:
        after += [_side_norm(model, f"{side}'s last norm") for side in ("encoder", "decoder")]
    if not model.tie_word_embeddings:
        after.append(linear("lm_head", d, model.vocab_size, bias=False))
    return ModelSpec(
        before=tuple(modules),
        blocks=(
            RepeatedBlock(modules=_side_modules(model, crosses=False), start=0, stop=first),
            RepeatedBlock(modules=_side_modules(model, crosses=True), start=first, stop=layers),
            *starts,
        ),
        after=tuple(after),
        layers=layers,
    )


def relative_positions(model: EncoderDecoderModel) -> EmbeddingModule:
    """T5's table of them, in the first block of each side."""
    rows, width = model.relative_attention_num_buckets, model.num_attention_heads
    return EmbeddingModule(name="relative_attention_bias", rows=rows, width=width)


def _side_norm(model: EncoderDecoderModel, name: str, repeat: int = 1) -> NormModule:
    return NormModule(name=name, size=model.d_model, style=model.norm, repeat=repeat)


def _side_attention(model: EncoderDecoderModel, prefix: str) -> AttentionModule:
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


def _side_modules(model: EncoderDecoderModel, *, crosses: bool) -> tuple[Module, ...]:
    d, f, bias = model.d_model, model.d_ff, model.bias
    cross = (_side_attention(model, CROSS), _side_norm(model, "cross_attention_norm")) if crosses else ()
    gate = (linear("gate", d, f, bias=bias),) if model.gated_mlp else ()
    return (
        _side_attention(model, ""), _side_norm(model, "self_attention_norm"), *cross,
        linear("fc1", d, f, bias=bias), *gate,
        linear("fc2", f, d, bias=bias), _side_norm(model, "mlp_norm"),
    )  # fmt: skip


def check_encoder_decoder(model: EncoderDecoderModel) -> None:
    heads = model.num_attention_heads
    if model.d_kv is None and model.d_model % heads:
        raise UserError(
            f"model.num_attention_heads = {heads} does not divide model.d_model = {model.d_model}; change one of them "
            "or give model.d_kv"
        )
    if model.num_mel_bins is not None and model.max_source_positions is None:
        raise UserError("model.num_mel_bins makes the source a spectrogram, which needs model.max_source_positions")


RESNET, TRANSFORMER, SAMPLER, HEAD = "resnet", "transformer", "sampler", "head"
# The blocks that a transformer is made of: what stands around its own ones, and their parts.
TRANSFORMER_PARTS = (TRANSFORMER, "attention", "cross-attention", "mlp")
Sort = tuple[str, tuple[Module, ...], int]


@lru_cache(maxsize=64)  # as a decoder's
def unet_spec(model: UNetModel) -> ModelSpec:
    check_unet(model)
    blocks: list[RepeatedBlock] = []
    start = 0
    for name, modules, count in _sorts(model):
        blocks.append(RepeatedBlock(name=name, modules=modules, start=start, stop=start + count))
        start += 0 if name in TRANSFORMER_PARTS[:-1] else count
    first = model.block_out_channels[0]
    before: list[Module] = []
    for name, inner in (("time_embedding", first), ("add_embedding", model.addition_embed_dim)):
        if inner is not None:
            before += [linear(f"{name}_1", inner, 4 * first), linear(f"{name}_2", 4 * first, 4 * first)]
    before.append(conv("conv_in", model.in_channels, first))
    return ModelSpec(before=tuple(before), blocks=tuple(blocks), after=(), layers=start)


def heads_by_level(model: UNetModel) -> tuple[int, ...]:
    given, levels = model.attention_head_dim, len(model.block_out_channels)
    return given * levels if len(given) == 1 else given


def _sorts(model: UNetModel) -> Iterator[Sort]:
    """Down, through the middle, up again, and the answer."""
    channels, attends = model.block_out_channels, model.transformer_layers_per_block
    now, last = channels[0], len(channels) - 1
    skips = [now]
    for level, width in enumerate(channels):
        for _ in range(model.layers_per_block):
            yield from _level(model, now, width, attends[level])
            now = width
            skips.append(now)
        if level < last:
            yield SAMPLER, (conv("downsampler", now, now),), 1
            skips.append(now)
    layers = model.mid_transformer_layers
    if layers is None:
        layers = next((count for count in reversed(attends) if count), 0)
    yield from _level(model, now, now, layers)
    yield from _level(model, now, now, 0)
    for level in reversed(range(len(channels))):
        for _ in range(model.layers_per_block + 1):
            yield from _level(model, now + skips.pop(), channels[level], attends[level])
            now = channels[level]
        if level:
            yield SAMPLER, (conv("upsampler", now, now),), 1
    yield HEAD, (layer_norm("conv_norm_out", now), conv("conv_out", now, model.out_channels)), 1


def _level(model: UNetModel, given: int, width: int, layers: int) -> Iterator[Sort]:
    """A residual block, and the transformer behind it where there is one."""
    shortcut = (conv("conv_shortcut", given, width, 1),) if given != width else ()
    inner = (
        layer_norm("norm1", given),
        conv("conv1", given, width),
        linear("time_emb_proj", 4 * model.block_out_channels[0], width),
        layer_norm("norm2", width),
        conv("conv2", width, width),
    )
    yield RESNET, (*inner, *shortcut), 1
    if not layers:
        return
    is_linear = model.use_linear_projection
    around = [
        linear(name, width, width) if is_linear else conv(name, width, width, 1) for name in ("proj_in", "proj_out")
    ]
    yield TRANSFORMER, (layer_norm("norm", width), *around), 1
    yield "attention", _unet_attention(width, width), layers
    yield "cross-attention", _unet_attention(width, model.cross_attention_dim), layers
    yield (
        "mlp",
        (layer_norm("norm", width), linear("ff_proj", width, 8 * width), linear("ff_out", 4 * width, width)),
        layers,
    )


def _unet_attention(width: int, read: int) -> tuple[Module, ...]:
    """A norm, and attention to what is `read` wide."""
    widths = {"to_q": width, "to_k": read, "to_v": read}
    projections = (linear(name, inner, width, bias=False) for name, inner in widths.items())
    return (layer_norm("norm", width), *projections, linear("to_out", width, width))


def check_unet(model: UNetModel) -> None:
    channels, size = model.block_out_channels, model.sample_size
    levels = len(channels)
    if not levels:
        raise UserError("model.block_out_channels is empty")
    for key, allowed, wanted in (
        ("transformer_layers_per_block", {levels}, "give one for each"),
        ("attention_head_dim", {1, levels}, "give one for each, or one for all"),
    ):
        if (count := len(getattr(model, key))) not in allowed:
            raise UserError(
                f"model.{key} has {count} numbers, but model.block_out_channels has {levels} levels; {wanted}"
            )
    for width, heads in zip(channels, heads_by_level(model), strict=True):
        if width % 32:
            raise UserError(f"model.block_out_channels: {width} is not a multiple of the group norms' 32 groups")
        if width % heads:
            raise UserError(
                f"model.attention_head_dim: {heads} heads do not divide the {width} channels of their level"
            )
    if size % (1 << (levels - 1)):
        raise UserError(f"model.sample_size = {size} cannot be halved {levels - 1} times, once for each level below")


STEPS = 256  # sinusoids of a time step
SIZES = ("resolution_embedder", "aspect_ratio_embedder")  # of PixArt's models that are given them


@lru_cache(maxsize=64)  # as a decoder's
def diffusion_transformer_spec(model: DiffusionTransformerModel) -> ModelSpec:
    """Modules of the transformer; each sort of its blocks has a name."""
    if model.design in {"wan", "pixart"}:
        return _crossed(model)
    d, packed, words = block_width(model), model.packed, model.joint_attention_dim
    before = [*_embedder("timestep_embedder", STEPS, d)]
    if model.design != "qwen-image":
        before += _embedder("text_embedder", model.pooled_projection_dim, d)
    if model.guidance_embeds:
        before += _embedder("guidance_embedder", STEPS, d)
    before.append(linear("x_embedder", packed[0], d))
    if model.design == "qwen-image":
        before.append(NormModule(name="txt_norm", size=words))
    before.append(linear("context_embedder", words, d))
    # Blocks whose image is looked at twice, those of two streams, the last one of SD3, and those of one stream.
    last = int(model.design == "sd3" and model.num_layers > 0)
    dual = min(model.dual_attention_layers, model.num_layers - last)
    counts = {"dual": dual, "double": model.num_layers - last - dual, "last": last, "single": model.num_single_layers}
    sorts, start = [], 0
    for name, count in counts.items():
        if name == "single":
            joined = linear("proj_mlp", d, 4 * d), linear("proj_out", 5 * d, d)
            modules = (linear("norm", d, 3 * d), *_projections(model), *joined)
        else:
            modules = _double(model, name)
        if count:
            sorts.append(RepeatedBlock(name=name, modules=modules, start=start, stop=start + count))
        start += count
    return ModelSpec(
        before=tuple(before),
        blocks=tuple(sorts),
        after=(linear("norm_out", d, 2 * d), linear("proj_out", d, packed[1])),
        layers=model.num_layers + model.num_single_layers,
    )


def block_width(model: DiffusionTransformerModel) -> int:
    return model.num_attention_heads * model.attention_head_dim


def _embedder(name: str, inner: int, width: int) -> tuple[Module, ...]:
    """Two layers with an activation between."""
    return linear(f"{name}_1", inner, width), linear(f"{name}_2", width, width)


def _projections(model: DiffusionTransformerModel, *, text: bool = False) -> tuple[Module, ...]:
    d = block_width(model)
    names = ("add_q_proj", "add_k_proj", "add_v_proj") if text else ("to_q", "to_k", "to_v")
    prefix = "add_" if text else ""
    norms = [NormModule(name=f"{prefix}norm_{one}", size=model.attention_head_dim) for one in "qk" if model.qk_norm]
    return (*(linear(name, d, d) for name in names), *norms)


def _double(model: DiffusionTransformerModel, name: str) -> tuple[Module, ...]:
    d, parts = block_width(model), list[Module]()
    vectors = {"norm1": 9 if name == "dual" else 6, "context_norm1": 2 if name == "last" else 6}
    parts += [linear(norm, d, count * d) for norm, count in vectors.items()]
    parts += _projections(model)
    parts += _projections(model, text=True)
    parts += [linear(out, d, d) for out in ("to_out", "to_add_out")[: 1 if name == "last" else 2]]
    if name == "dual":
        parts += _projections(model)
        parts.append(linear("to_out", d, d))
    for prefix in ("", "context_")[: 1 if name == "last" else 2]:
        parts += [linear(f"{prefix}ff_in", d, 4 * d), linear(f"{prefix}ff_out", 4 * d, d)]
    return tuple(parts)


def _crossed(model: DiffusionTransformerModel) -> ModelSpec:
    """Blocks that read the text by cross-attention: Wan's, and PixArt's without norms of their own."""
    d, packed, is_wan = block_width(model), model.packed, model.design == "wan"
    inner = model.ffn_dim or 4 * d
    attention = (
        *(linear(name, d, d) for name in ("to_q", "to_k", "to_v")),
        *(NormModule(name=f"norm_{one}", size=d) for one in "qk" if is_wan),
        linear("to_out", d, d),
    )
    modules = (
        _shifts(6, d), *attention, *([layer_norm("norm2", d)] if is_wan else []), *attention,
        linear("ffn_in", d, inner), linear("ffn_out", inner, d),
    )  # fmt: skip
    return ModelSpec(
        before=(
            *_embedder("time_embedder", STEPS, d),
            linear("time_proj", d, 6 * d),
            *(one for name in SIZES if model.guidance_embeds for one in _embedder(name, STEPS, d // 3)),
            *_embedder("text_embedder", model.joint_attention_dim, d),
            linear("patch_embedding", packed[0], d),
        ),
        blocks=(RepeatedBlock(name="crossed", modules=modules, start=0, stop=model.num_layers),),
        after=(_shifts(2, d), linear("proj_out", d, packed[1])),
        layers=model.num_layers,
    )


def _shifts(rows: int, width: int) -> EmbeddingModule:
    """A table that is added to the step's scales and shifts."""
    return EmbeddingModule(name="scale_shift_table", rows=rows, width=width, batched=True)
