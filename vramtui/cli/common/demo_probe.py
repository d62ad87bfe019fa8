"""What the demo's training jobs would tell of themselves: figures near the predictions, with made-up differences."""

from functools import cache

from vramtui.core.estimate.devices import card
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.observation.probe_messages import (
    Beat,
    Hello,
    MemoryCounters,
    ObservedJob,
    PhaseEnd,
    ProbeDevice,
    ProbePhase,
)
from vramtui.estimators.analytic import ANALYTIC
from vramtui.presets import PresetLibrary
from vramtui.sources.demo.jobs import CONTEXT, SMALL, TRAINING, DemoJob
from vramtui.sources.demo.source import RESERVED, TOTAL, DemoSource

# Which preset each of them runs, and its observed activations over the predicted ones.
TELLING: tuple[tuple[DemoJob, str, float], ...] = ((TRAINING, "llama-3.1-8b-lora", 0.991), (SMALL, "gpt2-124m", 0.987))
SPEAKS_AFTER = 60.0  # seconds of its life after which a job has been through its first steps
STEP_SECONDS = 1.6
PHASES: tuple[ProbePhase, ...] = ("build", "input", "forward", "backward", "step")


def told_by(demo: DemoSource) -> tuple[ObservedJob, ...]:
    """What those of the demo's jobs have told by now that are through their first steps."""
    elapsed = demo.elapsed
    return tuple(
        _told(job, _estimate(preset), share, demo)
        for job, preset, share in TELLING
        if elapsed - job.started(elapsed) > SPEAKS_AFTER and job.memory(elapsed) is not None
    )


def _told(job: DemoJob, estimate: Estimate, share: float, demo: DemoSource) -> ObservedJob:
    elapsed = demo.elapsed
    pid, lived = job.pid + job.run(elapsed), elapsed - job.started(elapsed)
    device = ProbeDevice(
        index=0,
        name="NVIDIA H200",
        total_memory=TOTAL - RESERVED,
        capability=(9, 0),
        uuid=demo.uuid(job.gpu),
    )
    command = tuple(job.command.split())
    hello = Hello(v=1, pid=pid, at=0.0, command=command, python="3.12.7", torch="2.9.0", devices=(device,))
    beat = Beat(
        v=1,
        pid=pid,
        at=lived,
        phase="backward",
        step=int(lived / STEP_SECONDS),
        step_seconds=STEP_SECONDS,
        devices=(_counters(job, estimate, share),),
        parts={
            "weights": {"cuda:0": estimate.ledger.weights or 0},
            "gradients": {"cuda:0": _most(estimate, "gradients")},
            "optimizer": {"cuda:0": estimate.ledger.optimizer or 0},
        },
        moments=_moments(estimate, share),
    )
    return ObservedJob(pid=pid).heard(hello).heard(beat)


@cache
def _estimate(preset: str) -> Estimate:
    return ANALYTIC.estimate(PresetLibrary().get(preset).preset.workload, card("H200"))


def _most(estimate: Estimate, line: str) -> int:
    return sum(part.bytes for part in estimate.parts if part.line == line)


def _near(estimate: Estimate, size: int, share: float) -> int:
    """`size` with what is more than the states changed by `share`, in whole blocks."""
    states = (estimate.ledger.weights or 0) + (estimate.ledger.optimizer or 0)
    return size if size <= states else states + int((size - states) * share) // 512 * 512


def _counters(job: DemoJob, estimate: Estimate, share: float) -> MemoryCounters:
    peak = _near(estimate, estimate.allocated, share)
    reserved = max(stage.end for stage in job.stages) - CONTEXT
    return MemoryCounters(
        index=0,
        allocated=peak // 2,
        allocated_peak=peak,
        reserved=reserved,
        reserved_peak=reserved,
        active=peak // 2,
        active_peak=peak,
        inactive_split=(reserved - peak) // 3,
        inactive_split_peak=(reserved - peak) // 2,
        num_alloc_retries=0,
        num_ooms=0,
    )


def _moments(estimate: Estimate, share: float) -> tuple[PhaseEnd, ...]:
    return tuple(
        PhaseEnd(
            at=float(number),
            phase=moment.phase,
            step=moment.step,
            device=0,
            allocated=_near(estimate, moment.allocated, share),
            reserved=moment.reserved and _near(estimate, moment.reserved, share),
            peak_allocated=_near(estimate, moment.peak_allocated, share),
        )
        for number, moment in enumerate(estimate.timeline)
        if moment.phase in PHASES
    )
