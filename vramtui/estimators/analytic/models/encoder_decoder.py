"""Encoder-decoders (T5, Raffel et al. 2020; BART, Lewis et al. 2020; Whisper, Radford et al. 2022) as transformers has
them.

Shapes: source (b, s) and target (b, t) ids, or a spectrogram (b, mel bins, 2·s); streams (b, s, d) and (b, t, d),
logits (b, t, v); b batch, d `d_model`, v vocabulary.
"""

from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import Device
from vramtui.core.schema.encoder_models import EncoderDecoderModel
from vramtui.core.schema.workload import InferRun, TrainRun
from vramtui.estimators.analytic.models.encoder_decoder_blocks import Blocks, BlockSide
from vramtui.estimators.analytic.ops.decoder_builder import Cache
from vramtui.estimators.analytic.ops.loss import cross_entropy
from vramtui.estimators.analytic.ops.module_builder import Image, ModuleBuilder, Net
from vramtui.estimators.analytic.sizes.precision import tied_sum
from vramtui.estimators.analytic.tape.program import Program
from vramtui.estimators.analytic.tape.replay import EMBEDDINGS, HEAD, STREAM
from vramtui.estimators.analytic.tape.tape import Tensor, storage_of
from vramtui.estimators.torch_facts.allocator_sizes import rounded
from vramtui.models.kinds import ConvModule, EmbeddingModule, LinearModule, NormModule
from vramtui.models.specs.encoder_decoder import SOURCE_POSITIONS, TARGET_POSITIONS, encoder_decoder_spec

NOTES = ("source and target have no padding, so no mask is kept for it",)
T5_IN_FP16 = "transformers keeps the MLP's second layer of a T5 in fp32 when it loads it in fp16; that is not counted"


class EncoderDecoder:
    """Writes both sides of one model."""

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
        """Embeddings or convolutions, blocks, last norm."""
        model, part = self.model, self.net.part(EMBEDDINGS)
        blocks = Blocks(model, self.net, BlockSide(tokens=self.source), self.spec.blocks[0])
        if model.num_mel_bins is not None:
            x = self._heard(part, model.num_mel_bins)
        else:
            table = part.add_parameters(self.spec.module("shared", EmbeddingModule))
            x = part.looked_up(
                self.batch * self.source * model.d_model, "words", 0, backward_pieces=(table,) if table else ()
            )
        x = self._positioned(part, x, self.source, encoder=True)
        part.keep_alive(x, 2 if model.norm_embeddings else 1)  # BART's words and positions
        part.finish(blocks.drop(part, x, "embedding dropout"))
        self._stack(blocks, model.encoder_layers, decoder=False)
        if model.final_norm:
            part = self.net.part(STREAM)
            x = blocks.norm(part, part.input(), self.spec.module("encoder's last norm", NormModule))
            part.finish(blocks.drop(part, x, "encoder's last dropout") if self.t5 else x)

    def decoder(self, side: BlockSide) -> None:
        """Embeddings, blocks, last norm, output layer; the loss in training."""
        model, net, part = self.model, self.net, self.net.part(EMBEDDINGS)
        if net.training:
            part.keep(part.input())
        shared = self.spec.module("shared", EmbeddingModule)
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
        self._answer(blocks)

    def _heard(self, part: ModuleBuilder, bins: int) -> Tensor:
        """A spectrogram through two convolutions over time, the second of which halves it."""
        frames = 2 * self.source
        x = part.ops.tape.take_in(self.batch * bins * frames, self.net.recipe.stream)
        for name, length in (("conv1", frames), ("conv2", self.source)):
            filters = self.spec.module(name, ConvModule)
            x = part.activation(part.filtered(x, Image(filters.out_channels, 1, length), filters), "gelu")
        return x

    def _positioned(self, part: ModuleBuilder, x: Tensor, tokens: int, *, encoder: bool) -> Tensor:
        """Positions are looked up for each sample in BART's encoder and in Whisper's decoder, else for all at once."""
        model, name = self.model, SOURCE_POSITIONS if encoder else TARGET_POSITIONS
        if (model.max_source_positions if encoder else model.max_target_positions) is not None:
            trained = model.source_positions_trained or not encoder
            grad_bytes = part.add_parameters(self.spec.module(name, EmbeddingModule), trained=trained)
            each = self.batch if encoder != self.heard else 1
            x = part.ops.add(x, part.looked_up(each * tokens * model.d_model, "positions", grad_bytes), "embeddings")
        if not model.norm_embeddings:
            return x
        return part.normed_by(x, self.spec.module("layernorm_embedding", NormModule))

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
            encoded = self._encoded(part, fresh=fresh) if decoder else None
            part.finish(blocks.block(part, x, encoded, bucketed=bucketed), checkpointed=True)

    def _encoded(self, part: ModuleBuilder, *, fresh: bool) -> Tensor:
        """What the encoder answered, which stands outside; its gradient grows from the last block to the first."""
        numel = self.batch * self.source * self.model.d_model
        storage = storage_of(numel, self.net.recipe.stream, STREAM, "encoder's answer")
        storage.borrowed = True
        encoded = Tensor(storage, numel, storage.itemsize, tracked=self.net.training)
        if fresh:
            part.ops.tape.outside.append(encoded)
        else:
            encoded.gradient = [storage.size, 1]
        return encoded

    def _answer(self, blocks: Blocks) -> None:
        model, part = self.model, self.net.part(STREAM)
        x = part.input()
        if model.final_norm:
            x = blocks.norm(part, x, self.spec.module("decoder's last norm", NormModule))
        part.ops.tape.group = HEAD
        x = blocks.drop(part, x, "decoder's last dropout") if self.t5 else x
        if not model.tie_word_embeddings:
            part.add_parameters(self.spec.module("lm_head", LinearModule))
        shape = model.vocab_size, model.d_model
        logits = part.ops.linear(x, shape, "output layer", trained=self.net.training)
        if model.final_bias:
            logits = part.ops.pointwise(logits, "logits and bias", saves="nothing", itemsize=self.net.recipe.stream)
        if self.net.training:
            cross_entropy(part.ops, logits, upcast=False)
        else:
            part.ops.tape.touch(logits, part.ops.cast(logits, 4, "logits in fp32"))
        part.finish(None)

    def program(self, target: int) -> Program:
        """What has been written, with `target` ids for each sample beside the source."""
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
