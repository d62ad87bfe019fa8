"""Single layers on a tape, for models given as a list: convolutions, pooling, norms over a batch, and what nets of
branches are made of, as torchvision 0.28 has them: sums, products and joined channels, dropped paths, windows.

Shapes: image (b, c, y, x) or, with channels last, (b, y, x, c), weight (o, c / groups, k, k), answer (b, o, y', x').
"""

from collections.abc import Sequence
from math import prod

from vramtui.core.schema.models import Act, Conv2d, Join, ModelOutput, Norm, Pool, Weights, WindowAttention
from vramtui.estimators.analytic.ops.decoder_builder import class_loss
from vramtui.estimators.analytic.ops.operators import Operators, record_norm
from vramtui.estimators.analytic.tape.tape import Tensor
from vramtui.estimators.torch_facts.allocator_sizes import rounded
from vramtui.estimators.torch_facts.convolutions import FLOAT, ConvolutionCall, Direction, asked_workspace
from vramtui.estimators.torch_facts.reduction import column_sum_scratch
from vramtui.models.spec import ConvModule, LinearModule, Module, Parameter

_FOCAL = ("valid answers", "targets", "p", "cross entropy", "1 - targets", "1 - p_t", "its power", "alpha")
Shape = tuple[int, ...]
SAVES_OUTPUT = {"relu", "sigmoid", "tanh", "softmax"}
# In place they keep what they write over as a copy, since their backward needs it.
SAVES_COPY = {"relu6", "silu", "gelu", "hardswish", "hardsigmoid"}


