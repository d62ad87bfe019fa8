import contextlib
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import card
from vramtui.dryrun import child, command, shield
from vramtui.dryrun.job_command import DryRunJob, Engine, RunTools
from vramtui.dryrun.shield import supervised

REFUSED = "RuntimeError: DefaultCPUAllocator: can't allocate memory: you tried to allocate 99 bytes. Error code 12"


def job_of(tmp_path: Path, *words: str, engine: Engine | None = None) -> DryRunJob:
    return DryRunJob(words=(sys.executable, *words), folder=str(tmp_path), environment={}, engine=engine)


@pytest.mark.parametrize(
    ("free", "said"), [(10 << 20, "held 6.* MiB of 100.0 MiB, .*, and 10.0 MiB was left"), (1 << 40, "")]
)
def test_a_job_ends_before_it_fills_the_host(tmp_path: Path, monkeypatch: Any, free: int, said: str) -> None:
    monkeypatch.setattr(child, "SHARE_OF_LITTLE", 2)
    monkeypatch.setattr(child, "memory_for_jobs", lambda: child.HostMemory(100 << 20, free, "this host", 0))
    job = job_of(tmp_path, "-c", f"kept = b'1' * (60 << 20); import time; time.sleep(60 * bool({said!r}))")
    with pytest.raises(child.HostFullError, match=said) if said else contextlib.nullcontext():
        assert child.run_supervised(job, supervised(job.words, ()), {}, None, None, lambda: False) == 0


@pytest.mark.parametrize(("groups", "folder", "names", "stat"), [
    ("0::/pod/job\n", "sys/fs/cgroup/pod", "max current events", ""),
    ("4:memory:/docker/ab/job\n0::/\n", "sys/fs/cgroup/memory", "limit_in_bytes usage_in_bytes oom_control", "total_"),
])  # fmt: skip
def test_a_control_group_that_allows_less_is_told(
    tmp_path: Path, monkeypatch: Any, groups: str, folder: str, names: str, stat: str
) -> None:
    limit, held, killed = (tmp_path / folder / "job" / f"../memory.{name}" for name in names.split())
    files = {limit: 4 << 30, held: 3 << 30, (killed := killed.parents[1] / killed.name): "oom_kill 2\n"}
    files[tmp_path / "proc/self/cgroup"] = groups
    files[tmp_path / folder / "memory.stat"] = f"{stat}inactive_file {1 << 28}\n{stat}active_file {1 << 28}\n"
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(text), encoding="ascii")
    host, owner = {"memory_total": 64 << 30, "memory_available": 9 << 30}, f"the control group /{folder}"
    monkeypatch.setattr(child, "SYSTEM", tmp_path)
    monkeypatch.setattr("vramtui.agent.stream.host_memory", lambda: host)
    assert child.memory_for_jobs() == (4 << 30, 3 << 29, owner, 2)
    job = job_of(tmp_path, "-c", "import time; time.sleep(.5); raise SystemExit(1)", engine="cuda")
    said = f"engine cuda takes about 2.0 GiB with a small model; {owner} has 1.5 GiB of 4.0 GiB free"
    assert command.host_note(job, "cuda") == said
    with pytest.raises(child.HostFullError, match=f"killed a process of the job, as memory ran out: {owner} has 4.0"):
        child.run_supervised(
            job, supervised(job.words, ()), {}, None, None, lambda: killed.write_text("oom_kill 3") < 0
        )


@pytest.mark.parametrize("engine", [None, "cuda"])
@pytest.mark.parametrize("why", ["the job was ended", REFUSED])
def test_engine_fake_takes_over_if_the_host_is_full(tmp_path: Path, monkeypatch: Any, engine: Any, why: str) -> None:
    def full(*how: Any) -> None:
        how[4].write(why.encode())
        raise (UserError if why is REFUSED else child.HostFullError)(why)

    monkeypatch.setattr(command, "run_cuda", full)
    monkeypatch.setattr("vramtui.dryrun.job_command.job_command", Mock(side_effect=UserError("engine fake ran")))
    job, how = job_of(tmp_path, "train.py", engine=engine), RunTools(lambda _: None, tmp_path)
    said = f"with engine cuda {'you tried to allocate 99 bytes' if why is REFUSED else why}; {command.WAYS}"
    error = command.dry_run(job, (card("H100"), 1), "cuda", how).error
    assert error == ("engine fake ran" if engine is None else said)


def test_engine_fake_refuses_a_server_before_it_starts(tmp_path: Path) -> None:
    job, how = job_of(tmp_path, "-m", "sglang.launch_server"), RunTools(lambda _: None, tmp_path)
    error = command.dry_run(job, (card("H100"), 1), "fake", how, "the host is full").error
    assert error == "engine fake cannot run sglang, which has kernels of its own: engine cuda on a larger host can"


@pytest.mark.parametrize(("script", "words", "said"), [
    ("", ("--model", "meta-llama/Llama-3.1-70B"), "Llama-3.1-70B has 70.6 billion parameters: 131.4 GiB in bf16"),
    ("AutoModel.from_pretrained('Qwen/Qwen2.5-72B')", (), "Qwen2.5-72B has 72.7 billion parameters"),
    ("", ("--model", "gpt2"), ""),
])  # fmt: skip
def test_weights_are_stated_first(tmp_path: Path, monkeypatch: Any, script: str, words: Any, said: str) -> None:
    monkeypatch.setattr(command, "memory_for_jobs", lambda: child.HostMemory(64 << 30, 16 << 30, "this host", 0))
    (tmp_path / "train.py").write_text(script, encoding="utf-8")
    notes = [command.host_note(job_of(tmp_path, "train.py", *words), engine) for engine in ("cuda", "fake")]
    assert (notes[0][: len(said) or None], notes[1]) == (said, "")


def test_a_keeper_that_gets_no_core_leaves_nothing(monkeypatch: Any) -> None:
    monkeypatch.setattr(shield, "GRACE", 0.1)
    text = "import signal, subprocess; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    text += "job = subprocess.Popen(['sleep', '60']); print(job.pid, flush=True); job.wait()"
    with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE) as keeper:
        started = os.pidfd_open(int(keeper.stdout.readline() if keeper.stdout else 0))
        assert shield.end_supervised(keeper) == -9
    with os.fdopen(started, "rb"):
        assert select.select([started], [], [], 10)[0] == [started]  # it has ended
