"""PyTorch's operators as they stand on a tape: dtypes, what autograd saves of each (torch/csrc/autograd's
derivatives.yaml), and what their backward makes. Matrix products run under autocast, in fp8, with adapters or
quantised weights.

Shapes: an operator knows counts of numbers: rows (b·s) times the width of its last dimension; a product (m, k) by
(k, n) gives (m, n).
"""

from collections.abc import Sequence
from copy import copy
from math import prod

from vramtui.core.base.late import late
from vramtui.estimators.analytic.sizes.precision import Recipe, matmul_workspaces
from vramtui.estimators.analytic.tape.tape import CASTS, Tape, Tensor
from vramtui.estimators.torch_facts.allocator_sizes import rounded
from vramtui.estimators.torch_facts.cards import CardLimits

# Of sums over rows, which the gradients of biases and norms are.
column_sum_scratch = late("vramtui.estimators.torch_facts.reduction:column_sum_scratch")


def record_norm(tape: Tape, x: Tensor, out: Tensor, statistics: list[Tensor], *, grads: tuple[int, int]) -> Tensor:
    """A norm that saves its input and its `statistics`, means and 1/σ; `grads` are bytes of the gradients of its weight
    and of its bias. Returns `out`.
    """
    tape.record(
        [x],
        [out],
        saves=[x],
        saved_outputs=statistics,
        flows=[(x, True)],
        grad_bytes=sum(grads),
        bias_grad_bytes=grads[1],
    )
    return out


