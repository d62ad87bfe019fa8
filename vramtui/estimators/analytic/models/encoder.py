"""Encoders of text and images (BERT, ViT, CLIP's towers; Devlin et al. 2019, Dosovitskiy et al. 2021, Radford et al.
2021) as transformers has them.

Shapes: token ids (b, s) or pixels (b, c, i, i), residual stream (b, s, h) where an image has s = (i / p)² patches and
perhaps a class token, queries, keys and values (b, n, s, h / n), MLP (b, s, f); b batch, c channels, i side of the
image, p of a patch, n heads, f width of the MLP.
"""

from collections.abc import Callable
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import Device
from vramtui.core.schema.models import EncoderModel, TowerShape, TransformerModel
from vramtui.core.schema.workload import InferRun, TrainRun
from vramtui.estimators.analytic.models.decoder import Decoder, sequence_of
from vramtui.estimators.analytic.ops.attention_kernels import Heads
from vramtui.estimators.analytic.ops.decoder_builder import Setting, Writer, class_loss, cross_entropy
from vramtui.estimators.analytic.ops.module_builder import Image, ModuleBuilder, Net
from vramtui.estimators.analytic.sizes.precision import numel_of
from vramtui.estimators.analytic.tape import tape as tapes
from vramtui.estimators.torch_facts.allocator_sizes import rounded
from vramtui.models.spec import AttentionModule, ConvModule, EmbeddingModule, LinearModule, NormModule, linear_parts
from vramtui.models.specs.decoder import decoder_spec
from vramtui.models.specs.nets import check_encoder, encoder_spec, positions_of


class EncoderStyle(msgspec.Struct, frozen=True):
    """Differences of later encoders from BERT.

    Attributes:
        gated: the MLP's first layer also gives a gate (ModernBERT).
        upcast: the loss raises the logits to fp32 first (transformers 5.23, loss/loss_utils.py, ForMaskedLMLoss, which
            ModernBERT, EuroBERT and ESM C call; the older ones give them to CrossEntropyLoss as they are).
        width: of its words' embeddings and of what words are predicted from, where it is not the stream's (ALBERT,
            ELECTRA: projected to the stream before the first block).
    """

    gated: bool = False
    upcast: bool = False
    width: int | None = None


BERT = EncoderStyle()


