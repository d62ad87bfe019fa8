"""PyTorch's operators as they stand on a tape: dtypes, what autograd saves of each (torch/csrc/autograd's
derivatives.yaml), and what their backward makes.
"""

from collections.abc import Sequence

from vramtui.estimators.analytic.ops.matmul import Products
from vramtui.estimators.analytic.tape.tape import Tensor
from vramtui.estimators.torch_facts.allocator_sizes import rounded
from vramtui.estimators.torch_facts.reduction import column_sum_scratch


class Operators(Products):
    """Writes any operator on one tape."""

    def add(self, a: Tensor, b: Tensor, label: str) -> Tensor:
        """Add a and b in the wider type; the gradient is passed on as it is, or cast for the narrower one."""
        width = max(a.width, b.width)
        out = self.tape.new(max(a.numel, b.numel), width, label, tracked=a.tracked or b.tracked)
        self.tape.op([a, b], [out], flows=[(t, t.width != width or t.numel != out.numel) for t in (a, b)])
        return out

    def multiply(self, a: Tensor, b: Tensor, label: str) -> Tensor:
        """Multiply a by b, each of which saves the other; a smaller one is broadcast and its gradient summed."""
        numel = max(a.numel, b.numel)
        out = self.tape.new(numel, max(a.width, b.width), label, tracked=a.tracked or b.tracked)
        summed = sum(rounded(numel * out.width) for t in (a, b) if t.tracked and t.numel < numel)
        saves = [other for t, other in ((a, b), (b, a)) if t.tracked]
        self.tape.op([a, b], [out], saves=saves, flows=[(a, True), (b, True)], back_scratch=summed)
        return out

    def scale(self, x: Tensor, weight: int, label: str, *, trained: bool = True) -> Tensor:
        """Multiply x by a parameter of `weight` elements along the last dimension."""
        own = self.parameter if trained else self.frozen
        out = self.tape.new(x.numel, max(x.width, own), label, tracked=x.tracked or trained)
        rows = x.numel // weight
        self.tape.op(
            [x],
            [out],
            saves=[x] if trained else [],
            flows=[(x, True)],
            into=rounded(weight * own) if trained else 0,
            back_scratch=(rounded(out.numel * out.width) + column_sum_scratch(rows, weight, self.card))
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
        scratch: int = 0,
        back_scratch: int = 0,
        width: int | None = None,
    ) -> Tensor:
        """An elementwise operator that saves its input, its output, or nothing."""
        out = self.tape.new(x.numel, width or x.width, label, tracked=x.tracked)
        kept: Sequence[Tensor] = {"input": [x], "output": [out], "nothing": []}[saves]
        self.tape.op([x], [out], saves=kept, flows=[(x, True)], scratch=scratch, back_scratch=back_scratch)
        return out

    def dropout(self, x: Tensor, probability: float, label: str) -> Tensor:
        """Zeroes elements and saves which, one byte each; nothing at all when the probability is 0."""
        if probability == 0:
            return x
        out = self.tape.new(x.numel, x.width, label, tracked=x.tracked)
        mask = self.tape.new(x.numel, 1, f"{label} mask", tracked=False)
        self.tape.op([x], [out], beside=[mask], flows=[(x, True)])
        if not x.tracked:
            self.tape.touch(mask)
        return out

    def layer_norm(self, x: Tensor, size: int, label: str, *, trained: bool = True) -> Tensor:
        """A layer norm of torch's: saves its input, means and 1/σ in fp32; under autocast it answers in fp32."""
        rows = x.numel // size
        if self.autocast is not None:
            x = self.cast(x, 4, f"{label} input in fp32")
        out = self.tape.new(x.numel, x.width, label, tracked=x.tracked or trained)
        statistics = [self.tape.new(rows, 4, f"{label} {name}", tracked=False) for name in ("mean", "1/σ")]
        own = self.parameter if trained else self.frozen
        self.tape.op(
            [x],
            [out],
            saves=[x],
            beside=statistics,
            flows=[(x, True)],
            into=2 * rounded(size * own) if trained else 0,
        )
        return out

    def rms_norm(
        self, x: Tensor, size: int, label: str, *, trained: bool = True, weight_in_fp32: bool = False
    ) -> Tensor:
        """RMS norm as transformers spells it out: everything in fp32 before the weight is multiplied.

        Gemma multiplies by the weight, raised to fp32 and increased by 1, before it goes back.
        """
        rows, full = x.numel // size, rounded(x.numel * 4)
        given = x.width
        wide = self.cast(x, 4, f"{label} input in fp32")
        squares = self.pointwise(wide, f"{label} squares", back_scratch=2 * full)
        mean = self.tape.new(rows, 4, f"{label} mean", tracked=wide.tracked)
        self.tape.op([squares], [mean], flows=[(squares, True)])
        inverse = self.pointwise(mean, f"{label} 1/rms", saves="output", scratch=rounded(rows * 4))
        normal = self.multiply(wide, inverse, f"{label} normalised in fp32")
        if weight_in_fp32:
            scaled = self.scale(normal, size, f"{label} in fp32", trained=trained)
            return self.cast(scaled, given, label)
        normal = self.cast(normal, given, f"{label} normalised")
        return self.scale(normal, size, label, trained=trained)

    def fused_rms_norm(self, x: Tensor, size: int, label: str, *, trained: bool = True) -> Tensor:
        """An RMS norm of torch's own: saves its input and 1/rms in fp32."""
        out = self.tape.new(x.numel, x.width, label, tracked=x.tracked or trained)
        inverse = self.tape.new(x.numel // size, 4, f"{label} 1/rms", tracked=False)
        own = self.parameter if trained else self.frozen
        into = rounded(size * own) if trained else 0
        self.tape.op([x], [out], saves=[x], beside=[inverse], flows=[(x, True)], into=into)
        return out

    def gelu_new(self, x: Tensor) -> Tensor:
        """GPT-2's activation, spelt out in eight operators; autocast raises the cube to fp32."""
        half = self.pointwise(x, "half the activation's input", saves="nothing")
        base = x if self.autocast is None else self.cast(x, 4, "activation's input in fp32")
        full = rounded(base.numel * base.width)
        cube = self.pointwise(base, "cube", back_scratch=2 * full)
        cube = self.pointwise(cube, "cube, scaled", saves="nothing")
        inner = self.add(x, cube, "tanh's input")
        inner = self.pointwise(inner, "tanh's input, scaled", saves="nothing")
        tanh = self.pointwise(inner, "tanh", saves="output")
        one_more = self.tape.new(tanh.numel, tanh.width, "1 + tanh", tracked=tanh.tracked)
        self.tape.op([tanh], [one_more], flows=[(tanh, False)])
        return self.multiply(half, one_more, "activation")
