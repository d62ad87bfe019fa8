"""Conditioned UNets (Rombach et al. 2022, Podell et al. 2023) as diffusers' UNet2DConditionModel has them.

Shapes: latents (b, c, y, x), at level l (b, c_l, y / 2^l, x / 2^l), text (b, t, j), steps (b, 4·c_0); b batch, c
channels, y and x sides. In the residual blocks and transformers between them (ResnetBlock2D, Transformer2DModel,
BasicTransformerBlock): as tokens (b, y·x, c), queries (b, n, y·x, c / n), keys and values of the text (b, n, t, c / n),
the gated MLP (b, y·x, 8·c) and (b, y·x, 4·c); n heads.
"""

from collections.abc import Sequence

from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import Device
from vramtui.core.schema.models import UNetModel
from vramtui.core.schema.workload import InferRun, TrainRun
from vramtui.estimators.analytic.ops.attention_kernels import Heads
from vramtui.estimators.analytic.ops.decoder_builder import class_loss
from vramtui.estimators.analytic.ops.module_builder import Image, ModuleBuilder, Net
from vramtui.estimators.analytic.tape import tape as tapes
from vramtui.estimators.torch_facts.allocator_sizes import rounded
from vramtui.models.spec import ConvModule, LinearModule, NormModule, RepeatedBlock
from vramtui.models.specs.nets import TRANSFORMER, TRANSFORMER_PARTS, heads_by_level, unet_spec


class Skip:
    """A tensor on its way past the stages between.

    Where autograd keeps it for its next operator anyway, only its gradient is followed; else it stands by itself from
    the end of the stage that reads it first, which may have `saved` it for its backward; `group` shows it meanwhile.
    """

    def __init__(self, x: tapes.Tensor, group: str, *, saved: bool) -> None:
        self.storage = tapes.storage_of(x.numel, x.itemsize, group, "waits for the way up")
        self.storage.borrowed = saved
        self.tensor = tapes.Tensor(self.storage, x.numel, x.itemsize, tracked=x.tracked)
        self.saved = saved

    def read(self, part: ModuleBuilder) -> None:
        """Read the connection at the start of the stage that reads it first, where its gradient is used up."""
        part.tape.nodes.append(tapes.Node(outs=[self.tensor]))

    def keep_until_end(self, part: ModuleBuilder) -> None:
        """Note at the end of that stage that its storage stays, unless the tape saved it."""
        if not self.saved:
            part.tape.nodes.append(tapes.Node(makes=[self.storage]))


RESNETS, GROUPS, SAMPLING, CROSS = (
    "activations: residual blocks",
    "activations: transformers",
    "activations: skips and sampling",
    "activations: cross-attention",
)
NORM_GROUPS = 32


def resnet(part: ModuleBuilder, x: tapes.Tensor, given: Image, block: RepeatedBlock) -> tapes.Tensor:
    """Two convolutions with norms, the time embedding added between; the sum is divided by 1."""
    y = part.activation(part.group_norm(x, block.module("norm1", NormModule), NORM_GROUPS), "silu")
    y, image = part.convolution((y, given), block.module("conv1", ConvModule))
    channels, times = image.channels, block.part(LinearModule)
    weight_grad, bias_grad = (part.add_parameter(times.name, *shape) for shape in times.shapes())
    steps = part.tape.new(part.net.batch * channels, y.itemsize, "time embedding, projected", tracked=part.net.trains)
    part.tape.record([], [steps], grad_bytes=weight_grad + bias_grad, bias_grad_bytes=bias_grad, gemm=True)
    added = part.tape.new(y.numel, y.itemsize, "with the time embedding", tracked=y.tracked)
    part.tape.record([y, steps], [added], flows=[(y, False), (steps, True)])
    y = part.activation(part.group_norm(added, block.module("norm2", NormModule), NORM_GROUPS), "silu")
    y, _ = part.convolution((y, image), block.module("conv2", ConvModule))
    if given.channels != channels:
        x, _ = part.convolution((x, given), block.module("conv_shortcut", ConvModule))
    return part.ops.unsaved(part.ops.add(x, y, "sum"), "sum, divided")


