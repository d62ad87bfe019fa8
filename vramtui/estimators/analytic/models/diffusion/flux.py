"""Diffusion transformers with two streams (Esser et al. 2024) as diffusers' FluxTransformer2DModel,
SD3Transformer2DModel and QwenImageTransformer2DModel have them.

Shapes: latents (b, i, c), text (b, t, j), its pooled vector (b, p), steps (b, 256); both streams as one (b, i + t, h);
b batch, i latents of an image, t words, h = heads times the width of one.
"""

from itertools import pairwise

from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import Device
from vramtui.core.schema.encoder_models import DiffusionTransformerModel
from vramtui.core.schema.workload import InferRun, TrainRun
from vramtui.estimators.analytic.models.diffusion.flux_blocks import Streams
from vramtui.estimators.analytic.models.diffusion.wan import WanTransformer
from vramtui.estimators.analytic.ops.loss import class_loss
from vramtui.estimators.analytic.ops.module_builder import Net
from vramtui.estimators.analytic.tape.meter import EMBEDDINGS, HEAD, NORMS, STREAM
from vramtui.estimators.analytic.tape.program import Program
from vramtui.estimators.analytic.tape.tape import Operator, Tensor, storage_of
from vramtui.estimators.torch_facts.allocator_sizes import rounded
from vramtui.models.kinds.linear import LinearModule
from vramtui.models.kinds.norm import NormModule
from vramtui.models.specs.diffusion_transformer import diffusion_transformer_spec

NOTES = ("the text encoders and the VAE are not counted: they belong to the pipeline, not to the transformer",)


class DiffusionTransformer:
    """Writes one transformer.

    Raises:
        UserError: the shapes or the run contradict each other.
    """

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
            part.ops.tape.record(Operator([], [turns]))
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
            part.ops.tape.record(Operator([x], [image], flows=[(x, True)]))
        part.add_parameters(self.spec.module("norm_out", LinearModule))
        y = streams.modulated(part, image)
        part.ops.tape.group = HEAD
        y = part.apply(y, self.spec.module("proj_out", LinearModule))
        if net.training:
            net.loss = class_loss(part.ops, part.ops.cast(y, 4, "answer in fp32"), "mse")
        part.finish(None if net.training else y)


def check(model: DiffusionTransformerModel, run: TrainRun | InferRun) -> None:
    """Refuse what cannot be.

    Raises:
        UserError: a sentence naming the keys that contradict each other.
    """
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
    """The program of a diffusion transformer: one step of its training, or one answer for a batch of latents.

    Raises:
        UserError: the shapes or the run contradict each other.
    """
    if model.design == "wan":
        return WanTransformer(model, run, device).program()
    return DiffusionTransformer(model, run, device).program()
