"""A model given as a list of layers, as a program.

Shapes: each layer gives those of the next, from `input_shape` on: (b, i) for linear layers, (b, c, y, x) for images,
(b, s, h) for tokens; b batch.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.late import late
from vramtui.core.estimate.devices import Device
from vramtui.core.schema.layer_models import (
    Act,
    Conv2d,
    Dropout,
    DropPath,
    Embedding,
    Join,
    Layer,
    Linear,
    Mark,
    ModelOutput,
    Norm,
    PatchMerging,
    Pool,
    Recurrent,
    Regions,
    Repeat,
    Scale,
    SelfAttention,
    SequentialModel,
    Take,
    Upsample,
    WindowAttention,
)
from vramtui.core.schema.workload import InferRun, TrainRun
from vramtui.estimators.analytic.ops.conv import LayerOps
from vramtui.estimators.analytic.ops.graph import GraphOps
from vramtui.estimators.analytic.ops.loss import class_loss
from vramtui.estimators.analytic.ops.operators import Operators
from vramtui.estimators.analytic.sizes.precision import recipe
from vramtui.estimators.analytic.sizes.runtime import torch_of
from vramtui.estimators.analytic.tape.program import Program
from vramtui.estimators.analytic.tape.replay import TapeStage
from vramtui.estimators.analytic.tape.tape import Tape, Tensor
from vramtui.estimators.torch_facts.allocator_sizes import rounded
from vramtui.estimators.torch_facts.cards import card_limits
from vramtui.estimators.torch_facts.recurrent import RECURRENT_NOTE
from vramtui.models.kinds import EmbeddingModule
from vramtui.models.spec import Parameter
from vramtui.models.specs.layer_list import LayerShapes, Shape

# Most lists are of convolutions alone.
heads_of = late("vramtui.estimators.analytic.ops.attention_kernels:Heads")
eager_attention = late("vramtui.estimators.analytic.ops.attention_kernels:eager_attention")
fused_attention = late("vramtui.estimators.analytic.ops.attention_kernels:fused_attention")
recurrent_stack = late("vramtui.estimators.analytic.ops.recurrent:RecurrentStack")

GROUP = "activations"
RESIDUAL = "what goes in"
COUNTED_NOTE = "which convolutions cuDNN gives a workspace is by thresholds fitted on an H200"
BOXES_NOTE = (
    "squares cut out of an image are as many as the net takes at most; anchors, matching and what chooses among boxes "
    "are not counted"
)
WORKSPACES_NOTE = (
    "cuDNN's workspaces are not counted: which algorithm it picks, and what that takes, is known only to it"
)


class LayerList:
    """Writes a list of layers, one tape for each stretch that does not repeat and one for each that does."""

    def __init__(self, run: TrainRun | InferRun, device: Device, *, cudnn: bool) -> None:
        self.batch = run.batch_size
        self.recipe = recipe(run.precision, lora=None)
        self.card = card_limits(device)
        self.release = torch_of(run)
        self.cudnn = cudnn
        self.eager = run.attention == "eager"
        self.training = isinstance(run, TrainRun)
        self.parameters: list[Parameter] = []
        self.stages: list[TapeStage] = []
        self.buffers = 0
        self.shapes = LayerShapes(())
        self.strided = False
        self.frozen: list[Parameter] = []
        self.marked: dict[str, tuple[Tensor, Shape]] = {}
        self.outputs: list[tuple[Tensor, Shape, ModelOutput]] = []

    @property
    def shape(self) -> Shape:
        """The shape of one sample at the place that is reached."""
        return self.shapes.shape

    def operators(self, tape: Tape) -> Operators:
        """Operators that write on `tape`."""
        # Layers of torch's own do not multiply in fp8.
        return Operators(
            tape, msgspec.structs.replace(self.recipe, fp8=False), self.card, self.recipe.weights, self.release
        )

    def open(self) -> tuple[Tape, Operators, Tensor]:
        """A tape that goes on where the last one ended, or takes the batch in."""
        tape = Tape(GROUP)
        numel = self.batch * prod(self.shape)
        if not self.stages:
            return tape, self.operators(tape), tape.take_in(numel, self.recipe.stream)
        last = self.stages[-1].tape.output
        assert last is not None
        return tape, self.operators(tape), tape.enter(numel, last.itemsize, tracked=last.tracked)

    def add(self, layers: tuple[Layer, ...], *, times: int = 1, residual: bool = False, checkpointed: bool) -> None:
        """Run `layers` so many times; the first time by itself, since what comes in may be of another type."""
        self._stretch(layers, times=1, residual=residual, checkpointed=checkpointed)
        if times > 1:
            self._stretch(layers, times=times - 1, residual=residual, checkpointed=checkpointed)

    def _stretch(self, layers: tuple[Layer, ...], *, times: int, residual: bool, checkpointed: bool) -> None:
        tape, ops, x = self.open()
        before = self.shape
        writer = LayerOps(ops, self.batch, self.parameters, cudnn=self.cudnn, times=times)
        y = x
        self.marked, self.shapes.marked = {}, {}
        for layer in layers:
            y = self._layer(writer, y, layer)
        if (residual or times > 1) and self.shape != before:
            raise UserError(f"model.layers: a repeated or residual stretch turns {before} into {self.shape}")
        if residual:
            y = ops.add(x, y, "sum")
        if y is x:
            y = ops.pointwise(x, "copy", saves="nothing")
        GraphOps(writer).answers(self.outputs, training=self.training)
        tape.close(None if self.outputs and self.training else y)
        self.buffers += writer.buffers
        self.frozen += writer.frozen
        self.stages.append(TapeStage(tape, times, checkpointed=checkpointed))

    def _layer(self, writer: LayerOps, x: Tensor, layer: Layer) -> Tensor:
        graph, shape = GraphOps(writer), self.shape
        modules: Sequence[Any] = self.shapes.place(layer)
        after = self.shape
        match layer:
            case Linear():
                x = writer.linear(x, *modules, strided=self.strided)
                self.strided = False
            case Conv2d():
                x = writer.conv(x, (shape, after), layer, *modules)
            case Pool():
                x = writer.pool(x, after, layer)
            case Norm():
                x = writer.norm(x, shape, layer, modules)
            case Act():
                x = writer.activation(x, layer)
            case Dropout():
                x = writer.ops.dropout(x, layer.probability, "dropout")
            case Embedding():
                x = self._embedding(writer, x, *modules)
            case SelfAttention():
                x = self._attention(writer, x, layer, modules)
            case Recurrent():
                x = recurrent_stack(writer, shape[0], layer, *modules, training=self.training).write(x)
                # Answers of the steps lie behind each other, and a product copies them into rows of a batch.
                self.strided = layer.batch_first and layer.output == "sequence"
            case Scale():
                x = graph.scale(x, *modules)
            case DropPath():
                x = graph.drop_path(x, layer.probability if self.training else 0)
            case Upsample():
                x = graph.moved(x, writer.batch * prod(after), "upsampled")
            case WindowAttention():
                x = graph.windows(x, shape, layer, modules)
            case PatchMerging():
                x = graph.merge(x, after, modules)
            case Mark():
                self.marked[layer.name] = x, shape
            case Take():
                x, _ = self.marked[layer.name]
                writer.batch = x.numel // prod(after)
                graph.tape.touch(x)
            case Join():
                x = graph.join(x, shape, [self.marked[name] for name in layer.names], layer)
            case Regions():
                count = layer.training if self.training else layer.inference
                x = graph.regions([self.marked[name] for name in layer.names], after, count)
            case ModelOutput():
                x = graph.output(x, rows=layer.rows)
                self.outputs.append((x, shape, layer))
        return x

    def _embedding(self, writer: LayerOps, x: Tensor, table: EmbeddingModule) -> Tensor:
        (grad_bytes,) = writer.add_parameter(table)
        out = writer.ops.tape.new(self.batch * prod(self.shape), self.recipe.stream, "embedding", tracked=True)
        writer.ops.tape.record([x], [out], grad_bytes=grad_bytes)
        return out

    def _attention(self, writer: LayerOps, x: Tensor, layer: SelfAttention, modules: Sequence[Any]) -> Tensor:
        ops, (tokens, width) = writer.ops, self.shape
        projection, output = modules
        joined = writer.linear(x, projection)
        q, k, v = (ops.tape.view(joined, self.batch * tokens * width) for _ in range(3))
        ops.tape.record([joined], [q, k, v], flows=[(joined, True)])
        heads = heads_of(
            batch=self.batch,
            queries=tokens,
            keys=tokens,
            heads=layer.num_heads,
            kv_heads=layer.num_heads,
            head_dim=width // layer.num_heads,
            value_dim=width // layer.num_heads,
        )
        out: Tensor
        if self.eager:
            out = eager_attention(ops, heads, (q, k, v), plain=True, masked=layer.causal)
        else:
            out = fused_attention(ops, heads, (q, k, v))
        out = writer.linear(out, output)
        ops.tape.touch(q, k, v)
        return out


def layer_list_program(model: SequentialModel, run: TrainRun | InferRun, device: Device) -> Program:
    """The program of a list of layers."""
    writer = LayerList(run, device, cudnn=model.cudnn)
    training, precision = writer.training, writer.recipe
    writer.shapes = LayerShapes(model.input_shape)
    checkpointed = isinstance(run, TrainRun) and run.checkpointing == "full"
    loose: list[Layer] = []
    for layer in _stretches(model, checkpointed=checkpointed):
        if not isinstance(layer, Repeat):
            loose.append(layer)
            continue
        if loose:
            writer.add(tuple(loose), checkpointed=False)
            loose = []
        writer.add(layer.layers, times=layer.times, residual=layer.residual, checkpointed=checkpointed)
    if loose:
        writer.add(tuple(loose), checkpointed=False)
    targets, loss_bytes = _loss(writer, model) if training else (0, 0)
    parameters, frozen = tuple(writer.parameters), tuple(writer.frozen)
    looked_up = isinstance(_first(model), Embedding)
    batch = rounded(run.batch_size * prod(model.input_shape) * (8 if looked_up else precision.stream))
    return Program(
        frozen=frozen if training else (*parameters, *frozen),
        trained=parameters if training else (),
        recipe=precision,
        stages=writer.stages,
        inputs=batch + targets,
        targets=targets,
        inputs_formula=f"{run.batch_size} samples of {' x '.join(map(str, model.input_shape))}, and their targets",
        loss=loss_bytes,
        buffers=writer.buffers,
        buffers_formula="running means, variances and counters of the batch norms",
        notes=(
            *cudnn_notes(cudnn=model.cudnn, parameters=parameters, counted=True),
            *([BOXES_NOTE] if any(layer.loss != "cross_entropy" for _, _, layer in writer.outputs) else []),
        ),
        measured=not model.cudnn or all(parameter.module != "rnn" for parameter in parameters),
    )


def _stretches(model: SequentialModel, *, checkpointed: bool) -> tuple[Layer | Repeat, ...]:
    """The layers; one after another without repeats where a branch reaches over the border of one."""
    repeats = [layer.layers for layer in model.layers if isinstance(layer, Repeat)]
    if not any(_reaches_out(layers) for layers in (model.layers, *repeats)):
        return model.layers
    if checkpointed:
        raise UserError(
            "run.checkpointing = 'full' recomputes each repeat of model.layers, and here a branch reaches over the "
            "border of one"
        )
    return tuple(one for layer in model.layers for one in _unrolled(layer))


def _unrolled(layer: Layer | Repeat) -> tuple[Layer, ...]:
    if not isinstance(layer, Repeat):
        return (layer,)
    around: tuple[tuple[Layer, ...], tuple[Layer, ...]] = ((), ())
    if layer.residual:
        around = (Mark(name=RESIDUAL),), (Join(names=(RESIDUAL,)),)
    return (*around[0], *layer.layers, *around[1]) * layer.times


def _reaches_out(layers: tuple[Layer | Repeat, ...]) -> bool:
    """Whether something is taken up in `layers` that was marked outside of them, or on the other side of a repeat."""
    marked: set[str] = set()
    for layer in layers:
        match layer:
            case Repeat():
                marked = set()
            case Mark():
                marked.add(layer.name)
            case Take() | Join():
                names = {layer.name} if isinstance(layer, Take) else set(layer.names)
                if not names <= marked:
                    return True
            case Regions() | ModelOutput():
                return True
    return False


def cudnn_notes(*, cudnn: bool, parameters: tuple[Parameter, ...], counted: bool = False) -> tuple[str, ...]:
    """What is not known about convolutions and recurrent layers."""
    modules = {parameter.module for parameter in parameters} if cudnn else set()
    note = COUNTED_NOTE if counted else WORKSPACES_NOTE
    return (*([note] if "conv" in modules else []), *([RECURRENT_NOTE] if "rnn" in modules else []))


def _first(model: SequentialModel) -> Layer:
    layer = model.layers[0] if model.layers else None
    while isinstance(layer, Repeat):
        layer = layer.layers[0] if layer.layers else None
    if layer is None:
        raise UserError("model.layers is empty")
    return layer


def _loss(writer: LayerList, model: SequentialModel) -> tuple[int, int]:
    """Write the loss; bytes of the targets, and those that the loss keeps."""
    if writer.outputs:
        # As in torchvision's references/segmentation/train.py, where `output` stands until the next one.
        maps = [(x, shape) for x, shape, layer in writer.outputs if layer.loss == "cross_entropy" and not layer.rows]
        targets = max((rounded(8 * x.numel // shape[0]) for x, shape in maps), default=0)
        return targets, sum(x.storage.size for x, _ in maps)
    tape, ops, x = writer.open()
    loss_bytes = class_loss(ops, x, model.loss)
    tape.close(None)
    writer.stages.append(TapeStage(tape))
    if model.loss == "cross_entropy":
        # Of an image the channels are the classes.
        rest = writer.shape[1:] if len(writer.shape) == 3 else writer.shape[:-1]
        return rounded(8 * writer.batch * prod(rest)), loss_bytes
    return (rounded(x.numel * writer.recipe.stream) if model.loss == "mse" else 0), loss_bytes
