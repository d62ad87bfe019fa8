"""`vramtui.schema(NAME)` is the schema of what the command NAME prints with --json; errors have one as well.

The list of commands is the program's own: a new one with --json and without a schema, or without a case here, fails.
"""

import json
import pickle
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer

import vramtui
from tests.commands import invoke
from tests.examples import a_run
from tests.json_schema import problems
from tests.records.test_memory_snapshot import failed_snapshot
from vramtui.api.schemas import COMMANDS
from vramtui.cli.dry_run import print_result
from vramtui.cli.main import program
from vramtui.cli.ps import document_of as hosts_document
from vramtui.core.base.errors import SourceFailed, UserError
from vramtui.core.estimate.estimate import Ledger
from vramtui.core.observation.snapshot import RecordedTick, Snapshot
from vramtui.dryrun.command import DryRunDocument, GpuAnswer
from vramtui.dryrun.result import DryRun, LiveAllocation
from vramtui.records.recording.files import RecordingHeader, RecordingWriter
from vramtui.records.run_history import FILE, RunHistory

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.64 GiB \
of which 1.10 GiB is free. Process 77 has 3.00 GiB memory in use. Including non-PyTorch memory, this process has 19.50 \
GiB memory in use. Of the allocated memory 18.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but \
unallocated."
CUBLAS = "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"
GIB = 1 << 30
MAP = ("--over", "batch_size=1:3", "--over", "sequence_length=128:256:128")
# What each command is asked in words; below, the documents of those that need a card or minutes to print them.
ASKED: dict[str, tuple[tuple[str, ...], ...]] = {
    "doctor": ((), ("--settings",)),
    "dry-run": (),
    "estimate": (("gpt2-124m",), ("gpt2-124m", "--method", "all", "--gpu", "H100")),
    "fit": (("gpt2-124m", "--gpu", "T4"), ("tiny-gpt",), ("tiny-gpt", "--memory", "1GiB", *MAP), ("--gpu", "1GB")),
    "history": ((),),
    "oom": ((OOM,), (OOM, "--preset", "gpt2-124m"), (CUBLAS,), ("oom.pickle",)),
    "pick": (("--demo",),),
    "presets list": ((),),
    "ps": (("--demo",),),
}


def hosts() -> dict[str, Any]:
    seen = Snapshot(sample=vramtui.sample(demo=True), holdings=(), versions={})
    return hosts_document({"gpu01": seen, "gpu02": SourceFailed("it does not answer", "Is it up?")})


def dry_runs() -> DryRunDocument:
    held = LiveAllocation(
        bytes=500, category="weights", operator="aten::empty", module="", line="a.py:3", phase="build"
    )
    result = DryRun(
        torch="2.13.0",
        device="H100",
        capability=(9, 0),
        total_memory=10_000,
        timeline=(),
        peak_allocated=1000,
        peak_reserved=1001,
        peak_phase="build",
        peak_step=0,
        process=1002,
        context=1,
        peak_categories={"weights": 1000, "inputs": 0},
        largest=(held, held),
        warnings=(),
        series=(),
        events=2,
    )
    gpus = (
        GpuAnswer(gpu="H100", verdict="fits", result=result),
        GpuAnswer(gpu="RTX4090", verdict="failed", error="the code failed", output=("said",)),
    )
    return DryRunDocument(command=("train",), engine="fake", exit_code=2, gpus=gpus)


def test_a_job_without_phases_has_a_peak_and_no_place_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    result = dry_runs().gpus[0].result
    assert result is not None
    result = msgspec.structs.replace(result, peak_phase="", peak_step=-1)
    print_result(result)
    assert "Peak allocated 1000 B\n" in capsys.readouterr().out
    assert "peak of allocated: 1000 B" in str(result)


