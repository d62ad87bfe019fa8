"""Encoder-decoders (T5, Raffel et al. 2020; BART, Lewis et al. 2020; Whisper, Radford et al. 2022) as transformers has
them.

T5's relative positions are a learned bias on the scores, which only some of torch's kernels take: one that is trained
goes to the memory-efficient kernel, with or without dropout, for cuDNN's gives a mask no gradient and flash takes
none; one that is not goes to cuDNN's where that comes first (ATen/native/transformers/cuda/sdp_utils.cpp).

Shapes: source (b, s) and target (b, t) ids, or a spectrogram (b, mel bins, 2·s); streams (b, s, d) and (b, t, d),
logits (b, t, v); b batch, d `d_model`, v vocabulary. In a block: x (b, t, d), what the encoder answered (b, s, d),
queries (b, n, t, e), keys and values (b, n, s, e) across or (b, n, t, e) to itself, MLP (b, t, f), T5's positions
(1, n, t, t); n heads of width e, f that of the MLP.
"""

from collections.abc import Callable

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import Device
from vramtui.core.schema.models import EncoderDecoderModel
from vramtui.core.schema.workload import InferRun, TrainRun
from vramtui.estimators.analytic.ops.attention_kernels import Heads, Projected, eager_attention, fused_attention
from vramtui.estimators.analytic.ops.decoder_builder import Cache, cross_entropy
from vramtui.estimators.analytic.ops.module_builder import Image, ModuleBuilder, Net
from vramtui.estimators.analytic.sizes.precision import tied_sum
from vramtui.estimators.analytic.tape.tape import (
    ATTENTION,
    EMBEDDINGS,
    GROWTH,
    HEAD,
    KV_CACHE,
    MLP,
    NORMS,
    STREAM,
    Program,
    Tensor,
    borrowed,
)
from vramtui.estimators.torch_facts.allocator_sizes import rounded
from vramtui.models import spec
from vramtui.models.specs.nets import CROSS as CROSS_PREFIX
from vramtui.models.specs.nets import SOURCE_POSITIONS, TARGET_POSITIONS, encoder_decoder_spec, relative_positions

CROSS = "activations: cross-attention"


class BlockSide(msgspec.Struct, frozen=True, kw_only=True):
    """One pass through the encoder's blocks or the decoder's.

    Attributes:
        tokens: positions in this pass; `source` those of the encoder, where the decoder looks at them.
        cache: what stands in the decoder's cache already; None if nothing is kept.
    """

    tokens: int
    source: int | None = None
    cache: Cache | None = None

    @property
    def keys(self) -> int:
        return self.tokens + (self.cache.past if self.cache else 0)


