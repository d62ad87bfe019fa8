"""Wan's diffusion transformer (Wan 2.1, 2.2) as diffusers' WanTransformer3DModel has it: self-attention over a video's
latents, cross-attention to the text, an MLP. Norms and sums are worked out in fp32.

Shapes: video (b, i, c), text (b, t, j), steps (b, 256); stream (b, i, h), queries (b, n, i, e), keys and values of the
text (b, n, t, e), MLP (b, i, f); b batch, i packed latents of all frames, t words, n heads of width e, h = n·e.
"""

from vramtui.core.estimate.devices import Device
from vramtui.core.schema.encoder_models import DiffusionTransformerModel
from vramtui.core.schema.workload import InferRun, TrainRun
from vramtui.estimators.analytic.ops.attention_kernels import Heads
from vramtui.estimators.analytic.ops.loss import class_loss
from vramtui.estimators.analytic.ops.module_builder import ModuleBuilder, Net
from vramtui.estimators.analytic.tape.program import Program
from vramtui.estimators.analytic.tape.replay import ATTENTION, EMBEDDINGS, HEAD, MLP, NORMS, STREAM
from vramtui.estimators.analytic.tape.tape import Tensor, storage_of
from vramtui.estimators.torch_facts.allocator_sizes import rounded
from vramtui.models.kinds import EmbeddingModule, LinearModule, NormModule
from vramtui.models.specs.diffusion_transformer import STEPS, block_width, diffusion_transformer_spec

ROPE_ROWS = 1024  # positions in the buffers of sines and cosines, which are of fp32
CROSS = "activations: cross-attention"
NOTES = ("the text encoder and the VAE are not counted: they belong to the pipeline, not to the transformer",)


