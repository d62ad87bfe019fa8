"""Adapters beside frozen linear layers, as peft has them: LoRA, and DoRA with a magnitude for each row.

Shapes: x (b·s, i), base (o, i), A (r, i), B (o, r); i and o widths of the layer, r the adapter's rank.
"""

import msgspec

from vramtui.core.schema.workload import Lora
from vramtui.estimators.analytic.ops.operators import Operators, column_sum_scratch
from vramtui.estimators.analytic.tape.tape import Tape, Tensor
from vramtui.estimators.torch_facts.allocator_sizes import rounded


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """The frozen layer: its name, its weight of (outer, inner) numbers, and how they are kept.

    Attributes:
        unpacked: bytes of a number of the weight once it is unpacked; `packed` says that it is quantised.
        itemsize: bytes of a number of the adapter.
    """

    module: str
    inner: int
    outer: int
    bias: bool
    unpacked: int
    packed: bool
    itemsize: int


class Adapter:
    def __init__(self, ops: Operators, lora: Lora, target: Target) -> None:
        self.ops, self.lora, self.target = ops, lora, target
        self.tape: Tape = ops.tape

    def add_branch(self, x: Tensor, out: Tensor) -> Tensor:
        """`out`, the layer's answer to `x`, with the adapter's, in the type it had."""
        ops, module, given = self.ops, self.target.module, x
        x = ops.cast(x, self.target.itemsize, f"{module} adapter's input")
        dropped = ops.dropout(x, self.lora.dropout, f"{module} adapter's dropout")
        added = (
            self._directed(dropped, out)
            if self.lora.use_dora
            else ops.unsaved(self._product(dropped), f"{module} adapter, scaled")
        )
        total = ops.add(out, added, f"{module} with adapter")
        self.tape.touch(given, x)
        return ops.cast(total, out.itemsize, f"{module} with adapter")

    def _product(self, x: Tensor) -> Tensor:
        target, rank = self.target, self.lora.rank
        low = self.ops.linear(x, (rank, target.inner), f"{target.module} lora_A")
        return self.ops.linear(low, (target.outer, rank), f"{target.module} lora_B")

    def _directed(self, x: Tensor, out: Tensor) -> Tensor:
        """DoRA: (m / norm - 1) times the base's answer plus m / norm times the adapter's, m one number for each row.

        The norm is that of the weight with its adapter multiplied out; it gets no gradient, but what it is made of
        stands to the end (peft, tuners/lora/dora.py, DoraLinearLayer.forward).
        """
        ops, tape, target = self.ops, self.tape, self.target
        itemsize, outer, module = target.itemsize, target.outer, target.module
        stands, weight = self._merged()
        norm = tape.new(outer, itemsize, f"{module} norm of each row", tracked=False)
        by = tape.new(outer, itemsize, f"{module} magnitude over norm", tracked=True)
        tape.record([], [by], saved_outputs=[norm], grad_bytes=rounded(outer * itemsize))
        high = self._product(x)
        # The layer's answer without its bias; made anew if the adapter's input had numbers dropped.
        base = out
        if self.lora.dropout:
            x, cast = (ops.autocast_input(t, f"{module} dropped, cast") for t in (x, weight))
            base = tape.new(out.numel, x.itemsize, f"{module} of what was not dropped", tracked=x.tracked)
            tape.record([x, cast], [base], saves=[cast], flows=[(x, True)], gemm=True)
        elif target.bias:
            base = ops.unsaved(out, f"{module} without bias")
        less = tape.new(outer, itemsize, f"{module} magnitude over norm, less 1", tracked=True)
        tape.record([by], [less], flows=[(by, False)])
        first = self._by_row(base, less, f"{module}, scaled")
        second = ops.unsaved(
            self._by_row(high, by, f"{module} adapter, with magnitude"), f"{module} adapter, with magnitude and scaled"
        )
        total = ops.add(first, second, f"{module} adapter with magnitude")
        tape.touch(*stands, weight, base, high, by)
        return total

    def _merged(self) -> tuple[list[Tensor], Tensor]:
        """Multiply A and B out by sending an identity matrix through them, and add the weight to take its norms.

        Returns:
            What stands until the adapter's answer does, and the weight in the adapter's type.
        """
        tape, target = self.tape, self.target
        numel, multiplied = target.inner * target.outer, self.ops.autocast or target.itemsize
        eye = self._transient(target.inner**2, target.itemsize, "identity")
        taken = eye if multiplied == target.itemsize else self._transient(target.inner**2, multiplied, "identity, cast")
        low = self._transient(target.inner * self.lora.rank, multiplied, "A alone")
        tape.touch(eye)
        adapter = self._transient(numel, multiplied, "adapter multiplied out")
        if multiplied != target.itemsize:
            narrow, adapter = adapter, self._transient(numel, target.itemsize, "adapter multiplied out, cast")
            tape.touch(narrow)
        # The frozen weight in the adapter's type; itself, which is there already, if it is of that type.
        unpacked = target.unpacked == target.itemsize
        if target.packed:
            weight = narrow = self._transient(numel, target.unpacked, "weight, unpacked")
            if not unpacked:
                weight = self._transient(numel, target.itemsize, "weight in the adapter's type")
                tape.touch(narrow)
        elif unpacked:
            weight = Tape().enter(numel, target.itemsize, tracked=False)
        else:
            weight = self._transient(numel, target.itemsize, "weight in the adapter's type")
        scaled = self._transient(numel, target.itemsize, "adapter multiplied out, scaled")
        merged = self._transient(numel, target.itemsize, "weight with adapter")
        tape.touch(scaled)
        tape.touch(merged)
        return [taken, low, adapter], weight

    def _transient(self, numel: int, itemsize: int, label: str) -> Tensor:
        out = self.tape.new(numel, itemsize, f"{self.target.module} {label}", tracked=False)
        self.tape.record([], [out], gemm=label == "A alone")
        return out

    def _by_row(self, x: Tensor, by: Tensor, label: str) -> Tensor:
        """Times one number for each row of the weight, in the adapter's type; each saves the other.

        Both gradients are as large as the answer before they are summed or cast.
        """
        out = self.tape.new(x.numel, by.itemsize, label, tracked=True)
        full = rounded(out.numel * out.itemsize)
        whole = 2 * full - rounded(x.numel * x.itemsize) if x.tracked else full
        sums = column_sum_scratch(x.numel // by.numel, by.numel, self.ops.card)
        self.tape.record(
            [x, by],
            [out],
            saves=[x, by] if x.tracked else [x],
            flows=[(x, True), (by, True)],
            backward_workspace=whole + sums,
        )
        return out
