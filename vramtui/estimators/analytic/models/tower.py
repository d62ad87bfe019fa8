"""Towers for images and sound beside a decoder: what it holds while it runs, and what it keeps for the backward pass.

Their blocks are a decoder's of the same sizes without a cache, over all patches or positions of the batch. What joins
them to the words is not written out.

Shapes: patches (b, s, h); b images or clips of the batch, s patches of one, h the tower's hidden size.
"""

from collections.abc import Callable

import msgspec

from vramtui.core.schema.models import TowerShape, TransformerModel
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
    """The passes over the images and the sound of a batch, one after the other; None if there are none, or their
    towers' sizes are not known. `setting` is that of the words that are read after them.
    """
    whole: TowerPass | None = None
    for shape, tokens, first in (
        (model.tower, run.image_tokens, Decoder.embeddings),
        (model.audio_tower, run.audio_tokens, _convolved),
    ):
        if shape is None or not tokens:
            continue
        one = _pass(model, run, setting, shape, tokens, first)
        whole = (
            one
            if whole is None
            else TowerPass(
                pixels=whole.pixels + one.pixels,
                fullest=max(whole.fullest, whole.saved + whole.features + one.fullest),
                saved=whole.saved + one.saved,
                features=whole.features + one.features,
                backward=max(whole.backward, whole.saved + one.backward),
                gradients=whole.gradients,  # those of all towers in each
                formula=f"{whole.formula}; then {one.formula}",
            )
        )
    return whole


def _pass(
    model: TransformerModel,
    run: TrainRun | InferRun,
    setting: Setting,
    shape: TowerShape,
    tokens: int,
    first: Callable[[Decoder], Tape],
) -> TowerPass:
    """A tower's pass for `tokens` of a sequence; `first` writes what comes before its blocks."""
    patches, itemsize = run.batch_size * shape.positions(tokens), setting.recipe.stream
    trained = isinstance(run, TrainRun) and run.lora is None and not run.frozen_layers
    plain = msgspec.structs.replace(
        setting, batch=1, sequence=patches, eager=False, masked=False, lora=None, packed=None, cache=None
    )
    writer = Decoder(
        TransformerModel(
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
        ),
        plain,
    )
    again = isinstance(run, TrainRun) and run.checkpointing == "full"
    stages = [TapeStage(first(writer)), TapeStage(writer.block(), shape.num_hidden_layers, checkpointed=again)]
    formula = f"{patches:,} patches x {shape.hidden_size} through {shape.num_hidden_layers} blocks"
    cast = rounded(patches * shape.pixels * itemsize) if itemsize < PIXEL else 0
    pixels = rounded(patches * shape.pixels * PIXEL)
    features = rounded(run.batch_size * tokens * model.hidden_size * itemsize)
    if not trained:
        # What is there at the peak while a block turns its queries and keys; 0 if it does not.
        turning = shape.rotary * patches * shape.hidden_size * (TURNED * FP32 + BESIDE * itemsize)
        fullest = cast + max(sum(prefilled(stages).late.values()), turning)
        return TowerPass(pixels=pixels, features=features, fullest=fullest, formula=f"{formula}, nothing kept")
    passes = replayed(stages)
    groups = [group for group in model.tensors if group.place == "tower"]
    return TowerPass(
        pixels=pixels,
        features=features,
        fullest=cast + sum(passes.forward.late.values()),
        saved=sum(passes.forward.end.values()),
        backward=sum(size for name, size in passes.backward.late.items() if name != GRADIENTS),
        gradients=sum(rounded(group.numel * setting.recipe.weights) * group.count for group in groups),
        formula=formula,
    )


def _convolved(writer: Decoder) -> Tape:
    """The spectrogram, two frames to a position, through two convolutions; the second halves its length."""
    own = Writer(writer.model, writer.setting, EMBEDDINGS)
    tape, ops, h, numbers = own.tape, own.ops, writer.model.hidden_size, writer.model.vocab_size
    x = tape.enter(writer.setting.tokens * numbers, writer.setting.recipe.stream, tracked=False)
    wide = own.activation(ops.linear(x, (h, numbers // 2), "first convolution", trained=writer.setting.trained))
    y = own.activation(ops.linear(wide, (h, 2 * h), "second convolution", trained=writer.setting.trained))
    tape.touch(wide)
    tape.close(y)
    return tape
