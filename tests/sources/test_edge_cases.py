import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.examples import followed
from tests.sources.conftest import OTHER, Stage
from tests.stub.world import MEMORY_CALLS, MIB, NOT_AVAILABLE, NOT_SUPPORTED, StubGpu, StubProcess
from vramtui.app.state.rows import ProcessRows, RowPredictions, arranged
from vramtui.app.state.view import ProcessRow
from vramtui.app.watch.signals import refused
from vramtui.app.watch.windows import process_facts
from vramtui.core.observation.readings import Absence, Sample
from vramtui.sources.host import host
from vramtui.sources.nvml.source import NvmlSource

ME = os.getpid()
CARD = 1


def rows_of(*samples: Sample) -> list[ProcessRow]:
    every = RowPredictions(ProcessRows(samples[-1], followed(*samples), {}, whole=True), {}, lambda *_: None)
    found = arranged(every, "", ("now", False), None)
    return [row for row in found if row.gpu.index == CARD]


def card(stage: Stage) -> StubGpu:
    return stage.world.gpus[CARD]


def kinds(rows: list[ProcessRow]) -> dict[str, ProcessRow]:
    return {row.kind: row for row in rows}


def test_windows_below_tells_no_process_its_size(stage: Stage) -> None:
    """WSL: the list has pids, and N/A for each of them."""
    card(stage).processes = [StubProcess(ME, NOT_AVAILABLE), StubProcess(OTHER, NOT_AVAILABLE)]
    card(stage).used, card(stage).power = 900 * MIB, None
    sample = stage.tick()
    gpu, rows = sample.gpus[CARD], rows_of(sample)
    assert [row.used_memory for row in gpu.processes] == [None, None]
    assert {row.absent["used_memory"] for row in gpu.processes} == {Absence.NOT_SUPPORTED}
    assert (gpu.memory.used, gpu.unattributed) == (900 * MIB, 900 * MIB)  # the device's own figures stand
    assert kinds(rows)["unattributed"].note == "2 processes listed without a size"
    assert [row.kind for row in rows] == ["process", "process", "unattributed", "reserved"]  # no process's is last
    mine = next(row for row in rows if row.process is not None and row.process.pid == ME)
    assert mine.process is not None
    assert dict(process_facts(mine, mine.process, sample.taken_at))["memory now"] == "not supported"


@pytest.fixture
def mps_server(tmp_path: Path) -> Iterator[int]:
    program = tmp_path / "nvidia-cuda-mps-server"
    program.symlink_to(Path(sys.executable).resolve())
    code = "import time; print(flush=True); time.sleep(600)"
    with subprocess.Popen([program, "-S", "-c", code], stdout=subprocess.PIPE) as started:
        started.stdout.readline()
        yield started.pid
        started.kill()


def test_an_mps_server_may_hold_what_its_clients_use(stage: Stage, mps_server: int) -> None:
    stage.hold(CARD, StubProcess(ME, 300 * MIB), StubProcess(mps_server, 30 * MIB))
    card(stage).used += 200 * MIB
    rows = rows_of(stage.tick())
    assert {row.process.pid: row.now for row in rows if row.process} == {ME: 300 * MIB, mps_server: 30 * MIB}
    assert (kinds(rows)["unattributed"].now, kinds(rows)["unattributed"].note) == (
        204 * MIB,
        "clients of its MPS server",
    )


def test_shared_memory_is_never_the_hosts_use(stage: Stage) -> None:
    """GB10, Jetson: in use is the sum of the processes, and no rest is shown."""
    stage.hold(CARD, StubProcess(ME, 500 * MIB), StubProcess(OTHER, 200 * MIB))
    card(stage).fail(NOT_SUPPORTED, *MEMORY_CALLS)
    sample = stage.tick()
    memory = sample.gpus[CARD].memory
    assert (memory.unified, memory.used, memory.total) == (True, 700 * MIB, None)
    assert memory.free == sample.host.memory_available
    assert [row.kind for row in rows_of(sample)] == ["process", "process"]
    assert [gpu.memory.unified for gpu in sample.gpus] == [False, True, False]


def test_a_dead_process_keeps_its_row_while_the_driver_lists_it(stage: Stage) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; print(flush=True); time.sleep(600)"], stdout=-1)
    try:
        child.stdout.readline()
        stage.hold(CARD, StubProcess(child.pid, 500 * MIB))
        before = stage.tick()
    finally:
        child.kill()
        child.communicate()
    after = stage.tick()
    (row,) = [row for row in rows_of(before, after) if row.process is not None]
    assert row.process is not None
    assert (row.now, row.process.state) == (500 * MIB, "exited")
    assert refused(row, row.process) == f"pid {child.pid} has already ended."
    card(stage).processes = []
    (left,) = (row for row in rows_of(before, after, stage.tick()) if row.process)
    assert (left.kind, left.peak, left.learned and left.learned.how) == ("exited", 500 * MIB, "sampled")


def test_in_a_container_nobody_is_taken_for_somebody_else(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver gives the host's pids. The process that has such a number in here is another one."""
    monkeypatch.setattr(host, "own_namespace", lambda: "pid:[4026532200]")
    monkeypatch.setattr(host, "has_device_open", lambda pid, _device="": pid == ME)
    stage.source = NvmlSource(monotonic=stage.clock, timeout=20.0)
    stage.hold(CARD, StubProcess(os.getppid(), 500 * MIB))
    card(stage).used += 300 * MIB
    sample = stage.tick()
    assert sample.host.private_pids
    rows = rows_of(sample)
    (row,) = [row for row in rows if row.process is not None]
    assert row.process is not None
    assert (row.now, row.process.state, row.process.command, row.process.user) == (500 * MIB, "unseen", None, None)
    assert "outside this container" in refused(row, row.process)
    card(stage).processes = []
    assert kinds(rows_of(stage.tick()))["unattributed"].note == "processes outside this container"


def test_a_containers_own_job_has_its_pid_in_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Matched if it is the only one on both sides, or if both sides see one more at the same look."""
    inside = {OTHER}
    monkeypatch.setattr(host, "own_namespace", lambda: "pid:[4026532200]")
    monkeypatch.setattr(host, "has_device_open", lambda pid, device="": pid in (inside if device else {ME}))
    namespace = host.PidNamespace()
    first, second = sorted({int(one.name) for one in Path("/proc").glob("[0-9]*")} - {ME})[:2]
    for listed, jobs, expected in (
        ((), (), {}),
        ((5001,), (first,), {5001: first}),
        ((5001, 5002), (first,), {5001: first}),
        ((5001, 5002, 5003), (first, second), {5001: first, 5003: second}),
        ((5002, 5003), (second,), {5003: second}),
        ((5004, 5005), (first, second), {}),
    ):
        inside.clear()
        inside.update(jobs)
        assert namespace.numbers([pid + (1 << 22) for pid in listed]) == {
            pid + (1 << 22): expected[pid] for pid in expected
        }
