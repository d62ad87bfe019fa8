"""The VAE of a pipeline from its config: every tensor (diffusers 0.42), and what its decoder's sizes are."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from vramtui.core.base.text import printable
from vramtui.models.families.keys import Fields, Table
from vramtui.models.readers.bounded import DamagedError
from vramtui.models.tensor_list import TensorList

# How many levels a VAE has at most; published ones have four or five.
MOST_LEVELS = 12
MOST_BLOCKS = 64


def read_vae(config: Fields) -> Table:
    """A `[model.vae]` table.

    Raises:
        DamagedError: its class is not known, or a key of it is wrong.
    """
    name = config.text("_class_name", "")
    if name not in CLASSES:
        raise DamagedError(f"is of the class {printable(name[:60])!r}; of VAEs these are read: {', '.join(CLASSES)}")
    return CLASSES[name](config)


def of_images(config: Fields) -> Table:
    """AutoencoderKL: residual blocks of 2D convolutions, one attention in the middle."""
    channels = whole_numbers(config, "block_out_channels", (64,))
    layers, latent = _blocks(config, "layers_per_block", 1), config.whole("latent_channels", 4)
    for side, kind in KINDS.items():
        known = f"{side.title()}{kind}Block2D"
        if not set(config.texts(f"{side}_block_types")) <= {known}:
            raise DamagedError(f"has {side}_block_types other than {known}, which is not modelled")
    attention = config.flag("mid_block_add_attention", default=True)
    channels_in, channels_out = config.whole("in_channels", 3), config.whole("out_channels", 3)
    image = _Images(TensorList())
    image.encoder(channels, layers, channels_in, attention=attention)
    image.conv("conv_out", channels[-1], 2 * latent)
    for numbers, key in ((2 * latent, "use_quant_conv"), (latent, "use_post_quant_conv")):
        if config.flag(key, default=True):
            image.conv(key.removeprefix("use_"), numbers, numbers, kernel=1)
    image.conv("conv_in", latent, channels[-1])
    image.decoder(channels, layers, channels_out, attention=attention)
    return {
        "design": "images", "block_out_channels": channels, "layers_per_block": layers, "latent_channels": latent,
        "out_channels": channels_out, "attention": attention,
        "force_upcast": config.flag("force_upcast", default=True), "spatial_factor": 2 ** (len(channels) - 1),
        "tile_size": config.whole("sample_size", 32), "tensors": _tables(image.tensors),
    }  # fmt: skip


def of_video(config: Fields) -> Table:
    """AutoencoderKLWan and AutoencoderKLQwenImage: residual blocks of causal 3D convolutions."""
    times = whole_numbers(config, "dim_mult", (1, 2, 4, 4))
    layers, latent = _blocks(config, "num_res_blocks", 2), config.whole("z_dim", 16)
    down = config.values.get("temperal_downsample", [False, True, True])
    if not isinstance(down, list) or len(down) != len(times) - 1 or not all(isinstance(one, bool) for one in down):
        raise DamagedError(
            f"has temperal_downsample = {printable(repr(down))[:40]}; true or false for each level is needed"
        )
    if config.has("attn_scales"):
        raise DamagedError("has attn_scales, attentions between its levels, which is not modelled")
    base = config.whole("base_dim", 96)
    outer = config.whole("decoder_base_dim", base)
    residual = config.flag("is_residual", default=False)
    tensors = TensorList()
    video = _Video(tensors)
    video.encoder([base * one for one in times], layers, latent, config.whole("in_channels", 3), down)
    video.conv("quant_conv", 2 * latent, 2 * latent, kernel=1)
    video.conv("post_quant_conv", latent, latent, kernel=1)
    sizes = _Sizes(channels=[outer * one for one in times], layers=layers, latent=latent, residual=residual)
    video.decoder(sizes, config.whole("out_channels", 3), down[::-1])
    return {
        "design": "video", "block_out_channels": sizes.channels, "layers_per_block": layers,
        "latent_channels": latent, "out_channels": config.whole("out_channels", 3), "temporal_upsample": down[::-1],
        "residual": residual, "patch_size": config.whole("patch_size", 1),
        "spatial_factor": config.whole("scale_factor_spatial", 8), "tile_size": 256, "tensors": _tables(tensors),
    }  # fmt: skip


KINDS = {"down": "Encoder", "up": "Decoder"}
CLASSES: dict[str, Callable[[Fields], Table]] = {
    "AutoencoderKL": of_images,
    "AutoencoderKLQwenImage": of_video,
    "AutoencoderKLWan": of_video,
}


class _Images:
    def __init__(self, tensors: TensorList) -> None:
        self.tensors = tensors

    def conv(self, name: str, inner: int, outer: int, kernel: int = 3) -> None:
        self.tensors.conv(name, outer, inner, kernel, kernel, bias=True)

    def norm(self, width: int) -> None:
        self.tensors.norm("norm", width, bias=True)

    def resnet(self, inner: int, outer: int) -> None:
        self.norm(inner)
        self.conv("resnet", inner, outer)
        self.norm(outer)
        self.conv("resnet", outer, outer)
        if inner != outer:
            self.conv("shortcut", inner, outer, kernel=1)

    def encoder(self, channels: list[int], layers: int, given: int, *, attention: bool) -> None:
        self.conv("conv_in", given, channels[0])
        for level, width in enumerate(channels):
            for block in range(layers):
                self.resnet(channels[max(level - 1, 0)] if not block else width, width)
            if level < len(channels) - 1:
                self.conv("downsampler", width, width)
        self.middle(channels[-1], attention=attention)
        self.norm(channels[-1])

    def decoder(self, channels: list[int], layers: int, channels_out: int, *, attention: bool) -> None:
        self.middle(channels[-1], attention=attention)
        for level in reversed(range(len(channels))):
            width = channels[level]
            for block in range(layers + 1):
                self.resnet(channels[min(level + 1, len(channels) - 1)] if not block else width, width)
            if level:
                self.conv("upsampler", width, width)
        self.norm(channels[0])
        self.conv("conv_out", channels[0], channels_out)

    def middle(self, width: int, *, attention: bool) -> None:
        self.resnet(width, width)
        if attention:
            self.norm(width)
            self.tensors.linear("qkvo", width, width, bias=True, count=4)
        self.resnet(width, width)


class _Sizes(msgspec.Struct, frozen=True, kw_only=True):
    channels: list[int]
    layers: int
    latent: int
    residual: bool


class _Video:
    def __init__(self, tensors: TensorList) -> None:
        self.tensors = tensors

    def conv(self, name: str, inner: int, outer: int, kernel: int = 3) -> None:
        self.tensors.conv(name, outer, inner, kernel, kernel, kernel, bias=True)

    def flat(self, name: str, inner: int, outer: int, kernel: int = 3) -> None:
        self.tensors.conv(name, outer, inner, kernel, kernel, bias=True)

    def time(self, inner: int, outer: int) -> None:
        self.tensors.conv("time_conv", outer, inner, 3, 1, 1, bias=True)

    def resnet(self, inner: int, outer: int) -> None:
        for given in (inner, outer):
            self.tensors.norm("norm", given)
            self.conv("resnet", given, outer)
        if inner != outer:
            self.conv("shortcut", inner, outer, kernel=1)

    def middle(self, width: int) -> None:
        self.resnet(width, width)
        self.tensors.norm("norm", width)
        self.flat("to_qkv", width, 3 * width, kernel=1)
        self.flat("proj", width, width, kernel=1)
        self.resnet(width, width)

    def encoder(self, channels: list[int], layers: int, latent: int, given: int, down: Sequence[bool]) -> None:
        self.conv("conv_in", given, channels[0])
        width = channels[0]
        for level, outer in enumerate(channels):
            for _ in range(layers):
                self.resnet(width, outer)
                width = outer
            if level < len(channels) - 1:
                self.flat("downsampler", outer, outer)
                if down[level]:
                    self.time(outer, outer)
        self.middle(width)
        self.tensors.norm("norm", width)
        self.conv("conv_out", width, 2 * latent)

    def decoder(self, sizes: _Sizes, channels_out: int, up: Sequence[bool]) -> None:
        levels = sizes.channels[::-1]
        self.conv("conv_in", sizes.latent, levels[0])
        self.middle(levels[0])
        width = levels[0]
        for level, outer in enumerate(levels):
            for _ in range(sizes.layers + 1):
                self.resnet(width, outer)
                width = outer
            if level < len(levels) - 1:
                half = outer if sizes.residual else outer // 2
                self.flat("upsampler", outer, half)
                width = half
                if up[level]:
                    self.time(outer, 2 * outer)
        self.tensors.norm("norm", width)
        self.conv("conv_out", width, channels_out)


def whole_numbers(config: Fields, key: str, default: tuple[int, ...]) -> list[int]:
    """A list of as many whole numbers as there are levels.

    Raises:
        DamagedError: it is something else.
    """
    given = config.values.get(key)
    numbers: Any = list(default) if given is None else given
    if not isinstance(numbers, list) or not 0 < len(numbers) <= MOST_LEVELS:
        raise DamagedError(f"has {key} = {printable(repr(given))[:40]}; a list of whole numbers is needed")
    if not all(isinstance(one, int) and not isinstance(one, bool) and 0 < one < 2**24 for one in numbers):
        raise DamagedError(f"has {key} = {printable(repr(given))[:40]}; a list of whole numbers is needed")
    return [int(one) for one in numbers]


def _blocks(config: Fields, key: str, default: int) -> int:
    count: int = config.whole(key, default)
    if not 0 < count <= MOST_BLOCKS:
        raise DamagedError(f"has {key} = {count}; 1 to {MOST_BLOCKS} are read")
    return count


def _tables(tensors: TensorList) -> list[Table]:
    return [msgspec.to_builtins(group) for group in tensors.groups()]
