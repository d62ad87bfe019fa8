"""A table of vectors: words, or positions; (rows, width), or (1, rows, width) where it is added to a batch as it is."""

from typing import ClassVar

from vramtui.models.spec import Kind, Module


class EmbeddingModule(Module, frozen=True, kw_only=True):
    """A table of `rows` vectors."""

    kind: ClassVar[Kind] = "embedding"
    rows: int
    width: int
    batched: bool = False

    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shape of the table."""
        return ((1, self.rows, self.width) if self.batched else (self.rows, self.width),)
