"""Jobs of several ranks: known by the environment, one job on however many hosts, the worst rank named."""

import os
import subprocess
import sys
import time
from typing import Any

import msgspec
import pytest

from tests.tables import for_each
from vramtui.agent.processes import Processes
from vramtui.agent.runtime import rank_of
from vramtui.core.observation import readings
from vramtui.core.runs.ranked_jobs import RankReading, rank_readings, ranked_jobs
from vramtui.sources.host.processes import ProcessReader

TORCHRUN = {
    "RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "3", "MASTER_ADDR": "gpu01", "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "none",
}  # fmt: skip
MPIRUN = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4", "PMIX_NAMESPACE": "prterun-9"}
SRUN = {"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0", "SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "16"}


@for_each(
    [
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
    ]
)
def test_a_rank_is_what_its_launcher_says(variables: dict[str, str], found: tuple[object, ...] | None) -> None:
    environment = b"\0".join(f"{name}={value}".encode() for name, value in variables.items())
    wanted = found and dict(zip(("job", "rank", "size", "launcher"), found, strict=True))
    assert rank_of(environment, "here") == wanted


def test_nothing_else_is_taken_from_an_environment() -> None:
    text = b"RANK=1\0WORLD_SIZE=2\0MASTER_ADDR=a\x1b[31m\xff\0TOKEN=secret\0PATH=/secret\0BROKEN\0=x\0"
    found = rank_of(text, "here")
    assert found is not None
    assert "secret" not in str(found)
    assert "\x1b" not in found["job"]


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
    fixed: dict[str, Any] = {"job": "j", "size": 4, "launcher": "torchrun", "host": "a", "gpu_uuid": "g", "pid": rank}
    fixed["gpu_index"] = rank
    return RankReading(rank=rank, used=peak - 1, peak=peak, predicted=predicted, **{**fixed, **more})


def test_the_worst_rank_is_the_one_furthest_above_its_prediction() -> None:
    (job,) = ranked_jobs([reading(0, 60, 50), reading(1, 40, 30), reading(2, 20, 25)])
    assert job.worst.rank == 1
    assert job.worst.fraction == pytest.approx(1 / 3)
    assert (job.used, job.predicted, job.missing) == (117, 105, 1)
    assert job.imbalance == pytest.approx(0.5)  # 60 where the mean is 40


def test_without_predictions_the_worst_rank_holds_most_and_an_unknown_sum_is_unknown() -> None:
    (job,) = ranked_jobs([reading(0, 10), reading(1, 30), reading(2, 30, host="b")])
    assert (job.worst.rank, job.predicted) == (1, None)
    (half,) = ranked_jobs([reading(0, 10, 10), reading(1, 30)])
    assert half.predicted is None
    (alone,) = ranked_jobs([reading(0, 10)])
    assert alone.imbalance is None


def test_jobs_of_other_users_and_sizes_are_others_and_one_rank_may_have_several_processes() -> None:
    jobs = ranked_jobs(
        [reading(0, 10), reading(0, 12, pid=9, gpu_index=1), reading(0, 5, user="b"), reading(0, 6, size=2)]
    )
    assert [(job.user, job.size, len(job.ranks)) for job in jobs] == [(None, 4, 1), (None, 2, 1), ("b", 4, 1)]
    assert (jobs[0].ranks[0].peak, jobs[0].ranks[0].gpus) == (22, (0, 1))


def test_ranks_of_a_sample_survive_the_wire() -> None:
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
    assert (found.host, found.rank, found.used, found.peak, found.pid) == ("gpu02", 1, 5, 6, 7)
