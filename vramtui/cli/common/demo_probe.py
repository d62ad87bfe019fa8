"""The probe reports of the demo's training jobs: figures near the predictions, with made-up differences."""

from functools import cache
from typing import Any, get_args

from vramtui.core.estimate.devices import card
from vramtui.core.estimate.estimate import Estimate, Phase
from vramtui.core.observation.probe_messages import (
    Beat,
    Hello,
    MemoryCounters,
    ObservedJob,
    PhaseEnd,
    ProbeDevice,
    ProbePhase,
)
from vramtui.estimators.methods import DEFAULT
from vramtui.presets import PresetLibrary
from vramtui.sources.demo import CONTEXT, RESERVED, SERVER, SMALL, TOTAL, TRAINING, DemoJob, DemoSource

# Which preset each of them runs, and its observed activations over the predicted ones.
TELLING: tuple[tuple[DemoJob, str, float], ...] = ((TRAINING, "llama-3.1-8b-lora", 0.991), (SMALL, "gpt2-124m", 0.987))
# As if each was started by `vramtui run --preset`: a person says which preset it runs.
PRESETS: tuple[tuple[DemoJob, str], ...] = (*((job, preset) for job, preset, _ in TELLING), (SERVER, "qwen-2.5-7b"))
SPEAKS_AFTER = 60.0  # seconds of its life after which a job has been through its first steps
STEP_SECONDS = 1.6
FULL = 0.9  # of what is reserved while an evaluation runs
# Seconds of a job's life at which the phases of its first step end.
FIRST_STEP: dict[Phase, float] = {"build": 36.0, "input": 36.1, "forward": 39.0, "backward": 43.0, "step": 43.4}
PHASES: tuple[ProbePhase, ...] = get_args(ProbePhase)


def demo_jobs(demo: DemoSource, before: float = 0.0) -> tuple[ObservedJob, ...]:
    """The reports of the demo's jobs by now, or `before` so many seconds: which preset they run, and figures where they
    are through their first steps.
    """
    elapsed = demo.elapsed - before
    jobs = tuple(
        _observed_job(job, preset, share, demo, elapsed)
        for job, preset, share in TELLING
        if elapsed - job.started(elapsed) > SPEAKS_AFTER and job.memory(elapsed) is not None
    )
    pids = {job.pid for job in jobs}
    silent = ((job, preset) for job, preset in PRESETS if job.pid + job.run(elapsed) not in pids)
    return jobs + tuple(  # these have reported no more than their preset
        ObservedJob(pid=job.pid + job.run(elapsed)).heard(_hello(job, preset, elapsed))
        for job, preset in silent
        if job.memory(elapsed) is not None
    )


def _hello(job: DemoJob, preset: str, elapsed: float, **more: Any) -> Hello:  # noqa: ANN401 - any field of it
    pid, command = job.pid + job.run(elapsed), tuple(job.command.split())
    return Hello(v=1, pid=pid, at=0.0, command=command, python="3.12.7", preset=preset, **more)


def _observed_job(job: DemoJob, preset: str, share: float, demo: DemoSource, elapsed: float) -> ObservedJob:
    estimate = _estimate(preset)
    pid, lived = job.pid + job.run(elapsed), elapsed - job.started(elapsed)
    device = ProbeDevice(
        index=0, name="NVIDIA H200", total_memory=TOTAL - RESERVED, capability=(9, 0), uuid=demo.uuid(job.gpu)
    )
    beat = Beat(
        v=1,
        pid=pid,
        at=demo.began + elapsed,
        phase="backward",
        step=int(lived / STEP_SECONDS),
        step_seconds=STEP_SECONDS,
        devices=(_counters(job, estimate, share, elapsed),),
        parts={
            "weights": {"cuda:0": estimate.ledger.weights or 0},
            "gradients": {"cuda:0": sum(part.bytes for part in estimate.parts if part.line == "gradients")},
            "optimizer": {"cuda:0": estimate.ledger.optimizer or 0},
        },
        moments=_moments(estimate, share, demo.began + job.started(elapsed)),
    )
    return ObservedJob(pid=pid).heard(_hello(job, preset, elapsed, torch="2.9.0", devices=(device,))).heard(beat)


@cache
def _estimate(preset: str) -> Estimate:
    return DEFAULT.estimate(PresetLibrary().get(preset).preset.workload, card("H200"))


def _near(estimate: Estimate, size: int, share: float) -> int:
    """`size` with what is more than the states changed by `share`, in whole blocks."""
    states = (estimate.ledger.weights or 0) + (estimate.ledger.optimizer or 0)
    return size if size <= states else states + int((size - states) * share) // 512 * 512


def _counters(job: DemoJob, estimate: Estimate, share: float, elapsed: float) -> MemoryCounters:
    """The fullest moment of a step where the cache is full, and less where an evaluation gave it back."""
    peak = _near(estimate, estimate.allocated, share)
    reserved = max(stage.end for stage in job.stages) - CONTEXT
    now = (job.memory(elapsed) or CONTEXT) - CONTEXT
    allocated = min(peak, int(now * FULL))
    return MemoryCounters(
        index=0,
        allocated=allocated,
        allocated_peak=peak,
        reserved=now,
        reserved_peak=reserved,
        active=allocated,
        active_peak=peak,
        inactive_split=(reserved - peak) // 3,
        inactive_split_peak=(reserved - peak) // 2,
        num_alloc_retries=0,
        num_ooms=0,
    )


def _moments(estimate: Estimate, share: float, began: float) -> tuple[PhaseEnd, ...]:
    """The first step takes the time that its stages take, all others the same."""
    return tuple(
        PhaseEnd(
            at=began + FIRST_STEP.get(moment.phase, 0.0) + moment.step * STEP_SECONDS,
            phase=moment.phase,
            step=moment.step,
            device=0,
            allocated=_near(estimate, moment.allocated, share),
            reserved=moment.reserved and _near(estimate, moment.reserved, share),
            peak_allocated=_near(estimate, moment.peak_allocated, share),
        )
        for moment in estimate.timeline
        if moment.phase in PHASES
    )