class Spatial:
    """Writes one transformer over the positions of an image, by the blocks that it is made of."""

    def __init__(self, model: UNetModel, net: Net, image: Image, heads: int, blocks: Sequence[RepeatedBlock]) -> None:
        self.model, self.net, self.image, self.heads = model, net, image, heads
        self.around, self.itself, self.crossed, self.mlp = blocks
        self.tokens = image.height * image.width
        self.numel = net.batch * image.numel

    def into(self, part: ModuleBuilder, x: tapes.Tensor) -> tapes.Tensor:
        """A group norm and a projection; positions in rows are a view, but a linear layer asks for a copy."""
        y = part.group_norm(x, self.around.part(NormModule), NORM_GROUPS)
        if self.model.use_linear_projection:
            rows = part.ops.unsaved(y, "positions in rows")
            return part.apply(rows, self.around.module("proj_in", LinearModule))
        return part.convolution((y, self.image), self.around.module("proj_in", ConvModule))[0]

    def out_of(self, part: ModuleBuilder, x: tapes.Tensor, residual: tapes.Tensor) -> tapes.Tensor:
        if self.model.use_linear_projection:
            y = part.apply(x, self.around.module("proj_out", LinearModule))
            y = part.ops.unsaved(y, "image")
        else:
            image = part.ops.unsaved(x, "image")
            y, _ = part.convolution((image, self.image), self.around.module("proj_out", ConvModule))
        return part.ops.add(y, residual, "transformer's answer")

    def block(self, part: ModuleBuilder, x: tapes.Tensor) -> tapes.Tensor:
        """Attention to itself, to the text, and a gated MLP, each after a norm.

        The block's function holds its input, and each attention's answer until the next one stands.
        """
        given, residual = x, x
        length = self.model.text_length
        wide = self.net.batch * length * self.model.cross_attention_dim
        text = tapes.borrowed(wide, self.net.recipe.stream, CROSS, "text")
        for group, block in zip(
            (tapes.ATTENTION, CROSS, tapes.MLP), (self.itself, self.crossed, self.mlp), strict=True
        ):
            part.tape.group = tapes.NORMS
            normed = part.normed_by(x, block.part(NormModule))
            part.tape.group = group
            if group == tapes.ATTENTION:
                y = self._attend(part, normed, normed, block, self.tokens)
            elif group == CROSS:
                y = self._attend(part, normed, text, block, length)
            else:  # GEGLU: one projection to twice 4 d; one half is the gate
                both = part.apply(normed, block.module("ff_proj", LinearModule))
                value, gate = part.ops.split(both, *[4 * self.numel] * 2)
                gated = part.ops.multiply(value, part.activation(gate, "gelu"), "gated")
                y = part.apply(gated, block.module("ff_out", LinearModule))
            part.tape.touch(normed, residual)
            residual = y
            part.tape.group = GROUPS
            x = part.ops.add(y, x, "residual stream")
        part.tape.touch(given)
        return x

    def _attend(
        self, part: ModuleBuilder, x: tapes.Tensor, other: tapes.Tensor, block: RepeatedBlock, keys: int
    ) -> tapes.Tensor:
        q = part.apply(x, block.module("to_q", LinearModule))
        k, v = (part.apply(other, block.module(name, LinearModule)) for name in ("to_k", "to_v"))
        each = self.image.channels // self.heads
        out = part.attend(Heads.of(self.net.batch, self.tokens, keys, self.heads, each), (q, k, v))
        y = part.apply(out, self.itself.module("to_out", LinearModule))  # as that of the other attention
        part.tape.touch(q, k, v)
        return part.ops.unsaved(y, "attention's answer, divided")


