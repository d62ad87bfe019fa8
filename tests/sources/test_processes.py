"""What is told of the processes on a card: real ones, of this machine."""

import getpass
import os
import pwd
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import Clock
from tests.installed.sleepers import sleepers
from tests.sources.conftest import Stage
from tests.stub.world import MIB, StubProcess
from vramtui.agent import ancestors, stream
from vramtui.agent import processes as agent_processes
from vramtui.agent.processes import HOST_NAMESPACE
from vramtui.core.observation.readings import Absence, Process
from vramtui.sources.host import host, processes
from vramtui.sources.host.host import PidNamespace
from vramtui.sources.host.processes import ProcessReader, read_stat
from vramtui.sources.nvml.processes import ProcessUse

NOBODY = (1 << 22) - 1  # the highest pid that can be
READY = "import sys; print('ready', flush=True); sys.stdin.read()"


@contextmanager
def program(*command: str, executable: str = sys.executable) -> Iterator["subprocess.Popen[bytes]"]:
    started = subprocess.Popen(command, executable=executable, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with started:
        started.stdout.readline()
        yield started
        started.kill()


def look(table: ProcessReader, pid: int, used: int | None = MIB) -> Process:
    table.update({pid})
    return table.row(pid, "GPU-0", "C", used, None)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def table(clock: Clock) -> ProcessReader:
    return ProcessReader(clock)


def test_who_what_and_since_when(stage: Stage) -> None:
    with program(sys.executable, "-c", READY, "--model", "llama 3") as child:
        stage.hold(0, StubProcess(child.pid, 300 * MIB))
        (row,) = stage.tick().gpus[0].processes
        assert row.command == f"{sys.executable} -c {READY} --model llama 3"
        assert row.name == psutil.Process(child.pid).name()
        assert (row.user, row.state, row.absent) == (getpass.getuser(), "running", {})
        assert row.started_at == pytest.approx(psutil.Process(child.pid).create_time(), abs=0.02)
        assert row.host_memory is not None
        assert row.host_memory > MIB
        assert row.cpu_percent is None  # nothing to compare with yet
        (row,) = stage.tick().gpus[0].processes
        assert row.cpu_percent is not None


def test_a_containers_name_is_found(table: ProcessReader, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its engine may write it later; a look at the files in each sample would cost more than all else."""
    told, asked = ["docker 9b1c0f2e4d7a"], [0]

    def container(*of: object) -> str:
        assert len(of) == 2
        asked[0] += 1
        return told[0]

    monkeypatch.setattr(processes, "container_of", container)
    with program(sys.executable, "-c", READY) as child:
        assert look(table, child.pid).container == "docker 9b1c0f2e4d7a"
        told[0] = "docker trainer"
        for seconds, name, count in (
            (30, "docker 9b1c0f2e4d7a", 1),
            (40, "docker trainer", 2),
            (100, "docker trainer", 2),
        ):
            clock.now += seconds
            assert (look(table, child.pid).container, asked[0]) == (name, count)


def test_cpu_is_that_between_two_looks(table: ProcessReader, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = 5.0
    monkeypatch.setattr(processes, "read_stat", lambda _: ("busy", b"R", seconds, 100, 2, 1))
    assert look(table, NOBODY).cpu_percent is None
    seconds, clock.now = 8.0, clock.now + 2
    assert look(table, NOBODY).cpu_percent == 150.0
    clock.now += 0.1  # too short a time to tell
    assert look(table, NOBODY).cpu_percent == 150.0


def test_harmless_on_any_screen(stage: Stage) -> None:
    hostile = "[red]x[/] \x1b[2J\x1b]0;pwn\x07\u202e\udcff"
    with program(hostile.encode(errors="surrogateescape").decode(errors="surrogateescape"), "-c", READY) as child:
        stage.hold(0, StubProcess(child.pid, MIB))
        (row,) = stage.tick().gpus[0].processes
        assert row.command.startswith("[red]x[/] ␛[2J␛]0;pwn␇")
        assert row.command.isprintable()


def test_exited_but_still_listed_keeps_who_it_was(stage: Stage) -> None:
    with program(sys.executable, "-c", READY) as child:
        stage.hold(0, StubProcess(child.pid, 300 * MIB))
        (alive,) = stage.tick().gpus[0].processes
        child.kill()
        child.wait()
        (gone,) = stage.tick().gpus[0].processes
    assert (gone.state, gone.used_memory, gone.cpu_percent) == ("exited", 300 * MIB, None)
    assert (gone.pid, gone.started_at, gone.user) == (alive.pid, alive.started_at, alive.user)
    assert gone.command == alive.command
    stage.hold(0, StubProcess(os.getpid(), MIB), StubProcess(NOBODY, MIB))
    mine, never = stage.tick().gpus[0].processes
    assert (never.state, never.user, never.command, never.started_at) == ("exited", None, None, None)
    stage.hold(0, StubProcess(os.getpid(), MIB))
    assert [row.pid for row in stage.tick().gpus[0].processes] == [mine.pid]


def test_zombie(table: ProcessReader, clock: Clock) -> None:
    with program(sys.executable, "-c", READY) as child:
        alive = look(table, child.pid)
        os.kill(child.pid, signal.SIGKILL)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # dead, and left to lie
        clock.now += 1
        dead = look(table, child.pid)
        assert (dead.state, dead.command, dead.host_memory) == ("zombie", alive.command, None)
        assert look(ProcessReader(), child.pid).command == alive.name  # its command line is gone by now


def test_a_reused_pid_is_another_process(table: ProcessReader, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    start = 100
    monkeypatch.setattr(processes, "read_stat", lambda _: (f"run{start}", b"S", 1.0, start, 2, 1))
    first = look(table, NOBODY)
    start, clock.now = 200, clock.now + 1
    second = look(table, NOBODY)
    assert (first.name, second.name) == ("run100", "run200")
    assert first.started_at is not None
    assert second.started_at is not None
    assert second.started_at > first.started_at
    assert second.cpu_percent is None


def test_another_users_process_that_may_not_be_seen(table: ProcessReader, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(pid: int, _: int) -> None:
        raise PermissionError(pid)

    monkeypatch.setattr(os, "kill", forbidden)  # /proc mounted with hidepid: the pid exists, /proc says nothing
    row = look(table, NOBODY)
    assert (row.state, row.command) == ("unknown", None)
    assert row.absent["command"] is row.absent["user"] is Absence.NO_PERMISSION


def test_a_command_that_may_not_be_read(table: ProcessReader, monkeypatch: pytest.MonkeyPatch) -> None:
    read = ancestors.read_bytes

    def denied(path: str, most: int = ancestors.ONE_PAGE, **how: bool) -> bytes:
        if path.endswith("/cmdline"):
            raise PermissionError(path)
        return read(path, most, **how)

    monkeypatch.setattr(processes, "read_bytes", denied)
    row = look(table, os.getpid())
    assert (row.user, row.command, row.absent) == (getpass.getuser(), None, {"command": Absence.NO_PERMISSION})
    assert row.name


def test_a_user_without_a_name_or_letters_that_the_terminal_has(monkeypatch: pytest.MonkeyPatch) -> None:
    names = enumerate(("anna", "jörg", "мария", "j\udcc3\udcb6rg"))
    users = {uid: pwd.struct_passwd((name, "", uid, uid, "", "", "")) for uid, name in names}
    monkeypatch.setattr(pwd, "getpwuid", users.__getitem__)
    for wanted in ("anna jörg мария jörg 4", "anna jörg 2 jörg 4"):
        assert [processes.user_name(uid) for uid in range(5)] == wanted.split()
        monkeypatch.setenv("VRAMTUI_ASCII", "1")


@pytest.mark.parametrize("title", ["VLLM::EngineCore_DP0", "sglang::scheduler_TP0"])
def test_an_engines_title_stands_for_the_command_that_started_it(table: ProcessReader, title: str) -> None:
    with sleepers([(title,)]) as (pid,):
        table.update([pid])
        assert (
            table.row(pid, "gpu", "C", 1, None).command
            == " ".join(psutil.Process().cmdline())[: ancestors.LONGEST_COMMAND]
        )


def test_names_with_brackets_and_the_machines_work_are_those_of_psutil() -> None:
    with program(sys.executable, "-c", "open('/proc/self/comm','w').write('a) S (b c');" + READY) as child:
        status = read_stat(child.pid)
        assert status is not None
        assert (status[0], status[1] in b"RS") == ("a) S (b c", True)
        assert status[3] > 0
    told = host.processor_time()
    times = psutil.cpu_times()._asdict()
    everything = sum(times.values()) - times["guest"] - times["guest_nice"]
    assert told is not None
    assert told[1] / processes.CLOCK_TICKS == pytest.approx(everything, abs=2)
    assert told[0] / processes.CLOCK_TICKS == pytest.approx(everything - times["idle"] - times["iowait"], abs=2)
    assert processes.boot_time.__wrapped__() == psutil.boot_time()


def test_thousands_have_their_turn(table: ProcessReader, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def stat(pid: int) -> tuple[str, bytes, float, int, int, int]:
        asked.append(pid)
        return "busy", b"R", clock.now, 100, 2, 1

    monkeypatch.setattr(processes, "read_stat", stat)
    pids = set(range(3_000_000, 3_001_000))
    table.update(pids)
    assert set(asked) == pids  # each is known at once
    seen: set[int] = set()
    for _ in range(-(-len(pids) // processes.REFRESH_AT_ONCE)):
        asked.clear()
        clock.now += 1
        table.update(pids)
        assert len(asked) <= processes.REFRESH_AT_ONCE
        seen |= set(asked)
    assert seen == pids


def private(monkeypatch: pytest.MonkeyPatch, holders: set[int]) -> PidNamespace:
    monkeypatch.setattr(host, "own_namespace", lambda: "pid:[4026532500]")
    monkeypatch.setattr(host, "has_device_open", lambda pid, _device="": pid in holders)
    return PidNamespace()


def test_outside_this_container(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not agent_processes.has_device_open(NOBODY)
    assert ancestors.link_target("/proc/self/exe").startswith("/")
    for own in (HOST_NAMESPACE, None):
        monkeypatch.setattr(host, "own_namespace", lambda own=own: own)
        assert not PidNamespace().private
    with program(sys.executable, "-c", READY) as same_number:
        namespace = private(monkeypatch, {os.getpid()})
        assert namespace.private
        table = ProcessReader(namespace=namespace)
        for pid in (NOBODY, same_number.pid):
            row = look(table, pid)
            assert (row.state, row.user, row.command) == ("unseen", None, None)
        assert look(table, os.getpid()).state == "running"
    table = ProcessReader(namespace=private(monkeypatch, set()))  # pids cannot be told apart
    assert (look(table, os.getpid()).state, look(table, NOBODY).state) == ("running", "unseen")


def test_unchanged_rows_are_one_object(table: ProcessReader, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    fixed: Callable[[int], tuple[str, bytes, float, int, int, int]] = lambda _: ("still", b"S", 1.0, 100, 2, 1)  # noqa: E731 - a stand-in
    monkeypatch.setattr(processes, "read_stat", fixed)
    look(table, NOBODY)
    clock.now += 1
    first = look(table, NOBODY)
    clock.now += 1
    assert look(table, NOBODY) is first
    assert look(table, NOBODY, None) is not first


uses = st.builds(ProcessUse, st.one_of(st.none(), st.integers(0, 2)), st.sampled_from(["C", "G"]))
lists = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from([NOBODY, NOBODY - 1, NOBODY - 2]), uses), unique_by=lambda one: one[0]),
        st.sampled_from([None, {}, {NOBODY: 40}]),
        st.sampled_from([b"S", b"S", b"S", b"Z"]),
        st.integers(0, 1),
    ),
    max_size=8,
)


@given(lists)
def test_a_list_has_the_rows_that_its_processes_have_one_by_one(lists: Any) -> None:
    clock = Clock()
    now = [b"S", 0.0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "read_stat", lambda _: ("still", now[0], now[1], 100, 2, 1))
        table = ProcessReader(clock)
        for listed, busy, letter, worked in lists:
            clock.now += 1
            now[:] = letter, now[1] + worked
            held = dict(listed)
            table.update(held)
            rows = table.columns(held, busy, {})
            one_by_one = [
                table.row(pid, "GPU-1", use.type, use.used, None if use.used is not None else Absence.NOT_SUPPORTED)
                for pid, use in held.items()
            ]
            shares = [None if busy is None else busy.get(pid, 0) for pid in held]
            assert rows == tuple(
                msgspec.structs.replace(row, sm_percent=share) for row, share in zip(one_by_one, shares, strict=True)
            )


def test_a_sandbox_without_proc(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command ended with a traceback there, or without any GPU; now the processes have no names."""
    monkeypatch.setattr(processes, "boot_time", processes.boot_time.__wrapped__)  # not what was known before
    for module in (agent_processes, stream, host):
        monkeypatch.setattr(module, "read_file", lambda *_: b"")
    assert processes.boot_time() == 0
    machine = stage.tick().host
    assert (machine.memory_total, machine.memory_available, machine.cpu_percent) == (None, None, None)
    assert look(ProcessReader(), os.getpid()).used_memory == MIB


@pytest.mark.parametrize(("limits", "known"), [
    ({"FIRST_WORK": -1, "INTRODUCE_AT_ONCE": 1}, [None, "large", None]),  # no time for a second
    (
        {"FIRST_WORK": 60, "INTRODUCE_WORK": 60, "INTRODUCE_WAIT": 60, "FIRST_AT_ONCE": 2},  # seconds
        [None, "large", "middle"],
    ),
])  # fmt: skip
def test_the_first_look_for_a_screen_names_those_first_that_hold_most(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, limits: dict[str, int], known: list[str | None]
) -> None:
    for limit, value in limits.items():
        monkeypatch.setattr(processes, limit, value)
    stage.source.shorten_first_read()
    with sleepers([("small",), ("large",), ("middle",)]) as (small, large, middle):
        for card, pid, held in ((0, small, 1), (1, large, 3), (1, middle, 2)):
            stage.hold(card, *stage.world.gpus[card].processes, StubProcess(pid, held * MIB))
        seen = [[row.command for gpu in stage.tick().gpus for row in gpu.processes] for _ in range(2)]
        assert seen == [known, ["small", "large", "middle"]]


def test_whoever_looks_once_is_told_of_all(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 512 processes `ps` named 136 on a busy machine, and `ps --user` left the others out."""
    for limit in ("FIRST_WORK", "INTRODUCE_WORK", "INTRODUCE_WAIT"):
        monkeypatch.setattr(processes, limit, -1)
    monkeypatch.setattr(processes, "INTRODUCE_AT_ONCE", 1)
    with sleepers([("one",), ("two",), ("three",)]) as pids:
        stage.hold(0, *(StubProcess(pid, MIB) for pid in pids))
        assert [row.command for row in stage.tick().gpus[0].processes] == ["one", "two", "three"]
