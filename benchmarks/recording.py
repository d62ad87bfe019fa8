"""What a recording of a crowded host costs: bytes a day, time to write a sample, time and memory to read it back.

Every process has a probe that tells something new each second, and a prediction, unless `--plain` is given.
"""

import argparse
import random
import resource
import tempfile
import time
from pathlib import Path

import msgspec

from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate, Prediction
from vramtui.core.observation.probe_messages import (
    Beat,
    Hello,
    MemoryCounters,
    ObservedJob,
    PhaseEnd,
    ProbeDevice,
    ProbePhase,
)
from vramtui.core.observation.readings import Gpu, Host, Memory, Process, ProcessKey, Sample, process_key
from vramtui.core.observation.snapshot import RecordedTick, device_of
from vramtui.monitor.predictor import Predictor
from vramtui.presets import PresetLibrary
from vramtui.records.recording.files import RecordingHeader, RecordingWriter, read_recording

GIB, MIB = 1 << 30, 1 << 20
DAY = 86400
PHASES: tuple[ProbePhase, ...] = ("forward", "backward", "step")


def host(gpus: int, processes: int) -> Sample:
    """A host of that many GPUs with that many processes on each."""
    return Sample(
        taken_at=1.7e9,
        source="nvml",
        host=Host(name="gpu01", driver_version="580.95.05", cuda_version="13.0", memory_total=GIB << 10),
        gpus=tuple(
            Gpu(
                index=index,
                uuid=f"GPU-{index:012d}",
                name="NVIDIA H200",
                memory=Memory(total=140 * GIB, used=64 * GIB, reserved=GIB, free=75 * GIB),
                compute_capability=(9, 0),
                processes=tuple(
                    Process(
                        pid=10_000 + 100 * index + number,
                        type="C",
                        used_memory=GIB,
                        user="anna",
                        name="python",
                        command=f"python train.py --config configs/run_{index}_{number}.yaml --seed {number}",
                        started_at=1.69e9 + number,
                        state="running",
                    )
                    for number in range(processes)
                ),
            )
            for index in range(gpus)
        ),
    )


def a_second_later(sample: Sample, chance: random.Random) -> Sample:
    """Metrics of every GPU and the CPU of every process differ; one process in twenty grew or shrank."""
    return msgspec.structs.replace(
        sample,
        taken_at=sample.taken_at + 1,
        host=msgspec.structs.replace(sample.host, cpu_percent=round(chance.uniform(0, 100), 1)),
        gpus=tuple(_moved(gpu, chance) for gpu in sample.gpus),
    )


def _moved(gpu: Gpu, chance: random.Random) -> Gpu:
    rows = tuple(
        msgspec.structs.replace(
            row,
            cpu_percent=round(chance.uniform(0, 100), 1),
            used_memory=GIB + chance.randrange(512) * MIB if chance.random() < 0.05 else row.used_memory,
        )
        for row in gpu.processes
    )
    used = sum(row.used_memory or 0 for row in rows)
    return msgspec.structs.replace(
        gpu,
        processes=rows,
        memory=Memory(total=140 * GIB, used=used, reserved=GIB, free=139 * GIB - used),
        utilization=chance.randrange(101),
        memory_utilization=chance.randrange(101),
        power_watts=round(chance.uniform(70, 700), 1),
        temperature_celsius=chance.randrange(30, 80),
        sm_clock_mhz=chance.randrange(1200, 1980),
    )


def jobs_of(sample: Sample) -> dict[int, ObservedJob]:
    """A job with a probe for each process, which has said who it is."""
    jobs = {}
    for gpu in sample.gpus:
        device = ProbeDevice(index=0, name=gpu.name, total_memory=139 * GIB, capability=(9, 0), uuid=gpu.uuid)
        for row in gpu.processes:
            hello = Hello(
                v=1, pid=row.pid, at=sample.taken_at, command=tuple((row.command or "").split()), devices=(device,)
            )
            jobs[row.pid] = ObservedJob(pid=row.pid).heard(hello)
    return jobs


