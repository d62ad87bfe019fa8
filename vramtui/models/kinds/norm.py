"""A norm over the last dimension: a weight (size), of a layer norm a bias (size) as well."""

from typing import ClassVar

from vramtui.core.schema.bounds import Norm as NormStyle
from vramtui.models.spec import Kind, Module


class NormModule(Module, frozen=True, kw_only=True):
    """A norm over `size` numbers."""

    kind: ClassVar[Kind] = "norm"
    size: int
    style: NormStyle = "rmsnorm"

    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Weight, and bias of a layer norm."""
        return ((self.size,),) * (2 if self.style == "layernorm" else 1)
