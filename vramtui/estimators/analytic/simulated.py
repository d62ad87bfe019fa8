"""The analytic estimate with what the caching allocator keeps beyond it, from a simulation instead of a share."""

import math
import zlib  # not hashlib, which loads 3 MB of OpenSSL
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.latest import Latest
from vramtui.core.base.units import format_bytes
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.schema.models import EncoderDecoderModel, PipelineModel, TransformerModel
from vramtui.core.schema.workload import InferRun, ServeRun, TrainRun, Workload
from vramtui.estimators.allocator.caching import AllocatorOutOfMemoryError
from vramtui.estimators.allocator.config import AllocatorConfig
from vramtui.estimators.analytic import ANALYTIC, with_target_modules
from vramtui.estimators.analytic.generation import Generation
from vramtui.estimators.analytic.models.decoder import runs_tower
from vramtui.estimators.analytic.models.registry import program_of, runs_as_encoder
from vramtui.estimators.analytic.sizes import runtime
from vramtui.estimators.analytic.sizes.partition import ALONE, telling_shares
from vramtui.estimators.analytic.stated_errors import with_stated_error
from vramtui.estimators.analytic.tape.simulated_job import (
    Allocate,
    AllocationTrace,
    ConfiguredHeap,
    Held,
    JobHeap,
    Peaks,
    Release,
    SimulatedJob,
    Step,
)
from vramtui.estimators.analytic.tape.tape import GRADIENTS, STAYS, Program, TapeStage, backward, forward
from vramtui.estimators.analytic.training import Trainer
from vramtui.estimators.torch_facts.allocator_sizes import MIN_BLOCK, rounded
from vramtui.estimators.torch_facts.cards import card_limits, cuda_context_bytes
from vramtui.estimators.torch_facts.convolutions import is_without_device
from vramtui.estimators.torch_facts.cublas import Workspace
from vramtui.models.spec import Parameter
from vramtui.models.specs.decoder import decoder_spec

# More than a map of Plan has cells. One holds four numbers.
KEPT = 1024
# Followed in a second and a half; published models have a quarter of them. 4,096 of BERT's would take half a minute.
MOST_LAYERS = 512
# Of a process in bytes: an EiB. Addresses beyond 16,384 of them would be taken for sizes.
MOST_BYTES = 1 << 60
SOURCE = "PyTorch 2.13, c10/cuda/CUDACachingAllocator.cpp: every request in the order of the model's operators"


class Simulated:
    """The simulation of a job on one GPU, in tens of milliseconds (`analytic` takes one). Needs no torch."""

    name = "simulated"

    def estimate(self, workload: Workload, device: Device) -> Estimate:
        """Predict; allocated and its parts are those of `analytic`, whose estimate is returned beyond MOST_BYTES."""
        estimate = ANALYTIC.estimate(workload, device)
        reason = unfollowed(workload)
        if reason:
            raise UserError(f"--method simulated {reason}; --method analytic knows the others")
        if estimate.process > MOST_BYTES:
            return estimate
        workload = with_target_modules(workload)
        run, peaks = workload.run, _peaks(workload, device)
        if isinstance(run, (TrainRun, InferRun)) and run.alloc_conf:
            plain = msgspec.structs.replace(workload, run=msgspec.structs.replace(run, alloc_conf=None))
            estimate = runtime.with_rounding(
                estimate, peaks.allocated - _peaks(plain, device).allocated, run.alloc_conf
            )
            notes = tuple(note for note in estimate.assumptions if note != runtime.UNFOLLOWED)
            estimate = msgspec.structs.replace(estimate, assumptions=notes)
        cached = max(peaks.reserved - estimate.allocated, 0)
        when = "at the end of two simulated steps" if isinstance(run, TrainRun) else "after a simulated pass"
        words = (
            f"segments of {format_bytes(peaks.reserved)} {when}; give or take "
            f"{format_bytes(peaks.segment)}, the largest segment of one"
        )
        ledger = msgspec.structs.replace(
            estimate.ledger,
            cached=cached,
            reserved=estimate.allocated + cached,
            process=estimate.process - (estimate.ledger.cached or 0) + cached,
        )
        parts = (
            msgspec.structs.replace(part, bytes=cached, at_peak=cached, formula=words, source=SOURCE)
            if part.line == "cached"
            else part
            for part in estimate.parts
        )
        rows = (msgspec.structs.replace(row, reserved=None, peak_reserved=None) for row in estimate.timeline)
        error = peaks.segment / ledger.process if ledger.process and estimate.error is not None else None
        estimate = msgspec.structs.replace(
            estimate, method=self.name, parts=tuple(parts), ledger=ledger, timeline=tuple(rows), error=error
        )
        return with_stated_error(estimate, workload, device)


