"""A pipeline's estimate: whose turn is the fullest, with all parts on the card, one at a time, or one layer at a time.

Source: diffusers 0.42, pipeline_utils.py (enable_model_cpu_offload moves a part back before the next one comes, and
empties the cache; enable_sequential_cpu_offload brings each layer for its own call). Text encoders: transformers 5.23,
modeling_clip.py, modeling_t5.py, modeling_qwen2_5_vl.py; nothing is kept for a backward pass, and their shapes are
small beside any denoiser's, so that whole tensors are counted and no operator is followed.

Shapes of an encoder: stream (b, s, h), MLP (b, s, i), biases (n, s, s), logits (b, s, v); b prompts of s tokens.
"""

from collections.abc import Iterable

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate, Phase
from vramtui.core.schema.encoder_models import PipelineEncoder, PipelineModel, PipelineVae, UNetModel
from vramtui.core.schema.stored_tensors import TensorGroup
from vramtui.core.schema.workload import InferRun, Precision, TrainRun
from vramtui.estimators.analytic.assemble import Cached, Fact, MomentLog, assemble, passing_facts
from vramtui.estimators.analytic.models.registry import program_of
from vramtui.estimators.analytic.pipelines.vae import decoding_bytes, encoding_bytes
from vramtui.estimators.analytic.sizes.precision import BlockBytes, block_bytes, inference_recipe
from vramtui.estimators.analytic.sizes.runtime import workspace_for
from vramtui.estimators.analytic.tape.program import Program, prefilled
from vramtui.estimators.analytic.tape.replay import BytesByGroup, summed
from vramtui.estimators.analytic.training import Trainer
from vramtui.estimators.torch_facts.cublas import Workspace
from vramtui.models.spec import Parameter

FP32_BITS = 32


class PartWeights(msgspec.Struct, frozen=True, kw_only=True):
    """One part's weights.

    Attributes:
        name: of its folder.
        numbers: in all of them.
        blocks: what they take together.
        largest: bytes of the largest tensor, which is on the card alone where layers come one by one.
    """

    name: str
    numbers: int
    blocks: BlockBytes
    largest: int


def encoder_tensors(encoder: PipelineEncoder, precision: Precision) -> tuple[Parameter, ...]:
    """The tensors of an encoder; in a pipeline of fp16 some stay in fp32."""
    raised = encoder.fp32_in_fp16 if precision.startswith("fp16") else ()
    return tuple(
        _parameter(encoder.name, group, FP32_BITS if group.name in raised else None) for group in encoder.tensors
    )


def vae_tensors(vae: PipelineVae) -> tuple[Parameter, ...]:
    """Every tensor of the VAE, in fp32 where it is kept so."""
    return tuple(_parameter("vae", group, FP32_BITS if vae.fp32 else None) for group in vae.tensors)


