"""A model given as a list of layers, and a residual net from a table of stages, as a program.

Shapes: each layer gives those of the next, from `input_shape` on: (b, i) for linear layers, (b, c, y, x) for images,
(b, s, h) for tokens; b batch. A stage's blocks (b, c, y / r, x / r), r how much smaller its image is.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.late import late
from vramtui.core.estimate.devices import Device
from vramtui.core.schema import models as kinds
from vramtui.core.schema.workload import InferRun, TrainRun
from vramtui.estimators.analytic.ops.attention_kernels import Heads, eager_attention, fused_attention
from vramtui.estimators.analytic.ops.decoder_builder import class_loss, cross_entropy
from vramtui.estimators.analytic.ops.layers import LayerOps
from vramtui.estimators.analytic.ops.operators import Operators
from vramtui.estimators.analytic.sizes.precision import recipe
from vramtui.estimators.analytic.sizes.runtime import torch_of
from vramtui.estimators.analytic.tape.tape import Program, Tape, TapeStage, Tensor
from vramtui.estimators.torch_facts.allocator_sizes import rounded
from vramtui.estimators.torch_facts.cards import card_limits
from vramtui.estimators.torch_facts.recurrent import RECURRENT_NOTE
from vramtui.models.spec import ConvModule, LinearModule, Parameter
from vramtui.models.specs.layer_list import BATCH_NORM, LayerShapes, Shape, shortcut, stage_convolutions, stem_layers

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
        self.outputs: list[tuple[Tensor, Shape, kinds.ModelOutput]] = []

    @property
    def shape(self) -> Shape:
        return self.shapes.shape

    def operators(self, tape: Tape) -> Operators:
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

    def add(
        self, layers: tuple[kinds.Layer, ...], *, times: int = 1, residual: bool = False, checkpointed: bool
    ) -> None:
        """Run `layers` so many times; the first time by itself, since what comes in may be of another type."""
        self._stretch(layers, times=1, residual=residual, checkpointed=checkpointed)
        if times > 1:
            self._stretch(layers, times=times - 1, residual=residual, checkpointed=checkpointed)

    def _stretch(self, layers: tuple[kinds.Layer, ...], *, times: int, residual: bool, checkpointed: bool) -> None:
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
            y = ops.unsaved(x, "copy")
        writer.answers(self.outputs, training=self.training)
        tape.close(None if self.outputs and self.training else y)
        self.buffers += writer.buffers
        self.frozen += writer.frozen
        self.stages.append(TapeStage(tape, times, checkpointed=checkpointed))

    def _layer(self, writer: LayerOps, x: Tensor, layer: kinds.Layer) -> Tensor:
        shape = self.shape
        modules: Sequence[Any] = self.shapes.place(layer)
        after = self.shape
        match layer:
            case kinds.Linear():
                x = writer.linear(x, *modules, strided=self.strided)
                self.strided = False
            case kinds.Conv2d():
                x = writer.conv(x, (shape, after), layer, *modules)
            case kinds.Pool():
                x = writer.pool(x, after, layer)
            case kinds.Norm():
                x = writer.norm(x, shape, layer, modules)
            case kinds.Act():
                x = writer.activation(x, layer)
            case kinds.Dropout():
                x = writer.ops.dropout(x, layer.probability, "dropout")
            case kinds.Embedding():
                (grad_bytes,) = writer.add_parameter(*modules)
                out = writer.tape.new(self.batch * prod(after), self.recipe.stream, "embedding", tracked=True)
                writer.tape.record([x], [out], grad_bytes=grad_bytes)
                x = out
            case kinds.SelfAttention():
                x = self._attention(writer, x, layer, modules)
            case kinds.Recurrent():
                x = recurrent_stack(writer, shape[0], layer, *modules, training=self.training).write(x)
                # Answers of the steps lie behind each other, and a product copies them into rows of a batch.
                self.strided = layer.batch_first and layer.output == "sequence"
            case kinds.Scale():
                x = writer.scale(x, *modules)
            case kinds.DropPath():
                x = writer.drop_path(x, layer.probability if self.training else 0)
            case kinds.Upsample():
                x = writer.ops.unsaved(x, "upsampled", writer.batch * prod(after))
            case kinds.WindowAttention():
                x = writer.windows(x, shape, layer, modules)
            case kinds.PatchMerging():
                x = writer.merge(x, after, modules)
            case kinds.Mark():
                self.marked[layer.name] = x, shape
            case kinds.Take():
                x, _ = self.marked[layer.name]
                writer.batch = x.numel // prod(after)
                writer.tape.touch(x)
            case kinds.Join():
                x = writer.join(x, shape, [self.marked[name] for name in layer.names], layer)
            case kinds.Regions():
                count = layer.training if self.training else layer.inference
                x = writer.regions([self.marked[name] for name in layer.names], after, count)
            case kinds.ModelOutput():
                if layer.rows:  # copied with its channels last, and once more next to the other levels'
                    x = writer.ops.unsaved(writer.ops.unsaved(x, "rows of an answer"), "answers, joined")
                self.outputs.append((x, shape, layer))
        return x

    def _attention(self, writer: LayerOps, x: Tensor, layer: kinds.SelfAttention, modules: Sequence[Any]) -> Tensor:
        ops, (tokens, width) = writer.ops, self.shape
        projection, output = modules
        q, k, v = ops.split(writer.linear(x, projection), *[self.batch * tokens * width] * 3)
        heads = Heads.of(self.batch, tokens, tokens, layer.num_heads, width // layer.num_heads)
        if self.eager:
            out = eager_attention(ops, heads, (q, k, v), plain=True, masked=layer.causal)
        else:
            out = fused_attention(ops, heads, (q, k, v))
        out = writer.linear(out, output)
        ops.tape.touch(q, k, v)
        return out


def layer_list_program(model: kinds.SequentialModel, run: TrainRun | InferRun, device: Device) -> Program:
    writer = LayerList(run, device, cudnn=model.cudnn)
    training, precision = writer.training, writer.recipe
    writer.shapes = LayerShapes(model.input_shape)
    checkpointed = isinstance(run, TrainRun) and run.checkpointing == "full"
    loose: list[kinds.Layer] = []
    for layer in _stretches(model, checkpointed=checkpointed):
        if not isinstance(layer, kinds.Repeat):
            loose.append(layer)
            continue
        if loose:
            writer.add(tuple(loose), checkpointed=False)
            loose = []
        writer.add(layer.layers, times=layer.times, residual=layer.residual, checkpointed=checkpointed)
    if loose:
        writer.add(tuple(loose), checkpointed=False)
    targets = loss_bytes = 0  # bytes of the targets, and those that the loss keeps
    if training and writer.outputs:
        # As in torchvision's references/segmentation/train.py, where `output` stands until the next one.
        maps = [(x, shape) for x, shape, layer in writer.outputs if layer.loss == "cross_entropy" and not layer.rows]
        targets = max((rounded(8 * x.numel // shape[0]) for x, shape in maps), default=0)
        loss_bytes = sum(x.storage.size for x, _ in maps)
    elif training:
        tape, ops, x = writer.open()
        loss_bytes = class_loss(ops, x, model.loss)
        tape.close(None)
        writer.stages.append(TapeStage(tape))
        if model.loss == "cross_entropy":
            # Of an image the channels are the classes.
            rest = writer.shape[1:] if len(writer.shape) == 3 else writer.shape[:-1]
            targets = rounded(8 * writer.batch * prod(rest))
        elif model.loss == "mse":
            targets = rounded(x.numel * precision.stream)
    parameters, frozen = tuple(writer.parameters), tuple(writer.frozen)
    first = model.layers[0] if model.layers else None
    while isinstance(first, kinds.Repeat):
        first = first.layers[0] if first.layers else None
    if first is None:
        raise UserError("model.layers is empty")
    looked_up = isinstance(first, kinds.Embedding)
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


def _stretches(model: kinds.SequentialModel, *, checkpointed: bool) -> tuple[kinds.Layer | kinds.Repeat, ...]:
    """The layers; one after another without repeats if a branch reaches over the border of one.

    Raises:
        UserError: there is such a branch, and repeats are to be checkpointed.
    """
    repeats = [layer.layers for layer in model.layers if isinstance(layer, kinds.Repeat)]
    if not any(_reaches_out(layers) for layers in (model.layers, *repeats)):
        return model.layers
    if checkpointed:
        raise UserError(
            "run.checkpointing = 'full' recomputes each repeat of model.layers, and here a branch reaches over the "
            "border of one"
        )
    unrolled: list[kinds.Layer] = []
    for layer in model.layers:
        if not isinstance(layer, kinds.Repeat):
            unrolled.append(layer)
        elif layer.residual:
            around = (kinds.Mark(name=RESIDUAL), *layer.layers, kinds.Join(names=(RESIDUAL,)))
            unrolled += around * layer.times
        else:
            unrolled += layer.layers * layer.times
    return tuple(unrolled)


def _reaches_out(layers: tuple[kinds.Layer | kinds.Repeat, ...]) -> bool:
    """Return whether `layers` take up something marked outside of them, or on the other side of a repeat."""
    marked: set[str] = set()
    for layer in layers:
        match layer:
            case kinds.Repeat():
                marked = set()
            case kinds.Mark():
                marked.add(layer.name)
            case kinds.Take() | kinds.Join():
                names = {layer.name} if isinstance(layer, kinds.Take) else set(layer.names)
                if not names <= marked:
                    return True
            case kinds.Regions() | kinds.ModelOutput():
                return True
    return False


def cudnn_notes(*, cudnn: bool, parameters: tuple[Parameter, ...], counted: bool = False) -> tuple[str, ...]:
    modules = {parameter.module for parameter in parameters} if cudnn else set()
    note = COUNTED_NOTE if counted else WORKSPACES_NOTE
    return (*([note] if "conv" in modules else []), *([RECURRENT_NOTE] if "rnn" in modules else []))


def resnet_program(model: kinds.ConvNetModel, run: TrainRun | InferRun, device: Device) -> Program:
    """The program of a residual net from a table of stages (He et al. 2015; the block as torchvision has it)."""
    writer = LayerList(run, device, cudnn=model.cudnn)
    training, precision = writer.training, writer.recipe
    writer.shapes = LayerShapes((model.num_channels, model.image_size, model.image_size))
    image = rounded(run.batch_size * model.num_channels * model.image_size**2 * precision.stream)
    stem, norm, pool = stem_layers(model)
    writer.add((stem, norm, kinds.Act(inplace=model.inplace), pool), checkpointed=False)
    checkpointed = isinstance(run, TrainRun) and run.checkpointing == "full"
    for stage in model.stages:
        # The first block changes the shape; the others are all alike.
        _block(writer, model, stage, stage.stride, times=1, checkpointed=checkpointed)
        if stage.blocks > 1:
            _block(writer, model, stage, 1, times=stage.blocks - 1, checkpointed=checkpointed)
    tape, ops, x = writer.open()
    last = LayerOps(ops, writer.batch, writer.parameters, cudnn=model.cudnn)
    for layer in (kinds.Pool(pool="global"), kinds.Flatten()):
        writer.shapes.place(layer)
    x = last.pool(x, writer.shape, kinds.Pool(pool="global"))
    (classifier,) = writer.shapes.place(kinds.Linear(out_features=model.num_classes))
    assert isinstance(classifier, LinearModule)
    x = last.linear(x, classifier)
    if training:
        cross_entropy(ops, x, upcast=False)
    tape.close(None if training else x)
    writer.stages.append(TapeStage(tape))
    parameters = tuple(writer.parameters)
    return Program(
        frozen=() if training else parameters,
        trained=parameters if training else (),
        recipe=precision,
        stages=writer.stages,
        inputs=image + (rounded(8 * run.batch_size) if training else 0),
        inputs_formula=f"{run.batch_size} images of {model.num_channels} x {model.image_size} x {model.image_size}, "
        "and their classes",
        buffers=writer.buffers,
        buffers_formula="running means, variances and counters of the batch norms",
        notes=cudnn_notes(cudnn=model.cudnn, parameters=parameters),
    )


def _block(
    writer: LayerList, model: kinds.ConvNetModel, stage: kinds.Stage, stride: int, *, times: int, checkpointed: bool
) -> None:
    tape, ops, x = writer.open()
    layers = LayerOps(ops, writer.batch, writer.parameters, cudnn=model.cudnn, times=times)
    y, shortcut_shapes = x, LayerShapes(writer.shape)
    convolutions = stage_convolutions(model, stage, stride)
    for number, conv in enumerate(convolutions, 1):
        y = _normed(layers, y, writer.shapes, conv)
        if number < len(convolutions):
            y = layers.activation(y, kinds.Act(inplace=model.inplace))
    if writer.shape != shortcut_shapes.shape:
        x = _normed(layers, x, shortcut_shapes, shortcut(writer.shape[0], stride))
    total = tape.view(y)
    tape.record([y, x], [total], flows=[(y, False), (x, False)])
    total = layers.activation(total, kinds.Act(inplace=model.inplace))
    tape.touch(x)  # the local variable of the shortcut's result
    tape.close(total)
    writer.buffers += layers.buffers
    writer.stages.append(TapeStage(tape, times, checkpointed=checkpointed))


def _normed(layers: LayerOps, x: Tensor, shapes: LayerShapes, conv: kinds.Conv2d) -> Tensor:
    before = shapes.shape
    (filters,) = shapes.place(conv)
    assert isinstance(filters, ConvModule)
    y = layers.conv(x, (before, shapes.shape), conv, filters)
    return layers.norm(y, shapes.shape, BATCH_NORM, shapes.place(BATCH_NORM))