class Blocks:
    def __init__(self, model: EncoderDecoderModel, net: Net, side: BlockSide, block: spec.RepeatedBlock) -> None:
        self.model, self.net, self.side, self.of_block = model, net, side, block
        self.attention = block.module("", spec.AttentionModule)
        self.wide = self.attention.heads * self.attention.head_dim
        attentions = [module for module in block.modules if isinstance(module, spec.AttentionModule)]
        self.projections = {name: part for one in attentions for name, part in spec.linear_parts(one).items()}

    def drop(self, part: ModuleBuilder, x: Tensor, label: str) -> Tensor:
        return part.ops.dropout(x, self.model.dropout if self.net.training else 0.0, label)

    def norm(self, part: ModuleBuilder, x: Tensor, norm: spec.NormModule) -> Tensor:
        """A norm, whose tensors are a group of their own."""
        part.tape.group = NORMS
        return part.normed_by(x, norm)

    def block(self, part: ModuleBuilder, x: Tensor, encoded: Tensor | None, *, bucketed: bool = False) -> Tensor:
        """Attention to itself, to the encoder where there is one, and the MLP, each with norm and residual.

        The relative positions of all blocks are held in the `bucketed` one, T5's first.
        """
        x = self._around(part, x, "self_attention", lambda y: self._itself(part, y, bucketed=bucketed))
        if encoded is not None:
            x = self._around(part, x, "cross_attention", lambda y: self._cross(part, y, encoded))
        return self._around(part, x, "mlp", lambda y: self._mlp(part, y))

    def _around(self, part: ModuleBuilder, x: Tensor, name: str, write: Callable[[Tensor], Tensor]) -> Tensor:
        """T5 and Whisper norm first, BART after the sum."""
        first, norm = self.model.final_norm, self.of_block.module(f"{name}_norm", spec.NormModule)
        normed = self.norm(part, x, norm) if first else x
        y = self.drop(part, write(normed), f"{name} dropout")
        part.tape.touch(normed)
        part.tape.group = STREAM
        x = part.ops.add(x, y, "residual stream")
        return x if first else self.norm(part, x, norm)

    def _mlp(self, part: ModuleBuilder, x: Tensor) -> Tensor:
        model, block, part.tape.group = self.model, self.of_block, MLP
        y = part.activation(part.apply(x, block.module("fc1", spec.LinearModule)), model.hidden_act)
        if model.gated_mlp:
            y = part.ops.multiply(y, part.apply(x, block.module("gate", spec.LinearModule)), "gate x up")
        y = self.drop(part, y, "MLP's inner dropout")
        if model.relative_attention_num_buckets:  # T5 raises what autocast lowered to the type of the weights
            y = part.ops.cast(y, part.ops.parameter, "fc2 input in the weights' type")
        out = part.apply(y, block.module("fc2", spec.LinearModule))
        part.tape.touch(y)
        return out

    def _itself(self, part: ModuleBuilder, x: Tensor, *, bucketed: bool) -> Tensor:
        part.tape.group = ATTENTION
        q, k, v = self._query(part, x, ""), self._cached(part, x, "k_proj"), self._cached(part, x, "v_proj")
        if bucketed:
            part.add_parameters(relative_positions(self.model))
        heads = self._heads(self.side.keys)
        if not self.model.relative_attention_num_buckets or self.net.eager:
            out = self._attend(part, heads, (q, k, v), masked=self.side.source is not None)
            return self._out(part, out, (q, k, v), "")
        # A bias of (heads, queries, keys), made in the first block and shared by the others.
        trained, itemsize, cells = self.net.training, q.itemsize, heads.heads * heads.queries * heads.keys
        if bucketed:
            # Buckets of all pairs of positions, kept for the table's gradient, and the bias that is looked up by them.
            table = rounded(self.net.trained[-1].numel * part.ops.parameter) if trained else 0
            bias = part.tape.new(cells, part.ops.parameter, "relative positions' bias", tracked=False)
            pairs = heads.queries * heads.keys
            buckets = part.tape.new(pairs, 8, "buckets of relative positions", tracked=False)
            part.tape.record([], [bias], saved_outputs=[buckets], grad_bytes=table)
            part.tape.hold(bias)
            if not trained:
                part.tape.touch(buckets)
        # A fused kernel reads the bias, laid out anew for each block, and hands back its gradient batch by batch.
        bias = part.tape.new(cells, itemsize, "bias, contiguous", tracked=False)
        part.tape.record([], [bias])
        out = fused_attention(part.ops, heads, (q, k, v), efficient=trained)
        kernel = part.tape.nodes[-1]
        if trained:
            kernel.saves = (*kernel.saves, bias.storage)
            kernel.backward_workspace += rounded(heads.scores * itemsize) + rounded(cells * itemsize)
        part.tape.touch(bias)
        return self._out(part, out, (q, k, v), "")

    def _cross(self, part: ModuleBuilder, x: Tensor, encoded: Tensor) -> Tensor:
        part.tape.group = CROSS
        source, cache = self.side.source or 0, self.side.cache
        q = self._query(part, x, CROSS_PREFIX)
        if cache is not None and cache.past:
            for name in ("k_proj", "v_proj"):
                part.add_parameters(self.projections[CROSS_PREFIX + name])
            numel = self.net.batch * source * self.wide
            k = v = borrowed(numel, cache.itemsize, CROSS, "keys and values of the source")
        else:
            k, v = (self._cached(part, encoded, name, CROSS_PREFIX) for name in ("k_proj", "v_proj"))
        heads = self._heads(source)
        if self.model.relative_attention_num_buckets and not self.net.eager:
            out = fused_attention(part.ops, heads, (q, k, v))  # over the encoder the bias is zeros that are not trained
        else:
            out = self._attend(part, heads, (q, k, v), masked=False)
        return self._out(part, out, (q, k, v), CROSS_PREFIX)

    def _query(self, part: ModuleBuilder, x: Tensor, prefix: str) -> Tensor:
        """Whisper scales queries and lays queries, keys and values out head by head."""
        q = part.apply(x, self.projections[f"{prefix}q_proj"])
        if self.model.num_mel_bins is not None:
            q = part.ops.unsaved(q, "queries, scaled")
            q = part.ops.unsaved(q, "queries, by head")
        return q

    def _cached(self, part: ModuleBuilder, x: Tensor, name: str, prefix: str = "") -> Tensor:
        """Keys or values, put into the cache where there is one."""
        y = part.apply(x, self.projections[prefix + name])
        if self.model.num_mel_bins is not None:
            y = part.ops.unsaved(y, f"{name}, by head")
        cache = self.side.cache
        if cache is None:
            return y
        past = 0 if prefix else cache.past
        numel = y.numel + self.net.batch * past * self.wide
        out = part.tape.new(numel, cache.itemsize, "keys or values", tracked=False, group=GROWTH if past else KV_CACHE)
        part.tape.record([y], [out])
        if not past:
            part.tape.hold(out)
        return part.ops.cast(out, y.itemsize, "cache in the compute type")

    def _heads(self, keys: int) -> Heads:
        module, dropout = self.attention, self.model.dropout if self.net.training else 0.0
        return Heads.of(self.net.batch, self.side.tokens, keys, module.heads, module.head_dim, dropout)

    def _attend(self, part: ModuleBuilder, heads: Heads, qkv: Projected, *, masked: bool) -> Tensor:
        if self.net.eager:
            return eager_attention(part.ops, heads, qkv, plain=True, masked=masked)
        out = fused_attention(part.ops, heads, qkv)
        laid_out_as_queries = self.net.recipe.compute == 2  # flash's and cuDNN's kernels do so, the one for fp32 not
        if self.model.num_mel_bins is not None and laid_out_as_queries and heads.queries > 1:
            out = part.ops.unsaved(out, "attention output, in rows")
        return out

    def _out(self, part: ModuleBuilder, out: Tensor, alive: tuple[Tensor, ...], prefix: str) -> Tensor:
        y = part.apply(out, self.projections[f"{prefix}o_proj"])
        part.tape.touch(*alive)
        return y


