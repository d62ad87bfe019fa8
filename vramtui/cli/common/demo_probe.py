"""The probe reports of the demo's training jobs: figures near the predictions, with made-up differences."""

from functools import cache
from typing import get_args

import msgspec

from vramtui.core.base.units import MIB
from vramtui.core.estimate.devices import card
from vramtui.core.estimate.estimate import Estimate, Phase
from vramtui.core.observation import probe_messages as messages
from vramtui.estimators.methods import DEFAULT
from vramtui.presets import PresetLibrary
from vramtui.sources.demo import CONTEXT, RESERVED, SERVER, SMALL, TOTAL, TRAINING, DemoJob, DemoSource

# Which preset each of them runs, as if it was started by `vramtui run --preset`, and its observed activations over the
# predicted ones; the server reports no figures.
JOBS: tuple[tuple[DemoJob, str, float | None], ...] = (
    (TRAINING, "llama-3.1-8b-lora", 0.991),
    (SMALL, "gpt2-124m", 0.987),
    (SERVER, "qwen-2.5-7b", None),
)
SPEAKS_AFTER = 60.0  # seconds of its life after which a job has been through its first steps
STEP_SECONDS = 1.6
FULL = 0.9  # of what is reserved while an evaluation runs
# Seconds of a job's life at which the phases of its first step end.
FIRST_STEP: dict[Phase, float] = {"build": 36.0, "input": 36.1, "forward": 39.0, "backward": 43.0, "step": 43.4}
PHASES: tuple[messages.ProbePhase, ...] = get_args(messages.ProbePhase)


def demo_jobs(demo: DemoSource, before: float = 0.0) -> tuple[messages.ObservedJob, ...]:
    """The reports of the demo's jobs by now, or `before` so many seconds: which preset they run, and figures where they
    are through their first steps.
    """
    elapsed, heard, silent = demo.elapsed - before, list[messages.ObservedJob](), list[messages.ObservedJob]()
    for job, preset, share in JOBS:
        memory, lived = job.memory(elapsed), elapsed - job.started(elapsed)
        if memory is None:
            continue
        pid = job.pid + job.run(elapsed)
        hello = messages.Hello(v=1, pid=pid, at=0.0, command=tuple(job.command.split()), python="3.12.7", preset=preset)
        if share is None or lived <= SPEAKS_AFTER:
            silent.append(messages.ObservedJob(pid=pid).heard(hello))
            continue
        estimate = demo_estimate(preset, "H200")
        ledger, began = estimate.ledger, demo.began + job.started(elapsed)
        states = (ledger.weights or 0) + (ledger.optimizer or 0)

        def near(size: int, share: float = share, states: int = states) -> int:
            """`size` with what is more than the states changed by `share`, in whole blocks."""
            return size if size <= states else states + int((size - states) * share) // 512 * 512

        # The fullest moment of a step where the cache is full, and less where an evaluation gave it back.
        peak, now = near(estimate.allocated), memory - CONTEXT
        reserved = max(stage.end for stage in job.stages) * MIB - CONTEXT
        allocated = min(peak, int(now * FULL))
        counters = messages.MemoryCounters(
            index=0,
            allocated=allocated,
            allocated_peak=peak,
            reserved=now,
            reserved_peak=reserved,
            num_alloc_retries=0,
            num_ooms=0,
        )
        # The first step takes the time that its stages take, all others the same.
        moments = tuple(
            messages.PhaseEnd(
                at=began + FIRST_STEP.get(moment.phase, 0.0) + moment.step * STEP_SECONDS,
                phase=moment.phase,
                step=moment.step,
                device=0,
                allocated=near(moment.allocated),
                reserved=moment.reserved and near(moment.reserved),
                peak_allocated=near(moment.peak_allocated),
            )
            for moment in estimate.timeline
            if moment.phase in PHASES
        )
        beat = messages.Beat(
            v=1,
            pid=pid,
            at=demo.began + elapsed,
            phase="backward",
            step=int(lived / STEP_SECONDS),
            step_seconds=STEP_SECONDS,
            devices=(counters,),
            parts={
                "weights": {"cuda:0": ledger.weights or 0},
                "gradients": {"cuda:0": sum(part.bytes for part in estimate.parts if part.line == "gradients")},
                "optimizer": {"cuda:0": ledger.optimizer or 0},
            },
            moments=moments,
        )
        device = messages.ProbeDevice(
            index=0, name="NVIDIA H200", total_memory=TOTAL - RESERVED, capability=(9, 0), uuid=demo.uuid(job.gpu)
        )
        hello = msgspec.structs.replace(hello, torch="2.9.0", devices=(device,))
        heard.append(messages.ObservedJob(pid=pid).heard(hello).heard(beat))
    return (*heard, *silent)


@cache
def demo_estimate(preset: str, gpu: str) -> Estimate:
    return DEFAULT.estimate(PresetLibrary().get(preset).preset.workload, card(gpu))
