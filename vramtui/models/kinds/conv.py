"""A convolution: weight (out, in, k, ...), bias (out)."""

from typing import ClassVar

from vramtui.models.spec import Kind, Module


class ConvModule(Module, frozen=True, kw_only=True):
    """Filters of `kernel`, one number for each dimension of an image."""

    kind: ClassVar[Kind] = "conv"
    out_channels: int
    in_channels: int
    kernel: tuple[int, ...]
    bias: bool = True

    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Weight and bias."""
        weight = self.out_channels, self.in_channels, *self.kernel
        return (weight, (self.out_channels,)) if self.bias else (weight,)
