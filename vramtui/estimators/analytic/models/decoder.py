"""A decoder-only transformer as tapes: embeddings, one block, output layer and loss.

Shapes: tokens (b, s), residual stream (b, s, h), MLP (b, s, f), last token (b, h), logits (b, s, v), in generate()
(b, v); b batch, s tokens, h hidden, f width of the MLP, v vocabulary.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.late import late
from vramtui.core.estimate.devices import Device
from vramtui.core.schema.models import TransformerModel
from vramtui.core.schema.workload import Attention, InferRun, Precision, TrainRun
from vramtui.estimators.analytic.ops.attention import kernel_note, kernel_of, masks, record_attention, record_mla
from vramtui.estimators.analytic.ops.decoder_builder import Setting, Writer, output_and_loss, record_mlp, record_moe
from vramtui.estimators.analytic.sizes.precision import Recipe, recipe, tied_sum
from vramtui.estimators.analytic.sizes.runtime import torch_of
from vramtui.estimators.analytic.tape.tape import EMBEDDINGS, HEAD, STREAM, Program, Tape, TapeStage, Tensor, TowerPass
from vramtui.estimators.torch_facts.allocator_sizes import rounded
from vramtui.estimators.torch_facts.cards import card_limits
from vramtui.models.spec import Kind, Parameter
from vramtui.models.specs.decoder import adapter_tensors, decoder_spec

tower_pass: Callable[..., TowerPass | None] = late("vramtui.estimators.analytic.models.encoder:tower_pass")
# What each kind of module that is made of others records, in a file of its name.
RECORDERS: dict[Kind, Callable[[Writer, Any, Tensor], Tensor]] = {
    "attention": record_attention,
    "mla": record_mla,
    "mlp": record_mlp,
    "moe": record_moe,
}


# Block inputs on their way to host memory at once (TRL 1.x, models/activation_offloading.py, max_fwd_stash_size).
STASH = 5


class Decoder:
    def __init__(self, model: TransformerModel, setting: Setting) -> None:
        self.model = model
        self.spec = decoder_spec(model)
        self.setting = setting

    def embeddings(self) -> Tape:
        """Token and position embeddings; a tied weight's gradient is added to the output layer's (`tied_sum`)."""
        writer = Writer(self.model, self.setting, EMBEDDINGS)
        tape, trained, itemsize = writer.tape, self.setting.trained, self.setting.recipe.stream
        table = self._gradient(self.model.vocab_size)
        tied: tuple[int, ...] = ()
        if self.model.tie_word_embeddings:
            # Liger's loss hands a gradient over that is not a view, into which the other is added in place.
            fused = self.setting.liger or self.setting.cross_entropy == "fused"
            tied = (table,) if fused else tied_sum(table, self.setting.recipe)
        x = tape.new(self.setting.tokens * self.model.hidden_size, itemsize, "token embeddings", tracked=trained)
        tape.record([], [x], grad_bytes=0 if tied else table, backward_pieces=tied)
        if self.model.position == "learned":
            sample = self.setting.sequence * self.model.hidden_size
            places = tape.new(sample, itemsize, "position embeddings", tracked=trained)
            tape.record([], [places], grad_bytes=self._gradient(self.model.max_position_embeddings or 0))
            x = writer.ops.add(x, places, "residual stream")
        x = writer.dropout(x, "embedding dropout")
        tape.close(x)
        return tape

    def _gradient(self, rows: int) -> int:
        return rounded(rows * self.model.hidden_size * self.setting.parameter) if self.setting.trained else 0

    def block(self, layer: int = 0, *, tracked: bool = True) -> Tape:
        """A layer like the one with this number.

        `tracked` is false where no gradient is wanted of its input, below the first adapter.
        """
        block = next(block for block in self.spec.blocks if block.start <= layer < block.stop)
        writer = Writer(self.model, self.setting, STREAM)
        tape, x = writer.tape, writer.enter(tracked=tracked)
        parts = [module for module in block.modules if module.kind in RECORDERS]
        if self.model.parallel_residual:
            # Attention and MLP side by side over the same input, with a norm each or one for both.
            attention, feed_forward = parts
            normed = writer.norm(x, "norm")
            other = normed if self.model.norms_per_layer == 1 else writer.norm(x, "second norm")
            y = writer.dropout(RECORDERS[attention.kind](writer, attention, normed), "attention dropout")
            z = writer.dropout(RECORDERS[feed_forward.kind](writer, feed_forward, other), "MLP dropout")
            tape.touch(normed, other)
            tape.group = STREAM
            tape.close(writer.ops.add(writer.ops.add(y, z, "attention and MLP"), x, "residual stream"))
            return tape
        for part in parts:
            normed = writer.norm(x, "norm")
            y = RECORDERS[part.kind](writer, part, normed)
            tape.touch(normed)
            if self.model.norms_per_layer == 4:
                y = writer.norm(y, "norm after")
            y = writer.dropout(y, "dropout")
            tape.group = STREAM
            x = writer.ops.add(x, y, "residual stream")
        tape.close(x)
        return tape

    def answer(self) -> Tape:
        """The last norm, and the output layer for the last token of each sequence, raised to fp32 by generate()."""
        writer = Writer(self.model, self.setting, STREAM)
        tape, d = writer.tape, self.model.hidden_size
        x = writer.norm(writer.enter(tracked=False), "last norm")
        tape.group = HEAD
        last = writer.ops.unsaved(x, "last token", self.setting.batch * d)
        logits = writer.ops.linear(last, (self.model.vocab_size, d), "output layer", trained=False)
        tape.touch(logits, writer.ops.cast(logits, 4, "logits in fp32"))
        tape.close(None)
        return tape

    def loss(self) -> Tape:
        """The last norm, the output layer and cross entropy over the vocabulary."""
        writer = Writer(self.model, self.setting, STREAM)
        tape = writer.tape
        x = writer.norm(writer.enter(), "last norm")
        tape.group = HEAD
        output_and_loss(writer, x)
        tape.close(None)
        return tape


def multiplied_precision(run: TrainRun) -> Precision:
    """The precision of queries and keys: without autocast that of the embeddings and norms, which peft may raise."""
    raised = run.lora is not None and run.lora.prepare_for_kbit_training and "-" not in run.precision
    return "fp32" if raised else run.precision


def stretches(model: TransformerModel, cuts: set[int]) -> list[tuple[int, int]]:
    """Runs of equal blocks as (first, count); a run also ends where a cut is. Which of them slide is not told apart."""
    layers = model.num_hidden_layers
    edges = {block.start for block in decoder_spec(model).blocks} | {cut for cut in cuts if cut <= layers} | {0, layers}
    return [(first, after - first) for first, after in pairwise(sorted(edges))]


def window_note(model: TransformerModel, attention: Attention, sequence: int) -> tuple[str, ...]:
    """Say what the flash-attn package would save if transformers makes a mask of a sliding window."""
    if not masks(model, attention, sequence, sequence):
        return ()
    note = (
        "each sliding layer makes a mask of tokens x tokens for torch's kernel, with which shared key/value heads "
        "are repeated; the flash-attn package needs neither"
    )
    return (note,)


def masked_setting(model: TransformerModel, run: TrainRun | InferRun, setting: Setting, device: Device) -> Setting:
    """The setting of layers that slide, whose kernel gets a mask."""
    precision = multiplied_precision(run) if isinstance(run, TrainRun) else run.precision
    kernel = kernel_of(model, run, precision, device.capability, masked=True)
    return msgspec.structs.replace(setting, kernel=kernel, masked=True)


def buffers_of(model: TransformerModel, precision: Recipe, *, eager: bool) -> tuple[int, str]:
    """Buffers of the modelling code, in bytes and in words."""
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


def sequence_of(model: TransformerModel, run: TrainRun | InferRun) -> int:
    sequence = run.sequence_length or model.max_position_embeddings
    if sequence is None:
        raise UserError(
            "run.sequence_length is missing, and the model gives no max_position_embeddings to take instead"
        )
    whole = sequence + (run.new_tokens if isinstance(run, InferRun) else 0)
    if model.position == "learned" and whole > (model.max_position_embeddings or 0):
        named = "run.sequence_length" if whole == sequence else "run.sequence_length + run.new_tokens"
        raise UserError(
            f"{named} = {whole} is longer than model.max_position_embeddings = "
            f"{model.max_position_embeddings}, and learned positions cannot be stretched"
        )
    return sequence


def runs_tower(model: TransformerModel, run: TrainRun | InferRun) -> bool:
    return bool((model.tower and run.image_tokens) or (model.audio_tower and run.audio_tokens))


def decoder_training(model: TransformerModel, run: TrainRun, device: Device) -> Program:
    if run.quantization is not None and run.lora is None:
        raise UserError(
            f"run.quantization = {run.quantization!r} keeps weights that cannot be trained; add [run.lora] (--qlora)"
        )
    first, layers = run.frozen_layers, model.num_hidden_layers
    if first > layers:
        raise UserError(f"run.frozen_layers = {first} is more than model.num_hidden_layers = {layers}")
    if first and run.lora is not None:
        raise UserError("run.frozen_layers and [run.lora] contradict each other: adapters freeze every layer already")
    spec, kernel = decoder_spec(model), kernel_of(model, run, multiplied_precision(run), device.capability)
    kinds_of_bytes = recipe(run.precision, lora=run.lora)
    if run.quantization is not None and kinds_of_bytes.autocast and model.hidden_act == "relu2":
        # Linear4bit.forward answers in its input's type: fp32 after a power, and so is all that it is added to.
        kinds_of_bytes = msgspec.structs.replace(kinds_of_bytes, stream=4)
    setting = Setting(
        recipe=kinds_of_bytes,
        card=card_limits(device),
        release=torch_of(run),
        batch=run.batch_size,
        sequence=sequence_of(model, run),
        eager=run.attention == "eager",
        kernel=kernel,
        lora=run.lora,
        packed=run.quantization,
        dequantized=run.quantize_moe_experts,
        cross_entropy="chunked" if run.cross_entropy == "chunked-output" and not run.compile else run.cross_entropy,
        selective=run.checkpointing,
        reentrant=run.use_reentrant and run.checkpointing == "full",
        liger=run.use_liger_kernel,
    )
    sequence, frozen, trained = setting.sequence, tuple[Parameter, ...](), spec.tensors()
    if run.lora is not None:
        frozen, trained = trained, adapter_tensors(spec, run.lora)
    elif first:
        frozen = (*spec.tensors_before(), *spec.block_tensors(0, first))
        trained = (*spec.block_tensors(first, spec.layers), *spec.tensors_after())
    # Stretches of equal blocks: below the first gradient, the first one with it (no gradient flows back to its input),
    # dense ones, ones with experts. Sliding layers that get a mask come before those that look back all the way,
    # whatever the order.
    below_setting = msgspec.structs.replace(setting, below=True)
    stages = [TapeStage(Decoder(model, below_setting if first else setting).embeddings())]
    again = run.checkpointing in {"full", "selective-ops"}
    offloaded = run.activation_offloading and run.checkpointing == "full" and not first
    masked = masks(model, run.attention, sequence, sequence)
    for start, count in stretches(model, {first, first + 1} if first or run.lora is not None else set()):
        below = start < first
        tracked = not below and (start > first or not (first or run.lora))
        here = below_setting if below else setting
        kinds = [(count, here)]
        if masked:
            sliding = masked_setting(model, run, here, device)
            caches = reversed(spec.caches_by_kind(start, start + count))
            kinds = [(kind.layers, here if kind.window is None else sliding) for kind in caches]
        for alike, kind in kinds:
            tape = Decoder(model, kind).block(start, tracked=tracked)
            away = max(alike - (STASH if start + count == model.num_hidden_layers else 0), 0) if offloaded else 0
            stages += [TapeStage(tape, away, checkpointed=True, offloaded=True)] if away else []
            stages += [TapeStage(tape, alike - away, checkpointed=again and not below)] if alike - away else []
    stages.append(TapeStage(Decoder(model, setting).loss()))
    buffers, buffers_formula = buffers_of(model, setting.recipe, eager=setting.eager)
    notes = [*kernel_note(model, run.attention, kernel), *window_note(model, run.attention, sequence)]
    if run.checkpointing == "selective" and run.attention != "eager":
        notes.append("selective checkpointing changes nothing here: fused attention keeps no scores to make again")
    # Of GPT-2 in transformers dynamo ends the graph where the loss is asked for: `PreTrainedModel.__init__` looks for
    # the loss by the class's name, and that of `GPT2LMHeadModel` holds no key of `LOSS_MAPPING`; `loss_function` then
    # warns, which dynamo cannot trace (transformers 5.23, modeling_utils.py).
    gpt = model.position == "learned" and model.fused_qkv and model.norm == "layernorm" and not model.gated_mlp
    alike_gpt = gpt and not model.parallel_residual and model.kv_heads == model.num_attention_heads
    return Program(
        frozen=frozen,
        trained=trained,
        recipe=setting.recipe,
        quantization=run.quantization,
        layers=layers,
        stages=stages,
        inputs=2 * rounded(8 * setting.tokens),
        inputs_formula=f"token ids and labels, {run.batch_size} x {sequence:,} x 8 B each",
        buffers=buffers,
        buffers_formula=buffers_formula,
        tower=tower_pass(model, run, setting) if runs_tower(model, run) else None,
        notes=tuple(notes),
        loss_apart=alike_gpt and model.implementation == "huggingface",
    )
