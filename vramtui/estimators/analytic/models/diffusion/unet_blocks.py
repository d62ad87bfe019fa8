"""A UNet's residual blocks and the transformers between them, on a tape (diffusers' ResnetBlock2D, Transformer2DModel,
BasicTransformerBlock).

Shapes: image (b, c, y, x), as tokens (b, y·x, c), text (b, t, j), queries (b, n, y·x, c / n), keys and values of the
text (b, n, t, c / n), the gated MLP (b, y·x, 8·c) and (b, y·x, 4·c); b batch, c channels, n heads.
"""

from vramtui.core.schema.encoder_models import UNetModel
from vramtui.estimators.analytic.ops.attention_kernels import Heads, eager_attention, fused_attention
from vramtui.estimators.analytic.ops.decoder_builder import ATTENTION, MLP, NORMS
from vramtui.estimators.analytic.ops.module_builder import Image, ModuleBuilder, Net
from vramtui.estimators.analytic.tape.tape import Operator, Tensor, storage_of

RESNETS, GROUPS, SAMPLING, CROSS = (
    "activations: residual blocks",
    "activations: transformers",
    "activations: skips and sampling",
    "activations: cross-attention",
)
NORM_GROUPS = 32


def resnet(part: ModuleBuilder, x: Tensor, given: Image, channels: int, times: int) -> Tensor:
    """Two convolutions with norms, the time embedding of width `times` added between; the sum is divided by 1."""
    y = part.activation(part.group_norm(x, given.channels, NORM_GROUPS, "norm1"), "silu")
    y, image = part.convolution((y, given), channels, 3, "conv1")
    weight_grad, bias_grad = part.own("time_emb_proj", channels, times), part.own("time_emb_proj", channels)
    steps = part.ops.tape.new(
        part.net.batch * channels, y.itemsize, "time embedding, projected", tracked=part.net.trains
    )
    part.ops.tape.record(
        Operator([], [steps], grad_bytes=weight_grad + bias_grad, bias_grad_bytes=bias_grad, gemm=True)
    )
    added = part.ops.tape.new(y.numel, y.itemsize, "with the time embedding", tracked=y.tracked)
    part.ops.tape.record(Operator([y, steps], [added], flows=[(y, False), (steps, True)]))
    y = part.activation(part.group_norm(added, channels, NORM_GROUPS, "norm2"), "silu")
    y, _ = part.convolution((y, image), channels, 3, "conv2")
    if given.channels != channels:
        x, _ = part.convolution((x, given), channels, 1, "conv_shortcut")
    return part.ops.pointwise(part.ops.add(x, y, "sum"), "sum, divided", saves="nothing")


class Spatial:
    """Writes one transformer over the positions of an image."""

    def __init__(self, model: UNetModel, net: Net, image: Image, heads: int) -> None:
        self.model, self.net, self.image, self.heads = model, net, image, heads
        self.tokens = image.height * image.width
        self.numel = net.batch * image.numel

    def whole(self, part: ModuleBuilder, x: Tensor) -> Tensor:
        """A transformer of one block."""
        return self.out_of(part, self.block(part, self.into(part, x)), x)

    def into(self, part: ModuleBuilder, x: Tensor) -> Tensor:
        """A group norm and a projection; positions in rows are a view, but a linear layer asks for a copy."""
        d = self.image.channels
        y = part.group_norm(x, d, NORM_GROUPS, "norm")
        if self.model.use_linear_projection:
            return part.dense(part.ops.pointwise(y, "positions in rows", saves="nothing"), d, d, "proj_in")
        return part.convolution((y, self.image), d, 1, "proj_in")[0]

    def out_of(self, part: ModuleBuilder, x: Tensor, residual: Tensor) -> Tensor:
        """Back to an image, with what came in added."""
        d = self.image.channels
        if self.model.use_linear_projection:
            y = part.ops.pointwise(part.dense(x, d, d, "proj_out"), "image", saves="nothing")
        else:
            y, _ = part.convolution((part.ops.pointwise(x, "image", saves="nothing"), self.image), d, 1, "proj_out")
        return part.ops.add(y, residual, "transformer's answer")

    def block(self, part: ModuleBuilder, x: Tensor) -> Tensor:
        """Attention to itself, to the text, and a gated MLP, each after a norm.

        The block's function holds its input, and each attention's answer until the next one stands.
        """
        given, held = x, x
        for group, write in ((ATTENTION, self._itself), (CROSS, self._text), (MLP, self._mlp)):
            part.ops.tape.group = NORMS
            normed = part.normed(x, self.image.channels, "norm")
            part.ops.tape.group = group
            y = write(part, normed)
            part.ops.tape.touch(normed, held)
            held = y
            part.ops.tape.group = GROUPS
            x = part.ops.add(y, x, "residual stream")
        part.ops.tape.touch(given)
        return x

    def _itself(self, part: ModuleBuilder, x: Tensor) -> Tensor:
        d = self.image.channels
        q, k, v = (part.dense(x, d, d, name, bias=False) for name in ("to_q", "to_k", "to_v"))
        return self._attend(part, q, k, v, self.tokens)

    def _text(self, part: ModuleBuilder, x: Tensor) -> Tensor:
        d, wide, length = self.image.channels, self.model.cross_attention_dim, self.model.text_length
        storage = storage_of(self.net.batch * length * wide, self.net.recipe.stream, CROSS, "text")
        storage.borrowed = True
        text = Tensor(storage, storage.numel, storage.itemsize, tracked=False)
        q = part.dense(x, d, d, "to_q", bias=False)
        k, v = (part.dense(text, wide, d, name, bias=False) for name in ("to_k", "to_v"))
        return self._attend(part, q, k, v, length)

    def _attend(self, part: ModuleBuilder, q: Tensor, k: Tensor, v: Tensor, keys: int) -> Tensor:
        each = self.image.channels // self.heads
        heads = Heads(
            batch=self.net.batch,
            queries=self.tokens,
            keys=keys,
            heads=self.heads,
            kv_heads=self.heads,
            head_dim=each,
            value_dim=each,
        )
        if self.net.eager:
            out = eager_attention(part.ops, heads, (q, k, v), plain=True, masked=False)
        else:
            out = fused_attention(part.ops, heads, (q, k, v))
        y = part.dense(out, self.image.channels, self.image.channels, "to_out")
        part.ops.tape.touch(q, k, v)
        return part.ops.pointwise(y, "attention's answer, divided", saves="nothing")

    def _mlp(self, part: ModuleBuilder, x: Tensor) -> Tensor:
        """GEGLU: one projection to twice 4 d, of which one half is the gate."""
        d = self.image.channels
        both = part.dense(x, d, 8 * d, "ff_proj")
        value, gate = (part.ops.tape.view(both, 4 * self.numel) for _ in range(2))
        part.ops.tape.record(Operator([both], [value, gate], flows=[(both, True)]))
        return part.dense(part.ops.multiply(value, part.activation(gate, "gelu"), "gated"), 4 * d, d, "ff_out")
