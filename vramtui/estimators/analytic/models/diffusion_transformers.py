"""Diffusion transformers as diffusers has them: two streams (Esser et al. 2024: FluxTransformer2DModel,
SD3Transformer2DModel, QwenImageTransformer2DModel), and Wan's (WanTransformer3DModel of Wan 2.1 and 2.2: self-attention
over a video's latents, cross-attention to the text, an MLP; norms and sums in fp32).

Shapes: latents (b, i, c), text (b, t, j), its pooled vector (b, p), steps (b, 256); both streams as one (b, i + t, h);
b batch, i latents of an image or of all frames, t words, h = heads times the width of one. In a block, where image and
text stand side by side with weights of their own, then as one sequence: queries, keys and values (b, n, i + t, e), MLP
(b, i + t, 4·h), what the step gives each norm (b, h); n heads of width e. Between the blocks both streams stand in
one block of memory, image and text one behind the other. Wan: stream (b, i, h), keys and values of the text (b, n, t,
e), MLP (b, i, f).
"""

from itertools import pairwise

from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import Device
from vramtui.core.schema.models import DiffusionTransformerModel
from vramtui.core.schema.workload import InferRun, TrainRun
from vramtui.estimators.analytic.ops.attention_kernels import Heads
from vramtui.estimators.analytic.ops.decoder_builder import class_loss
from vramtui.estimators.analytic.ops.module_builder import ModuleBuilder, Net
from vramtui.estimators.analytic.tape import tape as tapes
from vramtui.estimators.torch_facts.allocator_sizes import rounded
from vramtui.models.spec import EmbeddingModule, LinearModule, NormModule, RepeatedBlock
from vramtui.models.specs.nets import SIZES, STEPS, block_width, diffusion_transformer_spec

NOTES = ("the text encoders and the VAE are not counted: they belong to the pipeline, not to the transformer",)
ROPE_ROWS = 1024  # positions in Wan's buffers of sines and cosines, which are of fp32
CROSS = "activations: cross-attention"


def _attended(
    model: DiffusionTransformerModel, part: ModuleBuilder, qkv: tuple[tapes.Tensor, ...], keys: int
) -> tapes.Tensor:
    """Attention over `keys` positions by as many queries as there are; no head is shared."""
    q, k, v = qkv
    each, number = model.attention_head_dim, model.num_attention_heads
    tokens = q.numel // (part.net.batch * each * number)
    return part.attend(Heads.of(part.net.batch, tokens, keys, number, each), (q, k, v))


def _write_output(net: Net, part: ModuleBuilder, y: tapes.Tensor) -> None:
    if net.training:
        net.loss = class_loss(part.ops, part.ops.cast(y, 4, "answer in fp32"), "mse")
    part.finish(None if net.training else y)


def _modulated(part: ModuleBuilder, x: tapes.Tensor, width: int, *, keeps: bool = False) -> tapes.Tensor:
    """A layer norm without weights, scaled and shifted by what the step says; `keeps` it until then."""
    part.tape.group, trains = tapes.NORMS, part.net.trains
    normed = part.ops.layer_norm(x, width, "norm", trained=False)
    scaled = part.tape.new(normed.numel, normed.itemsize, "scaled", tracked=normed.tracked or trains)
    saves, full = [normed] if trains else [], rounded(normed.numel * normed.itemsize)
    part.tape.record([normed], [scaled], saves=saves, flows=[(normed, True)], backward_workspace=full)
    shifted = part.ops.unsaved(scaled, "scaled and shifted")
    if keeps:
        part.tape.touch(normed)
    return shifted


