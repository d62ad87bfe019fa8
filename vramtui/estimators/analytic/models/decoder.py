"""A decoder-only transformer as tapes: embeddings, one block, output layer and loss.

Shapes: tokens (b, s), residual stream (b, s, h), MLP (b, s, f), last token (b, h), logits (b, s, v), in generate()
(b, v); b batch, s tokens, h hidden, f width of the MLP, v vocabulary.
"""

from collections.abc import Callable
from typing import Any

from vramtui.core.schema.decoder_models import TransformerModel
from vramtui.estimators.analytic.ops.attention import record_attention
from vramtui.estimators.analytic.ops.decoder_builder import EMBEDDINGS, HEAD, STREAM, Setting, Writer
from vramtui.estimators.analytic.ops.loss import output_and_loss
from vramtui.estimators.analytic.ops.mla import record_mla
from vramtui.estimators.analytic.ops.mlp import record_mlp
from vramtui.estimators.analytic.ops.moe import record_moe
from vramtui.estimators.analytic.sizes.precision import tied_sum
from vramtui.estimators.analytic.tape.tape import Operator, Tape, Tensor
from vramtui.estimators.torch_facts.allocator_sizes import rounded
from vramtui.models.spec import Kind, Module
from vramtui.models.specs.decoder import decoder_spec

# What each kind of module that is made of others records, in a file of its name.
RECORDERS: dict[Kind, Callable[[Writer, Any, Tensor], Tensor]] = {
    "attention": record_attention,
    "mla": record_mla,
    "mlp": record_mlp,
    "moe": record_moe,
}


class Decoder:
    """Writes the tapes of one model in one setting."""

    def __init__(self, model: TransformerModel, setting: Setting) -> None:
        self.model = model
        self.spec = decoder_spec(model)
        self.setting = setting

    def embeddings(self) -> Tape:
        """Token and position embeddings; a tied weight's gradient is added to the output layer's (`tied_sum`)."""
        writer = Writer(self.model, self.setting, EMBEDDINGS)
        tape, trained, itemsize = writer.tape, self.setting.trained, self.setting.recipe.stream
        table = self._gradient(self.model.vocab_size)
        tied = self.model.tie_word_embeddings
        x = tape.new(self.setting.tokens * self.model.hidden_size, itemsize, "token embeddings", tracked=trained)
        tape.record(
            Operator(
                [],
                [x],
                grad_bytes=0 if tied else table,
                backward_pieces=self._tied_sum(table) if tied else (),
            )
        )
        if self.model.position == "learned":
            one = self.setting.sequence * self.model.hidden_size
            places = tape.new(one, itemsize, "position embeddings", tracked=trained)
            tape.record(Operator([], [places], grad_bytes=self._gradient(self.model.max_position_embeddings or 0)))
            x = writer.ops.add(x, places, "residual stream")
        x = writer.dropout(x, "embedding dropout")
        tape.close(x)
        return tape

    def _tied_sum(self, table: int) -> tuple[int, ...]:
        """Liger's loss hands a gradient over that is no view, into which the other is added in place."""
        fused = self.setting.liger or self.setting.cross_entropy == "fused"
        return (table,) if fused else tied_sum(table, self.setting.recipe)

    def _gradient(self, rows: int) -> int:
        size = rounded(rows * self.model.hidden_size * self.setting.parameter)
        return size if self.setting.trained else 0

    def block(self, layer: int = 0, *, tracked: bool = True) -> Tape:
        """A layer like the one with this number.

        `tracked` is false where no gradient is wanted of its input, below the first adapter.
        """
        block = next(block for block in self.spec.blocks if block.start <= layer < block.stop)
        writer = Writer(self.model, self.setting, STREAM)
        tape, x = writer.tape, writer.enter(tracked=tracked)
        parts = [module for module in block.modules if module.kind in RECORDERS]
        if self.model.parallel_residual:
            tape.close(self._parallel(writer, x, *parts))
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

    def _parallel(self, writer: Writer, x: Tensor, attention: Module, feed_forward: Module) -> Tensor:
        """Attention and MLP side by side over the same input, with a norm each or one for both."""
        normed = writer.norm(x, "norm")
        other = normed if self.model.norms_per_layer == 1 else writer.norm(x, "second norm")
        y = writer.dropout(RECORDERS[attention.kind](writer, attention, normed), "attention dropout")
        z = writer.dropout(RECORDERS[feed_forward.kind](writer, feed_forward, other), "MLP dropout")
        writer.tape.touch(normed, other)
        writer.tape.group = STREAM
        return writer.ops.add(writer.ops.add(y, z, "attention and MLP"), x, "residual stream")

    def answer(self) -> Tape:
        """The last norm, and the output layer for the last token of each sequence, raised to fp32 by generate()."""
        writer = Writer(self.model, self.setting, STREAM)
        tape, d = writer.tape, self.model.hidden_size
        x = writer.norm(writer.enter(tracked=False), "last norm")
        tape.group = HEAD
        last = tape.new(self.setting.batch * d, x.itemsize, "last token", tracked=False)
        tape.record(Operator([x], [last]))
        logits = writer.ops.linear(last, (self.model.vocab_size, d), "output layer", trained=False)
        wide = writer.ops.cast(logits, 4, "logits in fp32")
        tape.touch(logits, wide)
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
