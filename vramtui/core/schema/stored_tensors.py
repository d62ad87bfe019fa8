"""A model's tensors one by one and what its layers keep of a sequence, where a few sizes do not say it."""

from math import ceil, floor, prod, sqrt
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from vramtui.core.schema.bounds import Heads, Layers

Size = Annotated[int, Meta(ge=1, le=2**40)]
Numbers = Annotated[int, Meta(ge=0, le=2**40)]
Shape = Annotated[tuple[Size, ...], Meta(min_length=1, max_length=6)]
Bits = Annotated[int, Meta(ge=1, le=64)]
Place = Literal["layers", "outside", "tower"]

# Tensors that only encoders of text have.
ENCODER_TENSORS = frozenset({"head_dense", "embed_token_types", "class_out"})
# What reads an image or a sound, and is of an encoder where no layer keeps anything of a sequence.
INPUT_CONVOLUTIONS = frozenset({"conv_patch", "conv_sound", "conv_stem"})


class TensorGroup(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tensors of one shape.

    Attributes:
        name: the last part of their module's name.
        shape: of one of them.
        count: how many there are.
        place: in the layers, beside them (embeddings, last norm, output layer), or in a tower for images or sound.
        bits: of one number, where the file keeps it in a type of its own; as the run's precision has it when absent.
    """

    name: str
    shape: Shape
    count: Size = 1
    place: Place = "layers"
    bits: Bits | None = None

    @property
    def numel(self) -> int:
        return prod(self.shape)


class LayerCache(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The cache of a sequence in layers of one kind.

    Attributes:
        layers: how many of them there are.
        per_token: numbers for each token: keys and values.
        window: the last tokens that are kept; all when absent.
        state: numbers for a whole sequence, however long it is: convolutions' and linear attention's states.
        state_fp32: the same, where they are kept in fp32 whatever the precision.
    """

    layers: Layers
    per_token: Numbers = 0
    window: Size | None = None
    state: Numbers = 0
    state_fp32: Numbers = 0

    def cached(self, tokens: int) -> int:
        """How many of `tokens` tokens the layer keeps."""
        return tokens if self.window is None else min(tokens, self.window)


class TowerShape(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The sizes of a tower for images or sound, from which its memory follows.

    One for sound is Whisper's encoder or its kin: two convolutions before its blocks, positions in place of patches.

    Attributes:
        hidden_size: width of its stream.
        num_hidden_layers: its blocks.
        num_attention_heads: heads of each.
        intermediate_size: width of the MLP.
        gated_mlp: a gate beside the up projection, with RMS norms; otherwise layer norms.
        rotary: queries and keys are turned by their place.
        per_token: patches to one of the sequence's tokens.
        pixels: numbers of the image in a patch, or of the spectrogram in a position.
        clip: positions of a clip, to which sound is filled up; as long as it is when absent.
        tokens_per_second: tokens of the sequence for a second of sound.
        tokens_per_clip: where a clip that is begun takes as many tokens as a whole one.
    """

    hidden_size: Size
    num_hidden_layers: Layers
    num_attention_heads: Heads
    intermediate_size: Size
    gated_mlp: bool = False
    rotary: bool = False
    per_token: Annotated[float, Meta(gt=0, le=2**20)] = 1.0
    pixels: Size = 588
    clip: Size | None = None
    tokens_per_second: Annotated[float, Meta(gt=0, le=2**20)] | None = None
    tokens_per_clip: Size | None = None

    def tokens(self, seconds: float) -> int | None:
        """Tokens of so many seconds of sound; None if that is not known."""
        if self.tokens_per_second is None:
            return None
        step = self.tokens_per_clip or 1
        return ceil(ceil(seconds * self.tokens_per_second) / step) * step

    def positions(self, tokens: int) -> int:
        """Patches or positions that it runs over for so many tokens of a sequence."""
        count = ceil(tokens * self.per_token)
        return count if self.clip is None else ceil(count / self.clip) * self.clip


class ImageTokens(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many tokens of a sequence an image takes.

    Attributes:
        fixed: as many for any image, which is made of one size first.
        cell: pixels along a side of what one token stands for, where the size is kept.
        least: pixels that an image is made larger to have.
        most: pixels that it is made smaller to have.
        longest: pixels of its longer side, to which it is made smaller.
        per_row: tokens more for each row.
    """

    fixed: Size | None = None
    cell: Size | None = None
    least: Size | None = None
    most: Size | None = None
    longest: Size | None = None
    per_row: Numbers = 0

    def count(self, width: int, height: int) -> int:
        """Tokens of an image of so many pixels.

        Sides are rounded to whole cells as by `smart_resize` (transformers 5.23, image_processing_qwen2_vl.py) where
        there are bounds for its pixels, else up, as by Pixtral's.
        """
        if self.fixed is not None or self.cell is None:
            return self.fixed or 0
        cell, shrunk = self.cell, max(1.0, max(width, height) / self.longest) if self.longest else 1.0
        if self.least is None or self.most is None:
            rows, columns = (ceil(floor(side / shrunk) / cell) for side in (height, width))
        else:
            rows, columns = max(1, round(height / cell)), max(1, round(width / cell))
            if rows * columns * cell * cell > self.most:
                scale = sqrt(height * width / self.most)
                rows, columns = floor(height / scale / cell), floor(width / scale / cell)
            elif rows * columns * cell * cell < self.least:
                scale = sqrt(self.least / (height * width))
                rows, columns = ceil(height * scale / cell), ceil(width * scale / cell)
        return max(rows, 1) * (max(columns, 1) + self.per_row)