def tell(job: ObservedJob, at: float, chance: random.Random) -> ObservedJob:
    """The job after one more step, none of whose phases ended as it did before."""
    step = 0 if job.beat is None else job.beat.step + 1
    base = GIB + chance.randrange(MIB) * 512
    counters = MemoryCounters(index=0, allocated=base, allocated_peak=2 * GIB, reserved=2 * GIB, reserved_peak=2 * GIB)
    ends = tuple(
        PhaseEnd(at=at + place / 10, phase=phase, step=step, device=0, allocated=base + place, reserved=2 * GIB)
        for place, phase in enumerate(PHASES)
    )
    parts = {"weights": {"cuda:0": GIB // 4}, "gradients": {"cuda:0": GIB // 4}, "optimizer": {"cuda:0": GIB // 2}}
    return job.heard(
        Beat(
            v=1,
            pid=job.pid,
            at=at,
            phase=chance.choice(PHASES),
            step=step,
            step_seconds=chance.random(),
            devices=(counters,),
            parts=parts,  # type: ignore[arg-type]  # its keys are among the names that are meant
            moments=ends,
        )
    )


def predictions_of(sample: Sample) -> dict[ProcessKey, Prediction]:
    """A prediction for every process: all of the bundled presets, over and over."""
    predict = Predictor()
    made: dict[tuple[str, Device], Estimate | None] = {}
    found: dict[ProcessKey, Prediction] = {}
    presets = PresetLibrary().all()
    for gpu in sample.gpus:
        device = device_of(gpu)
        for place, row in enumerate(gpu.processes):
            preset = presets[place % len(presets)]
            if (preset.key, device) not in made:
                made[preset.key, device] = predict.of_preset(preset, device)
            estimate = made[preset.key, device]
            if estimate is not None:
                found[process_key(sample.host.name, gpu, row)] = Prediction(
                    preset=preset.key,
                    title=preset.preset.name,
                    workload=preset.preset.workload,
                    device=device,
                    estimate=estimate,
                )
    return found


def main() -> None:
    """Write a recording, read it back, and say what both took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--processes", type=int, default=64)
    parser.add_argument("--plain", action="store_true", help="without probes and predictions")
    parser.add_argument("--seconds", type=int, default=3600, help="how long the recording is")
    options = parser.parse_args()
    chance = random.Random(1)
    sample = host(options.gpus, options.processes)
    jobs = {} if options.plain else jobs_of(sample)
    predictions = {} if options.plain else predictions_of(sample)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "host.jsonl.gz"
        writer = RecordingWriter(path, RecordingHeader(interval=1.0))
        spent = 0.0
        for _ in range(options.seconds):
            sample = a_second_later(sample, chance)
            jobs = {pid: tell(job, sample.taken_at, chance) for pid, job in jobs.items()}
            told = tuple(jobs.values())
            began = time.process_time()
            writer.write(RecordedTick(sample, told, predictions))
            spent += time.process_time() - began
        writer.close()
        size = path.stat().st_size
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began = time.perf_counter()
        recording = read_recording(path)
        took = time.perf_counter() - began
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    lag = [recording.samples[-1].taken_at - job.beat.at for job in recording.jobs_at(float("inf")) if job.beat]
    print(f"{options.gpus} GPUs x {options.processes} processes, {options.seconds} samples")
    print(f"file               {size / 1e6:8.1f} MB   {size * DAY / options.seconds / 1e6:.0f} MB a day")
    print(f"writing a sample   {spent / options.seconds * 1e3:8.2f} ms")
    print(f"reading it back    {took:8.1f} s    {len(recording.samples)} samples, {grown / 1e3:.0f} MB more memory")
    if lag:
        print(f"what probes told   {max(lag):8.0f} s    old at most where {len(lag)} jobs tell every second")


if __name__ == "__main__":
    main()
