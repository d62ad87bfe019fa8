"""Single layers on a tape, for models given as a list: convolutions, pooling, norms over a batch.

Shapes: image (b, c, y, x), weight (o, c / groups, k, k), answer (b, o, y', x').
"""

from collections.abc import Sequence
from math import prod

from vramtui.core.schema.layer_models import Act, Conv2d, Norm, Pool, Weights
from vramtui.estimators.analytic.ops.operators import Operators, record_norm
from vramtui.estimators.analytic.tape.tape import Tensor
from vramtui.estimators.torch_facts.allocator_sizes import rounded
from vramtui.estimators.torch_facts.convolutions import FLOAT, ConvolutionCall, Direction, asked_workspace
from vramtui.estimators.torch_facts.reduction import column_sum_scratch
from vramtui.models.kinds import ConvModule, LinearModule
from vramtui.models.spec import Module, Parameter

Shape = tuple[int, ...]
SAVES_OUTPUT = {"relu", "sigmoid", "tanh", "softmax"}
# In place they keep what they write over as a copy, since their backward needs it.
SAVES_COPY = {"relu6", "silu", "gelu", "hardswish", "hardsigmoid"}


class LayerOps:
    """Writes layers and notes their parameters. `shape` is one sample's, without the batch."""

    def __init__(self, ops: Operators, batch: int, parameters: list[Parameter], *, cudnn: bool, times: int = 1) -> None:
        self.ops = ops
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
            x = self.ops.pointwise(x, "rows, copied", saves="nothing")
        out = self.ops.linear(x, layer.weight, "linear", bias=bias and not strided)
        if strided and bias:
            rows, biased = out.numel // features, self.ops.tape.view(out)
            sums = column_sum_scratch(rows, features, self.ops.card)
            self.ops.tape.record([out], [biased], flows=[(out, False)], grad_bytes=own, sum_workspace=sums)
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
        out = self.ops.tape.new(self.batch * prod(out_shape), x.itemsize, "conv output", tracked=trained or x.tracked)
        patches = rounded(channels * layer.kernel_size**2 * prod(out_shape[1:]) * x.itemsize)
        forward, backward = self._workspaces(x, shape, out_shape, layer)
        plain = layer.kernel_size == 1 and layer.stride == 1 and layer.padding == 0
        self.ops.tape.record(
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

    def _workspaces(self, x: Tensor, before: Shape, after: Shape, layer: Conv2d) -> tuple[int, int]:
        """CuDNN's forward workspace, and the larger one of the two gradients."""
        if not self.cudnn:
            return 0, 0
        wide, narrow = (before, after) if layer.transposed else (after, before)
        call = ConvolutionCall(
            shapes=(
                (self.batch, *before),
                (wide[0], narrow[0] // layer.groups, layer.kernel_size, layer.kernel_size),
                (self.batch, *after),
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
        ways += ["weight"] if layer.weights != "frozen" else []
        sizes = [rounded(asked_workspace(call, way, self.ops.card, self.ops.release)[0]) for way in ways]
        return sizes[0], max(sizes[1:], default=0)

    def pool(self, x: Tensor, out_shape: Shape, layer: Pool) -> Tensor:
        """Pooling: a maximum saves its input and where it was found; an average only its input."""
        out = self.ops.tape.new(self.batch * prod(out_shape), x.itemsize, f"{layer.pool} pooling", tracked=x.tracked)
        where = self.ops.tape.new(out.numel, 8, "where the maxima are", tracked=False)
        self.ops.tape.record(
            [x],
            [out],
            saves=[] if layer.pool == "global" else [x],
            saved_outputs=[where] if layer.pool == "max" else [],
            flows=[(x, True)],
        )
        return out

    def norm(self, x: Tensor, shape: Shape, layer: Norm, modules: Sequence[Module]) -> Tensor:
        """The norms of torch.nn, and a layer norm written by hand; `modules` is its one, or none of a fixed norm."""
        if not modules:
            return self._fixed_norm(x, shape, layer)
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
        out = self.ops.tape.new(x.numel, x.itemsize, f"{layer.norm} norm", tracked=tracked)
        saved = [self.ops.tape.new(count, 4, f"{layer.norm} norm's {name}", tracked=False) for name in ("mean", "1/σ")]
        return record_norm(self.ops.tape, x, out, saved, grads=(weight_grad, bias_grad))

    def _fixed_norm(self, x: Tensor, shape: Shape, layer: Norm) -> Tensor:
        """A product and a sum with buffers in fp32, of which nothing is kept (FrozenBatchNorm2d, torchvision 0.28,
        ops/misc.py); or a quotient by the length of each pixel's channels.
        """
        channels = shape[0]
        if layer.norm == "l2":
            rows = self.ops.tape.new(x.numel // channels, x.itemsize, "lengths", tracked=False)
            out = self.ops.tape.new(x.numel, x.itemsize, "quotient", tracked=x.tracked)
            self.ops.tape.record([x], [out], saves=[x], saved_outputs=[rows], flows=[(x, True)])
            return out
        self.buffers += 4 * rounded(4 * channels) * self.times
        scaled = self.ops.pointwise(x, "frozen norm, scaled", saves="nothing", itemsize=max(4, x.itemsize))
        out = self.ops.pointwise(scaled, "frozen norm, shifted", saves="nothing")
        self.ops.tape.touch(x)
        return out

    def _manual_norm(self, x: Tensor, size: int) -> Tensor:
        """(x - mean) / sqrt(mean((x - mean)**2) + eps) * g + b, operator by operator."""
        ops, tape, rows = self.ops, self.ops.tape, x.numel // size
        full = rounded(x.numel * x.itemsize)
        mean = tape.new(rows, x.itemsize, "mean", tracked=x.tracked)
        tape.record([x], [mean], flows=[(x, True)])
        centred = self._centred(x, mean, "x - mean")
        squares = ops.pointwise(centred, "squares", backward_workspace=2 * full)
        variance = tape.new(rows, x.itemsize, "variance", tracked=True)
        tape.record([squares], [variance], flows=[(squares, True)])
        again = self._centred(x, mean, "x - mean again")
        deviation = ops.pointwise(variance, "σ", saves="output", workspace=rounded(rows * x.itemsize))
        quotient = tape.new(x.numel, x.itemsize, "normalised", tracked=True)
        tape.record(
            [again, deviation],
            [quotient],
            saves=[again, deviation],
            flows=[(again, True), (deviation, True)],
            backward_workspace=2 * full,
        )
        scaled = ops.scale(quotient, size, "scaled")
        out = tape.new(x.numel, x.itemsize, "shifted", tracked=True)
        shift = rounded(size * ops.parameter)
        sums = column_sum_scratch(rows, size, ops.card)
        tape.record([scaled], [out], flows=[(scaled, False)], grad_bytes=shift, sum_workspace=sums)
        tape.touch(mean, variance)
        return out

    def _centred(self, x: Tensor, mean: Tensor, label: str) -> Tensor:
        out = self.ops.tape.new(x.numel, x.itemsize, label, tracked=True)
        self.ops.tape.record(
            [x, mean], [out], flows=[(x, False), (mean, True)], backward_workspace=rounded(x.numel * x.itemsize)
        )
        return out

    def activation(self, x: Tensor, layer: Act) -> Tensor:
        """An activation function, over its input or into a new tensor."""
        tape = self.ops.tape
        if layer.inplace and layer.act not in SAVES_COPY:
            out = tape.view(x)
            tape.record([x], [out], saves=[out], flows=[(x, True)])
            return out
        saves = "output" if layer.act in SAVES_OUTPUT else "input"
        # Autocast asks softmax for an answer in fp32 (AT_FORALL_FP32_SET_OPT_DTYPE, ATen/autocast_mode.h, 2.13).
        raised = layer.act == "softmax" and self.ops.autocast is not None
        return self.ops.pointwise(x, layer.act, saves=saves, itemsize=4 if raised else None)
