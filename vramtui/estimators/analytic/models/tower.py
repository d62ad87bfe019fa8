"""Towers for images and sound beside a decoder: what it holds while it runs, and what it keeps for the backward pass.

Their blocks are a decoder's of the same sizes without a cache, over all patches or positions of the batch. What joins
them to the words is not written out.

Shapes: patches (b, s, h); b images or clips of the batch, s patches of one, h the tower's hidden size.
"""

from collections.abc import Callable
from functools import reduce
from typing import NamedTuple

import msgspec

from vramtui.core.schema.decoder_models import TransformerModel
from vramtui.core.schema.stored_tensors import TowerShape
from vramtui.core.schema.workload import InferRun, TrainRun
from vramtui.estimators.analytic.models.decoder import Decoder
from vramtui.estimators.analytic.ops.decoder_builder import Setting, Writer
from vramtui.estimators.analytic.tape.program import TowerPass, prefilled, replayed
from vramtui.estimators.analytic.tape.replay import EMBEDDINGS, GRADIENTS, TapeStage
from vramtui.estimators.analytic.tape.tape import Tape
from vramtui.estimators.torch_facts.allocator_sizes import rounded

# Bytes of a number that an image processor makes.
PIXEL = 4
# Towers that turn queries and keys do it in fp32 (modeling_qwen2_5_vl.py, apply_rotary_pos_emb_vision): both, what one
# of them became, and three on the way to the other; beside the stream, and queries, keys and values in one.
TURNED, FP32, BESIDE = 6, 4, 4


def tower_pass(model: TransformerModel, run: TrainRun | InferRun, setting: Setting) -> TowerPass | None:
    """The passes over the images and the sound of a batch; None where there are none, or their towers' sizes are not
    known.

    Args:
        model: the decoder with its towers.
        run: how many tokens of a sequence are images' and sound's.
        setting: of the words that are read after them.
    """
    passes: list[TowerPass] = []
    for shape, tokens, first in (
        (model.tower, run.image_tokens, Decoder.embeddings),
        (model.audio_tower, run.audio_tokens, _convolved),
    ):
        if shape is not None and tokens:
            passes.append(_pass(model, run, setting, _Given(shape, tokens, first)))
    return reduce(_then, passes) if passes else None


def _then(first: TowerPass, second: TowerPass) -> TowerPass:
    """Both, one after the other; gradients are those of all towers in each."""
    return TowerPass(
        pixels=first.pixels + second.pixels,
        fullest=max(first.fullest, first.saved + first.features + second.fullest),
        saved=first.saved + second.saved,
        features=first.features + second.features,
        backward=max(first.backward, first.saved + second.backward),
        gradients=first.gradients,
        formula=f"{first.formula}; then {second.formula}",
    )


class _Given(NamedTuple):
    """A tower, the tokens of a sequence that are its, and what comes before its blocks."""

    shape: TowerShape
    tokens: int
    first: Callable[[Decoder], Tape]


def _pass(model: TransformerModel, run: TrainRun | InferRun, setting: Setting, given: _Given) -> TowerPass:
    shape = given.shape
    patches = run.batch_size * shape.positions(given.tokens)
    trained = isinstance(run, TrainRun) and run.lora is None and not run.frozen_layers
    plain = msgspec.structs.replace(
        setting, batch=1, sequence=patches, eager=False, masked=False, lora=None, packed=None, cache=None
    )
    writer = Decoder(_as_decoder(shape), plain)
    stages = [TapeStage(given.first(writer)), *_blocks(writer, shape, run)]
    numbers = run.batch_size * given.tokens * model.hidden_size
    formula = f"{patches:,} patches x {shape.hidden_size} through {shape.num_hidden_layers} blocks"
    cast = rounded(patches * shape.pixels * setting.recipe.stream) if setting.recipe.stream < PIXEL else 0
    frozen = TowerPass(
        pixels=rounded(patches * shape.pixels * PIXEL),
        features=rounded(numbers * setting.recipe.stream),
        fullest=cast + max(sum(prefilled(stages).late.values()), _turning(shape, patches, setting)),
        formula=f"{formula}, nothing kept",
    )
    if not trained:
        return frozen
    passes = replayed(stages)
    forward, backward = passes.forward, passes.backward
    return msgspec.structs.replace(
        frozen,
        fullest=cast + sum(forward.late.values()),
        saved=sum(forward.end.values()),
        backward=sum(size for name, size in backward.late.items() if name != GRADIENTS),
        gradients=_gradients(model, setting.recipe.weights),
        formula=formula,
    )


def _as_decoder(shape: TowerShape) -> TransformerModel:
    """The tower's blocks as those of a decoder; a patch is embedded by a matrix with a row for each of its numbers."""
    return TransformerModel(
        hidden_size=shape.hidden_size,
        num_hidden_layers=shape.num_hidden_layers,
        num_attention_heads=shape.num_attention_heads,
        head_dim=shape.hidden_size // shape.num_attention_heads,
        intermediate_size=shape.intermediate_size,
        vocab_size=shape.pixels,
        gated_mlp=shape.gated_mlp,
        hidden_act="silu" if shape.gated_mlp else "gelu",
        norm="rmsnorm" if shape.gated_mlp else "layernorm",
        position="rope" if shape.rotary else "none",
        attention_bias=True,
        mlp_bias=True,
    )


def _convolved(writer: Decoder) -> Tape:
    """The spectrogram, two frames to a position, through two convolutions, the second of which halves its length."""
    own = Writer(writer.model, writer.setting, EMBEDDINGS)
    tape, ops, h, numbers = own.tape, own.ops, writer.model.hidden_size, writer.model.vocab_size
    x = tape.enter(writer.setting.tokens * numbers, writer.setting.recipe.stream, tracked=False)
    wide = own.activation(ops.linear(x, (h, numbers // 2), "first convolution", trained=writer.setting.trained))
    y = own.activation(ops.linear(wide, (h, 2 * h), "second convolution", trained=writer.setting.trained))
    tape.touch(wide)
    tape.close(y)
    return tape


def _turning(shape: TowerShape, patches: int, setting: Setting) -> int:
    """What is there at most while a block turns its queries and keys; 0 where it does not."""
    return shape.rotary * patches * shape.hidden_size * (TURNED * FP32 + BESIDE * setting.recipe.stream)


def _blocks(writer: Decoder, shape: TowerShape, run: TrainRun | InferRun) -> list[TapeStage]:
    again = isinstance(run, TrainRun) and run.checkpointing == "full"
    return [TapeStage(writer.block(), shape.num_hidden_layers, checkpointed=again)]


def _gradients(model: TransformerModel, itemsize: int) -> int:
    return sum(rounded(group.numel * itemsize) * group.count for group in model.tensors if group.place == "tower")