class Operators:
    """Writes any operator on one tape, and the casts that it asks for.

    `parameter` are the bytes of one of the model's own parameters, `autocast` those of the type that autocast casts
    matrix products to (None outside autocast); `release` is PyTorch's.
    """

    def __init__(self, tape: Tape, recipe: Recipe, card: CardLimits, parameter: int, release: tuple[int, int]) -> None:
        self.tape = tape
        self.recipe = recipe
        self.autocast = recipe.compute if recipe.autocast else None
        self.parameter = parameter
        self.card = card
        self.release = release

    def for_tape(self, tape: Tape) -> "Operators":
        twin = copy(self)
        twin.tape = tape
        return twin

    def cast(self, x: Tensor, itemsize: int, label: str, *, group: str | None = None) -> Tensor:
        """`x` in another type; itself when it already is of that width."""
        if x.itemsize == itemsize:
            return x
        out = self.tape.new(x.numel, itemsize, label, tracked=x.tracked, group=group)
        self.tape.record([x], [out], flows=[(x, True)])
        return out

    def autocast_input(self, x: Tensor, label: str) -> Tensor:
        """`x` as a matrix product takes it: cast under autocast."""
        return x if self.autocast is None else self.cast(x, self.autocast, label)

    def linear(
        self, x: Tensor, weight: tuple[int, ...], label: str, *, bias: bool = False, trained: bool = True
    ) -> Tensor:
        """Multiply x (rows, inner) by a weight (outer, inner) and add a bias. Saves x for the weight's gradient.

        A weight that is not `trained` gets no gradient; one of (copies, outer, inner) is several that share the rows
        out among them, as experts do.
        """
        *_, outer, inner = weight
        rows, numel = x.numel // inner, prod(weight)
        # Autocast casts a call's arguments from the last to the first.
        added = self.weight_copy(outer, f"{label} bias", trained=trained) if bias else None
        cast = self.weight_copy(numel, label, trained=trained)
        x = self.autocast_input(x, f"{label} input, cast")
        saved = x
        if self.recipe.fp8:  # Transformer Engine casts its input to fp8, which is what the backward pass keeps
            saved = self.tape.new(x.numel, 1, f"{label} input in fp8", tracked=False)
            self.tape.record([x], [saved])
        out = self.tape.new(rows * outer, x.itemsize, label, tracked=x.tracked or trained)
        self.tape.products += not bias  # every second product is run again
        weight_grad = rounded(numel * self.parameter) if trained and cast is None else 0
        bias_grad = rounded(outer * self.parameter) if trained and bias and added is None else 0
        casts = [tensor for tensor in (cast, added) if tensor is not None]
        self.tape.record(
            [x, saved, *casts],
            [out],
            saves=([saved] if trained else []) + ([cast] if cast is not None and x.tracked else []),
            flows=[(tensor, True) for tensor in ((x, *casts) if bias else (*casts, x))],
            weight_first=not bias,
            grad_bytes=weight_grad + bias_grad,
            bias_grad_bytes=bias_grad,
            sum_workspace=column_sum_scratch(rows, outer, self.card) if bias and trained else 0,
            gemm=True,
            fused_bias=bias,
            cached=not bias and self.tape.products % 2 == 1,
        )
        return out

    def packed_linear(
        self, x: Tensor, weight: tuple[int, ...], label: str, quantization: str, *, outside: bool, whole: bool
    ) -> Tensor:
        """Multiply by a frozen, quantised weight, and answer in the type of x.

        bitsandbytes multiplies 4-bit weights in the compute type and keeps nothing but them; LLM.int8 takes x as it is
        and keeps it on its context, where checkpointing does not see it (`outside`) unless it is reentrant and makes no
        context the first time (bitsandbytes 0.50.2, nn/modules.py, Linear4bit.forward; autograd/_functions.py,
        MatMul8bitLt; PyTorch 2.13, utils/checkpoint.py, CheckpointFunction). Fused experts are the `whole` answer of a
        parametrization in the compute type, LLM.int8's by way of two copies in fp32 (as above, nn/parametrize.py;
        axolotl 067b021c, monkeypatch/moe_quant.py).
        """
        *_, outer, inner = weight
        rows, given, eight = x.numel // inner, x.itemsize, quantization == "int8"
        if not eight:
            x = self.cast(x, self.recipe.compute, f"{label} input, cast")
        if whole:
            x = self.cast(x, self.recipe.compute, f"{label} input, cast")
            unpacked = self.tape.new(prod(weight), self.recipe.compute, f"{label} weights, dequantized", tracked=False)
            self.tape.record([], [unpacked], workspace=2 * rounded(prod(weight) * 4) if eight else 0)
            out = self.tape.new(rows * outer, x.itemsize, label, tracked=x.tracked)
            self.tape.record([x, unpacked], [out], saves=[unpacked], flows=[(x, True)], gemm=True)
            return self.cast(out, given, f"{label}, cast back")
        out = self.tape.new(rows * outer, x.itemsize, label, tracked=x.tracked)
        workspace, backward_workspace = matmul_workspaces(quantization, rows, inner, outer, x.itemsize)
        self.tape.record(
            [x],
            [out],
            saves=[x] if eight and not outside else [],
            saved_outside_graph=[x] if eight and outside else [],
            flows=[(x, True)],
            workspace=workspace,
            backward_workspace=backward_workspace,
            gemm=True,
        )
        return self.cast(out, given, f"{label}, cast back")

    def weight_copy(self, numel: int, label: str, *, trained: bool) -> Tensor | None:
        """Autocast's copy of an fp32 weight, kept in its cache to the end of the forward pass if it is trained.

        In fp8 it is two copies of one byte, one of them transposed for the backward pass.
        """
        itemsize = self.parameter if trained else self.recipe.frozen
        if self.autocast is None or itemsize == self.autocast:
            return None
        converted = self.tape.new(numel, self.autocast, f"{label} weight, cast", tracked=trained, group=CASTS)
        if trained:
            self.tape.hold(converted)
        self.tape.record([], [converted], grad_bytes=rounded(numel * itemsize) if trained else 0)
        return converted

    # --- without a weight matrix -------------------------------------------------------------------------------------

    def add(self, a: Tensor, b: Tensor, label: str) -> Tensor:
        """Add a and b in the wider type; the gradient is passed on as it is, or cast for the narrower one."""
        itemsize = max(a.itemsize, b.itemsize)
        out = self.tape.new(max(a.numel, b.numel), itemsize, label, tracked=a.tracked or b.tracked)
        self.tape.record([a, b], [out], flows=[(t, t.itemsize != itemsize or t.numel != out.numel) for t in (a, b)])
        return out

    def multiply(self, a: Tensor, b: Tensor, label: str) -> Tensor:
        """Multiply a by b, each saving the other; a smaller one is broadcast and its gradient summed."""
        numel = max(a.numel, b.numel)
        out = self.tape.new(numel, max(a.itemsize, b.itemsize), label, tracked=a.tracked or b.tracked)
        narrow = (a.tracked and a.numel < numel) + (b.tracked and b.numel < numel)
        summed = narrow * rounded(numel * out.itemsize) if narrow else 0
        saves = [other for t, other in ((a, b), (b, a)) if t.tracked]
        self.tape.record([a, b], [out], saves=saves, flows=[(a, True), (b, True)], backward_workspace=summed)
        return out

    def scale(self, x: Tensor, weight: int, label: str, *, trained: bool = True) -> Tensor:
        """Multiply x by a parameter of `weight` elements along the last dimension."""
        own = self.parameter if trained else self.recipe.frozen
        out = self.tape.new(x.numel, max(x.itemsize, own), label, tracked=x.tracked or trained)
        rows = x.numel // weight
        self.tape.record(
            [x],
            [out],
            saves=[x] if trained else [],
            flows=[(x, True)],
            grad_bytes=rounded(weight * own) if trained else 0,
            backward_workspace=(rounded(out.numel * out.itemsize) + column_sum_scratch(rows, weight, self.card))
            if trained
            else 0,
        )
        return out

    def pointwise(
        self,
        x: Tensor,
        label: str,
        *,
        saves: str = "input",
        workspace: int = 0,
        backward_workspace: int = 0,
        itemsize: int | None = None,
    ) -> Tensor:
        """An elementwise operator that saves its input or its output."""
        out = self.tape.new(x.numel, itemsize or x.itemsize, label, tracked=x.tracked)
        saved = [x if saves == "input" else out]
        self.tape.record(
            [x], [out], saves=saved, flows=[(x, True)], workspace=workspace, backward_workspace=backward_workspace
        )
        return out

    def unsaved(
        self,
        x: Tensor,
        label: str,
        numel: int | None = None,
        *,
        itemsize: int | None = None,
        workspace: int = 0,
        backward_workspace: int = 0,
    ) -> Tensor:
        """An operator that autograd saves nothing of: an elementwise one, a copy, a sum, a part of x laid out anew."""
        out = self.tape.new(numel or x.numel, itemsize or x.itemsize, label, tracked=x.tracked)
        self.tape.record([x], [out], flows=[(x, True)], workspace=workspace, backward_workspace=backward_workspace)
        return out

    def split(self, x: Tensor, *numels: int) -> list[Tensor]:
        """Views of x, one behind the other; their gradients are laid into one of the whole size."""
        parts = [self.tape.view(x, numel) for numel in numels]
        self.tape.record([x], parts, flows=[(x, True)])
        return parts

    def joined(self, parts: Sequence[Tensor], label: str) -> Tensor:
        """The parts as one tensor in the widest type, each with a gradient of its own."""
        itemsize, numel = max(part.itemsize for part in parts), sum(part.numel for part in parts)
        out = self.tape.new(numel, itemsize, label, tracked=any(part.tracked for part in parts))
        self.tape.record(parts, [out], flows=[(part, True) for part in parts])
        return out

    def dropout(self, x: Tensor, probability: float, label: str) -> Tensor:
        """Zeroes elements and saves which, one byte each; nothing at all when the probability is 0."""
        if probability == 0:
            return x
        out = self.tape.new(x.numel, x.itemsize, label, tracked=x.tracked)
        mask = self.tape.new(x.numel, 1, f"{label} mask", tracked=False)
        self.tape.record([x], [out], saved_outputs=[mask], flows=[(x, True)])
        if not x.tracked:
            self.tape.touch(mask)
        return out

    def layer_norm(self, x: Tensor, size: int, label: str, *, trained: bool = True) -> Tensor:
        """A layer norm of torch's: saves its input, means and 1/σ in fp32; under autocast it answers in fp32."""
        rows = x.numel // size
        if self.autocast is not None:
            x = self.cast(x, 4, f"{label} input in fp32")
        out = self.tape.new(x.numel, x.itemsize, label, tracked=x.tracked or trained)
        statistics = [self.tape.new(rows, 4, f"{label} {name}", tracked=False) for name in ("mean", "1/σ")]
        own = self.parameter if trained else self.recipe.frozen
        grad = rounded(size * own) if trained else 0
        return record_norm(self.tape, x, out, statistics, grads=(grad, grad))

    def rms_norm(
        self, x: Tensor, size: int, label: str, *, trained: bool = True, weight_in_fp32: bool = False
    ) -> Tensor:
        """RMS norm as transformers spells it out: everything in fp32 before the weight is multiplied.

        Gemma multiplies by the weight, raised to fp32 and increased by 1, before it goes back.
        """
        rows, full = x.numel // size, rounded(x.numel * 4)
        given = x.itemsize
        wide = self.cast(x, 4, f"{label} input in fp32")
        squares = self.pointwise(wide, f"{label} squares", backward_workspace=2 * full)
        mean = self.unsaved(squares, f"{label} mean", rows)
        inverse = self.pointwise(mean, f"{label} 1/rms", saves="output", workspace=rounded(rows * 4))
        normal = self.multiply(wide, inverse, f"{label} normalised in fp32")
        if weight_in_fp32:
            return self.cast(self.scale(normal, size, f"{label} in fp32", trained=trained), given, label)
        normal = self.cast(normal, given, f"{label} normalised")
        return self.scale(normal, size, label, trained=trained)

    def fused_rms_norm(self, x: Tensor, size: int, label: str, *, trained: bool = True) -> Tensor:
        """An RMS norm of torch's own: saves its input and 1/rms in fp32; under autocast it answers in fp32."""
        if self.autocast is not None:
            x = self.cast(x, 4, f"{label} input in fp32")
        out = self.tape.new(x.numel, x.itemsize, label, tracked=x.tracked or trained)
        inverse = self.tape.new(x.numel // size, 4, f"{label} 1/rms", tracked=False)
        own = self.parameter if trained else self.recipe.frozen
        grad_bytes = rounded(size * own) if trained else 0
        self.tape.record([x], [out], saves=[x], saved_outputs=[inverse], flows=[(x, True)], grad_bytes=grad_bytes)
        return out

    def liger_rms_norm(
        self, x: Tensor, size: int, label: str, *, trained: bool = True, in_place: bool = True
    ) -> Tensor:
        """Liger's: saves its input and 1/rms in fp32, and writes the input's gradient over the output's.

        The weight's gradient is summed from an fp32 row for each multiprocessor (liger-kernel 0.8.5, ops/rms_norm.py).
        """
        out = self.tape.new(x.numel, x.itemsize, label, tracked=x.tracked or trained)
        inverse = self.tape.new(x.numel // size, 4, f"{label} 1/rms", tracked=False)
        self.tape.record(
            [x],
            [out],
            saves=[x],
            saved_outputs=[inverse],
            flows=[(x, not in_place)],
            grad_bytes=rounded(size * self.parameter) if trained else 0,
            backward_workspace=rounded(self.card.multiprocessors * size * 4) if trained else 0,
        )
        return out

    def liger_gated(self, gate: Tensor, up: Tensor, label: str) -> Tensor:
        """Liger's SwiGLU and GeGLU: gate and up are saved, and their gradients written over them."""
        out = self.tape.new(gate.numel, gate.itemsize, label, tracked=gate.tracked or up.tracked)
        self.tape.record([gate, up], [out], saves=[gate, up], flows=[(gate, True), (up, True)], grads_in_forward=True)
        return out

    def gelu_new(self, x: Tensor) -> Tensor:
        """GPT-2's activation, spelt out in eight operators; autocast raises the cube to fp32."""
        half = self.unsaved(x, "half the activation's input")
        base = x if self.autocast is None else self.cast(x, 4, "activation's input in fp32")
        cube = self.pointwise(base, "cube", backward_workspace=2 * rounded(base.numel * base.itemsize))
        cube = self.unsaved(cube, "cube, scaled")
        inner = self.add(x, cube, "tanh's input")
        inner = self.unsaved(inner, "tanh's input, scaled")
        tanh = self.pointwise(inner, "tanh", saves="output")
        one_more = self.tape.new(tanh.numel, tanh.itemsize, "1 + tanh", tracked=tanh.tracked)
        self.tape.record([tanh], [one_more], flows=[(tanh, False)])
        return self.multiply(half, one_more, "activation")
