"""A linear layer.

Shapes: weight (out, in), of several at once (copies, out, in); bias (out).
"""

from typing import ClassVar

from vramtui.models.spec import Kind, Module


class LinearModule(Module, frozen=True, kw_only=True):
    """One matrix, and a bias where it has one.

    Attributes:
        copies: so many in one tensor, as experts are kept.
        tied: the matrix is the embedding's, and counted there.
    """

    kind: ClassVar[Kind] = "linear"
    out_features: int
    in_features: int
    bias: bool = False
    copies: int | None = None
    tied: bool = False

    @property
    def weight(self) -> tuple[int, ...]:
        """The shape of the weight, tied or not."""
        matrix = self.out_features, self.in_features
        return matrix if self.copies is None else (self.copies, *matrix)

    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Weight and bias."""
        weight = () if self.tied else (self.weight,)
        return (*weight, (self.out_features,)) if self.bias else weight


def linear_parts(module: Module) -> dict[str, LinearModule]:
    """The linear layers that a module is made of, by name."""
    return {part.name: part for part in module.parts() if isinstance(part, LinearModule)}