def unfollowed(workload: Workload) -> str:
    """Why a job's requests are not followed; empty if they are."""
    run, model = workload.run, workload.model
    if workload.parallel is not None or not isinstance(run, (TrainRun, InferRun)):
        return "follows training and inference on one card"
    if isinstance(run, InferRun) and isinstance(model, EncoderDecoderModel):
        return "follows no generation of an encoder-decoder"
    if isinstance(model, PipelineModel):
        return "follows no pipeline of several models"
    if isinstance(run, InferRun) and run.draft is not None:
        return "follows no draft model"
    if isinstance(model, TransformerModel) and runs_tower(model, run):
        return "follows no tower for images or sound"
    layers = sum(getattr(model, key, 0) for key in ("num_hidden_layers", "encoder_layers", "decoder_layers"))
    return f"follows {MOST_LAYERS} layers at most, not {layers:,}" if layers > MOST_LAYERS else ""


PEAKS: Latest[tuple[int, int, int], Peaks] = Latest(KEPT)


def _peaks(workload: Workload, device: Device) -> Peaks:
    model, run = workload.model, workload.run
    assert not isinstance(run, ServeRun)  # `unfollowed` refuses those
    job: Trainer | Generation | Program
    scratch: tuple[object, ...] = (is_without_device(),)  # bytes of operators that the GPU's limits may change
    if isinstance(run, TrainRun):
        job = Trainer(program_of(model, run, device), run, device)
        scratch = (card_limits(device) if job.states.loop is not None else None, *scratch)
    elif isinstance(model, TransformerModel) and not runs_as_encoder(model, run):
        (share,) = telling_shares(model, ALONE)
        job = Generation(share, run, device)
    else:
        job = program_of(model, run, device)
    if not isinstance(job, Generation):  # without gradients there are no sums over rows
        program = job.program if isinstance(job, Trainer) else job
        nodes = (node for stage in program.stages for node in stage.tape.nodes)
        scratch += tuple((n.workspace, n.backward_workspace, n.sum_workspace, *n.scratch_blocks) for n in nodes)
    selective = isinstance(run, TrainRun) and run.checkpointing == "selective" and run.attention != "eager"
    if selective and isinstance(model, TransformerModel) and not decoder_spec(model).is_encoder:
        # If attention keeps no scores, a decoder asks for the same without selective checkpoints.
        alike = msgspec.structs.replace(run, checkpointing="none")
        workload = msgspec.structs.replace(workload, run=alike)
    config = runtime.allocator_config(run)
    total = device.total_memory if config.memory_fraction is not None else 0
    # Three numbers: whole it is some 140 values, and Plan asks for hundreds. A GPU's size does not count unless the
    # job's settings allow a share of it: nothing is ever given back.
    text = msgspec.msgpack.encode((workload, device.capability, scratch, total, runtime.torch_of(run)))
    asked = len(text), hash(text), zlib.crc32(text)
    peaks = PEAKS.get(asked)
    if peaks is None:
        peaks = PEAKS[asked] = _simulate(config, job, run, device)
    return peaks


def _simulate(
    config: AllocatorConfig, job: Trainer | Generation | Program, run: TrainRun | InferRun, device: Device
) -> Peaks:
    """The job under its settings; if it outgrows the share of the GPU that they allow, as if they did not."""

    def played(heap: JobHeap | None = None) -> Peaks:
        if isinstance(job, Generation):
            return _peaks_of_generation(job, heap)
        if isinstance(job, Trainer):
            assert isinstance(run, TrainRun)
            return _peaks_of_training(job, run, heap)
        one = _built(job, runtime.workspace_for(run, device), heap)
        _play_pass(one, job.stages)
        return one.peaks

    if config == AllocatorConfig():
        return played()
    if config.memory_fraction is not None:
        with suppress(AllocatorOutOfMemoryError):
            return played(ConfiguredHeap(config, device.total_memory, cuda_context_bytes(device.capability)))
    return played(ConfiguredHeap(replace(config, memory_fraction=None)))


# --- a model that only answers: one pass, or a prompt and the tokens after it --------------------------------------

# New tokens whose growing keys and values are followed one by one; by then segments have found their sizes.
FOLLOWED = 32


def _built(program: Program, workspace: Workspace, heap: JobHeap | None) -> SimulatedJob:
    job = SimulatedJob(program.stages, workspace, heap)
    job.take("frozen", _frozen_blocks(program))
    job.take("buffers", [program.buffers])
    job.take("inputs", [program.inputs])
    return job


def _play_pass(job: SimulatedJob, stages: Sequence[TapeStage]) -> None:
    trace = AllocationTrace(job, "main")
    forward(stages, trace, training=False)
    job.play(trace.steps)