MADE: dict[str, tuple[Callable[[], object], ...]] = {"ps": (hosts,), "dry-run": (dry_runs,)}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("CONFIG", "DATA"):
        monkeypatch.setenv(f"VRAMTUI_{name}_DIR", str(tmp_path / "kept"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_command_with_json_has_a_schema_a_case_and_a_name() -> None:
    waiting: list[tuple[str, Any]] = [("", typer.main.get_command(program()))]
    with_json = []
    while waiting:
        words, command = waiting.pop()
        waiting += [(f"{words} {name}".strip(), one) for name, one in getattr(command, "commands", {}).items()]
        with_json += [words for parameter in command.params if "--json" in parameter.opts]
    assert sorted(with_json) == sorted(COMMANDS) == sorted(ASKED)
    assert all(ASKED[name] or MADE[name] for name in ASKED)
    assert vramtui.schema("presets list")["$id"] == "vramtui:presets-list:1"
    with pytest.raises(UserError, match=r"did you mean estimate\?"):
        vramtui.schema("estimat")
    document = json.loads(invoke("pick", "--demo", "--json").stdout)
    document["gpus"][0] |= {"index": "0", "verdict": "perhaps", "more": 1}
    del document["gpus"][0]["uuid"]
    assert len(problems(document, vramtui.schema("pick"))) == 4
    done = invoke("dry-run", "--gpu", "H20000", "true", "--json")
    assert done.stderr.startswith("vramtui: no card called 'H20000' is known")


@pytest.mark.parametrize(("name", "arguments"), [(name, one) for name, asked in ASKED.items() for one in asked])
def test_what_a_command_prints_is_of_its_schema(name: str, arguments: tuple[str, ...], folder: Path) -> None:
    with closing(RecordingWriter(folder / "day.jsonl", RecordingHeader())) as writer:
        writer.write(RecordedTick(sample=vramtui.sample(demo=True)))
    (folder / "oom.pickle").write_bytes(pickle.dumps(failed_snapshot()))
    history = RunHistory(folder / "kept" / FILE)
    for pid in range(3):
        observed = Ledger(context=GIB // 2, allocated=8 * GIB, reserved=9 * GIB, process=10 * GIB)
        run = a_run(key=str(pid), pid=pid, ended_at=2000.0, ending="exited", observed=observed, peak_how="probe")
        history.keep(msgspec.structs.replace(run, versions={"driver": "590.44"}))
    done = invoke(*name.split(), *arguments, "--json")
    assert done.stdout, done.stderr
    assert problems(json.loads(done.stdout), vramtui.schema(name)) == []


@pytest.mark.parametrize(("name", "make"), [(name, one) for name, made in MADE.items() for one in made])
def test_a_document_that_needs_a_card_is_of_its_schema(name: str, make: Callable[[], object]) -> None:
    assert problems(json.loads(msgspec.json.encode(make())), vramtui.schema(name)) == []


def test_an_estimate_is_one_document_from_python_and_from_the_command() -> None:
    printed = json.loads(invoke("estimate", "gpt2-124m", "--batch-size", "2", "--gpu", "RTX4090", "--json").stdout)
    made = vramtui.estimate("gpt2-124m", batch_size=2, gpu="RTX4090").to_dict()
    assert json.loads(msgspec.json.encode(made)) == printed


@pytest.mark.parametrize(("arguments", "error", "code"), [
    (("estimate", "gpt2-124"), "did you mean gpt2-124m", 2),
    (("estimate", "gpt2-124m", "--gpu", "A101"), "no card called 'A101'", 2),
    (("fit", "gpt2-124m", "--jason"), "No such option: --jason", 2),
    (("estimate",), "Missing argument", 2),
    (("pick", "--demo", "--needs", "999GiB"), "0 of 4 GPUs have room", 1),
    (("history", "77"), "77", 2),
])  # fmt: skip
def test_an_error_is_json_on_standard_error(arguments: tuple[str, ...], error: str, code: int) -> None:
    done = invoke(*arguments, "--json")
    assert (done.exit_code, done.stdout) == (code, "")
    said = json.loads(done.stderr.splitlines()[-1])
    assert problems(said, vramtui.schema("error")) == []
    assert error in said["error"]
    assert said["exit"] == code
    assert invoke(*arguments).stderr.strip()[:1] != "{"
