import contextlib
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import card
from vramtui.dryrun import child, command
from vramtui.dryrun.job_command import DryRunJob, Engine
from vramtui.dryrun.shield import supervised

REFUSED = "RuntimeError: DefaultCPUAllocator: can't allocate memory: you tried to allocate 99 bytes. Error code 12"


def job_of(tmp_path: Path, *words: str, engine: Engine | None = None) -> DryRunJob:
    return DryRunJob(words=(sys.executable, *words), folder=str(tmp_path), environment={}, engine=engine)


@pytest.mark.parametrize(
    ("free", "said"), [(10 << 20, "held 6.* MiB of 100.0 MiB, .*, and 10.0 MiB was left"), (1 << 40, "")]
)
def test_a_job_ends_before_it_fills_the_host(tmp_path: Path, monkeypatch: Any, free: int, said: str) -> None:
    monkeypatch.setattr(child, "LEAST_LEFT", 50 << 20)
    monkeypatch.setattr(
        "vramtui.agent.stream.host_memory", lambda: {"memory_total": 100 << 20, "memory_available": free}
    )
    job = job_of(tmp_path, "-c", f"kept = b'1' * (60 << 20); import time; time.sleep(60 * bool({said!r}))")
    with pytest.raises(child.HostFullError, match=said) if said else contextlib.nullcontext():
        assert child.run_supervised(job, supervised(job.words, ()), {}, None, None, lambda: False) == 0


@pytest.mark.parametrize("engine", [None, "cuda"])
@pytest.mark.parametrize("why", ["the job was ended", REFUSED])
def test_engine_fake_takes_over_if_the_host_is_full(tmp_path: Path, monkeypatch: Any, engine: Any, why: str) -> None:
    def full(*how: Any) -> None:
        how[5].write(why.encode())
        raise (UserError if why is REFUSED else child.HostFullError)(why)

    for name, act in (("run_cuda", full), ("job_command", Mock(side_effect=UserError("engine fake ran")))):
        monkeypatch.setattr(command, name, act)
    job, how = job_of(tmp_path, "train.py", engine=engine), command.RunTools(lambda _: None, tmp_path)
    said = f"with engine cuda {'you tried to allocate 99 bytes' if why is REFUSED else why}; {command.WAYS}"
    error = command.dry_run(job, (card("H100"), 1), "cuda", how).error
    assert error == ("engine fake ran" if engine is None else said)


@pytest.mark.parametrize(("script", "words", "said"), [
    ("", ("--model", "meta-llama/Llama-3.1-70B"), "Llama-3.1-70B has 70.6 billion parameters: 131.4 GiB in bf16"),
    ("AutoModel.from_pretrained('Qwen/Qwen2.5-72B')", (), "Qwen2.5-72B has 72.7 billion parameters"),
    ("", ("--model", "gpt2"), ""),
])  # fmt: skip
def test_weights_are_stated_first(tmp_path: Path, monkeypatch: Any, script: str, words: Any, said: str) -> None:
    monkeypatch.setattr(command, "host_memory", lambda: {"memory_available": 16 << 30})
    (tmp_path / "train.py").write_text(script, encoding="utf-8")
    notes = [command.host_note(job_of(tmp_path, "train.py", *words), engine) for engine in ("cuda", "fake")]
    assert (notes[0][: len(said) or None], notes[1]) == (said, "")
