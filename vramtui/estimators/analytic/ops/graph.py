"""What nets of branches are made of: sums, products and joined channels, factors, dropped paths, windows.

As torchvision 0.28 has them.
Shapes: image (b, c, y, x) or, with channels last, (b, y, x, c).
"""

from collections.abc import Sequence
from math import prod

from vramtui.core.schema.layer_models import Join, ModelOutput, Norm, WindowAttention
from vramtui.estimators.analytic.ops.conv import LayerOps, Shape
from vramtui.estimators.analytic.ops.loss import class_loss
from vramtui.estimators.analytic.tape.tape import Tensor
from vramtui.estimators.torch_facts.allocator_sizes import rounded
from vramtui.models.kinds import LinearModule
from vramtui.models.spec import Module

_FOCAL = ("valid answers", "targets", "p", "cross entropy", "1 - targets", "1 - p_t", "its power", "alpha")


class GraphOps:
    """Writes such layers with the operators of one stretch; shapes are one sample's, without the batch."""

    def __init__(self, writer: LayerOps) -> None:
        self.writer, self.ops, self.tape = writer, writer.ops, writer.ops.tape

    def join(self, x: Tensor, shape: Shape, marked: Sequence[tuple[Tensor, Shape]], layer: Join) -> Tensor:
        """What is here, of that shape, with what was marked."""
        if layer.how == "concat":
            return self._concat([*(tensor for tensor, _ in marked), x])
        for other, size in marked:
            larger = max(shape, size, key=prod)
            if layer.how == "multiply":
                x = self.ops.multiply(other, x, "product")
            elif layer.inplace and shape == larger:
                total = self.tape.view(x)
                self.tape.record([x, other], [total], flows=[(x, False), (other, False)])
                x = total
            else:
                x = self.ops.add(x, other, "sum")
            shape = larger
        return x

    def _concat(self, parts: list[Tensor]) -> Tensor:
        itemsize, numel = max(part.itemsize for part in parts), sum(part.numel for part in parts)
        out = self.tape.new(numel, itemsize, "joined", tracked=any(part.tracked for part in parts))
        self.tape.record(parts, [out], flows=[(part, False) for part in parts])
        return out

    def regions(self, levels: Sequence[tuple[Tensor, Shape]], shape: Shape, count: int) -> Tensor:
        """`count` squares of an image: each level's are put into zeros, and so are made twice; of the levels nothing is
        kept (_multiscale_roi_align, torchvision 0.28, ops/poolers.py).
        """
        x = levels[0][0]
        self.writer.batch = x.numel // prod(levels[0][1]) * count
        out = self.tape.new(
            self.writer.batch * prod(shape), x.itemsize, "regions", tracked=any(level.tracked for level, _ in levels)
        )
        size = out.storage.size
        self.tape.record(
            [level for level, _ in levels],
            [out],
            flows=[(level, True) for level, _ in levels],
            workspace=size,
            backward_workspace=2 * size,
        )
        return out

    def answers(self, outputs: Sequence[tuple[Tensor, Shape, ModelOutput]], *, training: bool) -> None:
        """Each answer stays until all are made; then come their losses."""
        for x, _, _ in outputs:
            self.tape.touch(x)
        for x, _, layer in outputs if training else ():
            if layer.loss == "cross_entropy":
                class_loss(self.ops, x, "cross_entropy")
            elif layer.loss == "focal":
                self._focal(x)
            else:
                # The gradient of a few rows is one of all rows.
                self.tape.record([x], [self.tape.new(1, 4, "loss", tracked=True)], flows=[(x, True)])

    def output(self, x: Tensor, *, rows: bool) -> Tensor:
        """An answer as it is kept: copied with its channels last, and once more beside the other levels'."""
        return self.moved(self.moved(x, x.numel, "rows of an answer"), x.numel, "answers, joined") if rows else x

    def _focal(self, x: Tensor) -> None:
        """sigmoid_focal_loss of torchvision 0.28 (ops/focal_loss.py), operator by operator: eight tensors of the
        answer's size are kept, and four more stand meanwhile.
        """
        full = rounded(x.numel * 4)
        saved = [self.tape.new(x.numel, 4, f"focal loss: {name}", tracked=False) for name in _FOCAL]
        loss = self.tape.new(1, 4, "loss", tracked=True)
        self.tape.record(
            [x], [loss], saved_outputs=saved, flows=[(x, True)], workspace=4 * full, backward_workspace=4 * full
        )

    def scale(self, x: Tensor, factors: Module) -> Tensor:
        """A factor for each channel."""
        self.writer.add_parameter(factors)
        return self.ops.scale(x, factors.shapes()[0][0], "scaled")

    def drop_path(self, x: Tensor, probability: float) -> Tensor:
        """A product with one number a sample, which is all that is kept."""
        if probability == 0:
            return x
        mask = self.tape.new(self.writer.batch, x.itemsize, "which paths are kept", tracked=False)
        out = self.tape.new(x.numel, x.itemsize, "path", tracked=x.tracked)
        self.tape.record([x], [out], saved_outputs=[mask], flows=[(x, True)])
        return out

    def windows(self, x: Tensor, shape: Shape, layer: WindowAttention, modules: Sequence[Module]) -> Tensor:
        """Swin's shifted_window_attention: rolled, cut into windows, every score written out, and put back."""
        table, projection, output = modules
        assert isinstance(projection, LinearModule)
        assert isinstance(output, LinearModule)
        writer, ops, tape = self.writer, self.ops, self.tape
        height, width, channels = shape
        side, heads = layer.window_size, layer.num_heads
        padded = tuple(-(-size // side) * side for size in (height, width))
        tokens = side * side
        count = writer.batch * padded[0] * padded[1] // tokens
        numel = count * tokens * channels
        shifts = layer.shifted and max(padded) > side
        for _ in range(int(padded != (height, width)) + int(shifts) + 1):
            x = self.moved(x, numel, "windows")
        (positions,) = writer.add_parameter(table)
        joined = writer.linear(x, projection)
        q, k, v = (tape.view(joined, numel) for _ in range(3))
        tape.record([joined], [q, k, v], flows=[(joined, True)])
        q = ops.pointwise(q, "q, scaled", saves="nothing")
        q, k, v = (ops.autocast_input(part, "q, k or v, cast") for part in (q, k, v))
        q, k = (self.moved(part, numel, "rows of q or k") for part in (q, k))
        scores = self._product(q, k, count * heads * tokens * tokens, "scores")
        bias = rounded(heads * tokens * tokens * 4)
        biased = tape.new(scores.numel, max(scores.itemsize, ops.parameter), "scores, biased", tracked=True)
        tape.record(
            [scores],
            [biased],
            flows=[(scores, scores.itemsize != biased.itemsize)],
            workspace=bias,
            grad_bytes=positions,
            backward_workspace=2 * bias,
        )
        if shifts:
            biased = ops.pointwise(biased, "scores, masked", saves="nothing")
        softmax = ops.pointwise(biased, "softmax", saves="output")
        softmax = ops.autocast_input(softmax, "softmax, cast")
        v = self.moved(v, numel, "rows of v")
        mixed = self.moved(self._product(softmax, v, numel, "mixed"), numel, "mixed, in rows")
        out = writer.linear(mixed, output)
        for _ in range(int(shifts) + 1):
            out = self.moved(out, numel, "windows put back")
        return tape.view(out, writer.batch * height * width * channels) if padded != (height, width) else out

    def merge(self, x: Tensor, after: Shape, modules: Sequence[Module]) -> Tensor:
        """Swin's PatchMerging, to the shape `after`: four neighbours side by side are twice as wide before."""
        norm, halved = modules
        assert isinstance(halved, LinearModule)
        x = self.moved(x, 2 * self.writer.batch * prod(after), "four neighbours")
        return self.writer.linear(self.writer.norm(x, after, Norm(), (norm,)), halved)

    def moved(self, x: Tensor, numel: int, label: str) -> Tensor:
        """A copy in another order or size, of which nothing is kept."""
        out = self.tape.new(numel, x.itemsize, label, tracked=x.tracked)
        self.tape.record([x], [out], flows=[(x, True)])
        return out

    def _product(self, a: Tensor, b: Tensor, numel: int, label: str) -> Tensor:
        out = self.tape.new(numel, a.itemsize, label, tracked=True)
        self.tape.record([a, b], [out], saves=[a, b], flows=[(a, True), (b, True)], gemm=True)
        return out
