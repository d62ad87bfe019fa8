"""What a server knows beyond its model's shapes."""

from typing import Annotated

import msgspec
from msgspec import Meta

Bytes = Annotated[int, Meta(ge=0, le=2**50, extra={"unit": "bytes"})]


class Stored(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bytes of a model's tensors as its file holds them, each in a type of its own.

    Attributes:
        embedding: the embedding of words, which llama.cpp leaves in host memory.
        blocks: all blocks together.
        output: the last norm, the output layer, and what else lies outside the blocks.
    """

    embedding: Bytes
    blocks: Bytes
    output: Bytes
