"""Diffusion transformers with two streams (Esser et al. 2024) as diffusers' FluxTransformer2DModel,
SD3Transformer2DModel and QwenImageTransformer2DModel have them.

Shapes: latents (b, i, c), text (b, t, j), its pooled vector (b, p), steps (b, 256); both streams as one (b, i + t, h);
b batch, i latents of an image, t words, h = heads times the width of one. In a block, where image and text stand side
by side with weights of their own, then as one sequence: queries, keys and values (b, n, i + t, e), MLP (b, i + t, 4·h),
what the step says of each norm (b, h); n heads of width e. Between the blocks both streams stand in one block of
memory, image and text one behind the other.
"""

from itertools import pairwise

from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import Device
from vramtui.core.schema.encoder_models import DiffusionTransformerModel
from vramtui.core.schema.workload import InferRun, TrainRun
from vramtui.estimators.analytic.models.diffusion.wan import WanTransformer
from vramtui.estimators.analytic.ops.attention_kernels import Heads
from vramtui.estimators.analytic.ops.loss import class_loss
from vramtui.estimators.analytic.ops.module_builder import ModuleBuilder, Net
from vramtui.estimators.analytic.tape.program import Program
from vramtui.estimators.analytic.tape.replay import ATTENTION, EMBEDDINGS, HEAD, MLP, NORMS, STREAM
from vramtui.estimators.analytic.tape.tape import Tensor, storage_of
from vramtui.estimators.torch_facts.allocator_sizes import rounded
from vramtui.models.kinds import LinearModule, NormModule
from vramtui.models.spec import RepeatedBlock
from vramtui.models.specs.diffusion_transformer import block_width, diffusion_transformer_spec


