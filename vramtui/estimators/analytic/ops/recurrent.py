"""Recurrent layers on a tape: cuDNN's one call, and PyTorch's own steps where cuDNN is off.

PyTorch 2.13, aten/src/ATen/native/cudnn/RNN.cpp and aten/src/ATen/native/RNN.cpp.
Shapes: sequence (b, t, i), states (layers x directions, b, h), answer (b, t, directions x o), where o is the state's
width or the projection's.
"""

from math import prod

from vramtui.core.schema.models import Recurrent
from vramtui.estimators.analytic.ops.layers import LayerOps
from vramtui.estimators.analytic.tape.tape import CASTS, Tensor
from vramtui.estimators.torch_facts.allocator_sizes import rounded
from vramtui.estimators.torch_facts.recurrent import RecurrentSizes, reserve_bytes, workspace_bytes
from vramtui.models.spec import RecurrentModule

_FUSED = {"lstm": 4, "gru": 5}  # numbers of each hidden unit in the workspace that a fused cell keeps for its backward


class RecurrentStack:
    """Writes one stack of recurrent layers over a sequence of `steps`, and notes its parameters."""

    def __init__(
        self, writer: LayerOps, steps: int, layer: Recurrent, module: RecurrentModule, *, training: bool
    ) -> None:
        self.writer, self.ops, self.layer, self.training = writer, writer.ops, layer, training
        self.module = module
        self.sizes = RecurrentSizes(
            cell=layer.cell,
            batch=writer.batch,
            steps=steps,
            inputs=module.inputs,
            hidden=module.hidden,
            output=module.output,
            layers=module.layers,
            directions=module.directions,
            itemsize=self.ops.autocast or self.ops.parameter,
        )
        self.gates = module.gates

    def write(self, x: Tensor) -> Tensor:
        """The whole stack over a batch of sequences; of the `last` step only a view goes on."""
        sizes, tape = self.sizes, self.ops.tape
        self.writer.add_parameter(self.module)
        out = self._cudnn(x) if self.writer.cudnn else self._steps(x)
        if self.layer.output == "sequence":
            return out
        last = tape.view(out, sizes.batch * sizes.directions * sizes.output)
        tape.record([out], [last], flows=[(out, True)])
        return last

    def _states(self, itemsize: int) -> list[Tensor]:
        """Zeros for the first states: h, and an LSTM's c."""
        sizes, tape = self.sizes, self.ops.tape
        stack = sizes.layers * sizes.directions * sizes.batch
        widths = [sizes.output, sizes.hidden] if self.layer.cell == "lstm" else [sizes.output]
        states = [tape.new(stack * width, itemsize, "first states", tracked=False) for width in widths]
        tape.record([], states)
        return states

    # --- cuDNN -------------------------------------------------------------------------------------------------------

    def _cudnn(self, x: Tensor) -> Tensor:
        """One operator: saves its input, output, states and reserve; its weights are one buffer already.

        Autocast copies all of them into a buffer of its own at each call. The gradient of the input is made whether
        it is wanted or not. With `batch_first` the sequence and the gradient of the answer are copied on their way.
        """
        sizes, ops, tape = self.sizes, self.ops, self.ops.tape
        numels = [prod(shape) for shape in self.module.shapes()]
        own = sum(rounded(numel * ops.parameter) for numel in numels)
        x = ops.autocast_input(x, "rnn input, cast")
        states = [ops.autocast_input(state, "first states, cast") for state in self._states(ops.parameter)]
        weights: Tensor | None = None
        if ops.autocast is not None and ops.autocast != ops.parameter:
            weights = tape.new(sum(numels), ops.autocast, "rnn weights, cast", tracked=self.training, group=CASTS)
            tape.record([], [weights], grad_bytes=own)
        rows = sizes.batch * sizes.steps
        out = tape.new(rows * sizes.directions * sizes.output, x.itemsize, "rnn output", tracked=True)
        last = [tape.new(state.numel, x.itemsize, "last states", tracked=False) for state in states]
        reserve_size = reserve_bytes(sizes, dropout=self.layer.dropout > 0)
        reserve = [tape.new(reserve_size, 1, "cuDNN's reserve", tracked=False)] if self.training else []
        copied = rounded(x.numel * x.itemsize) if self.layer.batch_first else 0
        answered = rounded(out.numel * out.itemsize) if self.layer.batch_first else 0
        scratch = rounded(workspace_bytes(sizes))
        gradients = rounded(sum(numels) * x.itemsize)
        zeros = sum(2 * rounded(state.numel * state.itemsize) for state in states)
        unasked = 0 if x.tracked else rounded(x.numel * x.itemsize)
        tape.record(
            [x, *states, *([weights] if weights else [])],
            [out],
            saves=[x, out, *states, *([weights] if weights else [])],
            saved_outputs=[*last, *reserve],
            flows=[(x, True), *([(weights, True)] if weights else [])],
            grad_bytes=0 if weights else own,
            workspace=copied + scratch,
            backward_workspace=unasked + copied + scratch + max(0, answered + zeros - gradients),
        )
        return out

    # --- PyTorch's own -----------------------------------------------------------------------------------------------

    def _steps(self, x: Tensor) -> Tensor:
        """Layer after layer, step after step; directions are joined behind each layer."""
        sizes, ops, tape = self.sizes, self.ops, self.ops.tape
        states = self._states(ops.parameter)
        for layer in range(sizes.layers):
            if layer and self.layer.dropout and self.training:
                x = ops.dropout(x, self.layer.dropout, "rnn dropout")
            steps = [tape.view(x, x.numel // sizes.steps) for _ in range(sizes.steps)]
            tape.record([x], steps, flows=[(x, True)])
            ways = [self._direction(layer, steps) for _ in range(sizes.directions)]
            x = ways[0]
            if len(ways) > 1:
                x = tape.new(2 * ways[0].numel, ways[0].itemsize, "both directions", tracked=True)
                tape.record(ways, [x], flows=[(way, True) for way in ways])
        tape.touch(*states)
        return x

    def _direction(self, layer: int, steps: list[Tensor]) -> Tensor:
        """One direction of one layer: every step's state, stacked in the end."""
        sizes, ops, tape = self.sizes, self.ops, self.ops.tape
        numels = [prod(shape) for shape in self.module.direction(layer)]
        own = sum(rounded(numel * ops.parameter) for numel in numels)
        again = sum(rounded(numel * ops.parameter) for numel in numels[:2])
        state = tape.new(sizes.batch * sizes.output, ops.parameter, "state", tracked=False)
        cell = tape.new(sizes.batch * sizes.hidden, ops.parameter, "cell", tracked=False)
        state.storage.borrowed = cell.storage.borrowed = True
        outs = []
        for step, piece in enumerate(steps):
            # The last step comes first in backward: its gradients stay, those of the others are added to them.
            grads = (own, 0) if step == len(steps) - 1 else (0, again)
            state, cell = self._step(piece, state, cell, numels, grads)
            outs.append(state)
        out = tape.new(sizes.steps * outs[0].numel, outs[0].itemsize, "states of all steps", tracked=True)
        tape.record(outs, [out], flows=[(state, False) for state in outs])
        return out

    def _product(self, x: Tensor, matrix: int, grads: tuple[int, int]) -> Tensor:
        """One step times a matrix. Autocast's cache knows only weights, and a transposed one is cast each time."""
        sizes, ops, tape = self.sizes, self.ops, self.ops.tape
        x = ops.autocast_input(x, "step, cast")
        cast = None
        if ops.autocast is not None and ops.autocast != ops.parameter:
            cast = tape.new(matrix, ops.autocast, "rnn weight, cast", tracked=True, group=CASTS)
            tape.record([], [cast], grad_bytes=grads[0], backward_workspace=grads[1])
            grads = (0, 0)
        used = [] if cast is None else [cast]
        out = tape.new(self.gates * sizes.hidden * sizes.batch, x.itemsize, "gates", tracked=True)
        tape.record(
            [x, *used],
            [out],
            saves=[x, *(used if x.tracked else [])],
            flows=[(x, True), *((tensor, True) for tensor in used)],
            grad_bytes=grads[0],
            backward_workspace=grads[1],
            gemm=True,
        )
        return out

    def _step(
        self, piece: Tensor, state: Tensor, cell: Tensor, numels: list[int], grads: tuple[int, int]
    ) -> tuple[Tensor, Tensor]:
        """A step: two products, and a fused cell that keeps both of them; a plain cell keeps its output."""
        sizes, ops, tape = self.sizes, self.ops, self.ops.tape
        gates = [self._product(piece, numels[0], (0, 0)), self._product(state, numels[1], grads)]
        after = tape.new(sizes.batch * sizes.hidden, piece.itemsize, "state", tracked=True)
        passed = [(gate, True) for gate in gates]
        if self.layer.cell not in _FUSED:
            sums = tape.view(gates[1])
            tape.record(gates, [sums], flows=[(gate, False) for gate in gates])
            tape.record([sums], [after], saves=[after], flows=[(sums, True)])
            return after, cell
        cell_workspace = tape.new(
            _FUSED[self.layer.cell] * after.numel, piece.itemsize, "cell's workspace", tracked=False
        )
        if self.layer.cell == "gru":
            tape.record(
                [*gates, state],
                [after],
                saves=[*gates, state],
                saved_outputs=[cell_workspace],
                flows=[*passed, (state, True)],
            )
            return after, cell
        cell = ops.autocast_input(cell, "cell, cast")
        beyond = tape.new(cell.numel, cell.itemsize, "cell", tracked=True)
        tape.record(
            [*gates, cell],
            [after, beyond],
            saves=[*gates, cell, beyond],
            saved_outputs=[cell_workspace],
            flows=[*passed, (cell, True)],
        )
        if not self.layer.proj_size:
            return after, beyond
        projected = tape.new(sizes.batch * sizes.output, piece.itemsize, "projected state", tracked=True)
        tape.record([after], [projected], saves=[after], flows=[(after, True)], gemm=True)
        return projected, beyond
