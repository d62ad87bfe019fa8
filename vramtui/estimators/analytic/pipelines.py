"""A pipeline's estimate: whose turn is the fullest, with all parts on the GPU, one at a time, or one layer at a time.

Source: diffusers 0.42, pipeline_utils.py (enable_model_cpu_offload moves a part back before the next one comes, and
empties the cache; enable_sequential_cpu_offload brings each layer for its own call). Text encoders: transformers 5.23,
modeling_clip.py, modeling_t5.py, modeling_qwen2_5_vl.py; nothing is kept for a backward pass, and their shapes are
small compared with any denoiser's, so that whole tensors are counted and no operator is followed. VAEs: diffusers 0.42,
autoencoders/vae.py, resnet.py and autoencoder_kl_wan.py, followed line by line; cuDNN 9.20's own choice for each
convolution copies what it reads and what it makes into channels-last workspaces.

Shapes: an encoder's stream (b, s, h), MLP (b, s, i), biases (n, s, s), logits (b, s, v), images (b, c, y, x), videos
(b, c, f, y, x); b prompts of s tokens or batch, c channels, f frames of a chunk.
"""

from collections.abc import Iterable
from math import ceil, prod

import msgspec
from msgspec.structs import replace

from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate, Phase
from vramtui.core.schema.models import PipelineModel, PipelineVae, TensorGroup, UNetModel
from vramtui.core.schema.workload import InferRun, Parallel, Quantization, TrainRun
from vramtui.estimators.analytic.assemble import Cached, Fact, MomentLog, assemble, passing_facts
from vramtui.estimators.analytic.models.registry import program_of
from vramtui.estimators.analytic.parallel import estimate_alike, sharing_of
from vramtui.estimators.analytic.sizes import precision as precisions
from vramtui.estimators.analytic.sizes.runtime import workspace_for
from vramtui.estimators.analytic.tape.tape import BytesByGroup, prefilled, summed
from vramtui.estimators.analytic.training import Trainer
from vramtui.models.spec import Parameter

# Tensors of the stream's size that a block holds at its attention: the stream, its norm in fp32 and back, queries,
# keys, values and the answer.
STREAMS = 8
# Copies of T5's biases that are there at once: 2 in T5, 3 in UMT5, whose blocks make one each.
BIASES = 3
TAILS = "weight tails"
WORDS = {"none": "from build to the end", "model": "while its turn lasts", "sequential": "while its layer runs"}
NOTE_CUDNN = (
    "the VAE's convolutions take cuDNN's channels-last copies, as cuDNN 9.20 chose on capability 9.0; what a UNet's "
    "take is not counted"
)
FP32 = 4
# Share of a VAE's tensors that stays cached beyond the peak of allocated, fitted on the runs of six pipelines on the
# CUDA build (0.83 to 1.03 of SDXL, SD 3.5 and FLUX; 0.24 and 0.5 of Qwen-Image and Wan), which the stated error is of.
CACHED_SHARES = {"images": 0.9, "video": 0.4}
# The same where layers come one by one, of one run of SDXL.
SEQUENTIAL_SHARE = 0.11
STATED_ERROR = 0.1
CHOICES = {
    "none": 'all parts stay on the card (run.offload = "none")',
    "model": "one part is on the card at a time, as after enable_model_cpu_offload()",
    "sequential": "one layer is on the card at a time, as after enable_sequential_cpu_offload()",
}
SEEN = 2  # the frames before that a causal convolution looks at
# Tiles of videos overlap by a quarter of their side, those of images as well: that many more of them are made.
OVERLAP = 0.25


# Parts of a pipeline with fewer numbers (CLIP, VAEs) are not quantized by anybody's recipe.
LARGE_PART = 10**9
QUANTIZED_NOTE = (
    "run.quantization is of the denoiser, and of large text encoders unless it is a GGUF type or "
    "run.encoder_quantization says otherwise; weights are unpacked for each product in passing"
)


