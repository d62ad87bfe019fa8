"""A dense feed-forward network: up and down, (f, h) and (h, f), and a gate (f, h) where it is gated."""

from typing import ClassVar

from vramtui.models.kinds.linear import LinearModule
from vramtui.models.spec import Kind, Module


class MlpModule(Module, frozen=True, kw_only=True):
    """An MLP of `width`; `name` stands before its layers' names, as of a shared expert."""

    kind: ClassVar[Kind] = "mlp"
    hidden: int
    width: int
    gated: bool = True
    bias: bool = False

    def parts(self) -> tuple[LinearModule, ...]:
        """Gate, up and down projection."""
        wide = ("gate_proj", "up_proj") if self.gated else ("up_proj",)
        sizes = [*((name, self.width, self.hidden) for name in wide), ("down_proj", self.hidden, self.width)]
        return tuple(
            LinearModule(name=self.name + name, out_features=rows, in_features=columns, bias=self.bias)
            for name, rows, columns in sizes
        )