class Streams:
    """Writes one sort of the blocks of a transformer."""

    def __init__(self, model: DiffusionTransformerModel, net: Net, block: RepeatedBlock) -> None:
        self.model, self.net, self.block = model, net, block
        self.width = block_width(model)
        self.image = model.image_tokens
        self.rotary = model.design != "sd3"
        self.tokens = self.image + model.text_length

    def write(self, part: ModuleBuilder, x: Tensor) -> Tensor:
        """A block of its sort."""
        if self.block.name == "single":
            return self._single(part, x)
        return self._last(part, x) if self.block.name == "last" else self._double(part, x)

    def together(self, part: ModuleBuilder, image: Tensor, text: Tensor) -> Tensor:
        """Both streams as one tensor."""
        tracked = image.tracked or text.tracked
        out = part.ops.tape.new(image.numel + text.numel, image.itemsize, "image and text", tracked=tracked)
        part.ops.tape.record([image, text], [out], flows=[(image, True), (text, True)])
        return out

    def _last(self, part: ModuleBuilder, x: Tensor) -> Tensor:
        """SD3's last block, of whose text nothing is wanted any more."""
        sizes = [self.net.batch * tokens * self.width for tokens in (self.image, self.model.text_length)]
        given = [part.ops.tape.view(x, size) for size in sizes]
        part.ops.tape.record([x], given, flows=[(x, True)])
        self._vector(part, "norm1")
        self._vector(part, "context_norm1")
        normed = [self.modulated(part, stream) for stream in given]
        answer = self._meet(part, normed, outputs=1)[0]
        part.ops.tape.group = STREAM
        y = part.ops.add(given[0], self._gated(part, answer), "residual stream")
        z = self._gated(part, self._mlp(part, self.modulated(part, y), ""))
        part.ops.tape.touch(*normed, answer)
        return part.ops.add(y, z, "image")

    def _again(self, part: ModuleBuilder, x: Tensor, y: Tensor) -> Tensor:
        """The second attention over the image alone; `x` is what the first one read, `y` the stream behind it."""
        normed = self.modulated(part, x)
        part.ops.tape.group = ATTENTION
        out = self._attend(part, *self._projected(part, normed, ""), tokens=self.image)
        answer = self._linear(part, out, "to_out")
        part.ops.tape.group = STREAM
        return part.ops.add(y, self._gated(part, answer), "residual stream")

    def _double(self, part: ModuleBuilder, x: Tensor) -> Tensor:
        """A block in which image and text have weights of their own and meet in the attention; a dual one of SD 3.5
        medium attends to the image alone once more.
        """
        again = self.block.name == "dual"
        sizes = [self.net.batch * tokens * self.width for tokens in (self.image, self.model.text_length)]
        given = [part.ops.tape.view(x, size) for size in sizes]
        part.ops.tape.record([x], given, flows=[(x, True)])
        names = ("", "context_")
        for name in names:
            self._vector(part, f"{name}norm1")
        normed = [self.modulated(part, stream) for stream in given]
        answers = self._meet(part, normed)
        outs, stream = [], part.ops.tape.new(x.numel, x.itemsize, "image and text", tracked=x.tracked)
        for number, (name, before, answer) in enumerate(zip(names, given, answers, strict=True)):
            part.ops.tape.group = STREAM
            y = part.ops.add(before, self._gated(part, answer), "residual stream")
            if again and not number:
                y = self._again(part, before, y)
            z = self._gated(part, self._mlp(part, self.modulated(part, y), name))
            out = part.ops.tape.view(stream, sizes[number])
            out.tracked = y.tracked or z.tracked
            part.ops.tape.record([y, z] if not number else [y, z, stream], [out], flows=[(y, False), (z, False)])
            outs.append(out)
        part.ops.tape.touch(*normed, *answers)
        stream.tracked = any(out.tracked for out in outs)
        part.ops.tape.record(outs, [stream], flows=[(out, True) for out in outs])
        return stream

    def _single(self, part: ModuleBuilder, x: Tensor) -> Tensor:
        """A block over both together: attention and MLP side by side, one projection behind them."""
        residual = part.ops.pointwise(x, "image behind text", saves="nothing")
        self._vector(part, "norm")
        normed = self.modulated(part, residual)
        part.ops.tape.group = MLP
        inner = part.activation(self._linear(part, normed, "proj_mlp"), "gelu_pytorch_tanh")
        part.ops.tape.group = ATTENTION
        q, k, v = self._projected(part, normed, "")
        out = self._attend(part, q, k, v)
        joined = part.ops.tape.new(out.numel + inner.numel, out.itemsize, "attention and MLP", tracked=out.tracked)
        part.ops.tape.record([out, inner], [joined], flows=[(out, True), (inner, True)])
        part.ops.tape.group = STREAM
        y = self._gated(part, self._linear(part, joined, "proj_out"))
        part.ops.tape.touch(joined)
        z = part.ops.add(residual, y, "residual stream")
        part.ops.tape.touch(normed, out, inner)
        return z

    def modulated(self, part: ModuleBuilder, x: Tensor) -> Tensor:
        """A layer norm without weights, scaled and shifted by what the step says."""
        part.ops.tape.group = NORMS
        normed = part.ops.layer_norm(x, self.width, "norm", trained=False)
        scaled = part.ops.tape.new(normed.numel, normed.itemsize, "scaled", tracked=normed.tracked or self.net.trains)
        full = rounded(normed.numel * normed.itemsize)
        part.ops.tape.record(
            [normed],
            [scaled],
            saves=[normed] if self.net.trains else [],
            flows=[(normed, True)],
            backward_workspace=full,
        )
        return part.ops.pointwise(scaled, "scaled and shifted", saves="nothing")

    def _gated(self, part: ModuleBuilder, x: Tensor) -> Tensor:
        """Times a vector that says how much of it counts."""
        if not self.net.trains:
            out = part.ops.pointwise(x, "gated", saves="nothing")
            part.reads_outside()
            return out
        return part.ops.pointwise(x, "gated", saves="input", backward_workspace=rounded(x.numel * x.itemsize))

    def _linear(self, part: ModuleBuilder, x: Tensor, name: str) -> Tensor:
        return part.apply(x, self.block.module(name, LinearModule))

    def _vector(self, part: ModuleBuilder, name: str) -> None:
        """The linear layer from the step's vector to those that scale, shift and gate."""
        wide = self.block.module(name, LinearModule).out_features
        weight_grad, bias_grad = part.add_parameter(name, wide, self.width), part.add_parameter(name, wide)
        out = part.ops.tape.new(self.net.batch * wide, self.net.recipe.compute, name, tracked=False)
        part.ops.tape.record([], [out], grad_bytes=weight_grad + bias_grad, bias_grad_bytes=bias_grad, gemm=True)

    def _mlp(self, part: ModuleBuilder, x: Tensor, name: str) -> Tensor:
        part.ops.tape.group = MLP
        y = part.activation(self._linear(part, x, f"{name}ff_in"), "gelu_pytorch_tanh")
        y = self._linear(part, y, f"{name}ff_out")
        part.ops.tape.touch(x)
        return y

    def _projected(self, part: ModuleBuilder, x: Tensor, name: str) -> tuple[Tensor, Tensor, Tensor]:
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

    def _meet(self, part: ModuleBuilder, normed: list[Tensor], outputs: int = 2) -> list[Tensor]:
        """Attention over both streams, of which `outputs` go on; a batch of one is cut apart without a copy."""
        part.ops.tape.group = ATTENTION
        image, text = (self._projected(part, x, name) for x, name in zip(normed, ("", "add_"), strict=True))
        q, k, v = (self.together(part, a, b) for a, b in zip(image, text, strict=True))
        out = self._attend(part, q, k, v)
        part.ops.tape.touch(*text)
        parts = [part.ops.tape.view(out, x.numel) for x in normed]
        part.ops.tape.record([out], parts, flows=[(out, True)])
        if self.net.batch > 1:
            parts = [part.ops.pointwise(x, "attention output, cut", saves="nothing") for x in parts]
        names = ("to_out", "to_add_out")[:outputs]
        return [self._linear(part, x, name) for x, name in zip(parts, names, strict=False)]

    def _attend(self, part: ModuleBuilder, q: Tensor, k: Tensor, v: Tensor, tokens: int = 0) -> Tensor:
        if self.rotary:
            q, k = self._rotated(part, q), self._rotated(part, k)
        tokens = tokens or self.tokens
        heads = Heads(
            batch=self.net.batch,
            queries=tokens,
            keys=tokens,
            heads=self.model.num_attention_heads,
            kv_heads=self.model.num_attention_heads,
            head_dim=self.model.attention_head_dim,
            value_dim=self.model.attention_head_dim,
        )
        out = part.attend(heads, (q, k, v))
        out = part.ops.cast(out, q.itemsize, "attention output in the queries' type")
        part.ops.tape.touch(q, k, v)
        return out

    def _rotated(self, part: ModuleBuilder, x: Tensor) -> Tensor:
        """Rotary positions in fp32: two products and a rotated copy on the way."""
        full = rounded(x.numel * 4)
        workspace = 3 * full + (rounded(x.numel * x.itemsize) if x.itemsize < 4 else 0)
        return part.ops.pointwise(x, "rotated", saves="nothing", workspace=workspace, backward_workspace=2 * full)


