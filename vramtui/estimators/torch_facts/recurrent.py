"""Memory of cuDNN's recurrent layers besides their outputs: the reserve kept for backward, and the workspace.

cuDNN publishes neither size. **Measured** on an H200 (cuDNN 9.19, PyTorch 2.11, driver 580.159): 86 calls, one number
changed at a time (`tests/golden/card/recurrent.json`). The reserve is equal to the byte in all of them, the workspace
in 75 and within 2.5 % in nine more. The reserve is also what cuDNN 7 took on a P100 but for its header
(pytorch/pytorch issue 2895); its workspaces there were a tenth of today's.
"""

from typing import Literal

import msgspec

Cell = Literal["lstm", "gru", "rnn_tanh", "rnn_relu"]
GATES: dict[Cell, int] = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
# Numbers of each hidden unit that a layer keeps of a step: an LSTM's gates and its cell; a GRU's gates, the state's
# product before the reset gate and both of its sides; a plain cell's output.
_KEPT: dict[Cell, int] = {"lstm": 5, "gru": 6, "rnn_tanh": 1, "rnn_relu": 1}
HEADER = 256  # bytes besides what is kept, and besides the workspace
_PERSISTENT = 8 << 20  # bytes of each direction of each layer
_LENGTHS = 32  # bytes that a step's sequence lengths are aligned to, of 8 each

RECURRENT_NOTE = (
    "what cuDNN keeps of a recurrent layer follows sizes that were measured on an H200 (cuDNN 9.19), and what it works "
    "in a rule fitted to them, within 3 % but for wide layers in half precision, which take up to 70 MiB more"
)


class RecurrentSizes(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a stack of recurrent layers; `output` is the width of the state or projection handed on."""

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
        """Width of a layer's input."""
        return self.inputs if layer == 0 else self.output * self.directions


def reserve_bytes(sizes: RecurrentSizes, *, dropout: bool) -> int:
    """Bytes that cuDNN keeps of the forward pass for the backward one; a bit for each number dropout may zero.

    Equal to the byte in all calls that were measured on an H200.
    """
    rows = sizes.batch * sizes.steps
    between = rows * sizes.output * sizes.directions * (sizes.layers - 1)
    width = sizes.hidden * _KEPT[sizes.cell] + (sizes.hidden + sizes.output if sizes.output != sizes.hidden else 0)
    states = rows * width * sizes.layers * sizes.directions
    return (states + between) * sizes.itemsize + (-(-between // 8) if dropout else 0) + HEADER


_WIDE = 512  # hidden units from which a plain cell works in less


def _worked(sizes: RecurrentSizes) -> tuple[float, int, int, int]:
    """Numbers that a call works with: of each hidden unit and input of a row, of each hidden unit of a sequence once
    and for each layer. **Fitted** to the calls that test it, with one number of a call changed at a time.
    """
    deep, gru = sizes.layers > 1, sizes.cell == "gru"
    if sizes.cell == "lstm":
        projected = sizes.output != sizes.hidden
        same = sizes.inputs == sizes.hidden
        one_way = 5 + (sizes.output / sizes.hidden if projected else 0), 1, same - projected, 10
        return one_way if sizes.directions == 1 else (14, 1, 0, 24)
    if sizes.directions > 1:
        return 12 if gru else 19 + 2 * deep, 2 if deep or not gru else 1, 0, 14
    if not gru and sizes.hidden < _WIDE:
        return 13 + deep, 2, 0, 6
    return (3, 2, 8, 9) if deep and gru else (4, 2, 0, 5)


def workspace_bytes(sizes: RecurrentSizes, *, dropout: bool = False) -> int:
    """Bytes that cuDNN works in, in the forward pass and in each half of the backward one: 8 MiB for each direction of
    each layer, its matrices once more, and what `_worked` says. Calls without training were not measured and are
    taken to work in as much.
    """
    gates, rows = GATES[sizes.cell], sizes.batch * sizes.steps
    matrices = sum(gates * sizes.hidden * (sizes.width(layer) + sizes.output) for layer in range(sizes.layers))
    if sizes.output != sizes.hidden:
        matrices += sizes.hidden * sizes.output * sizes.layers
    hidden, inputs, once, layer = _worked(sizes)
    numbers = rows * (hidden * sizes.hidden + inputs * sizes.inputs)
    numbers += sizes.batch * sizes.hidden * (once + layer * sizes.layers)
    if dropout and sizes.layers > 1 and sizes.cell in {"lstm", "gru"}:
        numbers += rows * sizes.output * sizes.directions
    lengths = -(-8 * sizes.batch // _LENGTHS) * _LENGTHS
    fixed = _PERSISTENT * sizes.layers * sizes.directions + HEADER + lengths
    return fixed + round((matrices * sizes.directions + numbers) * sizes.itemsize)
