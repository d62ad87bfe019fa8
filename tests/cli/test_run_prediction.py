import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from tests.monitor.test_job_presets import COMMAND, kept
from vramtui.cli.run import prediction
from vramtui.cli.run.prediction import RunPrediction
from vramtui.core.base.errors import UserError
from vramtui.core.base.units import GIB
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.observation.readings import Gpu, Host, Memory, Process, Sample
from vramtui.dryrun.child import CancelledError, let_others_go_first
from vramtui.dryrun.estimate import estimate_of
from vramtui.dryrun.job_command import RunTools
from vramtui.dryrun.traces import JobTrace, preset_of_command, read_job_trace

PRESET = preset_of_command(COMMAND, kept())


def sample(free: int, own: int = 0) -> Sample:
    processes = (Process(pid=7, type="C", used_memory=own, command="python train.py"),)
    memory = Memory(total=24 * GIB, used=24 * GIB - free, free=free)
    gpu = Gpu(index=2, uuid="GPU-a", name="card", memory=memory, processes=processes)
    return Sample(taken_at=1.0, source="given", host=Host(name="here"), gpus=(gpu,))


def watching(free: int = 23 * GIB) -> Any:
    return SimpleNamespace(last=sample(free))


def estimate() -> Estimate:
    return estimate_of(kept(), PRESET.preset.workload)


@pytest.fixture
def trace(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[RunPrediction]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "vramtui").mkdir(mode=0o700)
    monkeypatch.setattr(prediction, "job_command", lambda *_: COMMAND)
    monkeypatch.setattr(prediction, "AT_END", 60.0)
    made = RunPrediction(COMMAND.words)
    yield made
    made.close()
    assert not made.path.exists()


def finds(_command: object, device: Device, _tools: object) -> JobTrace:
    return JobTrace(preset=PRESET, device=device, result=kept())


def test_a_job_of_several_processes_waits_for_their_sum(
    trace: RunPrediction, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    several = msgspec.structs.replace(kept(), needs=kept().process + 11 * GIB)
    monkeypatch.setattr(
        prediction, "dry_run_of", lambda *asked: JobTrace(preset=PRESET, device=asked[1], result=several)
    )
    source: Any = SimpleNamespace(read=lambda: sample(20 * GIB))
    assert trace.need(source) == several.needs
    assert "by its dry run" in capfd.readouterr().err


def test_it_is_said(trace: RunPrediction, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(prediction, "dry_run_of", finds)
    trace.start(watching(), None)
    trace.finish()
    assert trace.preset == PRESET
    assert read_job_trace(trace.path).preset == PRESET
    said = capfd.readouterr().err
    assert "fits GPU 2" in said
    assert "no dry run of the job" not in said


@pytest.mark.parametrize(
    "error", [UserError("the code failed at train.py:3"), OSError("no more processes"), RuntimeError("odd")]
)
def test_whatever_fails_is_a_line(
    trace: RunPrediction, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], error: Exception
) -> None:
    def fail(*_: object, **__: object) -> JobTrace:
        raise error

    monkeypatch.setattr(prediction, "dry_run_of", fail)
    trace.start(watching(), None)
    trace.finish()
    lines = [line for line in capfd.readouterr().err.splitlines() if "has ended" not in line]
    assert len(lines) == 1
    assert lines[0].startswith("vramtui: no dry run of the job: ")
    assert str(error) in lines[0]
    assert trace.preset is None


def test_without_a_card_there_is_nothing_to_trace_for(trace: RunPrediction, capfd: pytest.CaptureFixture[str]) -> None:
    trace.start(None, None)
    trace.finish()
    assert "no GPU is seen here" in capfd.readouterr().err


def test_nobody_waits_long_for_a_trace_that_does_not_end(
    trace: RunPrediction, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    began = threading.Event()

    def run_on(_command: object, _device: object, tools: RunTools) -> JobTrace:
        began.set()
        tools.cancel.wait()
        raise CancelledError

    monkeypatch.setattr(prediction, "dry_run_of", run_on)
    monkeypatch.setattr(signal, "sigtimedwait", lambda *_: began.wait() or None)  # somebody presses it
    trace.start(watching(), None)
    trace.finish()
    trace.close()
    assert "and its dry run with it" in capfd.readouterr().err


def test_where_it_does_not_fit_the_step_is_named_and_a_trace_takes_the_rest() -> None:
    needs = estimate()
    now = sample(needs.process - GIB, own=GIB // 2)
    said = prediction.verdict_of(needs, now.gpus[0], now, frozenset({7}))
    assert said.startswith("will not fit GPU 2: step "), said
    assert " needs 512.0 MiB more than the " in said
    assert "would fit GPU 2 if empty" in said
    assert "does not fit" not in prediction.verdict_of(needs, now.gpus[0], sample(20 * GIB), frozenset())
    with subprocess.Popen(["sleep", "60"]) as child:
        try:
            let_others_go_first(child.pid)
            assert os.getpriority(os.PRIO_PROCESS, child.pid) == 19
            assert os.sched_getscheduler(child.pid) == os.SCHED_IDLE
            assert Path(f"/proc/{child.pid}/oom_score_adj").read_text(encoding="ascii") == "1000\n"
        finally:
            child.kill()