def part_weights(name: str, tensors: Iterable[Parameter], itemsize: int) -> PartWeights:
    """What `tensors` come to at `itemsize` bytes a number."""
    parameters = tuple(tensors)
    sizes = [t.numel * itemsize if t.bits is None else t.numel * t.bits // 8 for t in parameters]
    return PartWeights(
        name=name,
        numbers=sum(t.numel * t.count for t in parameters),
        blocks=block_bytes(parameters, itemsize),
        largest=max(sizes, default=0),
    )


def _parameter(part: str, group: TensorGroup, bits: int | None) -> Parameter:
    return Parameter(f"{part}.{group.name}", group.shape, group.count, False, bits or group.bits)


# Tensors of the stream's size that a block holds at its attention: the stream, its norm in fp32 and back, queries,
# keys, values and the answer.
STREAMS = 8
# Copies of T5's biases that are there at once: 2 in T5, 3 in UMT5, whose blocks make one each.
BIASES = 3
CODE = "diffusers 0.42: the pipeline's own code"
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


def reading_bytes(encoder: PipelineEncoder, prompts: int, itemsize: int) -> int:
    """The most that it holds over `prompts` prompts, in bytes."""
    tokens = prompts * encoder.tokens
    stream = tokens * encoder.hidden_size * itemsize
    inner = tokens * encoder.intermediate_size * itemsize
    attention = STREAMS * stream + _biases(encoder, itemsize)
    mlp = 3 * stream + (3 if encoder.gated_mlp else 2) * inner
    states = encoder.num_hidden_layers * stream if encoder.keeps_states else 0
    logits = tokens * (encoder.output_size or 0) * itemsize
    return states + max(attention, mlp, 2 * stream + logits)


def _biases(encoder: PipelineEncoder, itemsize: int) -> int:
    """A bias for each pair of tokens: what all blocks share or one block makes, and what a kernel copies of it."""
    return BIASES * encoder.num_attention_heads * encoder.tokens**2 * itemsize if encoder.position_bias else 0


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One part's turn: its weights, what it holds beside them at its fullest, and when it is."""

    weights: PartWeights
    phase: Phase
    memory: BytesByGroup
    upcast: int = 0


class PipelineJob:
    """One batch of images or videos, or one batch of training."""

    def __init__(self, model: PipelineModel, run: InferRun | TrainRun, device: Device) -> None:
        self.model, self.run, self.device = model, run, device
        self.itemsize = 2 if run.precision.endswith("mixed") else inference_recipe(run.precision).weights
        self.batch = run.batch_size
        inner = msgspec.structs.replace(run, batch_size=run.batch_size * self._copies_of_each)
        self.program = program_of(model.denoiser, inner, device)

    @property
    def _copies_of_each(self) -> int:
        """How often the denoiser's batch holds each image."""
        return self.model.guidance_batch if isinstance(self.run, InferRun) else 1

    @property
    def size(self) -> tuple[int, int]:
        """Pixels of an image: height and width."""
        denoiser = self.model.denoiser
        if isinstance(denoiser, UNetModel):
            side = denoiser.sample_size * self.model.vae.spatial_factor
            return side, side
        return denoiser.size

    @property
    def frames(self) -> int:
        """Frames of latents."""
        return 1 if isinstance(self.model.denoiser, UNetModel) else self.model.denoiser.latent_frames

    @property
    def vae_itemsize(self) -> int:
        """Bytes of a number while the VAE works."""
        vae = self.model.vae
        raised = vae.fp32 or (vae.force_upcast and self.run.precision.startswith("fp16"))
        return FP32 if raised else self.itemsize

    def encoder_weights(self) -> list[PartWeights]:
        """The weights of each encoder."""
        precision = self.run.precision
        return [part_weights(e.name, encoder_tensors(e, precision), self.itemsize) for e in self.model.encoders]

    def reading(self) -> dict[str, int]:
        """What each encoder holds while it reads the prompts, by its name."""
        return {e.name: reading_bytes(e, self.batch, self.itemsize) for e in self.model.encoders}


def estimate_pipeline(model: PipelineModel, run: InferRun, device: Device) -> Estimate:
    """The estimate of one call of a pipeline."""
    job = PipelineJob(model, run, device)
    turns = [*_encoding(job), *_denoising(job), _decoding(job, run)]
    workspace = workspace_for(run, device)
    constant, passing = (
        {"inputs": job.program.inputs, "workspaces": workspace.persistent},
        {"workspaces": workspace.passing},
    )
    moments = MomentLog()
    moments.note("build", 0, _resident(turns, run, None))
    for turn in turns:
        weights = summed(_resident(turns, run, turn), {"buffers": job.program.buffers}, constant)
        moments.note(turn.phase, 0, summed(weights, turn.memory, passing), end=False)
        moments.note(turn.phase, 0, weights)
    notes = (NOTE_CUDNN, *(note for note in job.program.notes if "not counted" not in note), *_choices(run))
    facts = _facts(job, turns, run, workspace)
    share = SEQUENTIAL_SHARE if run.offload == "sequential" else CACHED_SHARES[model.vae.design]
    estimate = assemble(moments, facts, device, notes, cache=Cached(share))
    return msgspec.structs.replace(estimate, error=STATED_ERROR)


def estimate_pipeline_training(model: PipelineModel, run: TrainRun, device: Device) -> Estimate:
    """The estimate of a job that trains the denoiser beside frozen encoders and a frozen VAE, or without them."""
    if run.offload == "sequential":
        raise UserError('run.offload = "sequential" brings layers one by one, which is for inference; use "model"')
    job = PipelineJob(model, run, device)
    program = msgspec.structs.replace(job.program, notes=_training_notes(job.program, run))
    if run.offload == "model":
        return Trainer(program, run, device).estimate()
    bits = 8 * job.itemsize
    frozen = [t for encoder in model.encoders for t in encoder_tensors(encoder, run.precision)]
    stored = [msgspec.structs.replace(tensor, bits=tensor.bits or bits) for tensor in frozen]
    raised = 8 * (FP32 if model.vae.fp32 or model.vae.force_upcast else job.itemsize)
    stored += [msgspec.structs.replace(tensor, bits=raised) for tensor in vae_tensors(model.vae)]
    trainer = Trainer(msgspec.structs.replace(program, frozen=(*program.frozen, *stored)), run, device)
    before = job.reading() | {"vae": encoding_bytes(model.vae, job.size, job.frames, job.batch, raised // 8)}
    fullest = max(before, key=lambda name: before[name])
    trainer.before = {f"activations: {fullest}": before[fullest]}
    trainer.before_facts = {f"activations: {fullest}": _passing(fullest, before[fullest])}
    return trainer.estimate()


def _training_notes(program: Program, run: TrainRun) -> tuple[str, ...]:
    notes = [note for note in program.notes if "belong to the pipeline" not in note]
    if run.offload == "model":
        notes.append("text encoders and VAE are off the card while the denoiser is trained (run.offload)")
    else:
        notes.append("text encoders and VAE stay on the card, frozen, and read each batch first")
    return tuple(notes)


def _encoding(job: PipelineJob) -> list[Turn]:
    """The encoders' turns; with guidance the empty prompt is read after the other one."""
    reading = job.reading()
    return [
        Turn(weights=weights, phase="input", memory={f"activations: {weights.name}": reading[weights.name]})
        for weights in job.encoder_weights()
    ]


def _denoising(job: PipelineJob) -> list[Turn]:
    """The denoiser's turn, and the second one's."""
    done = prefilled(job.program.stages)
    fullest = max((done.early, done.late, done.end), key=lambda sizes: sum(sizes.values()))
    name = "unet" if isinstance(job.model.denoiser, UNetModel) else "transformer"
    names = [name, f"{name}_2"][: job.model.denoisers]
    weights_by_name = [part_weights(one, job.program.frozen, job.program.recipe.frozen) for one in names]
    return [Turn(weights=weights, phase="forward", memory=fullest) for weights in weights_by_name]


def _decoding(job: PipelineJob, run: InferRun) -> Turn:
    vae, itemsize = job.model.vae, job.vae_itemsize
    weights = part_weights("vae", vae_tensors(vae), job.itemsize)
    at_once = 1 if run.vae_slicing else job.batch
    size = decoding_bytes(vae, job.size, job.frames, at_once, itemsize, tiled=bool(run.vae_tiling))
    height, width = job.size
    others = (job.batch - at_once) * 3 * height * width * itemsize
    upcast = weights.blocks.bytes if itemsize > job.itemsize and not vae.fp32 else 0
    return Turn(weights=weights, phase="decode", memory={"activations: vae": size + others}, upcast=upcast)


def _resident(turns: list[Turn], run: InferRun, now: Turn | None) -> BytesByGroup:
    """The weights on the card while it is `now`'s turn; None for before the first."""
    resident: BytesByGroup = {}
    for turn in turns:
        own = turn is now
        if run.offload == "sequential":
            size = turn.weights.largest if own else 0
        else:
            size = turn.weights.blocks.bytes if own or run.offload in {None, "none"} else 0
            resident[TAILS] = resident.get(TAILS, 0) + (turn.weights.blocks.tails if size else 0)
        resident[f"weights: {turn.weights.name}"] = size + (turn.upcast if own and run.offload != "sequential" else 0)
    return resident


def _choices(run: InferRun) -> tuple[str, ...]:
    """What was chosen of a pipeline's ways to hold less, in words."""
    words = {
        "none": 'all parts stay on the card (run.offload = "none")',
        "model": "one part is on the card at a time, as after enable_model_cpu_offload()",
        "sequential": "one layer is on the card at a time, as after enable_sequential_cpu_offload()",
    }
    return (words[run.offload or "none"],)


def _facts(job: PipelineJob, turns: list[Turn], run: InferRun, workspace: Workspace) -> dict[str, Fact]:
    facts: dict[str, Fact] = {}
    for turn in turns:
        own = turn.weights
        each = 8 * own.blocks.bytes / own.numbers
        facts[f"weights: {own.name}"] = Fact(
            "weights",
            f"{own.numbers:,} parameters, {each:.3g} bits each in blocks of 512 B",
            "the model's shapes",
            WORDS[run.offload or "none"],
            bytes=own.blocks.bytes,
            count=own.blocks.count,
        )
    tails = sum(turn.weights.blocks.tails for turn in turns)
    facts[TAILS] = Fact(
        "weights",
        "what tensors of 10 MiB and more hold beyond their size",
        "PyTorch, c10/cuda/CUDACachingAllocator.cpp",
        WORDS[run.offload or "none"],
        bytes=tails,
    )
    facts["buffers"] = Fact(
        "weights",
        job.program.buffers_formula or "positions",
        "the model's code",
        WORDS[run.offload or "none"],
        bytes=job.program.buffers,
    )
    for turn in turns:
        for name, size in turn.memory.items():
            if name.endswith(turn.weights.name):
                facts[name] = _passing(turn.weights.name, size)
    what = f"a batch of {run.batch_size}"
    return facts | passing_facts(job.program, job.program.stages, workspace, what)


def _passing(name: str, size: int) -> Fact:
    return Fact(
        "activations",
        f"tensors on their way through {name}, at their fullest; none is kept",
        CODE,
        "while its turn lasts",
        bytes=size,
    )
