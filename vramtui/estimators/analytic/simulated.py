"""The analytic estimate with what the caching allocator keeps beside it, from a simulation instead of a share."""

from contextlib import suppress
from dataclasses import replace
from hashlib import blake2b

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.latest import Latest
from vramtui.core.base.units import format_bytes
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate, Part
from vramtui.core.schema.decoder_models import TransformerModel
from vramtui.core.schema.encoder_models import EncoderDecoderModel, PipelineModel
from vramtui.core.schema.workload import InferRun, ServeRun, TrainRun, Workload
from vramtui.estimators.allocator.config import AllocatorConfig
from vramtui.estimators.allocator.failure import AllocatorOutOfMemoryError
from vramtui.estimators.analytic import ANALYTIC, with_target_modules
from vramtui.estimators.analytic.generation.allocator_requests import peaks_of_generation, peaks_of_pass
from vramtui.estimators.analytic.generation.decoder import Generation
from vramtui.estimators.analytic.models.decoder import runs_tower
from vramtui.estimators.analytic.models.registry import program_of, runs_as_encoder
from vramtui.estimators.analytic.sizes.partition import ALONE, telling_shares
from vramtui.estimators.analytic.sizes.runtime import (
    UNFOLLOWED,
    allocator_config,
    torch_of,
    with_rounding,
    workspace_for,
)
from vramtui.estimators.analytic.stated_errors import with_stated_error
from vramtui.estimators.analytic.tape.heaps import ConfiguredHeap, JobHeap
from vramtui.estimators.analytic.tape.program import Program
from vramtui.estimators.analytic.tape.simulated_job import Peaks
from vramtui.estimators.analytic.training.allocator_requests import peaks_of
from vramtui.estimators.analytic.training.trainer import Trainer
from vramtui.estimators.torch_facts.cards import CardLimits, card_limits, cuda_context_bytes
from vramtui.estimators.torch_facts.convolutions import is_without_device
from vramtui.models.specs.decoder import decoder_spec

# More than a map of Plan has cells. One holds four numbers.
KEPT = 1024
# Followed in a second and a half; published models have a quarter of them. 4,096 of BERT's would take half a minute.
MOST_LAYERS = 512
# Of a process in bytes: an EiB. Addresses beyond 16,384 of them would be taken for sizes.
MOST_BYTES = 1 << 60
SOURCE = "PyTorch 2.13, c10/cuda/CUDACachingAllocator.cpp: every request in the order of the model's operators"


class Simulated:
    """What runs on one card: tens of milliseconds where `analytic` takes one. Needs no torch."""

    name = "simulated"

    def estimate(self, workload: Workload, device: Device) -> Estimate:
        """Predict; allocated and its parts are those of `analytic`, which answers alone beyond MOST_BYTES.

        Raises:
            UserError: the workload is contradictory, or not followed.
        """
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
            estimate = with_rounding(estimate, peaks.allocated - _peaks(plain, device).allocated, run.alloc_conf)
            notes = tuple(note for note in estimate.assumptions if note != UNFOLLOWED)
            estimate = msgspec.structs.replace(estimate, assumptions=notes)
        return with_stated_error(_with(estimate, peaks, trains=isinstance(run, TrainRun)), workload, device)


def unfollowed(workload: Workload) -> str:
    """Why a job's requests are not followed; empty where they are."""
    run = workload.run
    if workload.parallel is not None or not isinstance(run, (TrainRun, InferRun)):
        return "follows training and inference on one card"
    if isinstance(run, InferRun) and isinstance(workload.model, EncoderDecoderModel):
        return "follows no generation of an encoder-decoder"
    if isinstance(workload.model, PipelineModel):
        return "follows no pipeline of several models"
    if isinstance(run, InferRun) and run.draft is not None:
        return "follows no draft model"
    if isinstance(workload.model, TransformerModel) and runs_tower(workload.model, run):
        return "follows no tower for images or sound"
    layers = sum(getattr(workload.model, key, 0) for key in ("num_hidden_layers", "encoder_layers", "decoder_layers"))
    return f"follows {MOST_LAYERS} layers at most, not {layers:,}" if layers > MOST_LAYERS else ""


def _key(workload: Workload, device: Device, scratch: tuple[object, ...], total: int) -> bytes:
    """What a simulation's outcome hangs on, as 32 bytes: whole it is some 140 values, and Plan asks for hundreds.
    A card's size does not count: nothing is ever given back.

    Args:
        workload: the job.
        device: the card, of which the compute capability counts.
        scratch: bytes that operators take for themselves, which the number of multiprocessors may change.
        total: bytes of the card where the job's own settings allow a share of it; 0 elsewhere.
    """
    asked = (workload, device.capability, scratch, total, torch_of(workload.run))
    return blake2b(msgspec.msgpack.encode(asked), digest_size=32).digest()


