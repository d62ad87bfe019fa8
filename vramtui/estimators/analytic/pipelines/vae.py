"""What a pipeline's VAE holds while it makes pixels of latents, beside its weights; nothing of it is kept.

Source: diffusers 0.42, autoencoders/vae.py, resnet.py and autoencoder_kl_wan.py, followed line by line. cuDNN 9.20's
own choice for each convolution copies what it reads and what it makes into channels-last workspaces.

Shapes: images (b, c, y, x), videos (b, c, f, y, x); b batch, c channels, f frames of a chunk.
"""

from collections.abc import Iterator
from math import ceil

from vramtui.core.schema.encoder_models import PipelineVae

FP32 = 4
# The frames before that a causal convolution looks at.
SEEN = 2
# Tiles of videos overlap by a quarter of their side, those of images as well: that many more of them are made.
OVERLAP = 0.25


def decoding_bytes(
    vae: PipelineVae, size: tuple[int, int], frames: int, batch: int, itemsize: int, *, tiled: bool = False
) -> int:
    """The most that it holds over `batch` images or videos of `size` pixels, in bytes.

    Args:
        vae: its sizes.
        size: height and width.
        frames: of latents.
        batch: images that are decoded at once.
        itemsize: bytes of a number.
        tiled: larger images are decoded in tiles, which are put together.
    """
    height, width = size
    decoded = batch * vae.out_channels * _frames_made(vae, frames) * height * width * itemsize // vae.patch_size**2
    inside = height, width
    if tiled and max(size) > vae.tile_size:
        inside = min(height, vae.tile_size), min(width, vae.tile_size)
        decoded = ceil(decoded * (2 + 2 * OVERLAP))
    if vae.design == "video":
        return _video(vae, inside, frames, batch, itemsize) + (2 if frames > 1 else 1) * decoded
    return _image(vae, inside, batch, itemsize) + decoded


def encoding_bytes(vae: PipelineVae, size: tuple[int, int], frames: int, batch: int, itemsize: int) -> int:
    """The most that it holds while it makes latents: at its first residual blocks, which have all pixels."""
    chunk = min(4, frames) if vae.design == "video" else 1
    pixels = batch * chunk * size[0] * size[1] // vae.patch_size**2
    tensors = 6 if vae.design == "video" else 4
    return tensors * pixels * vae.block_out_channels[0] * itemsize + batch * frames * 3 * size[0] * size[1] * itemsize


def _image(vae: PipelineVae, size: tuple[int, int], batch: int, itemsize: int) -> int:
    """The fullest moment of AutoencoderKL's decoder; a level's input is held until it is through."""
    channels = vae.block_out_channels[::-1]
    side = 1 << (len(channels) - 1)
    pixels = batch * (size[0] // side) * (size[1] // side)
    most, inner = _resnet(channels[0], channels[0]) * pixels, channels[0]
    for level, outer in enumerate(channels):
        given = inner * pixels
        for block in range(vae.layers_per_block + 1):
            level_input = given if block else 0
            most = max(most, level_input + _resnet(inner, outer) * pixels)
            inner = outer
        if level < len(channels) - 1:
            most = max(most, given + (inner + 4 * 4 * inner) * pixels)
            pixels *= 4
    return most * itemsize


def _resnet(inner: int, outer: int) -> int:
    """Numbers for each pixel of a block's fullest convolution, what cuDNN copies included."""
    if inner == outer:
        return 5 * inner
    return max(3 * inner + 2 * outer, 2 * inner + 3 * outer, inner + 4 * outer)


def _levels(vae: PipelineVae, size: tuple[int, int], frames: int) -> Iterator[tuple[int, int, int, int, bool, bool]]:
    """Each level from the latents outwards: channels that come in and go out, frames of a chunk and pixels of one
    frame, whether frames are doubled and whether pixels are.
    """
    channels = vae.block_out_channels[::-1]
    side = 1 << (len(channels) - 1) * vae.patch_size
    pixels = (size[0] // side) * (size[1] // side)
    chunk, inner = 1, channels[0]
    for level, outer in enumerate(channels):
        last = level == len(channels) - 1
        doubled = frames > 1 and level < len(vae.temporal_upsample) and vae.temporal_upsample[level]
        yield inner, outer, chunk, pixels, doubled and not last, not last
        inner = outer if vae.residual else outer // 2
        chunk *= 2 if doubled and not last else 1
        pixels *= 1 if last else 4


def _video(vae: PipelineVae, size: tuple[int, int], frames: int, batch: int, itemsize: int) -> int:
    """The fullest moment of a later chunk, with the frames that all convolutions remember."""
    most = remembered = 0
    for inner, outer, chunk, pixels, doubled, larger in _levels(vae, size, frames):
        places = chunk * pixels
        shortcut = inner * places if vae.residual and larger else 0
        seen = SEEN if frames > 1 else 1
        widths = [inner, *[outer] * (2 * vae.layers_per_block + 1)]
        remembered += sum(widths) * seen * pixels + (outer * seen * pixels if doubled else 0)
        given = inner * places
        for block, width in enumerate((inner, outer)):
            level_input = shortcut + (given if block else 0)
            most = max(most, level_input + _causal((width, outer), (chunk, seen), pixels, itemsize))
        if larger:
            wide = places * (2 if doubled else 1)
            half = outer if vae.residual else outer // 2
            raised = FP32 // itemsize if itemsize < FP32 else 0
            most = max(most, shortcut + given + (2 + 4 * (1 + raised)) * outer * wide)
            most = max(most, shortcut + given + (2 + 4 + 4) * outer * wide + 2 * 4 * half * wide)
    remembered += vae.block_out_channels[0] * (SEEN if frames > 1 else 1) * pixels
    return batch * (most + remembered) * itemsize


def _causal(widths: tuple[int, int], frames: tuple[int, int], pixels: int, itemsize: int) -> int:
    """Numbers of one residual block: its shortcut, its norm in fp32, or what its convolution reads with the frames
    before and zeros around it.

    Args:
        widths: channels that come in and go out.
        frames: of a chunk, and those that are remembered.
        pixels: of one frame.
        itemsize: bytes of a number.
    """
    (inner, outer), (chunk, seen) = widths, frames
    padded = chunk + SEEN
    shortcut = outer * chunk * pixels if inner != outer else 0
    x = inner * chunk * pixels
    normed = x + shortcut + (3 * x if itemsize == FP32 else 2 * (FP32 // itemsize) * x + x)
    read = x + shortcut + x + inner * pixels * (seen + 2 * padded)
    size = x + shortcut + x + inner * pixels * (seen + 2 * padded) + 2 * outer * chunk * pixels
    return max(normed, read, size)


def _frames_made(vae: PipelineVae, frames: int) -> int:
    return 1 + (frames - 1) * (1 << sum(vae.temporal_upsample)) if vae.design == "video" else 1
