import os
import subprocess
import sys
import time
from typing import Any

import msgspec
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import a_run
from tests.tables import for_each
from vramtui.agent.processes import Processes
from vramtui.agent.runtime import rank_of
from vramtui.core.base.units import GIB
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate, Ledger, ledger_from_parts
from vramtui.core.observation import readings
from vramtui.core.observation.history import History
from vramtui.core.observation.probe_messages import Beat, End, Hello, MemoryCounters, ObservedJob, ProbeDevice
from vramtui.core.observation.readings import Gpu, Host, ProcessKey, Sample
from vramtui.core.observation.readings import Process as Reading
from vramtui.core.runs import run as past
from vramtui.core.runs.ranked_jobs import RankReading, rank_readings, ranked_jobs
from vramtui.core.runs.run_tracker import EVERY, MOST_POINTS, REFINED_EVERY, RunTracker, thinned
from vramtui.core.schema.models import TransformerModel
from vramtui.core.schema.preset import Preset, PresetFile
from vramtui.core.schema.workload import TrainRun
from vramtui.sources.host.processes import ProcessReader, process_is_gone

STARTED = past.Run(
    key=past.run_key("h", "GPU-1", 7, 1000.0), source="run", host="h", gpu_uuid="GPU-1", gpu_name="H200", pid=7,
    started_at=1000.0, ended_at=1600.0, ending="failed", exit_code=3, preset="", method="", predicted=Ledger(),
    observed=Ledger(allocated=8 * GIB, reserved=9 * GIB, context=GIB // 2, process=9 * GIB + GIB // 2),
    peak_how="probe", times=(5.0, 50.0), values=(GIB, 9 * GIB), versions={"torch": "2.9"},
)  # fmt: skip
WATCHED = msgspec.structs.replace(
    STARTED, source="watched", started_at=1000.7, key=past.run_key("h", "GPU-1", 7, 1000.7), ended_at=1599.0,
    ending="exited", exit_code=None, preset="gpt2-124m", method="analytic", predicted=Ledger(process=10 * GIB),
    observed=Ledger(process=10 * GIB), peak_how="sampled", times=(0.0, 500.0), values=(GIB, 10 * GIB),
    versions={"driver": "580"},
)  # fmt: skip


def test_a_reused_pid_is_another_process_and_a_job_that_was_missed_for_a_moment_goes_on() -> None:
    assert past.same_process(STARTED, WATCHED)
    for changes in ({"pid": 8}, {"host": "other"}, {"gpu_uuid": "GPU-2"}, {"started_at": 1700.0, "ended_at": None}):
        other = msgspec.structs.replace(WATCHED, **changes)
        assert not past.same_process(STARTED, other)
        assert not past.same_process(other, STARTED)
    back = msgspec.structs.replace(WATCHED, ended_at=None, ending="running", seen_until=1700.0)
    assert (past.merged(WATCHED, back).ending, past.merged(back, WATCHED).ending) == ("running", "running")
    assert past.merged(WATCHED, msgspec.structs.replace(back, seen_until=1500.0)).ended_at == 1599.0


@pytest.mark.parametrize("pair", [(STARTED, WATCHED), (WATCHED, STARTED)])
def test_each_gives_what_it_knows_best(pair: tuple[past.Run, past.Run]) -> None:
    both = past.merged(*pair)
    assert both.key == pair[0].key
    assert (both.source, both.peak_how, both.exit_code, both.ending) == ("run", "probe", 3, "failed")
    assert (both.preset, both.method, both.predicted.process) == ("gpt2-124m", "analytic", 10 * GIB)
    assert (both.observed.allocated, both.observed.process, both.observed.context) == (8 * GIB, 10 * GIB, GIB)
    assert both.times == pytest.approx((0.7, 500.7))
    assert both.versions == {"torch": "2.9", "driver": "580"}


@given(st.permutations((STARTED, WATCHED, msgspec.structs.replace(WATCHED, ended_at=None, ending="running"))))
def test_the_order_does_not_matter_but_for_the_key(order: list[past.Run]) -> None:
    first = past.merged(past.merged(order[0], order[1]), order[2])
    other = past.merged(past.merged(STARTED, WATCHED), STARTED)
    assert msgspec.structs.replace(first, key="") == msgspec.structs.replace(other, key="")


RUN = a_run(
    source="watched", pid=1, command="python Train.py --lr 1", ended_at=2000.0, ending="exited",
    predicted=Ledger(process=100), observed=Ledger(process=95),
)  # fmt: skip


def kept(number: int, **changes: object) -> past.StoredRun:
    return past.StoredRun(number, msgspec.structs.replace(RUN, **changes))


@pytest.mark.parametrize(
    ("wanted", "numbers"),
    [
        (past.RunFilter(), [1, 2, 3]), (past.RunFilter(preset="GPT2"), [1, 3]), (past.RunFilter(gpu="l40"), [2]),
        (past.RunFilter(host="gpu02"), [3]), (past.RunFilter(since=1500.0), [3]), (past.RunFilter(failed=True), [2]),
        (past.RunFilter(words="train h200"), [1, 3]), (past.RunFilter(words="train nowhere"), []),
        (past.RunFilter(gpu="GPU-0", failed=True, preset="x"), []),
    ],
)  # fmt: skip
def test_filters(wanted: past.RunFilter, numbers: list[int]) -> None:
    runs = [
        kept(1),
        kept(2, gpu_name="NVIDIA L40S", preset="llama", ending="out_of_memory"),
        kept(3, host="gpu02", started_at=1600.0),
    ]
    assert [one.id for one in past.filtered(runs, wanted)] == numbers


@pytest.mark.parametrize(
    ("column", "numbers"),
    [
        ("when", [3, 2, 1]), ("host", [2, 1, 3]), ("gpu", [1, 3, 2]), ("preset", [2, 1, 3]), ("predicted", [2, 1, 3]),
        ("observed", [1, 2, 3]), ("error", [2, 1, 3]), ("lasted", [1, 2, 3]), ("ended", [1, 3, 2]),
    ],
)  # fmt: skip
def test_orders(column: past.RunColumn, numbers: list[int]) -> None:
    runs = [
        kept(1),
        kept(
            2, started_at=1001.0, host="a", gpu_name="Z", preset="a", predicted=Ledger(process=200),
            observed=Ledger(process=90), ending="failed",
        ),
        kept(3, started_at=1002.0, host="z", preset="", observed=Ledger(), predicted=Ledger()),
    ]  # fmt: skip
    assert [one.id for one in past.in_order(runs, column)] == numbers
    turned = [one.id for one in past.in_order(runs, column, reverse=True)]
    if column in {"preset", "predicted", "observed", "error"}:
        assert turned == [numbers[1], numbers[0], 3]  # what is not known stays last
    elif column in {"when", "host", "lasted"}:
        assert turned == numbers[::-1]
    else:
        assert turned == [2, 1, 3]  # equal ones keep their order


@given(
    st.lists(st.builds(kept, st.integers(), started_at=st.floats(0, 9), host=st.text())),
    st.sampled_from(past.RUN_COLUMNS),
)
def test_sorting_loses_nothing(runs: list[past.StoredRun], column: past.RunColumn) -> None:
    assert sorted(one.id for one in past.in_order(runs, column)) == sorted(one.id for one in runs)


def test_values_bars_and_words_of_a_run() -> None:
    assert len(past.BARS) == len(past.EDGES) + 1
    assert past.histogram([-0.5, -0.02, 0.0, 0.019, 0.02, 0.3]) == (1, 0, 0, 0, 3, 1, 0, 0, 1)
    assert sum(past.histogram([])) == 0
    runs = [RUN, msgspec.structs.replace(RUN, ending="failed"), msgspec.structs.replace(RUN, method="traced")]
    assert past.errors_of(runs, "analytic", "transformer") == [pytest.approx(-0.05)]
    lora = {"rank": 8, "target_modules": ["q_proj"], "use_dora": True}
    workload = {"run": {"batch_size": 8, "lora": lora, "target_length": None, "x": False}, "parallel": None}
    told = "batch_size = 8, lora = {rank = 8, target_modules = [q_proj], use_dora = true}, x = false"
    assert past.preset_values(msgspec.structs.replace(RUN, workload=workload)) == (("run", told),)
    assert past.preset_values(RUN) == ()
    words = {
        "ended": RUN,
        "exited": msgspec.structs.replace(RUN, exit_code=0),
        "out of memory (1)": msgspec.structs.replace(RUN, ending="out_of_memory", exit_code=1),
        "running": msgspec.structs.replace(RUN, ended_at=None, ending="running", seen_until=2999.0),
        "last seen 1 h 06 m ago": msgspec.structs.replace(RUN, ended_at=None, ending="running", times=(0.0, 40.0)),
    }
    for said, run in words.items():
        now = 3000.0 if said == "running" else 5000.0
        assert past.ending_words(run, now) == said


def test_only_runs_of_this_host_whose_process_is_gone_have_ended() -> None:
    runs = [a_run(host=host, pid=pid, ended_at=None, ending="running") for host, pid in (("a", 1), ("a", 2), ("b", 1))]
    runs.append(a_run(host="a", pid=1, ended_at=None, ending="failed"))
    settled = past.with_gone([past.StoredRun(at, run) for at, run in enumerate(runs)], "a", lambda pid, _at: pid == 1)
    assert [one.run.ending for one in settled] == ["exited", "running", "running", "failed"]
    assert not settled[0].run.finished, "nobody saw its end: it teaches nothing"
    assert past.ending_words(settled[0].run, settled[0].run.last_known + 1) == "ended"
    assert msgspec.structs.replace(settled[0].run, ending="running") == runs[0]
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert process_is_gone(ended.pid, time.time())
    started = psutil.Process().create_time()
    assert not process_is_gone(os.getpid(), started)
    assert process_is_gone(os.getpid(), started - 3600), "this pid belonged to another one then"


SMALL = TransformerModel(hidden_size=64, num_hidden_layers=2, num_attention_heads=2, vocab_size=100)
OURS = Preset(name="P", model=SMALL, run=TrainRun(batch_size=8))
PRESET = PresetFile(key="p", path="p.toml", bundled=True, preset=OURS)
KEY = ProcessKey("h", "GPU-1", 7, 990.0)


def sample(at: float, used: int | None) -> Sample:
    process = Reading(pid=7, type="C", used_memory=used, command="python t.py", started_at=990.0)
    gpu = Gpu(index=0, uuid="GPU-1", name="NVIDIA H200", processes=() if used is None else (process,))
    return Sample(taken_at=at, source="test", host=Host(name="h", driver_version="580.1"), gpus=(gpu,))


def predict(found: PresetFile, device: Device) -> Estimate | None:
    assert device.name == "NVIDIA H200"
    ledger = ledger_from_parts({"weights": 10 * GIB}, reserved=11 * GIB, context=GIB)
    return Estimate(method="analytic", parts=(), ledger=ledger, peak_phase="step") if found.key == "p" else None


class TrackedHost:
    """Feeds samples; `says` has the runs that were due, sample by sample."""

    def __init__(self, job: ObservedJob | None = None) -> None:
        self.job = job
        self.history = History()
        self.predict = predict
        self.watched = RunTracker(self._predict, lambda pid, _uuid: (self.job, 0) if self.job and pid == 7 else None)

    def _predict(self, found: PresetFile, device: Device) -> Estimate | None:
        return self.predict(found, device)

    def take(self, at: float, used: int | None, preset: PresetFile | None = PRESET) -> list[past.Run]:
        taken = sample(at, used)
        self.history.add(taken)
        return self.watched.update(taken, self.history, {KEY: preset} if used is not None and preset else {})


def test_a_life_with_what_the_job_tells_itself() -> None:
    tracked = TrackedHost()
    (first,) = tracked.take(1000.0, GIB)
    assert (first.key, first.source, first.ending) == ("h/GPU-1/7/990", "watched", "running")
    assert (first.preset, first.model_kind, first.run_kind) == ("p", "transformer", "train")
    assert ((first.workload["run"] or {})["batch_size"], first.versions) == (8, {"driver": "580.1"})
    assert (first.method, first.predicted.process, first.predicted.weights) == ("analytic", 12 * GIB, 10 * GIB)
    assert tracked.take(1000.0 + EVERY - 1, 9 * GIB) == []
    (second,) = tracked.take(1000.0 + EVERY, 2 * GIB)
    assert second.observed.process == 9 * GIB
    assert second.error == pytest.approx(-0.25)
    assert (second.times, second.values) == ((10.0, 69.0, 70.0), (GIB, 9 * GIB, 2 * GIB))
    (last,) = tracked.take(1065.0, None)
    assert (last.ended_at, last.ending, last.key) == (1065.0, "exited", first.key)
    assert (tracked.take(2000.0, None), tracked.watched.last_runs(tracked.history)) == ([], [])
    hello = Hello(
        v=1, pid=7, at=1.0, torch="2.9.0",
        devices=(ProbeDevice(index=0, name="H200", total_memory=GIB, capability=(9, 0), uuid="1"),),
    )  # fmt: skip
    counters = MemoryCounters(index=0, allocated_peak=8 * GIB, reserved_peak=9 * GIB)
    beat = Beat(v=1, pid=7, at=2.0, step=1, devices=(counters,), parts={"weights": {"cuda:0": GIB}})
    tracked = TrackedHost(ObservedJob(pid=7).heard(hello).heard(beat))
    (early,) = tracked.take(1000.0, 2 * GIB)
    assert (early.peak_how, early.observed.process, early.observed.reserved) == ("probe", None, 9 * GIB)
    tracked.take(1001.0, 9 * GIB + 500)
    tracked.job = tracked.job.heard(End(v=1, pid=7, at=3.0, error="OutOfMemoryError", out_of_memory=True))
    (last,) = tracked.take(1002.0, None)
    assert (last.ending, last.observed.context, last.observed.weights) == ("out_of_memory", 500, GIB)
    assert (last.observed.activations, last.versions["torch"]) == (7 * GIB, "2.9.0")


def test_a_clock_that_is_set_back_makes_no_run_end_before_it_began() -> None:
    tracked = TrackedHost()
    (first,) = tracked.take(90_000.0, GIB)
    (second,) = tracked.take(90_001.0 - 3 * 3600, 2 * GIB)  # said at once, and not when the clock has come as far again
    assert second.key == first.key
    assert second.seen_until is not None
    assert second.seen_until >= second.started_at
    assert list(second.times) == sorted(second.times)
    (last,) = tracked.take(90_002.0 - 3 * 3600 - 89_500, None)
    assert last.key == first.key
    assert last.ended_at is not None
    assert last.ended_at >= last.started_at
    assert min(last.times) >= 0


def test_a_nearer_estimate_is_told_at_once_and_a_quick_one_kept_of_a_job_that_is_over() -> None:
    tracked = TrackedHost()
    (first,) = tracked.take(1000.0, GIB)
    assert first.method == "analytic"

    def nearer(found: PresetFile, device: Device) -> Estimate | None:
        estimate = predict(found, device)
        return estimate and msgspec.structs.replace(estimate, method="simulated")

    tracked.predict = nearer
    assert tracked.take(1000.0 + REFINED_EVERY - 1, GIB) == []
    (second,) = tracked.take(1000.0 + REFINED_EVERY, GIB)
    assert second.method == "simulated"
    assert tracked.take(1000.0 + 2 * REFINED_EVERY, GIB) == [], "and once"
    # One that goes on has no prediction until the nearer one is there: the history has no mark for a quick figure.
    quick = {"is": True}
    tracked = TrackedHost()
    tracked.watched = RunTracker(predict, lambda _pid, _uuid: None, lambda _preset, _device: quick["is"])
    (first,) = tracked.take(1000.0, GIB)
    assert (first.method, first.predicted.process, first.error) == ("", None, None)
    assert tracked.take(1000.0 + REFINED_EVERY, GIB) == [], "nothing new is known"
    (given,) = tracked.watched.last_runs(tracked.history)
    assert given.predicted.process == 12 * GIB
    quick["is"] = False
    (second,) = tracked.take(1000.0 + 2 * REFINED_EVERY, GIB)
    assert (second.method, second.predicted.process) == ("analytic", 12 * GIB)
    quick["is"] = True
    (last,) = tracked.take(1000.0 + 3 * REFINED_EVERY, None)
    assert last.predicted.process == 12 * GIB


def test_another_preset_is_told_at_once_and_the_rest_still_goes_on() -> None:
    tracked = TrackedHost()
    tracked.take(1000.0, GIB)
    other = msgspec.structs.replace(PRESET, key="q")
    (told,) = tracked.take(1001.0, GIB, other)
    assert (told.preset, told.method, told.predicted.process) == ("q", "", None)
    assert (tracked.take(1002.0, GIB, None), tracked.take(1100.0, GIB, None)) == ([], [])
    assert tracked.take(1101.0, None) == []
    tracked = TrackedHost()
    tracked.take(1000.0, GIB)
    tracked.take(1010.0, 3 * GIB)
    (rest,) = tracked.watched.last_runs(tracked.history)
    assert (rest.ending, rest.seen_until, rest.observed.process) == ("running", 1010.0, 3 * GIB)
    tracked = TrackedHost()
    tracked.take(1000.0, GIB)
    silent = msgspec.structs.replace(sample(1001.0, None).gpus[0], state="lost")
    taken = msgspec.structs.replace(sample(1001.0, None), gpus=(silent,))
    tracked.history.add(taken)
    assert tracked.watched.update(taken, tracked.history, {}) == []
    assert tracked.take(1000.0 + EVERY, GIB)


@given(st.lists(st.integers(0, 1 << 40), max_size=5 * MOST_POINTS))
def test_a_thinned_series_is_short_and_keeps_its_peak(values: list[int]) -> None:
    times, kept = thinned(list(map(float, range(len(values)))), values)
    assert len(times) == len(kept) <= MOST_POINTS
    assert (max(kept, default=None), times) == (max(values, default=None), sorted(times))
    assert all(values[int(at)] == value for at, value in zip(times, kept, strict=True))
    if len(values) <= MOST_POINTS:
        assert kept == values


TORCHRUN = {
    "RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "3", "MASTER_ADDR": "gpu01", "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "none",
}  # fmt: skip
MPIRUN = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4", "PMIX_NAMESPACE": "prterun-9"}
SRUN = {"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0", "SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "16"}


@for_each([
    (TORCHRUN, ("torchrun:29500 on gpu01", 3, 8, "torchrun")),
    ({**TORCHRUN, "MASTER_ADDR": "127.0.0.1"}, ("torchrun:29500 on here", 3, 8, "torchrun")),
    ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "a"}, ("torch.distributed on a", 0, 2, "torch.distributed")),
    # torchrun started by srun: the rank is torchrun's, of which srun starts one on each host
    ({**SRUN, **TORCHRUN}, ("slurm 4711 torchrun:29500 on gpu01", 3, 8, "torchrun")),
    (SRUN, ("slurm 4711.0", 5, 16, "srun")),
    ({**SRUN, "SLURM_STEP_ID": "4294967291"}, None),  # the batch script
    (MPIRUN, ("mpi prterun-9", 1, 4, "mpirun")),
    ({**TORCHRUN, "WORLD_SIZE": "1", "RANK": "0"}, None),
    *(({**TORCHRUN, "RANK": rank}, None) for rank in ("8", "-1", "٣")),
    ({**TORCHRUN, "WORLD_SIZE": "9" * 10}, None),
    ({}, None),
])  # fmt: skip
def test_a_rank_is_what_its_launcher_says(variables: dict[str, str], found: tuple[object, ...] | None) -> None:
    environment = b"\0".join(f"{name}={value}".encode() for name, value in variables.items())
    wanted = found and dict(zip(("job", "rank", "size", "launcher"), found, strict=True))
    assert rank_of(environment, "here") == wanted