NOTES = (
    "cuDNN's workspaces are not counted: which algorithm it picks, and what that takes, is known only to it",
    "the text encoder and the VAE are not counted: they belong to the pipeline, not to the UNet",
)


class UNet:
    def __init__(self, model: UNetModel, run: TrainRun | InferRun, device: Device) -> None:
        self.model = model
        self.spec = unet_spec(model)
        if run.sequence_length is not None:
            raise UserError("run.sequence_length is for text; a UNet's own is model.text_length")
        if isinstance(run, InferRun) and run.new_tokens:
            raise UserError(f"run.new_tokens = {run.new_tokens}, but a UNet generates no tokens; leave it out")
        self.blocks = list(reversed(self.spec.blocks))
        self.net = Net(run, device)
        self.heads = heads_by_level(model)
        self.image = Image(model.in_channels, model.sample_size, model.sample_size)
        self.skips: list[tuple[Skip, int]] = []
        self.pending: Skip | None = None
        self.level_inputs: list[tapes.Tensor] = []
        self.plain = self.net.training and not self.net.recipe.autocast

    def program(self) -> tapes.Program:
        model, net = self.model, self.net
        # The time embedding, what SDXL adds to it, and the first convolution.
        part = net.part(tapes.EMBEDDINGS)
        for name in ("time_embedding", *(("add_embedding",) if self.model.addition_embed_dim is not None else ())):
            first, second = (self.spec.module(f"{name}_{number}", LinearModule) for number in (1, 2))
            x = part.tape.new(net.batch * first.in_features, net.recipe.stream, f"{name} input", tracked=False)
            part.tape.record([], [x])
            part.apply(part.activation(part.apply(x, first), "silu"), second)
        x = part.tape.take_in(net.batch * self.image.numel, net.recipe.stream)
        x, self.image = part.convolution((x, self.image), self.spec.module("conv_in", ConvModule))
        part.finish(x)
        self._remember()
        for level in range(len(model.block_out_channels)):
            for _ in range(model.layers_per_block):
                self._resnet()
                self._attend(level)
                self._remember()
            if level < len(model.block_out_channels) - 1:
                part, x = self._open(SAMPLING)
                x, self.image = part.convolution((x, self.image), self.blocks.pop().part(ConvModule), stride=2)
                self._close(part, x)
                self._remember()
        self._resnet(checkpointed=False)
        self._attend(len(model.block_out_channels) - 1)
        self._resnet()
        for level in reversed(range(len(model.block_out_channels))):
            # A level holds what came from below and all of its skips until it is through.
            self.level_inputs = []
            if not net.training:
                self.pending = Skip(self._last(), SAMPLING, saved=False)
                self.level_inputs.append(self.pending.tensor)
            for _ in range(model.layers_per_block + 1):
                waiting, channels = self.skips.pop()
                self.level_inputs.append(waiting.tensor)
                # What comes from below and the skip, one behind the other.
                part, x = self._open(SAMPLING)
                self.image = Image(self.image.channels + channels, self.image.height, self.image.width)
                numel = net.batch * self.image.numel
                joined = part.tape.new(numel, x.itemsize, "joined with the skip", tracked=x.tracked)
                part.tape.record([x], [joined], flows=[(x, True), (waiting.tensor, True)])
                self._close(part, joined)
                self._resnet()
                self._attend(level)
            if level:
                part, x = self._open(SAMPLING)
                self.image = Image(self.image.channels, 2 * self.image.height, 2 * self.image.width)
                larger = part.ops.unsaved(x, "interpolated", net.batch * self.image.numel)
                x, self.image = part.convolution((larger, self.image), self.blocks.pop().part(ConvModule))
                part.tape.touch(*self.level_inputs)
                self._close(part, x)
        block = self.blocks.pop()
        part, x = self._open(tapes.HEAD)
        x = part.activation(part.group_norm(x, block.part(NormModule), NORM_GROUPS), "silu")
        x, _ = part.convolution((x, self.image), block.part(ConvModule))
        if net.training:
            net.loss = class_loss(part.ops, part.ops.cast(x, 4, "answer in fp32"), "mse")
        part.tape.touch(*self.level_inputs)
        part.finish(None if net.training else x)
        size, itemsize = self.net.batch * model.sample_size**2, net.recipe.stream
        inputs = rounded(size * model.in_channels * itemsize)
        inputs += rounded(net.batch * model.text_length * model.cross_attention_dim * itemsize) + rounded(8 * net.batch)
        inputs += rounded(net.batch * (model.addition_embed_dim or 0) * itemsize)
        inputs += rounded(size * model.out_channels * itemsize) if net.training else 0
        side = model.sample_size
        return net.program(
            inputs=inputs,
            inputs_formula=f"{net.batch} latents of {model.in_channels} x {side} x {side}, text of {model.text_length} "
            f"x {model.cross_attention_dim}, steps{', noise' if net.training else ''}",
            layers=sum(model.transformer_layers_per_block),
            notes=NOTES,
        )

    def _open(self, group: str) -> tuple[ModuleBuilder, tapes.Tensor]:
        part = self.net.part(group, layer=True)
        x = part.input()
        if self.pending is not None:
            self.pending.read(part)
        return part, x

    def _close(self, part: ModuleBuilder, x: tapes.Tensor, *, checkpointed: bool = False) -> None:
        """The stage that came after a skip's own is the first to read it."""
        if self.pending is not None:
            self.pending.keep_until_end(part)
            self.pending = None
        part.finish(x, checkpointed=checkpointed)

    def _remember(self) -> None:
        """Remember the last stage's output, which the way up needs too; a checkpoint keeps it for itself."""
        x = self._last()
        is_saved = self.net.training and (self.net.checkpointed or (self.plain and x.tracked))
        self.pending = Skip(x, SAMPLING, saved=is_saved)
        self.skips.append((self.pending, self.image.channels))

    def _resnet(self, *, checkpointed: bool = True) -> None:
        """A residual block; those of one size are written once, unless a skip is taken up in them."""
        x, block = self._last(), self.blocks.pop()
        channels = block.module("conv1", ConvModule).out_channels
        key = None if self.pending else (RESNETS, self.image, channels, checkpointed, x.itemsize, x.tracked)

        def write() -> None:
            part, x = self._open(RESNETS)
            x = resnet(part, x, self.image, block)
            self._close(part, x, checkpointed=checkpointed)

        self.net.once(key, write)
        self.image = Image(channels, self.image.height, self.image.width)

    def _attend(self, level: int) -> None:
        """The transformer after a residual block, where there is one; those of one size are written once."""
        if self.blocks[-1].name != TRANSFORMER:
            return
        blocks = [self.blocks.pop() for _ in TRANSFORMER_PARTS]
        x, layers = self._last(), blocks[1].stop - blocks[1].start
        spatial = Spatial(self.model, self.net, self.image, self.heads[level], blocks)
        key = (self.heads[level], layers, self.image, x.numel, x.itemsize, x.tracked)
        self.net.once(key, lambda: self._transformer(spatial, layers))

    def _transformer(self, spatial: Spatial, layers: int) -> None:
        part, x = self._open(GROUPS)
        if layers == 1 and not self.net.checkpointed:
            self._close(part, spatial.out_of(part, spatial.block(part, spatial.into(part, x)), x))
            return
        residual = Skip(x, GROUPS, saved=self.plain and x.tracked)
        residual.read(part)
        inner = spatial.into(part, x)
        residual.keep_until_end(part)
        self._close(part, inner)
        self.net.repeat(GROUPS, layers, spatial.block)
        part = self.net.part(GROUPS, layer=True)
        part.finish(spatial.out_of(part, part.input(), residual.tensor))

    def _last(self) -> tapes.Tensor:
        output = self.net.stages[-1].tape.output
        assert output is not None
        return output
