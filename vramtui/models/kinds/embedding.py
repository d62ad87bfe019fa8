"""A table of vectors: words, or positions; (rows, width)."""

from typing import ClassVar

from vramtui.models.spec import Kind, Module


class EmbeddingModule(Module, frozen=True, kw_only=True):
    """A table of `rows` vectors."""

    kind: ClassVar[Kind] = "embedding"
    rows: int
    width: int

    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The table."""
        return ((self.rows, self.width),)
