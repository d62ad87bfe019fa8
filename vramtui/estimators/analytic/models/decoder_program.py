"""A decoder-only transformer that is trained, as a program.

Shapes: token ids and labels (b, s), what stands between blocks (b, s, h); b batch, s tokens, h hidden.
"""

from itertools import pairwise

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import Device
from vramtui.core.schema.decoder_models import TransformerModel
from vramtui.core.schema.workload import Attention, InferRun, Precision, TrainRun
from vramtui.estimators.analytic.models.decoder import Decoder
from vramtui.estimators.analytic.models.tower import tower_pass
from vramtui.estimators.analytic.ops.decoder_builder import Setting
from vramtui.estimators.analytic.sizes.precision import Recipe, recipe
from vramtui.estimators.analytic.sizes.sdpa_backend import kernel_note, kernel_of, masks
from vramtui.estimators.analytic.sizes.sequence import sequence_of
from vramtui.estimators.analytic.tape.program import Program
from vramtui.estimators.analytic.tape.replay import TapeStage
from vramtui.estimators.torch_facts.allocator_sizes import rounded
from vramtui.estimators.torch_facts.cards import card_limits
from vramtui.models.spec import ModelSpec, Parameter
from vramtui.models.specs.adapters import adapter_tensors
from vramtui.models.specs.decoder import decoder_spec


def decoder_training(model: TransformerModel, run: TrainRun, device: Device) -> Program:
    """The program of a decoder-only transformer that is trained.

    Raises:
        UserError: the workload contradicts itself.
    """
    _check(model, run)
    spec = decoder_spec(model)
    kept = recipe(run.precision, lora=run.lora)
    kernel = kernel_of(model, run.attention, _multiplied(run), device.capability)
    setting = Setting(
        recipe=kept,
        card=card_limits(device),
        batch=run.batch_size,
        sequence=sequence_of(model, run),
        eager=run.attention == "eager",
        kernel=kernel,
        lora=run.lora,
        packed=run.quantization,
        cross_entropy=run.cross_entropy,
        selective=run.checkpointing,
        liger=run.use_liger_kernel,
    )
    frozen, trained = _split(spec, run)
    buffers, buffers_formula = buffers_of(model, setting.recipe, eager=setting.eager)
    sequence = setting.sequence
    return Program(
        frozen=frozen,
        trained=trained,
        recipe=setting.recipe,
        quantization=run.quantization,
        layers=model.num_hidden_layers,
        stages=_stages(model, run, setting, device),
        inputs=2 * rounded(8 * setting.tokens),
        inputs_formula=f"token ids and labels, {run.batch_size} x {setting.sequence:,} x 8 B each",
        buffers=buffers,
        buffers_formula=buffers_formula,
        tower=tower_pass(model, run, setting),
        notes=(*kernel_note(model, run.attention, kernel), *window_note(model, run.attention, sequence), *_notes(run)),
    )


def _multiplied(run: TrainRun) -> Precision:
    """The precision of queries and keys: without autocast that of the embeddings and norms, which peft may raise."""
    raised = run.lora is not None and run.lora.prepare_for_kbit_training and "-" not in run.precision
    return "fp32" if raised else run.precision


def _check(model: TransformerModel, run: TrainRun) -> None:
    if run.quantization is not None and run.lora is None:
        raise UserError(
            f"run.quantization = {run.quantization!r} keeps weights that cannot be trained; add [run.lora] (--qlora)"
        )
    if run.frozen_layers > model.num_hidden_layers:
        raise UserError(
            f"run.frozen_layers = {run.frozen_layers} is more than model.num_hidden_layers = {model.num_hidden_layers}"
        )
    if run.frozen_layers and run.lora is not None:
        raise UserError("run.frozen_layers and [run.lora] contradict each other: adapters freeze every layer already")


def _split(spec: ModelSpec, run: TrainRun) -> tuple[tuple[Parameter, ...], ...]:
    """The frozen tensors and the trained ones."""
    if run.lora is not None:
        return spec.tensors(), adapter_tensors(spec, run.lora)
    if not run.frozen_layers:
        return (), spec.tensors()
    below = (*spec.tensors_before(), *spec.block_tensors(0, run.frozen_layers))
    return below, (*spec.block_tensors(run.frozen_layers, spec.layers), *spec.tensors_after())


def _stages(model: TransformerModel, run: TrainRun, setting: Setting, device: Device) -> list[TapeStage]:
    """Stretches of equal blocks: below the first gradient, the first one with it, dense ones, ones with experts.

    Where sliding layers get a mask they come before those that look back all the way, whatever the order.
    """
    frozen = msgspec.structs.replace(setting, below=True)
    start = Decoder(model, frozen if run.frozen_layers else setting).embeddings()
    stages = [TapeStage(start)]
    again = run.checkpointing in {"full", "selective-ops"}
    masked = masks(model, run.attention, setting.sequence, setting.sequence)
    for first, count in stretches(model, _cuts(run)):
        below = first < run.frozen_layers
        tracked = not below and (first > run.frozen_layers or not (run.frozen_layers or run.lora))
        here = frozen if below else setting
        kinds = [(count, here)]
        if masked:
            sliding = masked_setting(model, run, here, device)
            layers = reversed(decoder_spec(model).caches_by_kind(first, first + count))
            kinds = [(kind.layers, here if kind.window is None else sliding) for kind in layers]
        for alike, kind in kinds:
            tape = Decoder(model, kind).block(first, tracked=tracked)
            stages.append(TapeStage(tape, alike, checkpointed=again and not below))
    stages.append(TapeStage(Decoder(model, setting).loss()))
    return stages


def _cuts(run: TrainRun) -> set[int]:
    """Where blocks begin to differ: no gradient flows back to the input of the first block with one."""
    first = run.frozen_layers
    return {first, first + 1} if first or run.lora is not None else set()


def stretches(model: TransformerModel, cuts: set[int]) -> list[tuple[int, int]]:
    """Runs of equal blocks as (first, count); a run also ends where a cut is. Which of them slide is not told apart."""
    layers = model.num_hidden_layers
    edges = {block.start for block in decoder_spec(model).blocks} | {cut for cut in cuts if cut <= layers} | {0, layers}
    return [(first, after - first) for first, after in pairwise(sorted(edges))]


def window_note(model: TransformerModel, attention: Attention, sequence: int) -> tuple[str, ...]:
    """What the package flash-attn would leave out, where transformers makes a mask of a sliding window."""
    if not masks(model, attention, sequence, sequence):
        return ()
    note = (
        "each sliding layer makes a mask of tokens x tokens for torch's kernel, beside which shared key/value heads "
        "are repeated; the flash-attn package needs neither"
    )
    return (note,)


def masked_setting(model: TransformerModel, run: TrainRun | InferRun, setting: Setting, device: Device) -> Setting:
    """The setting of layers that slide, whose kernel gets a mask."""
    precision = _multiplied(run) if isinstance(run, TrainRun) else run.precision
    kernel = kernel_of(model, run.attention, precision, device.capability, masked=True)
    return msgspec.structs.replace(setting, kernel=kernel, masked=True)


def _notes(run: TrainRun) -> tuple[str, ...]:
    notes = []
    if run.checkpointing == "selective" and run.attention != "eager":
        notes.append("selective checkpointing changes nothing here: fused attention keeps no scores to make again")
    return tuple(notes)


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