class Streams:
    """Writes one sort of the blocks of a transformer."""

    def __init__(self, model: DiffusionTransformerModel, net: Net, block: RepeatedBlock) -> None:
        self.model, self.net, self.block = model, net, block
        self.width = block_width(model)
        self.image = model.image_tokens
        self.rotary = model.design != "sd3"
        self.tokens = self.image + model.text_length

    def write(self, part: ModuleBuilder, x: tapes.Tensor) -> tapes.Tensor:
        """A block of its sort: over both streams together, or with weights of their own for each."""
        return self._single(part, x) if self.block.name == "single" else self._double(part, x)

    def _double(self, part: ModuleBuilder, x: tapes.Tensor) -> tapes.Tensor:
        """A block in which image and text have weights of their own and meet in the attention; a dual one of SD 3.5
        medium attends to the image once more. Of SD3's last block the text is not needed any more.
        """
        last, ops = self.block.name == "last", part.ops
        given = ops.split(x, *(self.net.batch * tokens * self.width for tokens in (self.image, self.model.text_length)))
        names = ("", "context_")
        for name in names:
            self._vector(part, f"{name}norm1")
        normed = [_modulated(part, stream, self.width) for stream in given]
        # Attention over both streams; a batch of one is cut apart without a copy.
        part.tape.group = tapes.ATTENTION
        image, text = (self._projected(part, y, name) for y, name in zip(normed, ("", "add_"), strict=True))
        q, k, v = (ops.joined(pair, "image and text") for pair in zip(image, text, strict=True))
        out = self._attend(part, q, k, v)
        part.tape.touch(*text)
        parts = ops.split(out, *(y.numel for y in normed))
        if self.net.batch > 1:
            parts = [ops.unsaved(y, "attention output, cut") for y in parts]
        outputs = ("to_out",) if last else ("to_out", "to_add_out")
        answers = [self._linear(part, y, name) for y, name in zip(parts, outputs, strict=False)]
        if last:
            part.tape.group = tapes.STREAM
            y = ops.add(given[0], self._gated(part, answers[0]), "residual stream")
            z = self._gated(part, self._mlp(part, _modulated(part, y, self.width), ""))
            part.tape.touch(*normed, *answers)
            return ops.add(y, z, "image")
        outs, stream = [], part.tape.new(x.numel, x.itemsize, "image and text", tracked=x.tracked)
        for number, (name, before, answer) in enumerate(zip(names, given, answers, strict=True)):
            part.tape.group = tapes.STREAM
            y = ops.add(before, self._gated(part, answer), "residual stream")
            if self.block.name == "dual" and not number:
                # The second attention, over the image only.
                again = _modulated(part, before, self.width)
                part.tape.group = tapes.ATTENTION
                more = self._linear(part, self._attend(part, *self._projected(part, again, "")), "to_out")
                part.tape.group = tapes.STREAM
                y = ops.add(y, self._gated(part, more), "residual stream")
            z = self._gated(part, self._mlp(part, _modulated(part, y, self.width), name))
            out = part.tape.view(stream, before.numel)
            out.tracked = y.tracked or z.tracked
            part.tape.record([y, z] if not number else [y, z, stream], [out], flows=[(y, False), (z, False)])
            outs.append(out)
        part.tape.touch(*normed, *answers)
        stream.tracked = any(out.tracked for out in outs)
        part.tape.record(outs, [stream], flows=[(out, True) for out in outs])
        return stream

    def _single(self, part: ModuleBuilder, x: tapes.Tensor) -> tapes.Tensor:
        """A block over both together: attention and MLP side by side, one projection behind them."""
        residual = part.ops.unsaved(x, "image behind text")
        self._vector(part, "norm")
        normed = _modulated(part, residual, self.width)
        part.tape.group = tapes.MLP
        inner = part.activation(self._linear(part, normed, "proj_mlp"), "gelu_pytorch_tanh")
        part.tape.group = tapes.ATTENTION
        q, k, v = self._projected(part, normed, "")
        out = self._attend(part, q, k, v)
        joined = part.ops.joined((out, inner), "attention and MLP")
        part.tape.group = tapes.STREAM
        y = self._gated(part, self._linear(part, joined, "proj_out"))
        part.tape.touch(joined)
        z = part.ops.add(residual, y, "residual stream")
        part.tape.touch(normed, out, inner)
        return z

    def _gated(self, part: ModuleBuilder, x: tapes.Tensor) -> tapes.Tensor:
        """Times a vector that says how much of it counts."""
        if not self.net.trains:
            out = part.ops.unsaved(x, "gated")
            part.reads_outside()
            return out
        return part.ops.pointwise(x, "gated", saves="input", backward_workspace=rounded(x.numel * x.itemsize))

    def _linear(self, part: ModuleBuilder, x: tapes.Tensor, name: str) -> tapes.Tensor:
        return part.apply(x, self.block.module(name, LinearModule))

    def _vector(self, part: ModuleBuilder, name: str) -> None:
        """The linear layer from the step's vector to those that scale, shift and gate."""
        wide = self.block.module(name, LinearModule).out_features
        weight_grad, bias_grad = part.add_parameter(name, wide, self.width), part.add_parameter(name, wide)
        out = part.tape.new(self.net.batch * wide, self.net.recipe.compute, name, tracked=False)
        part.tape.record([], [out], grad_bytes=weight_grad + bias_grad, bias_grad_bytes=bias_grad, gemm=True)

    def _mlp(self, part: ModuleBuilder, x: tapes.Tensor, name: str) -> tapes.Tensor:
        part.tape.group = tapes.MLP
        y = part.activation(self._linear(part, x, f"{name}ff_in"), "gelu_pytorch_tanh")
        y = self._linear(part, y, f"{name}ff_out")
        part.tape.touch(x)
        return y

    def _projected(
        self, part: ModuleBuilder, x: tapes.Tensor, name: str
    ) -> tuple[tapes.Tensor, tapes.Tensor, tapes.Tensor]:
        """Queries and keys, each normed over a head, and values. Autocast norms in fp32, and leaves them so."""
        modules = ("add_q_proj", "add_k_proj", "add_v_proj") if name else ("to_q", "to_k", "to_v")
        q, k, v = (self._linear(part, x, module) for module in modules)
        if not self.model.qk_norm:
            return q, k, v
        for letter in ("q", "k"):
            part.add_parameters(self.block.module(f"{name}norm_{letter}", NormModule))
        trained, each = self.net.trains, self.model.attention_head_dim
        if part.ops.autocast is not None:
            q, k = (part.ops.cast(t, 4, "norm's input in fp32") for t in (q, k))
        q, k = (part.ops.fused_rms_norm(t, each, f"{name}norm", trained=trained) for t in (q, k))
        return q, k, v

    def _attend(self, part: ModuleBuilder, q: tapes.Tensor, k: tapes.Tensor, v: tapes.Tensor) -> tapes.Tensor:
        if self.rotary:
            # Rotary positions in fp32: two products and a rotated copy on the way.
            turned = []
            for x in (q, k):
                full = rounded(x.numel * 4)
                workspace = 3 * full + (rounded(x.numel * x.itemsize) if x.itemsize < 4 else 0)
                turned.append(part.ops.unsaved(x, "rotated", workspace=workspace, backward_workspace=2 * full))
            q, k = turned
        out = _attended(self.model, part, (q, k, v), q.numel // (self.net.batch * self.width))
        out = part.ops.cast(out, q.itemsize, "attention output in the queries' type")
        part.tape.touch(q, k, v)
        return out


class DiffusionTransformer:
    def __init__(self, model: DiffusionTransformerModel, run: TrainRun | InferRun, device: Device) -> None:
        for name, side in zip(("height", "width"), model.size, strict=True):
            if side % model.pixels_per_token:
                key, latent = name if getattr(model, name) else "sample_size", model.pixels_per_token
                raise UserError(f"model.{key} = {side} is not a multiple of {latent}, the pixels of one latent")
        if (model.frames - 1) % 4:
            raise UserError(f"model.frames = {model.frames} is not 1 more than a multiple of 4, as a video has")
        if not model.num_layers + model.num_single_layers:
            raise UserError("model.num_layers and model.num_single_layers are both 0; a transformer needs a block")
        if run.sequence_length is not None:
            raise UserError("run.sequence_length is for text; a diffusion transformer's own is model.text_length")
        if isinstance(run, InferRun) and run.new_tokens:
            raise UserError(f"run.new_tokens = {run.new_tokens}, but a diffusion transformer generates no tokens")
        self.model = model
        self.net = Net(run, device)
        self.spec = diffusion_transformer_spec(model)
        self.streams = Streams(model, self.net, self.spec.blocks[0])

    def program(self) -> tapes.Program:
        model, net, streams = self.model, self.net, self.streams
        self._start()
        for block in self.spec.blocks:
            net.repeat(tapes.STREAM, block.stop - block.start, Streams(model, net, block).write)
        self._end()
        itemsize, batch = net.recipe.stream, net.batch
        image = rounded(batch * streams.image * model.packed[0] * itemsize)
        pooled = model.pooled_projection_dim if model.design != "qwen-image" else 0
        inputs = image * (2 if net.training else 1) + rounded(batch * pooled * itemsize)
        inputs += rounded(batch * model.text_length * model.joint_attention_dim * itemsize) + rounded(batch * itemsize)
        inputs += (rounded(batch * itemsize) if model.guidance_embeds else 0) + rounded(3 * streams.image * itemsize)
        return net.program(
            inputs=inputs + rounded(3 * model.text_length * itemsize),
            inputs_formula=f"{batch} latents of {streams.image:,} x {model.packed[0]}, text of {model.text_length} x "
            f"{model.joint_attention_dim}, positions, steps{', noise' if net.training else ''}",
            layers=model.num_layers + model.num_single_layers,
            notes=NOTES,
        )

    def _start(self) -> None:
        """Steps, guidance and pooled text as one vector; latents and text in the width of the blocks."""
        model, net, streams = self.model, self.net, self.streams
        part = net.part(tapes.EMBEDDINGS)
        for first, second in pairwise(self.spec.before):
            if isinstance(first, LinearModule) and isinstance(second, LinearModule) and first.name.endswith("_1"):
                given = net.input(net.batch * first.in_features)
                part.apply(part.activation(part.apply(given, first), "silu"), second)
        if streams.rotary:
            numbers = 2 * streams.tokens * model.attention_head_dim
            turns = part.tape.new(numbers, 4, "rotary positions", tracked=False)
            part.tape.record([], [turns])
            part.tape.hold(turns)
        else:  # SD3's positions are a buffer, not a parameter
            net.buffers = rounded(model.pos_embed_max_size**2 * streams.width * net.recipe.frozen)
        embedder = self.spec.module("x_embedder", LinearModule)
        image = part.apply(net.input(net.batch * streams.image * embedder.in_features), embedder)
        words = net.input(net.batch * model.text_length * model.joint_attention_dim)
        if model.design == "qwen-image":
            words = part.normed_by(words, self.spec.module("txt_norm", NormModule))
        text = part.apply(words, self.spec.module("context_embedder", LinearModule))
        part.finish(part.ops.joined((image, text), "image and text"))

    def _end(self) -> None:
        model, net, streams = self.model, self.net, self.streams
        part = net.part(tapes.NORMS)
        x = image = part.input()
        if model.design != "sd3":
            (image,) = part.ops.split(x, net.batch * streams.image * streams.width)
        part.add_parameters(self.spec.module("norm_out", LinearModule))
        y = _modulated(part, image, streams.width)
        part.tape.group = tapes.HEAD
        y = part.apply(y, self.spec.module("proj_out", LinearModule))
        _write_output(net, part, y)


class CrossedTransformer:
    """Wan's; PixArt's has no rotary positions, norms of queries, keys and text, nor fp32 between its products."""

    def __init__(self, model: DiffusionTransformerModel, run: TrainRun | InferRun, device: Device) -> None:
        self.model = model
        self.net = Net(run, device)
        self.spec = diffusion_transformer_spec(model)
        self.width = block_width(model)
        self.tokens = model.image_tokens
        self.is_wan = model.design == "wan"
        self.wide = 4 if self.is_wan else self.net.recipe.stream

    def program(self) -> tapes.Program:
        model, net = self.model, self.net
        self._start()
        net.repeat(tapes.STREAM, model.num_layers, self.block)
        self._end()
        itemsize, batch = net.recipe.stream, net.batch
        video = rounded(batch * self.tokens * model.packed[0] * itemsize)
        text = rounded(batch * model.text_length * model.joint_attention_dim * itemsize)
        frames, (height, width) = model.latent_frames, model.size
        return net.program(
            inputs=video * (2 if net.training else 1) + text + rounded(batch * 8),
            inputs_formula=f"{batch} latents of {frames} frames for {height} x {width} pixels, text of "
            f"{model.text_length} x {model.joint_attention_dim}{', noise' if net.training else ''}",
            layers=model.num_layers,
            notes=NOTES,
            buffers_formula="positions",
        )

    def block(self, part: ModuleBuilder, x: tapes.Tensor) -> tapes.Tensor:
        """Attention within the video, attention to the text, and the MLP, each modulated by the timestep."""
        part.add_parameters(self.spec.blocks[0].module("scale_shift_table", EmbeddingModule))
        y = self._summed(part, x, self._attend(part, self._modulated(part, x), tapes.ATTENTION), fp32=True)
        normed = y
        if self.is_wan:
            part.tape.group = tapes.NORMS
            wide = part.ops.cast(y, 4, "norm's input in fp32")
            wide = part.normed_by(wide, self.spec.blocks[0].module("norm2", NormModule))
            normed = part.ops.cast(wide, y.itemsize, "norm2")
        z = self._attend(part, normed, CROSS)
        part.tape.group = tapes.STREAM
        y = part.ops.add(y, z, "residual stream")
        normed = self._modulated(part, y)
        part.tape.group = tapes.MLP
        inner = part.activation(self._linear(part, normed, "ffn_in"), "gelu_pytorch_tanh")
        out = self._linear(part, inner, "ffn_out")
        z = self._summed(part, y, out, fp32=False)
        part.tape.touch(normed, out)
        return z

    def _start(self) -> None:
        """Patches, step and text in the width of the blocks."""
        model, net, spec = self.model, self.net, self.spec
        part = net.part(tapes.EMBEDDINGS)
        x = net.input(net.batch * STEPS)
        x = part.activation(part.apply(x, spec.module("time_embedder_1", LinearModule)), "silu")
        x = part.apply(x, spec.module("time_embedder_2", LinearModule))
        part.apply(part.activation(x, "silu"), spec.module("time_proj", LinearModule))
        for name in SIZES if model.guidance_embeds else ():
            x = part.activation(
                part.apply(net.input(net.batch * STEPS), spec.module(f"{name}_1", LinearModule)), "silu"
            )
            part.apply(x, spec.module(f"{name}_2", LinearModule))
        words = net.input(net.batch * model.text_length * model.joint_attention_dim)
        text = part.apply(words, spec.module("text_embedder_1", LinearModule))
        text = part.apply(part.activation(text, "gelu_pytorch_tanh"), spec.module("text_embedder_2", LinearModule))
        part.tape.hold(text)
        if self.is_wan:
            turns = part.tape.new(2 * self.tokens * model.attention_head_dim, 4, "rotary positions", tracked=False)
            part.tape.record([], [turns])
            part.tape.hold(turns)
        patches = spec.module("patch_embedding", LinearModule)
        video = part.apply(net.input(net.batch * self.tokens * patches.in_features), patches)
        part.finish(part.ops.unsaved(video, "patches in rows"))
        net.buffers = 2 * rounded(ROPE_ROWS * model.attention_head_dim * 4)
        if not self.is_wan:
            net.buffers = rounded(self.tokens * self.width * net.recipe.frozen)

    def _end(self) -> None:
        net, spec = self.net, self.spec
        part = net.part(tapes.NORMS)
        x = part.input()
        part.add_parameters(spec.module("scale_shift_table", EmbeddingModule))
        y = self._modulated(part, x)
        part.tape.group = tapes.HEAD
        y = part.ops.unsaved(part.apply(y, spec.module("proj_out", LinearModule)), "video")
        _write_output(net, part, y)

    def _modulated(self, part: ModuleBuilder, x: tapes.Tensor) -> tapes.Tensor:
        """A layer norm in fp32, scaled and shifted, back in the stream's type."""
        part.tape.group = tapes.NORMS
        wide = part.ops.cast(x, self.wide, "norm's input in fp32")
        return part.ops.cast(_modulated(part, wide, self.width, keeps=True), x.itemsize, "scaled and shifted")

    def _summed(self, part: ModuleBuilder, x: tapes.Tensor, y: tapes.Tensor, *, fp32: bool) -> tapes.Tensor:
        """The stream and what a gate lets through, added in fp32; the MLP's answer is raised to it before the gate."""
        part.tape.group = tapes.STREAM
        wide = part.ops.cast(x, self.wide, "stream in fp32")
        y = y if fp32 else part.ops.cast(y, self.wide, "answer in fp32")
        saves = "input" if self.net.trains else "nothing"
        gated = part.ops.pointwise(y, "gated", saves=saves, itemsize=self.wide)
        total = part.ops.add(wide, gated, "residual stream in fp32")
        part.tape.touch(y)
        return part.ops.cast(total, x.itemsize, "residual stream")

    def _linear(self, part: ModuleBuilder, x: tapes.Tensor, name: str) -> tapes.Tensor:
        return part.apply(x, self.spec.blocks[0].module(name, LinearModule))

    def _attend(self, part: ModuleBuilder, x: tapes.Tensor, group: str) -> tapes.Tensor:
        """Attention over the video (`ATTENTION`), its queries and keys rotated in fp32, or to the text (`CROSS`)."""
        part.tape.group = group
        d, crossed = self.width, group == CROSS
        keys = self.model.text_length if crossed else self.tokens
        other = x
        if crossed:  # the embedded text, which every block reads
            other = tapes.borrowed(self.net.batch * keys * d, self.net.recipe.stream, CROSS, "text")
        q = self._linear(part, x, "to_q")
        k, v = (self._linear(part, other, name) for name in ("to_k", "to_v"))
        if self.is_wan:
            for letter in ("q", "k"):
                part.add_parameters(self.spec.blocks[0].module(f"norm_{letter}", NormModule))
            q, k = (part.ops.fused_rms_norm(t, d, "norm of queries and keys", trained=self.net.trains) for t in (q, k))
        if self.is_wan and not crossed:
            # Halves times sines and cosines of fp32, two products and their sum at a time.
            half = 3 * rounded(q.numel // 2 * 4)
            q, k = (part.ops.unsaved(t, "rotated", workspace=half, backward_workspace=half) for t in (q, k))
        out = _attended(self.model, part, (q, k, v), keys)
        part.tape.touch(q, k, v)
        out = self._linear(part, out, "to_out")
        part.tape.touch(x)
        return out


def dit_program(model: DiffusionTransformerModel, run: TrainRun | InferRun, device: Device) -> tapes.Program:
    """The program of a diffusion transformer: one step of its training, or one answer for a batch of latents."""
    if model.design in {"wan", "pixart"}:
        return CrossedTransformer(model, run, device).program()
    return DiffusionTransformer(model, run, device).program()