class WanTransformer:
    """Writes one transformer."""

    def __init__(self, model: DiffusionTransformerModel, run: TrainRun | InferRun, device: Device) -> None:
        self.model = model
        self.net = Net(run, device)
        self.spec = diffusion_transformer_spec(model)
        self.width = block_width(model)
        self.tokens = model.image_tokens

    def program(self) -> Program:
        """Embeddings, blocks, the answer."""
        model, net = self.model, self.net
        self._start()
        net.repeat(STREAM, model.num_layers, self.block)
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
            buffers_formula="sines and cosines of positions",
        )

    def block(self, part: ModuleBuilder, x: Tensor) -> Tensor:
        """Attention within the video, attention to the text, and the MLP, each modulated by the timestep."""
        part.add_parameters(self.spec.blocks[0].module("scale_shift_table", EmbeddingModule))
        y = self._summed(part, x, self._attend(part, self._modulated(part, x), ATTENTION), fp32=True)
        z = self._attend(part, self._normed(part, y), CROSS)
        part.ops.tape.group = STREAM
        y = part.ops.add(y, z, "residual stream")
        normed = self._modulated(part, y)
        out = self._mlp(part, normed)
        z = self._summed(part, y, out, fp32=False)
        part.ops.tape.touch(normed, out)
        return z

    def _start(self) -> None:
        """Patches, step and text in the width of the blocks."""
        model, net, spec = self.model, self.net, self.spec
        part = net.part(EMBEDDINGS)
        x = self._input_tensor(net.batch * STEPS)
        x = part.activation(part.apply(x, spec.module("time_embedder_1", LinearModule)), "silu")
        x = part.apply(x, spec.module("time_embedder_2", LinearModule))
        part.apply(part.activation(x, "silu"), spec.module("time_proj", LinearModule))
        words = self._input_tensor(net.batch * model.text_length * model.joint_attention_dim)
        text = part.apply(words, spec.module("text_embedder_1", LinearModule))
        text = part.apply(part.activation(text, "gelu_pytorch_tanh"), spec.module("text_embedder_2", LinearModule))
        part.ops.tape.hold(text)
        turns = part.ops.tape.new(2 * self.tokens * model.attention_head_dim, 4, "rotary positions", tracked=False)
        part.ops.tape.record([], [turns])
        part.ops.tape.hold(turns)
        patches = spec.module("patch_embedding", LinearModule)
        video = part.apply(self._input_tensor(net.batch * self.tokens * patches.in_features), patches)
        part.finish(part.ops.pointwise(video, "patches in rows", saves="nothing"))
        net.buffers = 2 * rounded(ROPE_ROWS * model.attention_head_dim * 4)

    def _end(self) -> None:
        net, spec = self.net, self.spec
        part = net.part(NORMS)
        x = part.input()
        part.add_parameters(spec.module("scale_shift_table", EmbeddingModule))
        y = self._modulated(part, x)
        part.ops.tape.group = HEAD
        y = part.ops.pointwise(part.apply(y, spec.module("proj_out", LinearModule)), "video", saves="nothing")
        if net.training:
            net.loss = class_loss(part.ops, part.ops.cast(y, 4, "answer in fp32"), "mse")
        part.finish(None if net.training else y)

    def _input_tensor(self, numel: int) -> Tensor:
        """A tensor that the batch holds."""
        storage = storage_of(numel, self.net.recipe.stream, EMBEDDINGS, "input")
        storage.borrowed = True
        return Tensor(storage, numel, storage.itemsize, tracked=False)

    def _modulated(self, part: ModuleBuilder, x: Tensor) -> Tensor:
        """A layer norm in fp32 without weights, scaled and shifted, back in the stream's type."""
        part.ops.tape.group = NORMS
        wide = part.ops.cast(x, 4, "norm's input in fp32")
        normed = part.ops.layer_norm(wide, self.width, "norm", trained=False)
        scaled = part.ops.tape.new(normed.numel, 4, "scaled", tracked=normed.tracked or self.net.trains)
        saves = [normed] if self.net.trains else []
        full = rounded(normed.numel * 4)
        part.ops.tape.record([normed], [scaled], saves=saves, flows=[(normed, True)], backward_workspace=full)
        shifted = part.ops.pointwise(scaled, "scaled and shifted", saves="nothing")
        part.ops.tape.touch(normed)
        return part.ops.cast(shifted, x.itemsize, "scaled and shifted")

    def _normed(self, part: ModuleBuilder, x: Tensor) -> Tensor:
        """The layer norm before cross-attention, in fp32."""
        part.ops.tape.group = NORMS
        wide = part.ops.cast(x, 4, "norm's input in fp32")
        return part.ops.cast(part.normed_by(wide, self.spec.blocks[0].module("norm2", NormModule)), x.itemsize, "norm2")

    def _summed(self, part: ModuleBuilder, x: Tensor, y: Tensor, *, fp32: bool) -> Tensor:
        """The stream and what a gate lets through, added in fp32; the MLP's answer is raised to it before the gate."""
        part.ops.tape.group = STREAM
        wide = part.ops.cast(x, 4, "stream in fp32")
        y = y if fp32 else part.ops.cast(y, 4, "answer in fp32")
        saves = "input" if self.net.trains else "nothing"
        gated = part.ops.pointwise(y, "gated", saves=saves, itemsize=4)
        total = part.ops.add(wide, gated, "residual stream in fp32")
        part.ops.tape.touch(y)
        return part.ops.cast(total, x.itemsize, "residual stream")

    def _mlp(self, part: ModuleBuilder, x: Tensor) -> Tensor:
        part.ops.tape.group = MLP
        return self._linear(part, part.activation(self._linear(part, x, "ffn_in"), "gelu_pytorch_tanh"), "ffn_out")

    def _linear(self, part: ModuleBuilder, x: Tensor, name: str) -> Tensor:
        return part.apply(x, self.spec.blocks[0].module(name, LinearModule))

    def _attend(self, part: ModuleBuilder, x: Tensor, group: str) -> Tensor:
        """Attention over the video (`ATTENTION`), its queries and keys rotated in fp32, or to the text (`CROSS`)."""
        part.ops.tape.group = group
        d, crossed = self.width, group == CROSS
        keys = self.model.text_length if crossed else self.tokens
        other = self._text() if crossed else x
        q = self._linear(part, x, "to_q")
        k, v = (self._linear(part, other, name) for name in ("to_k", "to_v"))
        for letter in ("q", "k"):
            part.add_parameters(self.spec.blocks[0].module(f"norm_{letter}", NormModule))
        q, k = (part.ops.fused_rms_norm(t, d, "norm of queries and keys", trained=self.net.trains) for t in (q, k))
        if not crossed:
            q, k = self._rotated(part, q), self._rotated(part, k)
        each, number = self.model.attention_head_dim, self.model.num_attention_heads
        heads = Heads(
            batch=self.net.batch,
            queries=self.tokens,
            keys=keys,
            heads=number,
            kv_heads=number,
            head_dim=each,
            value_dim=each,
        )
        out = part.attend(heads, (q, k, v))
        part.ops.tape.touch(q, k, v)
        out = self._linear(part, out, "to_out")
        part.ops.tape.touch(x)
        return out

    def _text(self) -> Tensor:
        """The embedded text, which every block reads."""
        numel = self.net.batch * self.model.text_length * self.width
        storage = storage_of(numel, self.net.recipe.stream, CROSS, "text")
        storage.borrowed = True
        return Tensor(storage, numel, storage.itemsize, tracked=False)

    def _rotated(self, part: ModuleBuilder, x: Tensor) -> Tensor:
        """Rotary positions: halves times sines and cosines of fp32, two products and their sum at a time."""
        half = rounded(x.numel // 2 * 4)
        return part.ops.pointwise(x, "rotated", saves="nothing", workspace=3 * half, backward_workspace=3 * half)
