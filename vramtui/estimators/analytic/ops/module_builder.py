"""The shared writer of encoders, encoder-decoders and diffusion models: parts, their parameters, their tapes.

Shapes: tokens (b, s, h), images (b, c, y, x), a linear layer's weight (o, i), a convolution's (o, c, k, k); b batch,
s tokens, h hidden, c channels, y and x height and width, k the kernel's side.
"""

from collections.abc import Callable, Hashable, Sequence
from math import prod
from typing import Any

import msgspec

from vramtui.core.base.errors import UserError, nearest
from vramtui.core.estimate.devices import Device
from vramtui.core.schema.models import Activation
from vramtui.core.schema.workload import InferRun, TrainRun
from vramtui.estimators.analytic.ops.attention_kernels import Heads, Projected, eager_attention, fused_attention
from vramtui.estimators.analytic.ops.operators import Operators, record_norm
from vramtui.estimators.analytic.sizes.precision import recipe, tied_sum
from vramtui.estimators.analytic.sizes.runtime import torch_of
from vramtui.estimators.analytic.tape import tape as tapes
from vramtui.estimators.torch_facts.allocator_sizes import rounded
from vramtui.estimators.torch_facts.cards import card_limits
from vramtui.estimators.torch_facts.reduction import column_sum_scratch
from vramtui.models.spec import ConvModule, LinearModule, Module, NormModule, Parameter

OUTSIDE = tapes.storage_of(0, 1, "weights", "weight")
OUTSIDE.borrowed = True


class Image(msgspec.Struct, frozen=True):
    """One sample's image: channels, height and width. `numel` counts its numbers."""

    channels: int
    height: int
    width: int

    @property
    def numel(self) -> int:
        return self.channels * self.height * self.width


Pictures = tuple[tapes.Tensor, Image]  # a batch of images, and the size of one


class Net:
    def __init__(self, run: TrainRun | InferRun, device: Device) -> None:
        self.training = isinstance(run, TrainRun)
        self.checkpointed = isinstance(run, TrainRun) and run.checkpointing == "full"
        self.batch = run.batch_size
        self.lora = run.lora if isinstance(run, TrainRun) else None
        self.trains = self.training and self.lora is None
        self.packed = run.quantization if isinstance(run, TrainRun) else None
        self.recipe = recipe(run.precision, lora=self.lora)
        if self.packed == "fp8":  # a plain cast, which autocast undoes (kohya-ss/sd-scripts, `fp8_base`)
            self.packed, self.recipe = None, msgspec.structs.replace(self.recipe, frozen=1)
        self.card = card_limits(device)
        self.release = torch_of(run)
        self.eager = run.attention == "eager"
        self.trained: list[Parameter] = []
        self.frozen: list[Parameter] = []
        self.stages: list[tapes.TapeStage] = []
        self.buffers = 0
        self.loss = 0
        self.linears: dict[str, None] = {}
        self.written: dict[Hashable, tuple[list[Any], ...]] = {}

    def part(self, group: str, *, times: int = 1, layer: bool = False) -> "ModuleBuilder":
        """A stretch that stands `times` in a row; `layer` says that its weights are a block's."""
        return ModuleBuilder(self, group, times, layer=layer)

    def input(self, numel: int) -> tapes.Tensor:
        """A tensor that the batch holds."""
        return tapes.borrowed(numel, self.recipe.stream, tapes.EMBEDDINGS, "input")

    def repeat(self, group: str, times: int, write: Callable[["ModuleBuilder", tapes.Tensor], tapes.Tensor]) -> None:
        """Equal blocks in a row; the first stands alone where no gradient is wanted of its input, others hold it, or
        its answer may be of another type.
        """
        output = self.stages[-1].tape.output
        apart = output is not None and (
            output.storage.lives_until_end or (self.lora is not None and not output.tracked) or self.packed is not None
        )
        alone = int(apart and times > 1)
        for count in (alone, times - alone):
            if count:
                part = self.part(group, times=count, layer=True)
                part.finish(write(part, part.input()), checkpointed=True)

    def once(self, key: Hashable, write: Callable[[], None]) -> None:
        """`write` stages, or put those there again that were written under the same key, if there is one."""
        lists: tuple[list[Any], ...] = (self.stages, self.trained, self.frozen)
        if key in self.written:
            for stage in self.written[key][0]:
                stage.again = True
            for whole, part in zip(lists, self.written[key], strict=True):
                whole.extend(part)
            return
        before = [len(whole) for whole in lists]
        write()
        if key is not None:
            self.written[key] = tuple(whole[at:] for whole, at in zip(lists, before, strict=True))

    def program(
        self, *, inputs: int, inputs_formula: str, layers: int, buffers_formula: str = "", notes: tuple[str, ...] = ()
    ) -> tapes.Program:
        for target in self.lora.target_modules if self.lora else ():
            if target not in self.linears:
                raise UserError(
                    f"run.lora.target_modules: {target!r} is not a linear layer of this model"
                    f"{nearest(target, self.linears)}; it has: {', '.join(self.linears)}"
                )
        return tapes.Program(
            frozen=tuple(self.frozen),
            trained=tuple(self.trained),
            recipe=self.recipe,
            quantization=self.packed,
            layers=layers,
            stages=self.stages,
            inputs=inputs,
            inputs_formula=inputs_formula,
            loss=self.loss,
            buffers=self.buffers,
            buffers_formula=buffers_formula,
            notes=notes,
        )