_PEAKS: Latest[bytes, Peaks] = Latest(KEPT)


def forget_peaks() -> None:
    """Simulate anew what is asked for from now on."""
    _PEAKS.clear()


def _peaks(workload: Workload, device: Device) -> Peaks:
    """The peaks of a job, simulated once for all cards on which it asks for the same."""
    model, run = workload.model, workload.run
    assert not isinstance(run, ServeRun)  # `unfollowed` refuses those
    job: Trainer | Generation | Program
    if isinstance(run, TrainRun):
        job = Trainer(program_of(model, run, device), run, device)
    elif isinstance(model, TransformerModel) and not runs_as_encoder(model, run):
        (share,) = telling_shares(model, ALONE)
        job = Generation(share, run, device)
    else:
        job = program_of(model, run, device)
    config = allocator_config(run)
    total = device.total_memory if config.memory_fraction is not None else 0
    scratch = (*_scratch(job, card_limits(device)), is_without_device())
    asked = _key(_alike(workload), device, scratch, total)
    peaks = _PEAKS.get(asked)
    if peaks is None:
        peaks = _PEAKS[asked] = _simulate_with(config, job, run, device)
    return peaks


def _alike(workload: Workload) -> Workload:
    """A decoder without selective checkpoints asks for the same as with them, where attention keeps no scores."""
    model, run = workload.model, workload.run
    if not isinstance(run, TrainRun) or run.checkpointing != "selective" or run.attention == "eager":
        return workload
    if not isinstance(model, TransformerModel) or decoder_spec(model).is_encoder:
        return workload
    return msgspec.structs.replace(workload, run=msgspec.structs.replace(run, checkpointing="none"))


def _scratch(job: Trainer | Generation | Program, limits: CardLimits) -> tuple[object, ...]:
    """What of a job's requests the card's limits may change."""
    if isinstance(job, Generation):
        return ()  # no sums over rows, which are of gradients
    program = job.program if isinstance(job, Trainer) else job
    loops = limits if isinstance(job, Trainer) and job.states.loop is not None else None
    return (
        loops,
        *(
            (node.workspace, node.backward_workspace, node.sum_workspace, *node.scratch_blocks)
            for stage in program.stages
            for node in stage.tape.nodes
        ),
    )


def _simulate_with(
    config: AllocatorConfig, job: Trainer | Generation | Program, run: TrainRun | InferRun, device: Device
) -> Peaks:
    """The job under its settings; where it outgrows the share of the card that they allow, as if they did not."""
    if config == AllocatorConfig():
        return _simulate(job, run, device)
    if config.memory_fraction is not None:
        total = device.total_memory
        with suppress(AllocatorOutOfMemoryError):
            return _simulate(job, run, device, ConfiguredHeap(config, total, cuda_context_bytes(device.capability)))
    return _simulate(job, run, device, ConfiguredHeap(replace(config, memory_fraction=None)))


def _simulate(
    job: Trainer | Generation | Program, run: TrainRun | InferRun, device: Device, heap: JobHeap | None = None
) -> Peaks:
    if isinstance(job, Generation):
        return peaks_of_generation(job, heap)
    if isinstance(job, Trainer):
        assert isinstance(run, TrainRun)
        return peaks_of(job, run, heap)
    return peaks_of_pass(job, workspace_for(run, device), heap)


def _with(estimate: Estimate, peaks: Peaks, *, trains: bool) -> Estimate:
    cached = max(peaks.reserved - estimate.allocated, 0)
    when = "at the end of two simulated steps" if trains else "after a simulated pass"
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
    return msgspec.structs.replace(
        estimate,
        method=Simulated.name,
        parts=tuple(_cached(part, cached, words) if part.line == "cached" else part for part in estimate.parts),
        ledger=ledger,
        timeline=tuple(msgspec.structs.replace(row, reserved=None, peak_reserved=None) for row in estimate.timeline),
        error=peaks.segment / ledger.process if ledger.process and estimate.error is not None else None,
    )


def _cached(part: Part, cached: int, words: str) -> Part:
    return msgspec.structs.replace(part, bytes=cached, at_peak=cached, formula=words, source=SOURCE)


SIMULATED = Simulated()
