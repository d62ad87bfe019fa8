"""The demo's jobs: their probes' reports, near the predictions with made-up differences, and past runs by a seed."""

import random
from functools import cache
from typing import get_args

import msgspec

from vramtui.core.base.units import MIB
from vramtui.core.estimate.devices import card
from vramtui.core.estimate.estimate import Estimate, Ledger, Phase
from vramtui.core.observation import probe_messages as messages
from vramtui.core.runs.run import Ending, Run, StoredRun, run_key
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


HOUR, DAY = 3600.0, 86400.0
DRIVER, PIECE = "580.95.05", 2 * MIB


class _Job(msgspec.Struct, frozen=True):
    """Something that somebody ran: which preset on which card, how many times, and its command."""

    preset: str
    gpu: str
    times: int
    command: str
    hours: float
    probed: bool = False


PAST = (
    _Job("llama-3.1-8b-lora", "H200", 5, "python train.py --model meta-llama/Llama-3.1-8B --lora --batch 4", 3.2, True),
    _Job("gpt2-124m", "H200", 4, "python train_gpt2.py --size 124M", 0.8, True),
    _Job("bert-base-mlm", "L40S", 3, "python run_mlm.py --model bert-base-uncased", 2.1),
    _Job("gemma-2-2b-full", "H200", 2, "torchrun train.py --model google/gemma-2-2b", 5.5),
    _Job("flan-t5-xl-infer", "L40S", 2, "python summarize.py --model google/flan-t5-xl", 0.3),
    _Job("bert-large-classify", "L40S", 1, "python classify.py --model bert-large-uncased", 0.9),
)
ENDINGS: dict[int, Ending] = {4: "out_of_memory", 11: "failed"}  # of every run that is not listed the end was good


def demo_runs(now: float, host: str) -> tuple[StoredRun, ...]:
    """Runs of the last fortnight before `now` (seconds since the epoch), the latest first; the first still runs."""
    library, chance = PresetLibrary(), random.Random(5)
    order = [job for job in PAST for _ in range(job.times)]
    chance.shuffle(order)
    codes: dict[Ending, int] = {"exited": 0, "failed": 1, "out_of_memory": 1}
    runs, at = list[Run](), now
    for number, job in enumerate(order):
        at -= job.hours * HOUR * (0.9 + 0.2 * chance.random())
        workload, estimate = library.get(job.preset).preset.workload, demo_estimate(job.preset, job.gpu)
        builtins, observed = msgspec.to_builtins(workload), _observed(estimate.ledger, chance, probed=job.probed)
        lasts = job.hours * HOUR * (0.97 + 0.06 * chance.random())
        ending = ENDINGS.get(number, "exited")
        if ending != "exited":
            lasts *= 0.02
        pid, uuid = 4000 + 173 * number, f"GPU-5eed000{number % 4}-0000-4000-8000-00000000000{number % 4}"
        times, values = _series(lasts, observed.process or 0, chance)
        run = Run(
            key=run_key(host, uuid, pid, at), source="run" if job.probed else "watched", host=host, gpu_uuid=uuid,
            gpu_name=f"NVIDIA {job.gpu}", pid=pid, command=job.command, started_at=at, ended_at=at + lasts,
            ending=ending, exit_code=codes[ending] if job.probed else None, preset=job.preset,
            model_kind=str(builtins["model"]["kind"]), run_kind=str(builtins["run"]["kind"]), workload=builtins,
            method=estimate.method, peak_phase=estimate.peak_phase, predicted=estimate.ledger, observed=observed,
            peak_how="probe" if job.probed else "sampled", times=times, values=values,
            versions={"driver": DRIVER, "torch": "2.9.0"} if job.probed else {"driver": DRIVER},
        )  # fmt: skip
        runs.append(run)
        at -= chance.random() * DAY * 1.3
    runs[0] = msgspec.structs.replace(runs[0], ended_at=None, ending="running", exit_code=None, seen_until=now)
    return tuple(StoredRun(len(runs) - at, run) for at, run in enumerate(runs))


def _observed(predicted: Ledger, chance: random.Random, *, probed: bool) -> Ledger:
    """A made-up observation: near the prediction, with more or less cached."""
    allocated = round((predicted.allocated or 0) * (0.985 + 0.02 * chance.random()))
    reserved = round((predicted.reserved or 0) * (0.96 + 0.05 * chance.random()) / PIECE) * PIECE
    reserved = max((allocated // PIECE + 1) * PIECE, reserved)
    context = (predicted.context or CONTEXT) + chance.randrange(-6, 8) * MIB
    if not probed:
        return Ledger(process=reserved + context)
    states = (predicted.weights or 0) + (predicted.gradients or 0) + (predicted.optimizer or 0)
    return Ledger(
        weights=predicted.weights, gradients=predicted.gradients, optimizer=predicted.optimizer,
        activations=max(0, allocated - states), allocated=allocated, cached=reserved - allocated, reserved=reserved,
        context=context, process=reserved + context,
    )  # fmt: skip


def _series(lasts: float, peak: int, chance: random.Random) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Memory as a job takes it: context, weights as they load, the first steps, then the cache full and given back."""
    times, values = [0.0], [CONTEXT]
    for part in range(1, 9):
        times.append(8.0 + 3 * part)
        values.append(CONTEXT + round((peak - CONTEXT) * 0.25 * part / 8))
    for share, seconds in ((0.72, 40.0), (0.94, 44.0), (1.0, 60.0)):
        times.append(seconds)
        values.append(round(peak * share))
    at = 60.0
    while (at := at + lasts / 7) < lasts - lasts / 14:
        times += [at, at + lasts / 60]
        values += [round(peak * (0.4 + 0.1 * chance.random())), peak]
    points = [(time, value) for time, value in zip(times, values, strict=True) if time < lasts]
    return tuple(time for time, _ in points), tuple(value for _, value in points)