def _parameters(
    part: str, groups: Iterable[TensorGroup], bits: int | None, raised: tuple[str, ...] | None = None
) -> list[Parameter]:
    """The tensors of a part, at `bits` a number where they are given: all of them, or only those that are `raised`."""
    return [
        Parameter(f"{part}.{group.name}", group.shape, group.count, group.place == "layers", own or group.bits)
        for group in groups
        for own in [bits if raised is None or group.name in raised else None]
    ]


class Turn(msgspec.Struct, frozen=True):
    """One part's turn: its weights, what it holds besides them at its fullest, and when it is.

    `itemsize` is of a number of its tensors without bits of their own, which `quantization` may shrink.
    """

    name: str
    tensors: tuple[Parameter, ...]
    itemsize: int
    phase: Phase
    memory: BytesByGroup
    quantization: Quantization | None = None
    upcast: int = 0

    def stored(self, tensors: Iterable[Parameter]) -> precisions.BlockBytes:
        if self.quantization is None:
            return precisions.block_bytes(tensors, self.itemsize)
        return precisions.quantized(tensors, self.itemsize, self.quantization, 1)


class PipelineJob:
    def __init__(self, model: PipelineModel, run: InferRun | TrainRun, device: Device) -> None:
        self.model, self.run, self.device = model, run, device
        self.itemsize = 2 if run.precision.endswith("mixed") else precisions.inference_recipe(run.precision).weights
        self.batch = run.batch_size
        copies, packed = 1, None
        if isinstance(run, InferRun):
            copies = model.guidance_batch  # of each image in the denoiser's batch
            packed = run.encoder_quantization or (
                None if run.quantization in precisions.EVERYTHING else run.quantization
            )
            run = replace(run, quantization=None)
        self.encoder_quantization: Quantization | None = None if packed == "none" else packed
        self.program = program_of(model.denoiser, replace(run, batch_size=self.batch * copies), device)

    @property
    def size(self) -> tuple[int, int]:
        denoiser = self.model.denoiser
        if isinstance(denoiser, UNetModel):
            side = denoiser.sample_size * self.model.vae.spatial_factor
            return side, side
        return denoiser.size

    @property
    def frames(self) -> int:
        return 1 if isinstance(self.model.denoiser, UNetModel) else self.model.denoiser.latent_frames

    def vae_tensors(self) -> tuple[Parameter, ...]:
        """Every tensor of the VAE, in fp32 if it is kept so."""
        vae = self.model.vae
        return tuple(_parameters("vae", vae.tensors, 8 * FP32 if vae.fp32 else None))

    def encoders(self) -> list[Turn]:
        """The encoders' turns; with guidance the empty prompt is read after the other one."""
        itemsize, turns = self.itemsize, []
        for one in self.model.encoders:
            # In a pipeline of fp16 some tensors stay in fp32, and under bitsandbytes, which does not quantize them;
            # torchao leaves them as they are (transformers 5.23, quantizers: use_keep_in_fp32_modules).
            packed = self.encoder_quantization
            if packed is not None and sum(prod(group.shape) * group.count for group in one.tensors) < LARGE_PART:
                packed = None
            halves = self.run.precision.startswith("fp16")
            raised, exact_bits = one.fp32_in_fp16 if packed or halves else (), 8 * FP32
            if packed not in {None, "int8", "nf4", "nf4-double"} and not halves:
                exact_bits = 8 * itemsize
            tensors = tuple(_parameters(one.name, one.tensors, exact_bits, raised))
            tokens = self.batch * one.tokens
            stream = tokens * one.hidden_size * itemsize
            # A bias for each pair of tokens: what all blocks share or one block makes, and what a kernel copies of it.
            biases = BIASES * one.num_attention_heads * one.tokens**2 * itemsize if one.position_bias else 0
            mlp = 3 * stream + (3 if one.gated_mlp else 2) * tokens * one.intermediate_size * itemsize
            states = one.num_hidden_layers * stream if one.keeps_states else 0
            logits = tokens * (one.output_size or 0) * itemsize
            reading = states + max(STREAMS * stream + biases, mlp, 2 * stream + logits)
            memory = {f"activations: {one.name}": reading}
            turns.append(Turn(one.name, tensors, itemsize, "input", memory, packed))
        return turns

    def turns(self, run: InferRun) -> list[Turn]:
        """The encoders', the denoiser's (and the second one's), and the VAE's."""
        vae, program = self.model.vae, self.program
        done = prefilled(program.stages)
        fullest = max((done.early, done.late, done.end), key=lambda sizes: sum(sizes.values()))
        name = "unet" if isinstance(self.model.denoiser, UNetModel) else "transformer"
        turns = self.encoders()
        for one in [name, f"{name}_2"][: self.model.denoisers]:
            frozen, size, packed = program.frozen, program.recipe.frozen, run.quantization
            if packed == "fp8" and self.encoder_quantization is None:
                # diffusers' enable_layerwise_casting passes over norms, and what makes their scales.
                frozen = tuple(replace(tensor, layer=False) if "norm" in tensor.module else tensor for tensor in frozen)
            turns.append(Turn(one, frozen, size, "forward", fullest, packed))
        # Only pipelines with a UNet look at it (diffusers 0.42, `needs_upcasting`).
        halves = run.precision.startswith("fp16") and isinstance(self.model.denoiser, UNetModel)
        raised = vae.fp32 or (vae.force_upcast and halves)
        itemsize, at_once = FP32 if raised else self.itemsize, 1 if run.vae_slicing else self.batch
        size = decoding_bytes(vae, self.size, self.frames, at_once, itemsize, tiled=bool(run.vae_tiling))
        height, width = self.size
        memory = {"activations: vae": size + (self.batch - at_once) * 3 * height * width * itemsize}
        tensors = self.vae_tensors()
        upcast = (
            precisions.block_bytes(tensors, self.itemsize).bytes if itemsize > self.itemsize and not vae.fp32 else 0
        )
        return [*turns, Turn("vae", tensors, self.itemsize, "decode", memory, upcast=upcast)]