NOTES = ("the text encoders and the VAE are not counted: they belong to the pipeline, not to the transformer",)


class DiffusionTransformer:
    """Writes one transformer."""

    def __init__(self, model: DiffusionTransformerModel, run: TrainRun | InferRun, device: Device) -> None:
        check(model, run)
        self.model = model
        self.net = Net(run, device)
        self.spec = diffusion_transformer_spec(model)
        self.streams = Streams(model, self.net, self.spec.blocks[0])

    def program(self) -> Program:
        """Embeddings, blocks of two streams, blocks of one, the answer."""
        model, net, streams = self.model, self.net, self.streams
        self._start()
        for block in self.spec.blocks:
            net.repeat(STREAM, block.stop - block.start, Streams(model, net, block).write)
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

    def _table(self) -> None:
        """SD3's positions: a buffer, not a parameter."""
        numbers = self.model.pos_embed_max_size**2 * self.streams.width
        self.net.buffers = rounded(numbers * self.net.recipe.frozen)

    def _start(self) -> None:
        """Steps, guidance and pooled text as one vector; latents and text in the width of the blocks."""
        model, net, streams = self.model, self.net, self.streams
        part = net.part(EMBEDDINGS)
        for first, second in pairwise(self.spec.before):
            if isinstance(first, LinearModule) and isinstance(second, LinearModule) and first.name.endswith("_1"):
                given = self._input_tensor(net.batch * first.in_features)
                part.apply(part.activation(part.apply(given, first), "silu"), second)
        if streams.rotary:
            numbers = 2 * streams.tokens * model.attention_head_dim
            turns = part.ops.tape.new(numbers, 4, "rotary positions", tracked=False)
            part.ops.tape.record([], [turns])
            part.ops.tape.hold(turns)
        else:
            self._table()
        embedder = self.spec.module("x_embedder", LinearModule)
        image = part.apply(self._input_tensor(net.batch * streams.image * embedder.in_features), embedder)
        words = self._input_tensor(net.batch * model.text_length * model.joint_attention_dim)
        if model.design == "qwen-image":
            words = part.normed_by(words, self.spec.module("txt_norm", NormModule))
        text = part.apply(words, self.spec.module("context_embedder", LinearModule))
        part.finish(streams.together(part, image, text))

    def _input_tensor(self, numel: int) -> Tensor:
        """A tensor that the batch holds."""
        storage = storage_of(numel, self.net.recipe.stream, EMBEDDINGS, "input")
        storage.borrowed = True
        return Tensor(storage, numel, storage.itemsize, tracked=False)

    def _end(self) -> None:
        model, net, streams = self.model, self.net, self.streams
        part = net.part(NORMS)
        x = image = part.input()
        if model.design != "sd3":
            image = part.ops.tape.view(x, net.batch * streams.image * streams.width)
            part.ops.tape.record([x], [image], flows=[(x, True)])
        part.add_parameters(self.spec.module("norm_out", LinearModule))
        y = streams.modulated(part, image)
        part.ops.tape.group = HEAD
        y = part.apply(y, self.spec.module("proj_out", LinearModule))
        if net.training:
            net.loss = class_loss(part.ops, part.ops.cast(y, 4, "answer in fp32"), "mse")
        part.finish(None if net.training else y)


def check(model: DiffusionTransformerModel, run: TrainRun | InferRun) -> None:
    """Refuse what cannot be."""
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


def dit_program(model: DiffusionTransformerModel, run: TrainRun | InferRun, device: Device) -> Program:
    """The program of a diffusion transformer: one step of its training, or one answer for a batch of latents."""
    if model.design == "wan":
        return WanTransformer(model, run, device).program()
    return DiffusionTransformer(model, run, device).program()