NOTES = ("source and target have no padding, so no mask is kept for it",)
T5_IN_FP16 = "transformers keeps the MLP's second layer of a T5 in fp32 when it loads it in fp16; that is not counted"


class EncoderDecoder:
    def __init__(self, model: EncoderDecoderModel, run: TrainRun | InferRun, device: Device) -> None:
        self.model = model
        self.spec = encoder_decoder_spec(model)
        self.source, self.target = lengths(model, run)
        self.net = Net(run, device)
        self.batch = run.batch_size
        self.t5 = model.relative_attention_num_buckets > 0
        self.heard = model.num_mel_bins is not None
        self.notes = (*NOTES, T5_IN_FP16) if self.t5 and run.precision == "fp16" else NOTES

    def encoder(self) -> None:
        model, part = self.model, self.net.part(EMBEDDINGS)
        blocks = Blocks(model, self.net, BlockSide(tokens=self.source), self.spec.blocks[0])
        if model.num_mel_bins is not None:
            # A spectrogram through two convolutions over time; the second halves it.
            frames = 2 * self.source
            x = part.tape.take_in(self.batch * model.num_mel_bins * frames, self.net.recipe.stream)
            for name, length in (("conv1", frames), ("conv2", self.source)):
                filters = self.spec.module(name, spec.ConvModule)
                x = part.activation(part.filtered(x, Image(filters.out_channels, 1, length), filters), "gelu")
        else:
            table = part.add_parameters(self.spec.module("shared", spec.EmbeddingModule))
            x = part.looked_up(
                self.batch * self.source * model.d_model, "words", 0, backward_pieces=(table,) if table else ()
            )
        x = self._positioned(part, x, self.source, encoder=True)
        part.keep_alive(x, 2 if model.norm_embeddings else 1)  # BART's words and positions
        part.finish(blocks.drop(part, x, "embedding dropout"))
        self._stack(blocks, model.encoder_layers, decoder=False)
        if model.final_norm:
            part = self.net.part(STREAM)
            x = blocks.norm(part, part.input(), self.spec.module("encoder's last norm", spec.NormModule))
            part.finish(blocks.drop(part, x, "encoder's last dropout") if self.t5 else x)

    def decoder(self, side: BlockSide) -> None:
        """Embeddings, blocks, last norm, output layer; the loss in training."""
        model, net, part = self.model, self.net, self.net.part(EMBEDDINGS)
        if net.training:
            part.keep(part.input())
        shared = self.spec.module("shared", spec.EmbeddingModule)
        table = part.add_parameters(shared) if self.heard else rounded(shared.rows * shared.width * part.ops.parameter)
        table, tied = table if net.training else 0, model.tie_word_embeddings
        numel = self.batch * side.tokens * model.d_model
        tied_blocks = tied_sum(table, net.recipe) if tied and table else ()
        x = part.looked_up(numel, "words", 0 if tied else table, backward_pieces=tied_blocks)
        x = self._positioned(part, x, side.tokens, encoder=False)
        blocks = Blocks(model, net, side, self.spec.blocks[1])
        part.keep_alive(x)
        part.finish(blocks.drop(part, x, "embedding dropout"))
        self._stack(blocks, model.decoder_layers, decoder=True)
        part = net.part(STREAM)
        x = part.input()
        if model.final_norm:
            x = blocks.norm(part, x, self.spec.module("decoder's last norm", spec.NormModule))
        part.tape.group = HEAD
        x = blocks.drop(part, x, "decoder's last dropout") if self.t5 else x
        if not model.tie_word_embeddings:
            part.add_parameters(self.spec.module("lm_head", spec.LinearModule))
        shape = model.vocab_size, model.d_model
        logits = part.ops.linear(x, shape, "output layer", trained=self.net.training)
        if model.final_bias:
            logits = part.ops.unsaved(logits, "logits and bias", itemsize=self.net.recipe.stream)
        if self.net.training:
            cross_entropy(part.ops, logits, upcast=False)
        else:
            part.tape.touch(logits, part.ops.cast(logits, 4, "logits in fp32"))
        part.finish(None)

    def _positioned(self, part: ModuleBuilder, x: Tensor, tokens: int, *, encoder: bool) -> Tensor:
        """Positions are looked up for each sample in BART's encoder and in Whisper's decoder, else for all at once."""
        model, name = self.model, SOURCE_POSITIONS if encoder else TARGET_POSITIONS
        if (model.max_source_positions if encoder else model.max_target_positions) is not None:
            trained = model.source_positions_trained or not encoder
            grad_bytes = part.add_parameters(self.spec.module(name, spec.EmbeddingModule), trained=trained)
            each = self.batch if encoder != self.heard else 1
            x = part.ops.add(x, part.looked_up(each * tokens * model.d_model, "positions", grad_bytes), "embeddings")
        if not model.norm_embeddings:
            return x
        return part.normed_by(x, self.spec.module("layernorm_embedding", spec.NormModule))

    def _stack(self, blocks: Blocks, layers: int, *, decoder: bool) -> None:
        """The first block holds T5's relative positions, and its input may be held by others; the last is the first to
        give the encoder a gradient.
        """
        given = self.net.stages[-1].tape.output
        first = int(self.t5 or (given is not None and given.storage.lives_until_end))
        last = int(decoder and self.net.training and layers > first)
        spans = ((first, self.t5, layers == first), (layers - first - last, False, False), (last, False, True))
        for count, bucketed, fresh in spans:
            if not count:
                continue
            part = self.net.part(STREAM, times=count, layer=True)
            x = part.input()
            encoded = None
            if decoder:
                # What the encoder answered stands outside; its gradient grows from the last block to the first.
                numel, training = self.batch * self.source * self.model.d_model, self.net.training
                encoded = borrowed(numel, self.net.recipe.stream, STREAM, "encoder's answer", tracked=training)
                if fresh:
                    part.tape.outside.append(encoded)
                else:
                    encoded.gradient = [encoded.storage.size, 1]
            part.finish(blocks.block(part, x, encoded, bucketed=bucketed), checkpointed=True)

    def program(self, target: int) -> Program:
        model, net = self.model, self.net
        if model.num_mel_bins is None:
            source = rounded(8 * self.batch * self.source)
            words = f"{self.batch} x {self.source:,} token ids of 8 B"
        else:
            frames = 2 * self.source
            source = rounded(self.batch * model.num_mel_bins * frames * net.recipe.stream)
            words = f"{self.batch} spectrograms of {model.num_mel_bins} x {frames:,}"
        net.buffers = rounded(net.recipe.weights * model.vocab_size) if model.final_bias else 0
        return net.program(
            inputs=source + rounded(8 * self.batch * target),
            inputs_formula=f"{words}, {target:,} target ids each",
            layers=model.encoder_layers + model.decoder_layers,
            buffers_formula="a fixed bias on the logits",
            notes=self.notes,
        )