def test_ranks_survive_the_wire_and_nothing_else_is_taken_from_an_environment() -> None:
    text = b"RANK=1\0WORLD_SIZE=2\0MASTER_ADDR=a\x1b[31m\xff\0TOKEN=secret\0PATH=/secret\0BROKEN\0=x\0"
    told = rank_of(text, "here")
    assert told is not None
    assert "secret" not in str(told)
    assert "\x1b" not in told["job"]
    rank = readings.JobRank(job="gpu01:29500", rank=1, size=2, launcher="torchrun")
    rows = (
        readings.Process(pid=7, type="C", used_memory=5, rank=rank),
        readings.Process(pid=8, type="C", used_memory=5),
    )
    gpu = readings.Gpu(index=0, uuid="G", name="x", memory=readings.Memory(), processes=rows)
    sample = readings.Sample(taken_at=1.0, source="x", host=readings.Host(name="gpu02"), gpus=(gpu,))
    (found,) = rank_readings(readings.decode_sample(readings.encode_sample(sample)), lambda _: 6, lambda _: None)
    quick = {readings.process_key("gpu02", gpu, rows[0])}
    (marked,) = ranked_jobs(rank_readings(sample, lambda _: 6, lambda _: 7, quick))
    assert (marked.is_quick, marked.predicted, ranked_jobs([found])[0].is_quick) == (True, 7, False)
    assert (found.host, found.rank, found.used, found.peak) == ("gpu02", 1, 5, 6)