class ModuleBuilder:
    """Writes modules with the operators of one tape, and notes the parameters that they use."""

    def __init__(self, net: Net, group: str, times: int, *, layer: bool) -> None:
        itemsize = net.recipe.weights if net.trains else net.recipe.frozen
        self.tape = tapes.Tape(group)
        self.ops = Operators(self.tape, net.recipe, net.card, itemsize, net.release)
        self.net = net
        self.times = times
        self.layer = layer

    def input(self) -> tapes.Tensor:
        """The output of the stage before."""
        before = self.net.stages[-1].tape.output
        if before is None:
            raise ValueError("the stage before hands nothing on")
        return self.tape.enter(before.numel, before.itemsize, tracked=before.tracked)

    def finish(self, output: tapes.Tensor | None, *, checkpointed: bool = False) -> None:
        """Close the tape and put it behind the others; what a block hands on is shown where its input is."""
        if output is not None and self.tape.input is not None and self.times > 1:
            output.storage.group = self.tape.input.storage.group
        self.tape.close(output)
        self.net.stages.append(
            tapes.TapeStage(self.tape, self.times, checkpointed=checkpointed and self.net.checkpointed)
        )

    def keep_alive(self, x: tapes.Tensor, count: int = 1) -> None:
        """The model's own function holds `count` tensors such as `x`, its first block's input, to the last block's end.

        A trained model keeps it anyway for the first block's backward pass.
        """
        if self.net.training:
            return
        self.tape.hold(x)
        for _ in range(count - 1):
            first_input = self.tape.new(x.numel, x.itemsize, "first block's input", tracked=False)
            self.tape.record([], [first_input])
            self.tape.hold(first_input)

    def add_parameter(self, module: str, *shape: int, trained: bool = True) -> int:
        """Note a parameter and give the bytes of its gradient."""
        trains = trained and self.net.trains
        parameters = self.net.trained if trains else self.net.frozen
        parameters.append(Parameter(module, shape, self.times, self.layer))
        return rounded(prod(shape) * self.ops.parameter) if trains else 0

    def add_parameters(self, module: Module, *, trained: bool = True) -> int:
        """Note all parameters of a module, and give the bytes of their gradients."""
        return sum(self.add_parameter(module.name, *shape, trained=trained) for shape in module.shapes())

    def apply(self, x: tapes.Tensor, layer: LinearModule) -> tapes.Tensor:
        """A linear layer, with its adapter where it has one."""
        inner, outer, module, packed = layer.in_features, layer.out_features, layer.name, self.net.packed
        if packed is None:
            self.add_parameter(module, outer, inner)
        else:
            self.net.frozen.append(Parameter(module, (outer, inner), self.times, layer=True))
        if layer.bias:
            self.add_parameter(module, outer)
        self.net.linears[module] = None
        if packed is None:
            out = self.ops.linear(x, (outer, inner), module, bias=layer.bias, trained=self.net.trains)
            self.reads_outside()
        else:
            out = self.ops.packed_linear(x, (outer, inner), module, packed, outside=True, whole=False)
        lora, ops, itemsize = self.net.lora, self.ops, self.net.recipe.weights
        if lora is None or module not in lora.target_modules:
            return out
        # LoRA as peft has it: out + B(A(dropout(x))) * scaling, in the adapter's type.
        for size in ((lora.rank, inner), (outer, lora.rank)):
            self.net.trained.append(Parameter(module, size, self.times, self.layer))
        group, self.tape.group, own, ops.parameter = self.tape.group, tapes.ADAPTERS, ops.parameter, itemsize
        x = ops.dropout(ops.cast(x, itemsize, f"{module} adapter's input"), lora.dropout, f"{module} adapter's dropout")
        low = ops.linear(x, (lora.rank, inner), f"{module} lora_A")
        high = ops.linear(low, (outer, lora.rank), f"{module} lora_B")
        total = ops.add(out, ops.unsaved(high, f"{module} adapter, scaled"), f"{module} with adapter")
        ops.parameter, self.tape.group = own, group
        return ops.cast(total, out.itemsize, f"{module} with adapter")

    def reads_outside(self) -> None:
        """The last operator keeps a weight, or another tensor from outside: a checkpoint is made again up to there."""
        node = self.tape.nodes[-1]
        if node.flows and not node.saves:
            node.saves = (OUTSIDE,)

    def normed_by(self, x: tapes.Tensor, norm: NormModule) -> tapes.Tensor:
        """A layer norm of torch's, or an RMS norm as T5 spells it out."""
        size, module, ops, trains = norm.size, norm.name, self.ops, self.net.trains
        self.add_parameter(module, size)
        if norm.style == "layernorm":
            self.add_parameter(module, size)
            return ops.layer_norm(x, size, module, trained=trains)
        # The input over its rms, in fp32, back in the weight's type, times the weight.
        rows, full = x.numel // size, rounded(x.numel * 4)
        wide = ops.cast(x, 4, f"{module} input in fp32")
        squares = ops.pointwise(wide, f"{module} squares", backward_workspace=2 * full)
        mean = ops.unsaved(squares, f"{module} mean", rows)
        inverse = ops.pointwise(mean, f"{module} 1/rms", saves="output", workspace=rounded(rows * 4))
        normal = ops.multiply(x, inverse, f"{module} normalised")
        normal = ops.cast(normal, ops.parameter, f"{module} normalised") if ops.parameter < 4 else normal
        return ops.scale(normal, size, module, trained=trains)

    def embedding(self, rows: int, width: int, numel: int, module: str, *, tied: bool = False) -> tapes.Tensor:
        """Rows looked up in a table; the gradient of a `tied` table is added to the output layer's."""
        table = self.add_parameter(module, rows, width)
        tied_blocks = tied_sum(table, self.net.recipe) if tied else ()
        return self.looked_up(numel, module, 0 if tied else table, backward_pieces=tied_blocks)

    def looked_up(
        self, numel: int, label: str, grad_bytes: int, *, backward_pieces: Sequence[int] = ()
    ) -> tapes.Tensor:
        """A parameter, or rows of one, as a tensor of its own."""
        out = self.tape.new(numel, self.ops.parameter, label, tracked=grad_bytes + sum(backward_pieces) > 0)
        self.tape.record([], [out], grad_bytes=grad_bytes, backward_pieces=backward_pieces)
        return out

    def keep(self, x: tapes.Tensor) -> None:
        """Later blocks look at `x` again, so it stays until its own backward."""
        self.tape.record([], [])
        self.tape.nodes[-1].saves = (x.storage,)

    def activation(self, x: tapes.Tensor, kind: Activation) -> tapes.Tensor:
        if kind == "gelu_new":
            return self.ops.gelu_new(x)
        if kind == "quick_gelu":
            inner = self.ops.unsaved(x, "sigmoid's input")
            return self.ops.multiply(x, self.ops.pointwise(inner, "sigmoid", saves="output"), "quick gelu")
        return self.ops.pointwise(x, f"{kind} of it", saves="output" if kind == "relu" else "input")

    def convolution(self, x: Pictures, filters: ConvModule, *, stride: int = 1) -> Pictures:
        """A convolution by cuDNN that keeps the size but for its stride; patches where the stride is the kernel."""
        pixels, given = x
        kernel = filters.kernel[0]
        pad = 0 if stride == kernel else kernel // 2
        sides = ((side + 2 * pad - kernel) // stride + 1 for side in (given.height, given.width))
        answer = Image(filters.out_channels, *sides)
        return self.filtered(pixels, answer, filters), answer

    def filtered(self, x: tapes.Tensor, answer: Image, filters: ConvModule) -> tapes.Tensor:
        """A convolution to an image of that size. Saves its input and cast weights."""
        module, bias, weight = filters.name, filters.bias, filters.shapes()[0]
        numel = prod(weight)
        weight_grad = self.add_parameter(module, *weight)
        bias_grad = self.add_parameter(module, weight[0]) if bias else 0
        x = self.ops.autocast_input(x, f"{module} input, cast")
        trained = self.net.trains
        casts = [self.ops.weight_copy(numel, f"{module} weight", trained=trained)]
        casts.append(self.ops.weight_copy(weight[0], f"{module} bias", trained=trained) if bias else None)
        copies = [tensor for tensor in casts if tensor is not None]
        out = self.tape.new(self.net.batch * answer.numel, x.itemsize, module, tracked=x.tracked or trained)
        sums = column_sum_scratch(out.numel // weight[0], weight[0], self.ops.card) if bias_grad else 0
        self.tape.record(
            [x, *copies],
            [out],
            saves=[x, *copies[:1]],
            flows=[(x, True), *((tensor, True) for tensor in copies)],
            grad_bytes=0 if copies else weight_grad + bias_grad,
            bias_grad_bytes=0 if copies else bias_grad,
            sum_workspace=sums,
        )
        return out

    def attend(self, heads: Heads, qkv: Projected, *, plain: bool = True, masked: bool = False) -> tapes.Tensor:
        """Attention as the run has it: a fused kernel, or each operator by itself.

        `plain` softmax stays in its input's type, and `masked` adds a mask to the scores, where they are spelt out.
        """
        if self.net.eager:
            return eager_attention(self.ops, heads, qkv, plain=plain, masked=masked)
        return fused_attention(self.ops, heads, qkv)

    def group_norm(self, x: tapes.Tensor, norm: NormModule, groups: int) -> tapes.Tensor:
        """A group norm: saves its input, means and 1/σ; under autocast it answers in fp32."""
        module = norm.name
        weight_grad, bias_grad = (self.add_parameter(module, *shape) for shape in norm.shapes())
        if self.ops.autocast is not None:
            x = self.ops.cast(x, 4, f"{module} input in fp32")
        out = self.tape.new(x.numel, x.itemsize, module, tracked=x.tracked or self.net.trains)
        saved = [
            self.tape.new(self.net.batch * groups, x.itemsize, f"{module} {name}", tracked=False)
            for name in ("mean", "1/σ")
        ]
        return record_norm(self.tape, x, out, saved, grads=(weight_grad, bias_grad))
