import gzip
import os
from functools import cache
from pathlib import Path

import msgspec
import pytest

from vramtui.cli.run.command import resolved_preset
from vramtui.core.base.errors import UserError
from vramtui.core.observation.probe_messages import Hello, ObservedJob
from vramtui.core.observation.readings import Gpu, Host, Memory, Process, Sample, process_key
from vramtui.core.observation.snapshot import device_of
from vramtui.core.schema.preset import PresetFile
from vramtui.dryrun.result import DryRun, JobCommand
from vramtui.dryrun.traces import JobTrace, Traces, preset_of_command, write_job_trace
from vramtui.monitor.jobs import MOST_AT_ONCE, MOST_FOUND, JobPresets, from_library
from vramtui.monitor.session import MonitorSession

PROCESS = Process(pid=7, type="C", used_memory=50, command="python main.py", started_at=1.0)
GPU = Gpu(index=0, uuid="GPU-a", name="card", memory=Memory(total=100, used=50), processes=(PROCESS,))
SAMPLE = Sample(taken_at=2.0, source="given", host=Host(name="here"), gpus=(GPU,))
KEY = process_key("here", GPU, PROCESS)
COMMAND = JobCommand(
    words=("python", "train.py", "--x"),
    python="/usr/bin/python3",
    script="/srv/ada/train.py",
    arguments=("--x",),
    folder="/srv/ada",
    environment={},
)


@cache
def kept() -> DryRun:
    """A small GPT's trace as the program itself made it, its fine trace thinned."""
    data = gzip.decompress((Path(__file__).parents[1] / "app" / "trace.json.gz").read_bytes())
    return msgspec.json.decode(data, type=DryRun)


def job(preset: str | None) -> ObservedJob:
    return ObservedJob(pid=7).heard(Hello(v=1, pid=7, at=0.0, preset=preset))


def test_what_run_was_given_is_matched_and_what_is_not_told_or_found_is_not() -> None:
    session = MonitorSession(jobs=lambda: (job("gpt2-124m"),))
    session.take_presets([from_library("llama-3.1-8b-lora")])
    session.ingest(SAMPLE)
    assert session.matched[KEY].key == "gpt2-124m"
    assert "gpt2-124m" in session.presets
    session.assign(KEY, None)
    assert KEY not in session.matched, "what is said by hand goes before it"
    session = MonitorSession(jobs=lambda: (job(None),))
    session.take_presets([from_library("llama-3.1-8b-lora")])
    session.ingest(SAMPLE)
    assert KEY not in session.matched
    asked = []

    def find(name: str) -> PresetFile:
        asked.append(name)
        raise UserError("no such preset")

    presets = JobPresets(Traces, find)
    for _ in range(3):
        assert presets.of(SAMPLE, [job("gone.toml")]) == {}
    assert asked == ["gone.toml"]


def test_the_trace_of_a_run_is_matched_once_it_is_there(tmp_path: Path) -> None:
    """The job tells where its trace will be; until then nothing is matched, and then its estimate is the trace's."""
    path = tmp_path / "run-1.trace"
    session = MonitorSession(jobs=lambda: (job(str(path)),))
    session.take_presets([from_library("llama-3.1-8b-lora")])
    session.ingest(SAMPLE)
    assert KEY not in session.matched
    device = device_of(GPU)
    preset = preset_of_command(COMMAND, kept())
    write_job_trace(path, JobTrace(preset=preset, device=device, result=kept()))
    assert [found.name for found in tmp_path.iterdir()] == [path.name]
    session.ingest(SAMPLE)
    assert session.matched[KEY] == preset
    assert preset.key.startswith("train.py (dry run ")
    estimate = session.estimates()[KEY]
    assert (estimate.method, estimate.allocated, estimate.process) == ("traced", kept().peak_allocated, kept().process)
    assert estimate.timeline
    assert not session.is_quick(preset, device)
    assert session.predictor.largest_batch(preset.preset.workload, device) is None
    # A card of the same kind and another size; one of another kind runs other kernels.
    assert session.estimate(preset, msgspec.structs.replace(device, total_memory=1)) == estimate
    assert session.estimate(preset, msgspec.structs.replace(device, capability=(7, 0))) is None


def test_what_is_no_trace_is_matched_with_nothing(tmp_path: Path) -> None:
    path = tmp_path / "run-1.trace"
    path.write_text("[[[[", encoding="utf-8")
    session = MonitorSession(jobs=lambda: (job(str(path)),))
    session.take_presets([from_library("llama-3.1-8b-lora")])
    session.ingest(SAMPLE)
    assert KEY not in session.matched
    path.unlink()
    os.mkfifo(path)
    assert JobPresets(Traces).of(SAMPLE, [job(str(path))]) == {}
    path.unlink()
    target = tmp_path / "precious"
    target.write_text("as it was")
    path.with_suffix(".new").symlink_to(target)
    write_job_trace(path, JobTrace(preset=preset_of_command(COMMAND, kept()), device=device_of(GPU), result=kept()))
    assert target.read_text() == "as it was"
    assert not path.is_symlink()


def test_a_path_is_told_from_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.toml").write_text("")
    monkeypatch.chdir(tmp_path)
    assert resolved_preset("mine.toml") == str(tmp_path / "mine.toml")
    assert resolved_preset("gpt2-124m") == "gpt2-124m"
    assert resolved_preset("owner/name") == "owner/name"


@pytest.mark.parametrize("name", ["n" * 300 + ".trace", "/proc/1/root/x/y.trace", "a\0b.trace", "/dev/stdin.trace"])
def test_a_path_of_another_machine_ends_nothing(name: str) -> None:
    """A feed or another host may tell of any: one that is too long, or in another user's folder here."""
    assert JobPresets(Traces).of(SAMPLE, [job(name)]) == {}


def test_many_presets_told_fill_no_memory_and_a_few_are_looked_for_at_each_sample() -> None:
    def find(name: str) -> PresetFile:
        raise UserError(name)

    presets = JobPresets(Traces, find)
    for number in range(2 * MOST_FOUND):
        presets.of(SAMPLE, [job(f"p{number}")])
    assert len(presets.presets) == MOST_FOUND
    # A thousand names that nobody knows took a minute, in which no key was heard.
    pids = range(100, 100 + 3 * MOST_AT_ONCE)
    rows = tuple(Process(pid=pid, type="C", started_at=1.0) for pid in pids)
    sample = msgspec.structs.replace(SAMPLE, gpus=(msgspec.structs.replace(GPU, processes=rows),))
    jobs = [ObservedJob(pid=pid).heard(Hello(v=1, pid=pid, at=0.0, preset=f"p{pid}")) for pid in pids]
    known = from_library("gpt2-124m")
    presets = JobPresets(Traces, lambda _: known)
    assert [len(presets.of(sample, jobs)) for _ in range(4)] == [MOST_AT_ONCE * times for times in (1, 2, 3, 3)]