def estimate_pipeline(model: PipelineModel, run: InferRun, device: Device) -> Estimate:
    job = PipelineJob(model, run, device)
    program, turns, way = job.program, job.turns(run), run.offload or "none"
    blocks = {turn.name: turn.stored(turn.tensors) for turn in turns}
    workspace = workspace_for(run, device)
    constant = {"inputs": program.inputs, "workspaces": workspace.persistent}

    def resident(now: Turn | None) -> BytesByGroup:
        """The weights on the GPU while it is `now`'s turn; None for before the first."""
        there: BytesByGroup = {}
        for turn in turns:
            own, whole = turn is now, blocks[turn.name]
            if way == "sequential":  # its largest tensor
                each = (turn.stored([replace(tensor, count=1)]).bytes for tensor in turn.tensors)
                size = max(each, default=0) if own else 0
            else:
                size = whole.bytes if own or way == "none" else 0
                there[TAILS] = there.get(TAILS, 0) + (whole.tails if size else 0)
                size += turn.upcast if own else 0
            there[f"weights: {turn.name}"] = size
        return there

    moments = MomentLog()
    moments.note("build", 0, resident(None))
    for turn in turns:
        weights = summed(resident(turn), {"buffers": program.buffers}, constant)
        moments.note(turn.phase, 0, summed(weights, turn.memory, {"workspaces": workspace.passing}), end=False)
        moments.note(turn.phase, 0, weights)
    notes = (NOTE_CUDNN, *(note for note in program.notes if "not counted" not in note), CHOICES[way])
    notes += (QUANTIZED_NOTE,) if run.quantization or run.encoder_quantization else ()
    lasts, facts = WORDS[way], dict[str, Fact]()
    for turn in turns:
        own, numbers = blocks[turn.name], precisions.numel_of(turn.tensors)
        words = f"{numbers:,} parameters, {8 * own.bytes / numbers:.3g} bits each in blocks of 512 B"
        facts[f"weights: {turn.name}"] = Fact(
            "weights", words, "the model's shapes", lasts, bytes=own.bytes, count=own.count
        )
    words, tails = "what tensors of 10 MiB and more hold beyond their size", sum(own.tails for own in blocks.values())
    facts[TAILS] = Fact("weights", words, "PyTorch, c10/cuda/CUDACachingAllocator.cpp", lasts, bytes=tails)
    facts["buffers"] = Fact(
        "weights", program.buffers_formula or "positions", "the model's code", lasts, bytes=program.buffers
    )
    for turn in turns:
        for name, size in turn.memory.items():
            if name.endswith(turn.name):
                facts[name] = _passing(turn.name, size)
    facts |= passing_facts(program, program.stages, workspace, f"a batch of {run.batch_size}")
    share = SEQUENTIAL_SHARE if way == "sequential" else CACHED_SHARES[model.vae.design]
    return replace(assemble(moments, facts, device, notes, cache=Cached(share)), error=STATED_ERROR)