def lengths(model: EncoderDecoderModel, run: TrainRun | InferRun) -> tuple[int, int]:
    """Positions of the source, and of the target that is trained or generated."""
    source, fixed = run.sequence_length, model.max_source_positions
    if model.num_mel_bins is not None and source not in {None, fixed}:
        raise UserError(
            f"run.sequence_length = {source}, but every spectrogram fills model.max_source_positions = {fixed}; leave "
            "it out"
        )
    source = source or fixed
    if source is None:
        raise UserError("run.sequence_length is missing: the tokens of the source")
    if fixed is not None and source > fixed:
        raise UserError(f"run.sequence_length = {source} is longer than model.max_source_positions = {fixed}")
    most = model.max_target_positions
    if isinstance(run, InferRun):
        named, target = "run.new_tokens", max(run.new_tokens, 1)
    else:
        named = "run.target_length"
        target = run.target_length or (min(source, most) if most and model.num_mel_bins is None else most or source)
    if most is not None and target > most:
        raise UserError(f"{named} = {target} is longer than model.max_target_positions = {most}")
    return source, target


def encoder_decoder_program(model: EncoderDecoderModel, run: TrainRun | InferRun, device: Device) -> Program:
    """The program of an encoder-decoder: one training step, or one pass with a single token of the target."""
    writer = EncoderDecoder(model, run, device)
    writer.encoder()
    tokens = writer.target if writer.net.training else 1
    cache = None if writer.net.training else Cache(itemsize=writer.net.recipe.compute)
    writer.decoder(BlockSide(tokens=tokens, source=writer.source, cache=cache))
    return writer.program(tokens)
