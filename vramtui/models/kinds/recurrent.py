"""A stack of recurrent layers, as torch.nn.LSTM, GRU and RNN keep them.

Shapes: of each direction of a layer the input's weight (g·h, i), the state's (g·h, o), two biases (g·h) and an LSTM's
projection (o, h); g gates, h hidden, i width of what comes in, o of what a direction hands on.
"""

from typing import ClassVar

from vramtui.models.spec import Kind, Module


class RecurrentModule(Module, frozen=True, kw_only=True):
    """A stack of `layers`, each read in so many `directions`; `output` is `hidden`, or the projection's width."""

    kind: ClassVar[Kind] = "recurrent"
    gates: int
    inputs: int
    hidden: int
    output: int
    layers: int = 1
    directions: int = 1
    bias: bool = True

    def direction(self, layer: int) -> tuple[tuple[int, ...], ...]:
        """The shapes of one direction of a layer."""
        rows, width = self.gates * self.hidden, self.inputs if layer == 0 else self.output * self.directions
        return (
            (rows, width),
            (rows, self.output),
            *(((rows,),) * 2 if self.bias else ()),
            *(((self.output, self.hidden),) if self.output != self.hidden else ()),
        )

    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Those of all layers."""
        return tuple(
            shape for layer in range(self.layers) for shape in self.direction(layer) for _ in range(self.directions)
        )
