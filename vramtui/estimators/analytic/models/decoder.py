"""A decoder-only transformer as tapes: embeddings, one block, output layer and loss.

Shapes: tokens (b, s), residual stream (b, s, h), MLP (b, s, f), last token (b, h), logits (b, s, v), in generate()
(b, v); b batch, s tokens, h hidden, f width of the MLP, v vocabulary.
"""

from collections.abc import Callable

from vramtui.core.schema.decoder_models import TransformerModel
from vramtui.estimators.analytic.ops.decoder_builder import EMBEDDINGS, HEAD, MLP, STREAM, Setting, Writer
from vramtui.estimators.analytic.ops.loss import output_and_loss
from vramtui.estimators.analytic.ops.mla import latent_attention
from vramtui.estimators.analytic.ops.moe import mixture
from vramtui.estimators.analytic.ops.self_attention import self_attention
from vramtui.estimators.analytic.sizes.precision import tied_sum
from vramtui.estimators.analytic.tape.tape import Operator, Tape, Tensor
from vramtui.estimators.torch_facts.allocator_sizes import rounded

Part = Callable[[Writer, Tensor], Tensor]


class Decoder:
    """Writes the tapes of one model in one setting."""

    def __init__(self, model: TransformerModel, setting: Setting) -> None:
        self.model = model
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

    def block(self, *, tracked: bool = True, routed: bool = False) -> Tape:
        """One layer, with experts if it is `routed`.

        `tracked` is false where no gradient is wanted of its input, below the first adapter.
        """
        writer = Writer(self.model, self.setting, STREAM)
        tape, x = writer.tape, writer.enter(tracked=tracked)
        attention = self_attention if self.model.kv_lora_rank is None else latent_attention
        feed_forward = mixture if routed else mlp
        if self.model.parallel_residual:
            tape.close(self._parallel(writer, x, attention, feed_forward))
            return tape
        for part in (attention, feed_forward):
            normed = writer.norm(x, "norm")
            y = part(writer, normed)
            tape.touch(normed)
            if self.model.norms_per_layer == 4:
                y = writer.norm(y, "norm after")
            y = writer.dropout(y, "dropout")
            tape.group = STREAM
            x = writer.ops.add(x, y, "residual stream")
        tape.close(x)
        return tape

    def _parallel(self, writer: Writer, x: Tensor, attention: Part, feed_forward: Part) -> Tensor:
        """Attention and MLP side by side over the same input, with a norm each or one for both."""
        normed = writer.norm(x, "norm")
        other = normed if self.model.norms_per_layer == 1 else writer.norm(x, "second norm")
        y = writer.dropout(attention(writer, normed), "attention dropout")
        z = writer.dropout(feed_forward(writer, other), "MLP dropout")
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
        logits = writer.ops.linear(last, d, self.model.vocab_size, "output layer", trained=False)
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


def mlp(writer: Writer, x: Tensor) -> Tensor:
    """The MLP: up and down with an activation between, or gated (SwiGLU, GeGLU)."""
    model, writer.tape.group = writer.model, MLP
    d, f, bias = model.hidden_size, model.ffn_size, model.mlp_bias
    if not model.gated_mlp:
        y = writer.activation(writer.linear(x, d, f, "up_proj", bias=bias))
        return writer.linear(y, f, d, "down_proj", bias=bias)
    if writer.setting.liger:
        gate = writer.linear(x, d, f, "gate_proj", bias=bias)
        y = writer.ops.liger_gated(gate, writer.linear(x, d, f, "up_proj", bias=bias), "gate x up")
        return writer.linear(y, f, d, "down_proj", bias=bias)
    gate = writer.activation(writer.linear(x, d, f, "gate_proj", bias=bias))
    y = writer.ops.multiply(gate, writer.linear(x, d, f, "up_proj", bias=bias), "gate x up")
    return writer.linear(y, f, d, "down_proj", bias=bias)
