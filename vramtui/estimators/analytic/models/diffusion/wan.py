"""Wan's diffusion transformer (Wan 2.1, 2.2) as diffusers' WanTransformer3DModel has it: self-attention over a video's
latents, cross-attention to the text, an MLP. Norms and sums are worked out in fp32.

Shapes: video (b, i, c), text (b, t, j), steps (b, 256); stream (b, i, h), queries (b, n, i, e), keys and values of the
text (b, n, t, e), MLP (b, i, f); b batch, i packed latents of all frames, t words, n heads of width e, h = n·e.
"""

from vramtui.core.estimate.devices import Device
from vramtui.core.schema.encoder_models import DiffusionTransformerModel
from vramtui.core.schema.workload import InferRun, TrainRun
from vramtui.estimators.analytic.ops.attention_kernels import Heads, eager_attention, fused_attention
from vramtui.estimators.analytic.ops.decoder_builder import ATTENTION, EMBEDDINGS, HEAD, MLP, NORMS, STREAM
from vramtui.estimators.analytic.ops.loss import class_loss
from vramtui.estimators.analytic.ops.module_builder import ModuleBuilder, Net
from vramtui.estimators.analytic.tape.program import Program
from vramtui.estimators.analytic.tape.tape import Operator, Tensor, storage_of
from vramtui.estimators.torch_facts.allocator_sizes import rounded

STEPS = 256  # sinusoids of a time step
ROPE_ROWS = 1024  # positions in the buffers of sines and cosines, which are of fp32
CROSS = "activations: cross-attention"
NOTES = ("the text encoder and the VAE are not counted: they belong to the pipeline, not to the transformer",)


class WanTransformer:
    """Writes one transformer.

    Raises:
        UserError: the run cannot be.
    """

    def __init__(self, model: DiffusionTransformerModel, run: TrainRun | InferRun, device: Device) -> None:
        self.model = model
        self.net = Net(run, device)
        self.width = model.num_attention_heads * model.attention_head_dim
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
        """One block."""
        part.own("scale_shift_table", 1, 6, self.width)
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
        model, net, d = self.model, self.net, self.width
        part = net.part(EMBEDDINGS)
        x = part.activation(part.dense(self._input_tensor(net.batch * STEPS), STEPS, d, "time_embedder_1"), "silu")
        x = part.dense(x, d, d, "time_embedder_2")
        part.dense(part.activation(x, "silu"), d, 6 * d, "time_proj")
        words = self._input_tensor(net.batch * model.text_length * model.joint_attention_dim)
        text = part.dense(words, model.joint_attention_dim, d, "text_embedder_1")
        text = part.dense(part.activation(text, "gelu_pytorch_tanh"), d, d, "text_embedder_2")
        part.ops.tape.hold(text)
        turns = part.ops.tape.new(2 * self.tokens * model.attention_head_dim, 4, "rotary positions", tracked=False)
        part.ops.tape.record(Operator([], [turns]))
        part.ops.tape.hold(turns)
        packed = model.packed[0]
        video = part.dense(self._input_tensor(net.batch * self.tokens * packed), packed, d, "patch_embedding")
        part.finish(part.ops.pointwise(video, "patches in rows", saves="nothing"))
        net.buffers = 2 * rounded(ROPE_ROWS * model.attention_head_dim * 4)

    def _end(self) -> None:
        model, net = self.model, self.net
        part = net.part(NORMS)
        x = part.follow()
        part.own("scale_shift_table", 1, 2, self.width)
        y = self._modulated(part, x)
        part.ops.tape.group = HEAD
        y = part.ops.pointwise(part.dense(y, self.width, model.packed[1], "proj_out"), "video", saves="nothing")
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
        part.ops.tape.record(Operator([normed], [scaled], saves=saves, flows=[(normed, True)], backward_workspace=full))
        shifted = part.ops.pointwise(scaled, "scaled and shifted", saves="nothing")
        part.ops.tape.touch(normed)
        return part.ops.cast(shifted, x.itemsize, "scaled and shifted")

    def _normed(self, part: ModuleBuilder, x: Tensor) -> Tensor:
        """The layer norm before cross-attention, in fp32."""
        part.ops.tape.group = NORMS
        wide = part.ops.cast(x, 4, "norm's input in fp32")
        return part.ops.cast(part.normed(wide, self.width, "norm2"), x.itemsize, "norm2")

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
        d, inner, part.ops.tape.group = self.width, self.model.ffn_dim or 4 * self.width, MLP
        return part.dense(part.activation(part.dense(x, d, inner, "ffn_in"), "gelu_pytorch_tanh"), inner, d, "ffn_out")

    def _attend(self, part: ModuleBuilder, x: Tensor, group: str) -> Tensor:
        """Attention over the video (`ATTENTION`), its queries and keys rotated in fp32, or to the text (`CROSS`)."""
        part.ops.tape.group = group
        d, crossed = self.width, group == CROSS
        keys = self.model.text_length if crossed else self.tokens
        other = self._text() if crossed else x
        q = part.dense(x, d, d, "to_q")
        k, v = (part.dense(other, d, d, name) for name in ("to_k", "to_v"))
        for letter in ("q", "k"):
            part.own(f"norm_{letter}", d)
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
        if self.net.eager:
            out = eager_attention(part.ops, heads, (q, k, v), plain=True, masked=False)
        else:
            out = fused_attention(part.ops, heads, (q, k, v))
        part.ops.tape.touch(q, k, v)
        out = part.dense(out, d, d, "to_out")
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