class Encoder:
    def __init__(
        self, model: EncoderModel, run: TrainRun | InferRun, device: Device, style: EncoderStyle = BERT
    ) -> None:
        self.model = model
        self.style = style
        self.run = run
        check_encoder(model)
        if isinstance(run, InferRun) and run.new_tokens:
            raise UserError(f"run.new_tokens = {run.new_tokens}, but an encoder generates nothing; leave it out")
        most, sequence = model.max_position_embeddings, run.sequence_length
        if model.image_size is not None and sequence is not None:
            raise UserError(
                f"run.sequence_length = {sequence}, but the model reads images; its positions follow from "
                "model.image_size and model.patch_size"
            )
        sequence = (positions_of(model) or 0) if model.image_size is not None else sequence or most
        if sequence is None:
            raise UserError("run.sequence_length is missing, and the model gives no max_position_embeddings instead")
        if model.image_size is None and most and sequence > most:
            raise UserError(
                f"run.sequence_length = {sequence} is longer than model.max_position_embeddings = {most}, and learned "
                "positions cannot be stretched"
            )
        self.sequence = sequence
        spec = encoder_spec(model, gated=style.gated, width=style.width)
        self.block = spec.blocks[0]
        self.attention = linear_parts(self.block.part(AttentionModule))
        self.outside: dict[str, Any] = {module.name: module for module in (*spec.before, *spec.after)}
        self.net = Net(run, device)
        self.tokens = run.batch_size * self.sequence

    def program(self) -> tapes.Program:
        model, net, batch, side = self.model, self.net, self.run.batch_size, self.model.image_size
        if side is None:
            self._words()
        else:
            self._patches(side)
        net.repeat(tapes.STREAM, model.num_hidden_layers, self._block)
        self._end()
        if model.max_position_embeddings and side is None:
            net.buffers = (2 if model.type_vocab_size else 1) * rounded(8 * model.max_position_embeddings)
        labels = rounded(8 * (self.tokens if model.head == "mlm" else batch)) if net.training else 0
        if model.head == "none":
            labels = 0
        if side is None:
            inputs, words = rounded(8 * self.tokens), f"{batch} x {self.sequence:,} token ids of 8 B"
        else:
            inputs = rounded(batch * model.num_channels * side**2 * net.recipe.stream)
            words = f"{batch} images of {model.num_channels} x {side} x {side}"
        notes = ["no padding mask is given to the attention"]
        if net.training and model.head == "none":
            notes.append("the model has no head, so the loss is a plain sum of its output")
        if side is not None:
            notes.append("cuDNN's workspace for the patch embedding is not counted")
        return net.program(
            inputs=inputs + labels,
            inputs_formula=words + (", and their labels" if labels else ""),
            layers=model.num_hidden_layers,
            buffers_formula="ids of positions and token types, 8 B each",
            notes=tuple(notes),
        )

    def _words(self) -> None:
        """Words, token types and positions, summed one after the other."""
        part, outside = self.net.part(tapes.EMBEDDINGS), self.outside
        table: EmbeddingModule = outside["word_embeddings"]
        d, wide = table.width, self.tokens * table.width
        words = part.embedding(table.rows, d, wide, table.name, tied=self.model.head == "mlm")
        x, parts = words, [words]
        if "token_type_embeddings" in outside:
            table = outside["token_type_embeddings"]
            kinds = part.embedding(table.rows, d, wide, table.name)
            x = part.ops.add(x, kinds, "words and token types")
            parts.append(kinds)
        if "position_embeddings" in outside:
            places = part.looked_up(self.sequence * d, "position_embeddings", self._own(part, "position_embeddings"))
            x = part.ops.add(x, places, "embeddings")
            parts.append(places)
        self._started(part, x, *parts)

    def _own(self, part: ModuleBuilder, name: str) -> int:
        """Note a parameter outside of the blocks and give the bytes of its gradient."""
        (shape,) = self.outside[name].shapes()
        return part.add_parameter(name, *shape)

    def _patches(self, side: int) -> None:
        """Patches by a convolution, the class token before them, positions added."""
        model, part = self.model, self.net.part(tapes.EMBEDDINGS)
        filters: ConvModule = self.outside["patch_embeddings"]
        d, batch = filters.out_channels, self.net.batch
        image = Image(filters.in_channels, side, side)
        x = part.tape.take_in(batch * image.numel, self.net.recipe.stream)
        x, _ = part.convolution((x, image), filters, stride=filters.kernel[0])
        if model.class_token:
            token = self._own(part, "cls_token")
            joined = part.tape.new(
                self.tokens * d, max(x.itemsize, part.ops.parameter), "class token and patches", tracked=True
            )
            part.tape.record([x], [joined], flows=[(x, joined.itemsize != x.itemsize)], grad_bytes=token)
            x = joined
        table = self._own(part, "position_embeddings")
        out = part.tape.new(x.numel, max(x.itemsize, part.ops.parameter), "embeddings", tracked=self.net.training)
        part.tape.record([x], [out], flows=[(x, False)], grad_bytes=table)
        self._started(part, out)

    def _started(self, part: ModuleBuilder, x: tapes.Tensor, *parts: tapes.Tensor) -> None:
        """The first block's input; its `parts` have names until the embeddings return."""
        if self.model.norm_before:
            x = part.normed_by(x, self.outside["embeddings_norm"])
        x = self._dropped(part, x, "embedding dropout")
        part.tape.touch(*parts)
        if "embeddings_project" in self.outside:
            x = part.apply(x, self.outside["embeddings_project"])
        if self.model.head != "mlm":  # predicting words takes more than the blocks, which are through by then
            part.keep_alive(x)
        part.finish(x)

    def _dropped(self, part: ModuleBuilder, x: tapes.Tensor, label: str) -> tapes.Tensor:
        return part.ops.dropout(x, self.model.hidden_dropout if self.net.training else 0.0, label)

    def _block(self, part: ModuleBuilder, x: tapes.Tensor) -> tapes.Tensor:
        """One layer: norms before attention and MLP, or after each sum."""
        tape, given = part.tape, []
        for write, name in ((self._attention, "attention_norm"), (self._mlp, "mlp_norm")):
            norm = self.block.module(name, NormModule)
            tape.group = tapes.NORMS
            normed = part.normed_by(x, norm) if self.model.norm_first else x
            inner, answer = write(part, normed)
            y = self._dropped(part, answer, "dropout")
            tape.touch(normed)
            tape.group = tapes.STREAM
            given.append(x)
            x = part.ops.add(y, x, "residual stream")
            tape.group = tapes.NORMS
            if not self.model.norm_first:
                x = part.normed_by(x, norm)
                # Names of BertSelfOutput and BertOutput, and of their callers, last until these return.
                tape.touch(y)
                tape.touch(inner)
        if not self.model.norm_first:
            tape.touch(given[-1])
        return x

    def _attention(self, part: ModuleBuilder, x: tapes.Tensor) -> tuple[tapes.Tensor, tapes.Tensor]:
        model, part.tape.group = self.model, tapes.ATTENTION
        module = self.block.part(AttentionModule)
        q, k, v = (part.apply(x, self.attention[name]) for name in ("q_proj", "k_proj", "v_proj"))
        dropout = model.attention_dropout if self.net.training else 0.0
        heads = Heads.of(self.net.batch, self.sequence, self.sequence, module.heads, module.key_dim, dropout)
        out = part.attend(heads, (q, k, v), plain=not model.norm_first, masked=model.causal)
        y = part.apply(out, self.attention["o_proj"]) if model.norm_first else None
        part.tape.touch(q, k, v)
        return out, part.apply(out, self.attention["o_proj"]) if y is None else y

    def _mlp(self, part: ModuleBuilder, x: tapes.Tensor) -> tuple[tapes.Tensor, tapes.Tensor]:
        first, second = (self.block.module(name, LinearModule) for name in ("fc1", "fc2"))
        part.tape.group = tapes.MLP
        both = part.apply(x, first)
        if self.style.gated:
            gate, value = part.ops.split(both, *[both.numel // 2] * 2)
            y = part.ops.multiply(part.activation(gate, self.model.hidden_act), value, "gated")
        else:
            y = part.activation(both, self.model.hidden_act)
        return y, part.apply(y, second)

    def _end(self) -> None:
        model, part, outside, training = self.model, self.net.part(tapes.NORMS), self.outside, self.net.training
        x = part.input()
        whole = model.image_size is None or not model.norm_before
        if model.norm_after and whole:
            x = part.normed_by(x, outside["last_norm"])
        part.tape.group = tapes.HEAD
        if model.head == "mlm":
            # A linear layer, activation and norm, then the word embedding with a bias of its own.
            x = part.activation(part.apply(x, outside["transform"]), model.hidden_act)
            x = part.normed_by(x, outside["transform_norm"])
            output: LinearModule = outside["decoder"]
            self._own(part, output.name)
            weight = output.out_features, output.in_features
            x = part.ops.linear(x, weight, "output layer", bias=output.bias, trained=training)
        elif model.pooler or model.projection_dim or model.head == "classes" or not whole:
            # The first token of each sequence; its gradient is laid into zeros of the whole size.
            (x,) = part.ops.split(x, self.net.batch * model.hidden_size)
            if model.norm_after and not whole:
                x = part.normed_by(x, outside["last_norm"])
            if "pooler" in outside:
                x = part.ops.pointwise(part.apply(x, outside["pooler"]), "tanh", saves="output")
                x = self._dropped(part, x, "pooler dropout")
            for name in ("projection", "classifier"):
                x = part.apply(x, outside[name]) if name in outside else x
        if training and model.head == "none":
            class_loss(part.ops, x, "sum")
        elif training:
            cross_entropy(part.ops, x, upcast=self.style.upcast)
        part.finish(None if training else x)


# Scores get a learned bias by distance, which these models add in Python.
_RELATIVE = "relative"


def listed_encoder_program(model: TransformerModel, run: TrainRun | InferRun, device: Device) -> tapes.Program:
    """The program of an encoder that is known by its tensors (ELECTRA, DistilBERT, ALBERT, MPNet, ModernBERT …; DINOv2,
    wav2vec 2): its passes are BERT's, or ModernBERT's if a norm stands behind the last block, with weights as listed.
    """
    spec = decoder_spec(model)
    sizes = {tensor.name: tensor.shape for tensor in reversed(model.tensors)}
    if _RELATIVE in sizes:
        run = replace(run, attention="eager")
    run = replace(run, sequence_length=sequence_of(model, run))
    first = "norm" in sizes
    head: Literal["mlm", "classes", "none"] = "mlm"
    labels = sizes["class_out"][0] if "class_out" in sizes else model.vocab_size
    if spec.reads_images_or_sound:
        head = "classes" if "classifier" in sizes else "none"
    elif "class_out" in sizes:
        head = "classes"
    twin = EncoderModel(
        hidden_size=model.hidden_size,
        num_hidden_layers=model.num_hidden_layers,
        num_attention_heads=model.num_attention_heads,
        intermediate_size=model.ffn_size,
        vocab_size=model.vocab_size,
        type_vocab_size=sizes.get("embed_token_types", (0,))[0],
        max_position_embeddings=sizes["embed_positions"][0] if "embed_positions" in sizes else None,
        norm_first=first,
        norm_after=first,
        hidden_act=model.hidden_act,
        head=head,
        num_labels=labels,
        hidden_dropout=model.hidden_dropout,
        attention_dropout=model.attention_dropout,
    )
    up, down = (
        next((sizes[name] for name in names if name in sizes), (0, 0))
        for names in (("up", "up_proj"), ("down", "down_proj"))
    )
    style = EncoderStyle(
        gated=len(down) > 1 and up[0] == 2 * down[1] > 0,
        upcast=first and not twin.max_position_embeddings,
        width=sizes["embed_tokens"][1] if "embed_tokens" in sizes else None,
    )
    program = Encoder(twin, run, device, style).program()
    tensors = spec.tensors()
    # Gradients of as many numbers as are listed: layers may share theirs, embeddings be narrower.
    for in_layer in (True, False):
        listed, written = (
            numel_of(tensor for tensor in some if tensor.layer is in_layer) for some in (tensors, program.trained)
        )
        if listed == written or not written:
            continue
        for stage in program.stages:
            for node in stage.tape.nodes if (stage is program.stages[1]) is in_layer else ():
                node.set_gradient(rounded(node.grad_bytes * listed // written))
    return replace(program, trained=tensors if program.trained else (), frozen=() if program.trained else tensors)


# Bytes of a number that an image processor makes.
PIXEL = 4
# Towers that turn queries and keys do it in fp32 (modeling_qwen2_5_vl.py, apply_rotary_pos_emb_vision): both, what one
# of them became, and three on the way to the other; besides the stream, and queries, keys and values in one.
TURNED, FP32, BESIDE = 6, 4, 4


def tower_pass(model: TransformerModel, run: TrainRun | InferRun, setting: Setting) -> tapes.TowerPass | None:
    """The passes over the images and the sound of a batch, one after the other; None if there are none, or their
    towers' sizes are not known. `setting` is that of the words that are read after them.
    """
    whole: tapes.TowerPass | None = None
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
            else tapes.TowerPass(
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
    first: Callable[[Decoder], tapes.Tape],
) -> tapes.TowerPass:
    """A tower's pass for `tokens` of a sequence; `first` writes what comes before its blocks."""
    patches, itemsize = run.batch_size * shape.positions(tokens), setting.recipe.stream
    trained = isinstance(run, TrainRun) and run.lora is None and not run.frozen_layers
    plain = replace(setting, batch=1, sequence=patches, eager=False, masked=False, lora=None, packed=None, cache=None)
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
    stages = [
        tapes.TapeStage(first(writer)),
        tapes.TapeStage(writer.block(), shape.num_hidden_layers, checkpointed=again),
    ]
    formula = f"{patches:,} patches x {shape.hidden_size} through {shape.num_hidden_layers} blocks"
    cast = rounded(patches * shape.pixels * itemsize) if itemsize < PIXEL else 0
    pixels = rounded(patches * shape.pixels * PIXEL)
    features = rounded(run.batch_size * tokens * model.hidden_size * itemsize)
    if not trained:
        # What is there at the peak while a block turns its queries and keys; 0 if it does not.
        turning = shape.rotary * patches * shape.hidden_size * (TURNED * FP32 + BESIDE * itemsize)
        fullest = cast + max(sum(tapes.prefilled(stages).late.values()), turning)
        return tapes.TowerPass(pixels=pixels, features=features, fullest=fullest, formula=f"{formula}, nothing kept")
    passes = tapes.replayed(stages)
    groups = [group for group in model.tensors if group.place == "tower"]
    return tapes.TowerPass(
        pixels=pixels,
        features=features,
        fullest=cast + sum(passes.forward.late.values()),
        saved=sum(passes.forward.end.values()),
        backward=sum(size for name, size in passes.backward.late.items() if name != tapes.GRADIENTS),
        gradients=sum(rounded(group.numel * setting.recipe.weights) * group.count for group in groups),
        formula=formula,
    )


def _convolved(writer: Decoder) -> tapes.Tape:
    """The spectrogram, two frames to a position, through two convolutions; the second halves its length."""
    own = Writer(writer.model, writer.setting, tapes.EMBEDDINGS)
    tape, ops, h, numbers = own.tape, own.ops, writer.model.hidden_size, writer.model.vocab_size
    x = tape.enter(writer.setting.tokens * numbers, writer.setting.recipe.stream, tracked=False)
    wide = own.activation(ops.linear(x, (h, numbers // 2), "first convolution", trained=writer.setting.trained))
    y = own.activation(ops.linear(wide, (h, 2 * h), "second convolution", trained=writer.setting.trained))
    tape.touch(wide)
    tape.close(y)
    return tape
