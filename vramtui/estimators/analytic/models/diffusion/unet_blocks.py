"""A UNet's residual blocks and the transformers between them, on a tape (diffusers' ResnetBlock2D, Transformer2DModel,
BasicTransformerBlock).

Shapes: image (b, c, y, x), as tokens (b, y·x, c), text (b, t, j), queries (b, n, y·x, c / n), keys and values of the
text (b, n, t, c / n), the gated MLP (b, y·x, 8·c) and (b, y·x, 4·c); b batch, c channels, n heads.
"""

from collections.abc import Sequence

from vramtui.core.schema.encoder_models import UNetModel
from vramtui.estimators.analytic.ops.attention_kernels import Heads
from vramtui.estimators.analytic.ops.module_builder import Image, ModuleBuilder, Net
from vramtui.estimators.analytic.tape.meter import ATTENTION, MLP, NORMS
from vramtui.estimators.analytic.tape.tape import Operator, Tensor, storage_of
from vramtui.models.kinds.conv import ConvModule
from vramtui.models.kinds.linear import LinearModule
from vramtui.models.kinds.norm import NormModule
from vramtui.models.spec import RepeatedBlock

RESNETS, GROUPS, SAMPLING, CROSS = (
    "activations: residual blocks",
    "activations: transformers",
    "activations: skips and sampling",
    "activations: cross-attention",
)
NORM_GROUPS = 32


def resnet(part: ModuleBuilder, x: Tensor, given: Image, block: RepeatedBlock) -> Tensor:
    """Two convolutions with norms, the time embedding added between; the sum is divided by 1."""
    y = part.activation(part.group_norm(x, block.module("norm1", NormModule), NORM_GROUPS), "silu")
    y, image = part.convolution((y, given), block.module("conv1", ConvModule))
    channels, times = image.channels, block.part(LinearModule)
    weight_grad, bias_grad = (part.add_parameter(times.name, *shape) for shape in times.shapes())
    steps = part.ops.tape.new(
        part.net.batch * channels, y.itemsize, "time embedding, projected", tracked=part.net.trains
    )
    part.ops.tape.record(
        Operator([], [steps], grad_bytes=weight_grad + bias_grad, bias_grad_bytes=bias_grad, gemm=True)
    )
    added = part.ops.tape.new(y.numel, y.itemsize, "with the time embedding", tracked=y.tracked)
    part.ops.tape.record(Operator([y, steps], [added], flows=[(y, False), (steps, True)]))
    y = part.activation(part.group_norm(added, block.module("norm2", NormModule), NORM_GROUPS), "silu")
    y, _ = part.convolution((y, image), block.module("conv2", ConvModule))
    if given.channels != channels:
        x, _ = part.convolution((x, given), block.module("conv_shortcut", ConvModule))
    return part.ops.pointwise(part.ops.add(x, y, "sum"), "sum, divided", saves="nothing")


class Spatial:
    """Writes one transformer over the positions of an image, by the blocks that it is made of."""

    def __init__(self, model: UNetModel, net: Net, image: Image, heads: int, blocks: Sequence[RepeatedBlock]) -> None:
        self.model, self.net, self.image, self.heads = model, net, image, heads
        self.around, self.itself, self.crossed, self.mlp = blocks
        self.tokens = image.height * image.width
        self.numel = net.batch * image.numel

    def whole(self, part: ModuleBuilder, x: Tensor) -> Tensor:
        """A transformer of one block."""
        return self.out_of(part, self.block(part, self.into(part, x)), x)

    def into(self, part: ModuleBuilder, x: Tensor) -> Tensor:
        """A group norm and a projection; positions in rows are a view, but a linear layer asks for a copy."""
        y = part.group_norm(x, self.around.part(NormModule), NORM_GROUPS)
        if self.model.use_linear_projection:
            rows = part.ops.pointwise(y, "positions in rows", saves="nothing")
            return part.apply(rows, self.around.module("proj_in", LinearModule))
        return part.convolution((y, self.image), self.around.module("proj_in", ConvModule))[0]

    def out_of(self, part: ModuleBuilder, x: Tensor, residual: Tensor) -> Tensor:
        """Back to an image, with what came in added."""
        if self.model.use_linear_projection:
            y = part.apply(x, self.around.module("proj_out", LinearModule))
            y = part.ops.pointwise(y, "image", saves="nothing")
        else:
            image = part.ops.pointwise(x, "image", saves="nothing")
            y, _ = part.convolution((image, self.image), self.around.module("proj_out", ConvModule))
        return part.ops.add(y, residual, "transformer's answer")

    def block(self, part: ModuleBuilder, x: Tensor) -> Tensor:
        """Attention to itself, to the text, and a gated MLP, each after a norm.

        The block's function holds its input, and each attention's answer until the next one stands.
        """
        given, residual = x, x
        writers = (self._itself, self._text, self._gated)
        blocks = (self.itself, self.crossed, self.mlp)
        for group, block, write in zip((ATTENTION, CROSS, MLP), blocks, writers, strict=True):
            part.ops.tape.group = NORMS
            normed = part.normed_by(x, block.part(NormModule))
            part.ops.tape.group = group
            y = write(part, normed)
            part.ops.tape.touch(normed, residual)
            residual = y
            part.ops.tape.group = GROUPS
            x = part.ops.add(y, x, "residual stream")
        part.ops.tape.touch(given)
        return x

    def _itself(self, part: ModuleBuilder, x: Tensor) -> Tensor:
        q, k, v = (part.apply(x, self.itself.module(name, LinearModule)) for name in ("to_q", "to_k", "to_v"))
        return self._attend(part, q, k, v, self.tokens)

    def _text(self, part: ModuleBuilder, x: Tensor) -> Tensor:
        wide, length = self.model.cross_attention_dim, self.model.text_length
        storage = storage_of(self.net.batch * length * wide, self.net.recipe.stream, CROSS, "text")
        storage.borrowed = True
        text = Tensor(storage, storage.numel, storage.itemsize, tracked=False)
        q = part.apply(x, self.crossed.module("to_q", LinearModule))
        k, v = (part.apply(text, self.crossed.module(name, LinearModule)) for name in ("to_k", "to_v"))
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
        out = part.attend(heads, (q, k, v))
        y = part.apply(out, self.itself.module("to_out", LinearModule))  # as that of the other attention
        part.ops.tape.touch(q, k, v)
        return part.ops.pointwise(y, "attention's answer, divided", saves="nothing")

    def _gated(self, part: ModuleBuilder, x: Tensor) -> Tensor:
        """GEGLU: one projection to twice 4 d, of which one half is the gate."""
        both = part.apply(x, self.mlp.module("ff_proj", LinearModule))
        value, gate = (part.ops.tape.view(both, 4 * self.numel) for _ in range(2))
        part.ops.tape.record(Operator([both], [value, gate], flows=[(both, True)]))
        gated = part.ops.multiply(value, part.activation(gate, "gelu"), "gated")
        return part.apply(gated, self.mlp.module("ff_out", LinearModule))
