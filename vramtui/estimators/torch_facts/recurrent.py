"""What cuDNN's recurrent layers ask for beside their outputs: the reserve kept for backward, and the workspace.

cuDNN publishes neither size. The rules below meet four sizes that a maintainer of PyTorch printed for a net of four
layers (pytorch/pytorch issue 2895: cuDNN 7 on a P100, fp32; input 123, hidden 320, batch 100) to the byte: reserve
736,000,000 B of an LSTM and 864,000,000 B of a GRU, workspace 17,730,560 B and 13,169,920 B. They are **fitted** to
these: the issue does not print the number of steps, and 250 is the one that they meet. A plain RNN's follows that
issue's readings of the whole card. They were **not** measured on today's cuDNN.
"""

from typing import Literal

import msgspec

Cell = Literal["lstm", "gru", "rnn_tanh", "rnn_relu"]
GATES: dict[Cell, int] = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
# Numbers of each hidden unit that a layer keeps of a step: an LSTM's gates and its cell; a GRU's gates, the state's
# product before the reset gate and both of its sides; a plain cell's output.
_KEPT: dict[Cell, int] = {"lstm": 5, "gru": 6, "rnn_tanh": 1, "rnn_relu": 1}
# Numbers of each hidden unit that a layer works with in one step: gates before and after, states.
_WORKED: dict[Cell, int] = {"lstm": 11, "gru": 8, "rnn_tanh": 4, "rnn_relu": 4}
# How far the sizes may be off on another cuDNN: an LSTM that keeps no gates but its states, or every number twice.
RECURRENT_NOTE = (
    "cuDNN does not say what a recurrent layer keeps for its backward pass and works in: both follow sizes published "
    "for cuDNN 7 (pytorch/pytorch issue 2895), to which they were fitted; on today's cuDNN they were not measured"
)


class RecurrentSizes(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a stack of recurrent layers.

    Attributes:
        cell: what each step computes.
        batch: sequences.
        steps: of each sequence.
        inputs: width of what comes in.
        hidden: width of a state.
        output: width of what a direction hands on: the state's, or the projection's.
        layers: of the stack.
        directions: 2 where a sequence is read both ways.
        itemsize: bytes of a number.
    """

    cell: Cell
    batch: int
    steps: int
    inputs: int
    hidden: int
    output: int
    layers: int = 1
    directions: int = 1
    itemsize: int = 4

    def width(self, layer: int) -> int:
        """What comes into a layer."""
        return self.inputs if layer == 0 else self.output * self.directions


def reserve_bytes(sizes: RecurrentSizes, *, dropout: bool) -> int:
    """Bytes that cuDNN keeps of the forward pass for the backward one; a bit for each number dropout may zero."""
    rows = sizes.batch * sizes.steps
    between = rows * sizes.output * sizes.directions * (sizes.layers - 1)
    kept = rows * sizes.hidden * _KEPT[sizes.cell] * sizes.layers * sizes.directions
    projected = rows * sizes.hidden * sizes.layers * sizes.directions if sizes.output != sizes.hidden else 0
    return (kept + projected + between) * sizes.itemsize + (-(-between // 8) if dropout else 0)


def workspace_bytes(sizes: RecurrentSizes) -> int:
    """Bytes that cuDNN works in: the matrices once more, and the states of one step in each layer."""
    gates = GATES[sizes.cell]
    matrices = sum(gates * sizes.hidden * (sizes.width(layer) + sizes.output) for layer in range(sizes.layers))
    states = _WORKED[sizes.cell] * sizes.batch * sizes.hidden * sizes.layers
    return (matrices + states) * sizes.directions * sizes.itemsize