def estimate_pipeline_training(model: PipelineModel, run: TrainRun, device: Device, parallel: Parallel) -> Estimate:
    """The estimate of a job that trains the denoiser with frozen encoders and a frozen VAE, or without them.

    Raises:
        UserError: layers are asked for one by one, or weights are sharded: scripts keep the frozen parts whole.
    """
    if parallel.ranks > 1 and sharing_of(parallel).stage > 2:
        raise UserError("a pipeline's training on several GPUs is estimated as DDP; only its denoiser can be sharded")
    if run.offload == "sequential":
        raise UserError('run.offload = "sequential" brings layers one by one, which is for inference; use "model"')
    job = PipelineJob(model, run, device)
    where = "are off the card while the denoiser is trained (run.offload)"
    frozen, before = job.program.frozen, dict[str, Fact]()
    if run.offload != "model":
        where, encoders = "stay on the card, frozen, and read each batch first", job.encoders()
        itemsize = FP32 if model.vae.fp32 or model.vae.force_upcast else job.itemsize
        stored = [replace(tensor, bits=tensor.bits or 8 * job.itemsize) for turn in encoders for tensor in turn.tensors]
        frozen = (*frozen, *stored, *(replace(tensor, bits=8 * itemsize) for tensor in job.vae_tensors()))
        sizes = {turn.name: size for turn in encoders for size in turn.memory.values()}
        # The VAE holds most while it makes latents at its first residual blocks, which have all pixels.
        vae, frames, pixels = model.vae, job.frames, job.batch * job.size[0] * job.size[1]
        tensors, chunk = (6, min(4, frames)) if vae.design == "video" else (4, 1)
        inside = tensors * (chunk * pixels // vae.patch_size**2) * vae.block_out_channels[0]
        sizes["vae"] = (inside + 3 * frames * pixels) * itemsize
        size, fullest = max((size, name) for name, size in sizes.items())
        before[f"activations: {fullest}"] = _passing(fullest, size)
    notes = (note for note in job.program.notes if "belong to the pipeline" not in note)
    program = replace(job.program, notes=(*notes, f"text encoders and VAE {where}"), frozen=frozen)
    if parallel.ranks > 1:
        return estimate_alike(program, run, device, parallel, before)
    return Trainer(program, run, device, before).estimate()


def _passing(name: str, size: int) -> Fact:
    words = f"tensors on their way through {name}, at their fullest; none is kept"
    return Fact("activations", words, "diffusers 0.42: the pipeline's own code", "while its turn lasts", bytes=size)


# --- the VAE -------------------------------------------------------------------------------------------------------


def decoding_bytes(
    vae: PipelineVae, size: tuple[int, int], frames: int, batch: int, itemsize: int, *, tiled: bool = False
) -> int:
    """The most that a VAE holds over `batch` images or videos of `size` (height and width) pixels, in bytes.

    `frames` are those of latents. If `tiled`, larger images are decoded in tiles, which are put together.
    """
    height, width = size
    decoded_frames = 1 + (frames - 1) * (1 << sum(vae.temporal_upsample)) if vae.design == "video" else 1
    decoded = batch * vae.out_channels * decoded_frames * height * width * itemsize // vae.patch_size**2
    inside = height, width
    if tiled and max(size) > vae.tile_size:
        inside = min(height, vae.tile_size), min(width, vae.tile_size)
        decoded = ceil(decoded * (2 + 2 * OVERLAP))
    if vae.design == "video":
        return _video(vae, inside, frames, batch, itemsize) + (2 if frames > 1 else 1) * decoded
    # The fullest moment of AutoencoderKL's decoder; a level's input is held until it is through.
    channels = vae.block_out_channels[::-1]
    side = 1 << (len(channels) - 1)
    pixels = batch * (inside[0] // side) * (inside[1] // side)
    most, inner = _resnet(channels[0], channels[0]) * pixels, channels[0]
    for level, outer in enumerate(channels):
        given = inner * pixels
        for block in range(vae.layers_per_block + 1):
            most = max(most, (given if block else 0) + _resnet(inner, outer) * pixels)
            inner = outer
        if level < len(channels) - 1:
            most = max(most, given + (inner + 4 * 4 * inner) * pixels)
            pixels *= 4
    return (most * itemsize) + decoded


def _resnet(inner: int, outer: int) -> int:
    """Numbers for each pixel of a block's fullest convolution, what cuDNN copies included."""
    return 5 * inner if inner == outer else max(3 * inner + 2 * outer, 2 * inner + 3 * outer, inner + 4 * outer)


def _video(vae: PipelineVae, size: tuple[int, int], frames: int, batch: int, itemsize: int) -> int:
    """The fullest moment of a later chunk, with the frames that all convolutions remember.

    Each level from the latents outwards has channels that come in (`inner`) and go out, frames of a chunk, and pixels
    of one frame; frames are doubled in some levels, and pixels in all but the last.
    """
    most = remembered = 0
    channels = vae.block_out_channels[::-1]
    side = 1 << (len(channels) - 1) * vae.patch_size
    pixels = (size[0] // side) * (size[1] // side)
    chunk, inner, seen = 1, channels[0], SEEN if frames > 1 else 1
    for level, outer in enumerate(channels):
        larger = level < len(channels) - 1
        upsampled = level < len(vae.temporal_upsample) and vae.temporal_upsample[level]
        doubled = frames > 1 and upsampled and larger
        places = chunk * pixels
        shortcut = inner * places if vae.residual and larger else 0
        widths = [inner, *[outer] * (2 * vae.layers_per_block + 1)]
        remembered += sum(widths) * seen * pixels + (outer * seen * pixels if doubled else 0)
        given = inner * places
        for block, width in enumerate((inner, outer)):
            # A residual block: its shortcut, and its norm in fp32 or what its convolution reads with the frames before
            # and zeros around it.
            x, rest = width * places, shortcut + (given if block else 0) + (outer * places if width != outer else 0)
            normed = 4 * x if itemsize == FP32 else (2 * (FP32 // itemsize) + 2) * x
            convolved = 2 * x + width * pixels * (seen + 2 * (chunk + SEEN)) + 2 * outer * places
            most = max(most, rest + max(normed, convolved))
        if larger:
            wide = places * (2 if doubled else 1)
            half = outer if vae.residual else outer // 2
            raised = FP32 // itemsize if itemsize < FP32 else 0
            most = max(most, shortcut + given + (2 + 4 * (1 + raised)) * outer * wide)
            most = max(most, shortcut + given + (2 + 4 + 4) * outer * wide + 2 * 4 * half * wide)
        inner = outer if vae.residual else outer // 2
        chunk *= 2 if doubled else 1
        pixels *= 4 if larger else 1
    remembered += vae.block_out_channels[0] * seen * pixels
    return batch * (most + remembered) * itemsize
