"""A conditioned UNet of a preset's `[model]` table (Stable Diffusion 1.x, 2.x, SDXL), as what it consists of.

Layers are named as in diffusers' UNet2DConditionModel. Its blocks stand in the order in which they run: residual ones,
transformers between them (what stands around a transformer's blocks, and three parts of each of these), and samplers.
"""

from collections.abc import Iterator
from functools import lru_cache

from vramtui.core.base.errors import UserError
from vramtui.core.schema.models import UNetModel
from vramtui.models.kinds import ConvModule, LinearModule, NormModule
from vramtui.models.spec import ModelSpec, Module, RepeatedBlock

RESNET, TRANSFORMER, SAMPLER, HEAD = "resnet", "transformer", "sampler", "head"
# The blocks that a transformer is made of: what stands around its own ones, and their parts.
TRANSFORMER_PARTS = (TRANSFORMER, "attention", "cross-attention", "mlp")
Sort = tuple[str, tuple[Module, ...], int]


@lru_cache(maxsize=64)  # as a decoder's
def unet_spec(model: UNetModel) -> ModelSpec:
    """Modules of the UNet."""
    check_shapes(model)
    blocks: list[RepeatedBlock] = []
    start = 0
    for name, modules, count in _sorts(model):
        blocks.append(RepeatedBlock(name=name, modules=modules, start=start, stop=start + count))
        start += 0 if name in TRANSFORMER_PARTS[:-1] else count
    first = model.block_out_channels[0]
    before: list[Module] = []
    for name, inner in (("time_embedding", first), ("add_embedding", model.addition_embed_dim)):
        if inner is not None:
            before += [_linear(f"{name}_1", inner, 4 * first), _linear(f"{name}_2", 4 * first, 4 * first)]
    before.append(_conv("conv_in", model.in_channels, first))
    return ModelSpec(before=tuple(before), blocks=tuple(blocks), after=(), layers=start)


def heads_by_level(model: UNetModel) -> tuple[int, ...]:
    given, levels = model.attention_head_dim, len(model.block_out_channels)
    return given * levels if len(given) == 1 else given


def _linear(name: str, inner: int, outer: int, *, bias: bool = True) -> LinearModule:
    return LinearModule(name=name, out_features=outer, in_features=inner, bias=bias)


def _conv(name: str, inner: int, outer: int, side: int = 3) -> ConvModule:
    return ConvModule(name=name, out_channels=outer, in_channels=inner, kernel=(side, side))


def _norm(name: str, size: int) -> NormModule:
    return NormModule(name=name, size=size, style="layernorm")


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
            yield SAMPLER, (_conv("downsampler", now, now),), 1
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
            yield SAMPLER, (_conv("upsampler", now, now),), 1
    yield HEAD, (_norm("conv_norm_out", now), _conv("conv_out", now, model.out_channels)), 1


def _level(model: UNetModel, given: int, width: int, layers: int) -> Iterator[Sort]:
    """A residual block, and the transformer behind it where there is one."""
    shortcut = (_conv("conv_shortcut", given, width, 1),) if given != width else ()
    inner = (
        _norm("norm1", given),
        _conv("conv1", given, width),
        _linear("time_emb_proj", 4 * model.block_out_channels[0], width),
        _norm("norm2", width),
        _conv("conv2", width, width),
    )
    yield RESNET, (*inner, *shortcut), 1
    if not layers:
        return
    linear = model.use_linear_projection
    around = [
        _linear(name, width, width) if linear else _conv(name, width, width, 1) for name in ("proj_in", "proj_out")
    ]
    yield TRANSFORMER, (_norm("norm", width), *around), 1
    yield "attention", _attention(width, width), layers
    yield "cross-attention", _attention(width, model.cross_attention_dim), layers
    yield (
        "mlp",
        (_norm("norm", width), _linear("ff_proj", width, 8 * width), _linear("ff_out", 4 * width, width)),
        layers,
    )


def _attention(width: int, read: int) -> tuple[Module, ...]:
    """A norm, and attention to what is `read` wide."""
    widths = {"to_q": width, "to_k": read, "to_v": read}
    projections = (_linear(name, inner, width, bias=False) for name, inner in widths.items())
    return (_norm("norm", width), *projections, _linear("to_out", width, width))


def check_shapes(model: UNetModel) -> None:
    """Refuse sizes that cannot be."""
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