def test_both_readers_know_a_real_process() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env={**os.environ, **TORCHRUN, "SLURM_JOB_ID": ""}
    )
    try:
        wanted = {"job": "torchrun:29500 on gpu01", "rank": 3, "size": 8, "launcher": "torchrun"}
        far, near = Processes(), ProcessReader()
        for _ in range(100):  # until it has become Python
            near.update(())
            near.update({child.pid})
            row = near.row(child.pid, "GPU-0", "C", 5, None)
            if row.rank is not None:
                break
            time.sleep(0.02)
        assert (msgspec.to_builtins(row.rank), far.row(child.pid)["rank"]) == (wanted, wanted)
        assert near.row(child.pid, "GPU-0", "C", 5, None) is row
    finally:
        child.communicate(b"\n")


def reading(rank: int, peak: int, predicted: int | None = None, **more: Any) -> RankReading:
    fixed: dict[str, Any] = {"job": "j", "size": 4, "launcher": "torchrun", "host": "a"}
    fixed["gpu_index"] = rank
    return RankReading(rank=rank, used=peak - 1, peak=peak, predicted=predicted, **{**fixed, **more})


def test_jobs_are_told_apart_and_the_worst_rank_is_named() -> None:
    jobs = ranked_jobs([reading(0, 10), reading(0, 12, gpu_index=1), reading(0, 5, user="b"), reading(0, 6, size=2)])
    assert [(job.user, job.size, len(job.ranks)) for job in jobs] == [(None, 4, 1), (None, 2, 1), ("b", 4, 1)]
    assert (jobs[0].ranks[0].peak, jobs[0].ranks[0].gpus) == (22, (0, 1))
    (job,) = ranked_jobs([reading(0, 60, 50), reading(1, 40, 30), reading(2, 20, 25)])
    assert job.worst.rank == 1
    assert job.worst.fraction == pytest.approx(1 / 3)
    assert (job.used, job.predicted, job.missing) == (117, 105, 1)
    assert job.imbalance == pytest.approx(0.5)  # 60 where the mean is 40
    (job,) = ranked_jobs([reading(0, 10), reading(1, 30), reading(2, 30, host="b")])
    assert (job.worst.rank, job.predicted) == (1, None)
    (half,) = ranked_jobs([reading(0, 10, 10), reading(1, 30)])
    assert half.predicted is None
    (alone,) = ranked_jobs([reading(0, 10)])
    assert alone.imbalance is None
