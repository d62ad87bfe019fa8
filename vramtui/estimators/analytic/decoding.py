"""A decoder-only transformer that is trained, as a program."""

from vramtui.core.devices import Device
from vramtui.core.models import TransformerModel
from vramtui.core.workload import TrainRun
from vramtui.estimators.analytic.blocks import rounded
from vramtui.estimators.analytic.decoder import Decoder
from vramtui.estimators.analytic.job import sequence_of
from vramtui.estimators.analytic.precision import Recipe, recipe
from vramtui.estimators.analytic.program import Program
from vramtui.estimators.analytic.replay import Stage
from vramtui.estimators.analytic.tensors import adapter_tensors, model_tensors
from vramtui.estimators.analytic.writer import Setting


def decoder_training(model: TransformerModel, run: TrainRun, device: Device) -> Program:
    """The program of a decoder-only transformer that is trained.

    Raises:
        UserError: the workload contradicts itself.
    """
    sequence = sequence_of(model, run)
    base = model_tensors(model)
    setting = Setting(
        recipe=recipe(run.precision, lora=run.lora is not None),
        capability=device.capability,
        batch=run.batch_size,
        sequence=sequence,
        eager=run.attention == "eager",
        lora=run.lora,
    )
    writer = Decoder(model, setting)
    checkpointed = run.checkpointing == "full"
    layers = model.num_hidden_layers
    if run.lora is None:
        blocks = [Stage(writer.block(), layers, checkpointed=checkpointed)]
    else:
        blocks = [Stage(writer.block(tracked=False), 1, checkpointed=checkpointed)]
        if layers > 1:
            blocks.append(Stage(writer.block(), layers - 1, checkpointed=checkpointed))
    buffers, buffers_formula = buffers_of(model, setting.recipe, eager=setting.eager)
    return Program(
        frozen=base if run.lora else (),
        trained=adapter_tensors(model, run.lora) if run.lora else base,
        recipe=setting.recipe,
        stages=[Stage(writer.embeddings()), *blocks, Stage(writer.loss())],
        inputs=2 * rounded(8 * setting.tokens),
        inputs_formula=f"token ids and labels, {run.batch_size} x {sequence:,} x 8 B each",
        buffers=buffers,
        buffers_formula=buffers_formula,
    )


def buffers_of(model: TransformerModel, precision: Recipe, *, eager: bool) -> tuple[int, str]:
    """What the modelling code registers beside its parameters, in bytes and in words."""
    if model.implementation == "plain":
        if not eager:
            return 0, "none"
        layers, positions = model.num_hidden_layers, model.max_position_embeddings or 0
        size = layers * rounded(positions * positions * precision.weights)
        return size, f"{layers} causal masks of {positions:,} x {positions:,} x {precision.weights} B"
    if model.position != "rope":
        return 0, "none"
    half = model.head_size // 2
    return 2 * rounded(half * 4), f"rotary frequencies, twice {half} x 4 B"
