"""Residual nets from a table of stages (He et al. 2015; the block as torchvision has it), as a program.

Shapes: images (b, 3, y, x), a stage's blocks (b, c, y / r, x / r), answer (b, classes); b batch, c channels of
the stage, r how much smaller its image is.
"""

from vramtui.core.estimate.devices import Device
from vramtui.core.schema.layer_models import Act, Conv2d, ConvNetModel, Flatten, Linear, Pool, Stage
from vramtui.core.schema.workload import InferRun, TrainRun
from vramtui.estimators.analytic.models.sequential import LayerList, cudnn_notes
from vramtui.estimators.analytic.ops.conv import LayerOps
from vramtui.estimators.analytic.ops.loss import cross_entropy
from vramtui.estimators.analytic.tape.program import Program
from vramtui.estimators.analytic.tape.replay import TapeStage as Passed
from vramtui.estimators.analytic.tape.tape import Tensor
from vramtui.estimators.torch_facts.allocator_sizes import rounded
from vramtui.models.kinds import ConvModule, LinearModule
from vramtui.models.specs.layer_list import BATCH_NORM, LayerShapes, shortcut, stage_convolutions, stem_layers


def resnet_program(model: ConvNetModel, run: TrainRun | InferRun, device: Device) -> Program:
    """The program of a residual net."""
    writer = LayerList(run, device, cudnn=model.cudnn)
    training, precision = writer.training, writer.recipe
    writer.shapes = LayerShapes((model.num_channels, model.image_size, model.image_size))
    image = rounded(run.batch_size * model.num_channels * model.image_size**2 * precision.stream)
    stem, norm, pool = stem_layers(model)
    writer.add((stem, norm, Act(inplace=model.inplace), pool), checkpointed=False)
    for stage in model.stages:
        _stage(writer, model, stage, checkpointed=isinstance(run, TrainRun) and run.checkpointing == "full")
    tape, ops, x = writer.open()
    last = LayerOps(ops, writer.batch, writer.parameters, cudnn=model.cudnn)
    for layer in (Pool(pool="global"), Flatten()):
        writer.shapes.place(layer)
    x = last.pool(x, writer.shape, Pool(pool="global"))
    (classifier,) = writer.shapes.place(Linear(out_features=model.num_classes))
    assert isinstance(classifier, LinearModule)
    x = last.linear(x, classifier)
    if training:
        cross_entropy(ops, x, upcast=False)
    tape.close(None if training else x)
    writer.stages.append(Passed(tape))
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


def _stage(writer: LayerList, model: ConvNetModel, stage: Stage, *, checkpointed: bool) -> None:
    """The first block changes the shape; the others are all alike."""
    _block(writer, model, stage, stage.stride, times=1, checkpointed=checkpointed)
    if stage.blocks > 1:
        _block(writer, model, stage, 1, times=stage.blocks - 1, checkpointed=checkpointed)


def _block(
    writer: LayerList, model: ConvNetModel, stage: Stage, stride: int, *, times: int, checkpointed: bool
) -> None:
    tape, ops, x = writer.open()
    layers = LayerOps(ops, writer.batch, writer.parameters, cudnn=model.cudnn, times=times)
    y, shortcut_shapes = x, LayerShapes(writer.shape)
    convolutions = stage_convolutions(model, stage, stride)
    for number, conv in enumerate(convolutions, 1):
        y = _normed(layers, y, writer.shapes, conv)
        if number < len(convolutions):
            y = layers.activation(y, Act(inplace=model.inplace))
    if writer.shape != shortcut_shapes.shape:
        x = _normed(layers, x, shortcut_shapes, shortcut(writer.shape[0], stride))
    total = tape.view(y)
    tape.record([y, x], [total], flows=[(y, False), (x, False)])
    total = layers.activation(total, Act(inplace=model.inplace))
    tape.touch(x)  # the local variable of the shortcut's result
    tape.close(total)
    writer.buffers += layers.buffers
    writer.stages.append(Passed(tape, times, checkpointed=checkpointed))


def _normed(layers: LayerOps, x: Tensor, shapes: LayerShapes, conv: Conv2d) -> Tensor:
    before = shapes.shape
    (filters,) = shapes.place(conv)
    assert isinstance(filters, ConvModule)
    y = layers.conv(x, (before, shapes.shape), conv, filters)
    return layers.norm(y, shapes.shape, BATCH_NORM, shapes.place(BATCH_NORM))
