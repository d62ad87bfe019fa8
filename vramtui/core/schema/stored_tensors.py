"""A model's tensors one by one and what its layers keep of a sequence, where a few sizes do not say it."""

from math import prod
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Size = Annotated[int, Meta(ge=1, le=2**40)]
Numbers = Annotated[int, Meta(ge=0, le=2**40)]
Shape = Annotated[tuple[Size, ...], Meta(min_length=1, max_length=6)]
Bits = Annotated[int, Meta(ge=1, le=64)]
Place = Literal["layers", "outside", "tower"]


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
        """Numbers in one of them."""
        return prod(self.shape)


class LayerCache(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What layers of one kind keep of a sequence.

    Attributes:
        layers: how many of them there are.
        per_token: numbers for each token: keys and values.
        window: the last tokens that are kept; all when absent.
        state: numbers for a whole sequence, however long it is: convolutions' and linear attention's states.
        state_fp32: the same, where they are kept in fp32 whatever the precision.
    """

    layers: Size
    per_token: Numbers = 0
    window: Size | None = None
    state: Numbers = 0
    state_fp32: Numbers = 0