def _peaks_of_generation(generation: Generation, heap: JobHeap | None) -> Peaks:
    job = _built(generation.program, generation.workspace, heap)
    job.take("held", [generation.held_bytes(generation.sequence, 0)])
    _play_pass(job, generation.prompt)
    job.drop("held")
    new = generation.run.new_tokens - 1
    for tokens in range(generation.sequence, generation.sequence + min(new, FOLLOWED) - 1):
        if not generation.cache.fixed:
            # One token more for every layer: torch.cat makes the longer tensor before the old one goes.
            grown: dict[tuple[str, int], list[Held]] = {}
            for (group, size), blocks in list(job.live.items()):
                if group != STAYS or not size:
                    continue
                longer = rounded(size * (tokens + 1) // tokens)
                others = grown.setdefault((group, longer), [])
                for block in blocks:
                    job.play([Allocate(others, longer // MIN_BLOCK, block[2]), Release([block], block[2])])
                del job.live[group, size]
            job.live.update(grown)
    if new > 0:
        job.take("held", [generation.held_bytes(1, generation.length - 1)])
        _play_pass(job, generation.stages(1, generation.length - 1))
    return job.peaks


# --- a training job: its build, and two steps in the order of its tapes --------------------------------------------

BLOCKS_SHARE = 0.05
LAST = frozenset({"norm", "lm_head"})


def _spread(total: int, tensors: Sequence[Parameter]) -> list[int]:
    """`total` bytes over all of the tensors by their sizes, a layer's next to each other.

    `total` counts blocks, so that a whole number of bytes for each element is a little more in it.
    """
    numel = sum(tensor.numel * tensor.count for tensor in tensors)
    if not numel:
        return []
    each = total / numel
    if each - int(each) < BLOCKS_SHARE:
        each = int(each)
    return _sizes(tensors, lambda numel: math.ceil(each * numel))


def _frozen_blocks(program: Program) -> list[int]:
    """Bytes of every block of the frozen tensors, layer by layer, with the scales of quantised ones."""
    sizes = program.frozen_sizes()
    return [size for tensor in _ordered(program.frozen) for size in sizes[tensor]]


def _sizes(tensors: Sequence[Parameter], size_of: Callable[[int], int]) -> list[int]:
    """Bytes of every tensor in its order, by how many numbers it has."""
    sizes = {tensor: size_of(tensor.numel) for tensor in tensors}
    return [sizes[tensor] for tensor in _ordered(tensors)]


def _ordered(tensors: Sequence[Parameter]) -> Iterator[Parameter]:
    """Every tensor, layer by layer; a decoder's last norm and output layer come after them, as its modules are made."""
    if tensors and tensors[0].module == "embed_tokens":
        tensors = sorted(tensors, key=lambda tensor: not tensor.layer and tensor.module in LAST)
    at = 0
    while at < len(tensors):
        end = at
        while end < len(tensors) and tensors[end].layer and tensors[end].count == tensors[at].count:
            end += 1
        group = tensors[at : max(end, at + 1)]
        for _ in range(group[0].count):
            yield from group
        at += len(group)


def _peaks_of_training(trainer: Trainer, run: TrainRun, heap: JobHeap | None) -> Peaks:
    """The peaks of two steps; from then on each asks for the same."""
    program, recipe, states = trainer.program, trainer.program.recipe, trainer.states
    job = SimulatedJob(program.stages, trainer.workspace, heap)

    def micro_batch(*, accumulate: bool) -> tuple[list[Step], list[Step]]:
        ahead, back = AllocationTrace(job, "main"), AllocationTrace(job, "autograd")
        forward(program.stages, ahead, training=True)
        backward(program.stages, back, accumulate=accumulate)
        return ahead.steps, back.steps

    def make_states() -> None:
        each = max(states.count // max(trainer.gradients.count, 1), 1)
        sizes = _spread(states.bytes, program.trained)
        job.take("optimizer", [-(-size // each) for size in sizes for _ in range(each)])

    job.take("frozen", _frozen_blocks(program))
    job.take("weights", _sizes(program.trained, lambda numel: numel * recipe.weights))
    job.take("buffers", [program.buffers])
    job.take("master", _spread(trainer.master.bytes, program.trained))
    if states.from_build:
        make_states()
    first = micro_batch(accumulate=False)
    later = micro_batch(accumulate=True) if run.gradient_accumulation_steps > 1 else first
    targets = program.inputs // 2 if program.targets is None else program.targets
    for step in (0, 1):
        for number in range(min(run.gradient_accumulation_steps, 2)):
            # The old batch is alive while the new one is made.
            old = job.pop("inputs") + job.pop("targets")
            job.take("inputs", [program.inputs - targets])
            job.take("targets", [targets])
            job.release(old)
            ahead, back = later if number else first
            job.play(ahead)
            old = job.pop("loss")
            job.take("loss", [program.loss])
            job.release(old)
            job.play(back)
        if not step and not states.from_build:
            make_states()
        job.take("step", _spread(trainer.master.bytes, program.trained))
        # What an optimizer's step takes for itself; `drop("step")` lets go of what is left.
        if states.loop is None:
            lists = [_sizes(program.trained, lambda numel: numel * recipe.states)] * states.lists
            for sizes in lists or [_spread(states.step, program.trained)]:
                job.take("step", sizes)
        for tensor in _ordered(program.trained) if states.loop is not None else ():
            before = job.pop("step of one")
            for blocks in states.loop(tensor) if states.loop is not None else ():
                job.drop("step of one")
                job.take("step of one", blocks)
            own = job.live["step of one", 0]
            job.release((*before, *own[:-1]))
            del own[:-1]
        job.drop("step of one")
        if not step:  # after the second nothing is asked for
            job.drop("step")
            job.drop(GRADIENTS)
    return job.peaks


SIMULATED = Simulated()