class LayerOps:
    """Writes layers and notes their parameters. `shape` is one sample's, without the batch."""

    def __init__(self, ops: Operators, batch: int, parameters: list[Parameter], *, cudnn: bool, times: int = 1) -> None:
        self.ops, self.tape = ops, ops.tape
        self.batch = batch
        self.parameters = parameters
        self.cudnn = cudnn
        self.times = times
        self.buffers = 0
        self.frozen: list[Parameter] = []

    def add_parameter(self, module: Module, *, weights: Weights = "trained") -> list[int]:
        """Note the parameters of a module and give the bytes of the gradient of each."""
        if weights != "shared":
            parameters = self.frozen if weights == "frozen" else self.parameters
            parameters += [Parameter(module.name, shape, self.times) for shape in module.shapes()]
        return [0 if weights == "frozen" else rounded(prod(one) * self.ops.parameter) for one in module.shapes()]

    def linear(self, x: Tensor, layer: LinearModule, *, strided: bool = False) -> Tensor:
        """A linear layer over the last dimension; `strided` rows are copied first, and the bias is added behind."""
        own, features, bias = self.add_parameter(layer)[-1], layer.out_features, layer.bias
        if strided:
            x = self.ops.unsaved(x, "rows, copied")
        out = self.ops.linear(x, layer.weight, "linear", bias=bias and not strided)
        if strided and bias:
            rows, biased = out.numel // features, self.tape.view(out)
            sums = column_sum_scratch(rows, features, self.ops.card)
            self.tape.record([out], [biased], flows=[(out, False)], grad_bytes=own, sum_workspace=sums)
            out = biased
        return out

    def conv(self, x: Tensor, shapes: tuple[Shape, Shape], layer: Conv2d, filters: ConvModule) -> Tensor:
        """A convolution from one shape to another: saves its input; without cuDNN one sample's patches are laid out as
        a matrix.
        """
        shape, out_shape = shapes
        channels, weight = shape[0], filters.shapes()[0]
        weight_grad, bias_grad = (*self.add_parameter(filters, weights=layer.weights), 0)[:2]
        trained = layer.weights != "frozen"
        x = self.ops.autocast_input(x, "conv input, cast")
        casts = [self.ops.weight_copy(prod(weight), "conv weight", trained=trained)]
        casts += [self.ops.weight_copy(layer.out_channels, "conv bias", trained=trained)] if layer.bias else []
        copies = [copy for copy in casts if copy is not None]
        out = self.tape.new(self.batch * prod(out_shape), x.itemsize, "conv output", tracked=trained or x.tracked)
        patches = rounded(channels * layer.kernel_size**2 * prod(out_shape[1:]) * x.itemsize)
        forward = backward = 0
        if self.cudnn:
            # cuDNN's forward workspace, and the larger one of the two gradients.
            wide, narrow = (shape, out_shape) if layer.transposed else (out_shape, shape)
            call = ConvolutionCall(
                shapes=(
                    (self.batch, *shape),
                    (wide[0], narrow[0] // layer.groups, layer.kernel_size, layer.kernel_size),
                    (self.batch, *out_shape),
                ),
                dtype="float32" if x.itemsize == FLOAT else "bfloat16",
                itemsize=x.itemsize,
                stride=(layer.stride, layer.stride),
                padding=(layer.padding, layer.padding),
                dilation=(layer.dilation, layer.dilation),
                groups=layer.groups,
                transposed=layer.transposed,
            )
            ways: list[Direction] = ["forward"]
            ways += ["input"] if x.tracked else []
            ways += ["weight"] if trained else []
            sizes = [rounded(asked_workspace(call, way, self.ops.card, self.ops.release)[0]) for way in ways]
            forward, backward = sizes[0], max(sizes[1:], default=0)
        plain = layer.kernel_size == 1 and layer.stride == 1 and layer.padding == 0
        self.tape.record(
            [x, *copies],
            [out],
            saves=[x, *copies[:1]] if trained else copies[:1],
            flows=[(x, True), *((copy, trained) for copy in copies)],
            grad_bytes=0 if copies else weight_grad + bias_grad,
            bias_grad_bytes=0 if copies else bias_grad,
            workspace=forward if self.cudnn else 0 if plain else patches,
            backward_workspace=backward if self.cudnn else patches,
            gemm=not self.cudnn,
            kernel=True,
        )
        return out

    def pool(self, x: Tensor, out_shape: Shape, layer: Pool) -> Tensor:
        """Pooling: a maximum saves its input and where it was found; an average only its input."""
        out = self.tape.new(self.batch * prod(out_shape), x.itemsize, f"{layer.pool} pooling", tracked=x.tracked)
        where = self.tape.new(out.numel, 8, "where the maxima are", tracked=False)
        self.tape.record(
            [x],
            [out],
            saves=[] if layer.pool == "global" else [x],
            saved_outputs=[where] if layer.pool == "max" else [],
            flows=[(x, True)],
        )
        return out

    def norm(self, x: Tensor, shape: Shape, layer: Norm, modules: Sequence[Module]) -> Tensor:
        """The norms of torch.nn, and a layer norm written by hand; `modules` is its one, or none of a fixed norm."""
        if layer.norm == "l2" and not modules:
            # A quotient by the length of each pixel's channels.
            rows = self.tape.new(x.numel // shape[0], x.itemsize, "lengths", tracked=False)
            out = self.tape.new(x.numel, x.itemsize, "quotient", tracked=x.tracked)
            self.tape.record([x], [out], saves=[x], saved_outputs=[rows], flows=[(x, True)])
            return out
        if not modules:
            # A product and a sum with buffers in fp32 (FrozenBatchNorm2d, torchvision 0.28, ops/misc.py).
            self.buffers += 4 * rounded(4 * shape[0]) * self.times
            out = self.ops.unsaved(x, "frozen norm, scaled", itemsize=max(4, x.itemsize))
            out = self.ops.unsaved(out, "frozen norm, shifted")
            self.tape.touch(x)
            return out
        (norm,) = modules
        size = norm.shapes()[0][0]
        weight_grad, bias_grad = (*self.add_parameter(norm, weights=layer.weights), 0)[:2]
        if layer.norm in {"layer", "layer2d"}:
            return self.ops.layer_norm(x, size, "layer norm")
        if layer.norm == "rms":
            return self.ops.fused_rms_norm(x, size, "RMS norm")
        if layer.norm == "manual":
            return self._manual_norm(x, size)
        if layer.norm == "batch":
            self.buffers += (2 * rounded(4 * size) + rounded(8)) * self.times
        count = size if layer.norm == "batch" else self.batch * layer.groups
        if layer.norm == "group" and self.ops.autocast is not None:
            x = self.ops.cast(x, 4, "group norm input in fp32")
        tracked = layer.weights != "frozen" or x.tracked
        out = self.tape.new(x.numel, x.itemsize, f"{layer.norm} norm", tracked=tracked)
        saved = [self.tape.new(count, 4, f"{layer.norm} norm's {name}", tracked=False) for name in ("mean", "1/σ")]
        return record_norm(self.tape, x, out, saved, grads=(weight_grad, bias_grad))

    def _manual_norm(self, x: Tensor, size: int) -> Tensor:
        """(x - mean) / sqrt(mean((x - mean)**2) + eps) * g + b, operator by operator."""
        ops, tape, rows = self.ops, self.tape, x.numel // size
        full = rounded(x.numel * x.itemsize)
        mean = ops.unsaved(x, "mean", rows)

        def centred(label: str) -> Tensor:
            out = tape.new(x.numel, x.itemsize, label, tracked=True)
            tape.record([x, mean], [out], flows=[(x, False), (mean, True)], backward_workspace=full)
            return out

        squares = ops.pointwise(centred("x - mean"), "squares", backward_workspace=2 * full)
        variance = ops.unsaved(squares, "variance", rows)
        both = [centred("x - mean again")]
        both.append(ops.pointwise(variance, "σ", saves="output", workspace=rounded(rows * x.itemsize)))
        quotient = tape.new(x.numel, x.itemsize, "normalised", tracked=True)
        flows = [(part, True) for part in both]
        tape.record(both, [quotient], saves=both, flows=flows, backward_workspace=2 * full)
        scaled = ops.scale(quotient, size, "scaled")
        out = tape.new(x.numel, x.itemsize, "shifted", tracked=True)
        sums = column_sum_scratch(rows, size, ops.card)
        shift = rounded(size * ops.parameter)
        tape.record([scaled], [out], flows=[(scaled, False)], grad_bytes=shift, sum_workspace=sums)
        tape.touch(mean, variance)
        return out

    def activation(self, x: Tensor, layer: Act) -> Tensor:
        """An activation function, over its input or into a new tensor."""
        tape = self.tape
        if layer.inplace and layer.act not in SAVES_COPY:
            out = tape.view(x)
            tape.record([x], [out], saves=[out], flows=[(x, True)])
            return out
        saves = "output" if layer.act in SAVES_OUTPUT else "input"
        # Autocast asks softmax for an answer in fp32 (AT_FORALL_FP32_SET_OPT_DTYPE, ATen/autocast_mode.h, 2.13).
        raised = layer.act == "softmax" and self.ops.autocast is not None
        return self.ops.pointwise(x, layer.act, saves=saves, itemsize=4 if raised else None)

    def join(self, x: Tensor, shape: Shape, marked: Sequence[tuple[Tensor, Shape]], layer: Join) -> Tensor:
        """The tensor at hand, of that shape, with those that were marked."""
        if layer.how == "concat":
            parts = [*(tensor for tensor, _ in marked), x]
            itemsize, numel = max(part.itemsize for part in parts), sum(part.numel for part in parts)
            out = self.tape.new(numel, itemsize, "joined", tracked=any(part.tracked for part in parts))
            self.tape.record(parts, [out], flows=[(part, False) for part in parts])
            return out
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

    def regions(self, levels: Sequence[tuple[Tensor, Shape]], shape: Shape, count: int) -> Tensor:
        """`count` squares of an image: each level's are put into zeros, and so are made twice; of the levels nothing is
        kept (_multiscale_roi_align, torchvision 0.28, ops/poolers.py).
        """
        x = levels[0][0]
        self.batch = x.numel // prod(levels[0][1]) * count
        out = self.tape.new(
            self.batch * prod(shape), x.itemsize, "regions", tracked=any(level.tracked for level, _ in levels)
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
                # sigmoid_focal_loss of torchvision 0.28 (ops/focal_loss.py), operator by operator: eight tensors of the
                # answer's size are kept, and four more stand meanwhile.
                self.tape.record(
                    [x],
                    [self.tape.new(1, 4, "loss", tracked=True)],
                    saved_outputs=[self.tape.new(x.numel, 4, f"focal loss: {name}", tracked=False) for name in _FOCAL],
                    flows=[(x, True)],
                    workspace=4 * rounded(x.numel * 4),
                    backward_workspace=4 * rounded(x.numel * 4),
                )
            else:
                # The gradient of a few rows is one of all rows.
                self.tape.record([x], [self.tape.new(1, 4, "loss", tracked=True)], flows=[(x, True)])

    def scale(self, x: Tensor, factors: Module) -> Tensor:
        self.add_parameter(factors)
        return self.ops.scale(x, factors.shapes()[0][0], "scaled")

    def drop_path(self, x: Tensor, probability: float) -> Tensor:
        """A product with one number a sample, which is all that is kept."""
        if probability == 0:
            return x
        mask = self.tape.new(self.batch, x.itemsize, "which paths are kept", tracked=False)
        out = self.tape.new(x.numel, x.itemsize, "path", tracked=x.tracked)
        self.tape.record([x], [out], saved_outputs=[mask], flows=[(x, True)])
        return out

    def windows(self, x: Tensor, shape: Shape, layer: WindowAttention, modules: Sequence[Module]) -> Tensor:
        """Swin's shifted_window_attention: rolled, cut into windows, every score written out, and put back."""
        table, projection, output = modules
        assert isinstance(projection, LinearModule)
        assert isinstance(output, LinearModule)
        ops, tape = self.ops, self.tape
        height, width, channels = shape
        side, heads = layer.window_size, layer.num_heads
        padded = tuple(-(-size // side) * side for size in (height, width))
        tokens = side * side
        count = self.batch * padded[0] * padded[1] // tokens
        numel = count * tokens * channels
        shifts = layer.shifted and max(padded) > side
        for _ in range(int(padded != (height, width)) + int(shifts) + 1):
            x = self.ops.unsaved(x, "windows", numel)
        (positions,) = self.add_parameter(table)
        q, k, v = ops.split(self.linear(x, projection), numel, numel, numel)
        q = ops.unsaved(q, "q, scaled")
        q, k, v = (ops.autocast_input(part, "q, k or v, cast") for part in (q, k, v))
        q, k = (self.ops.unsaved(part, "rows of q or k", numel) for part in (q, k))
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
            biased = ops.unsaved(biased, "scores, masked")
        softmax = ops.pointwise(biased, "softmax", saves="output")
        softmax = ops.autocast_input(softmax, "softmax, cast")
        v = self.ops.unsaved(v, "rows of v", numel)
        mixed = ops.unsaved(self._product(softmax, v, numel, "mixed"), "mixed, in rows", numel)
        out = self.linear(mixed, output)
        for _ in range(int(shifts) + 1):
            out = self.ops.unsaved(out, "windows put back", numel)
        return tape.view(out, self.batch * height * width * channels) if padded != (height, width) else out

    def merge(self, x: Tensor, after: Shape, modules: Sequence[Module]) -> Tensor:
        """Swin's PatchMerging, to the shape `after`: four neighbours side by side are twice as wide before."""
        norm, halved = modules
        assert isinstance(halved, LinearModule)
        x = self.ops.unsaved(x, "four neighbours", 2 * self.batch * prod(after))
        return self.linear(self.norm(x, after, Norm(), (norm,)), halved)

    def _product(self, a: Tensor, b: Tensor, numel: int, label: str) -> Tensor:
        out = self.tape.new(numel, a.itemsize, label, tracked=True)
        self.tape.record([a, b], [out], saves=[a, b], flows=[(a, True), (b, True)], gemm=True)
        return out
