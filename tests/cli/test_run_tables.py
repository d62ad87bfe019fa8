import re

import pytest

from vramtui.cli.run.results import CompletedRun, print_report, seen_in
from vramtui.core.observation import probe_messages as messages
from vramtui.core.observation.oom.advice import sentences_of
from vramtui.core.observation.oom.report import OomReport

GIB = 1 << 30


DEVICE = messages.ProbeDevice(index=0, name="A100", total_memory=80 * GIB, capability=(8, 0))
COUNTED = messages.Beat(v=1, pid=7, at=1.0, step=1, devices=(messages.MemoryCounters(index=0, reserved_peak=9 * GIB),))
JOB = messages.ObservedJob(pid=7).heard(messages.Hello(v=1, pid=7, at=0.0, devices=(DEVICE,))).heard(COUNTED)


def completed(*command: str, jobs: tuple[messages.ObservedJob, ...] = ()) -> CompletedRun:
    return CompletedRun(command=command, code=0, started_at=0.0, ended_at=9.0, jobs=jobs)


def test_columns_without_a_figure_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    finished = completed("python", "train.py", jobs=(JOB,))
    print_report(finished, seen_in(finished, None), None)
    said = capsys.readouterr().err
    assert "OBSERVED" in said
    assert "PEAK IN GiB" in said
    assert re.search(r"reserved +9\.00", said)
    assert "PREDICTED" not in said
    assert "Δ" not in said
    kept = messages.HostBatches(workers=8, prefetch=2, pinned=True, batch=786_944, locked=(1 << 20) + 512)
    job = messages.ObservedJob(pid=7).heard(messages.Beat(v=1, pid=7, at=1.0, step=1, loaders=(kept,)))
    print_report(completed("python", "train.py", jobs=(job,)), (), None)
    said = " ".join(capsys.readouterr().err.split())
    assert "8 workers keep up to 16 batches of 768.5 KiB ready in the host's shared memory, 12.0 MiB" in said
    assert "page-locked memory, 1.0 MiB in powers of two" in said
    assert "None of it is on the card" in said
    print_report(completed("python", "train.py", "--batch", "8"), (), None)
    assert "`vramtui dry-run --gpu 4090 python train.py --batch 8` shows it" in capsys.readouterr().err


def test_running_out_of_memory_is_told_in_the_words_of_the_oom_command_with_its_limit(
    capsys: pytest.CaptureFixture[str],
) -> None:
    failed = messages.OutOfMemory(
        v=1, pid=7, at=2.0, device=0, asked=2 * GIB, free=GIB, allocated=70 * GIB, reserved=75 * GIB, step=3
    )
    finished = completed("python", "train.py", jobs=(JOB.heard(failed),))
    print_report(finished, seen_in(finished, None), None)
    said = capsys.readouterr().err
    report = OomReport(asked=2 * GIB, total=80 * GIB, free=GIB, allocated=70 * GIB, unallocated=5 * GIB)
    assert report.cause == "fragmentation"
    for sentence in sentences_of(report):
        assert sentence in said
    # Without what the probe tells of the failure, the exception's own words are read, its limit among them.
    message = (
        "CUDA out of memory. Tried to allocate 4.00 GiB. GPU 0 has a total capacity of 79.25 GiB of which 60.00 GiB is"
        " free. 10.00 GiB allowed; Of the allocated memory 8.00 GiB is allocated by PyTorch, and 512.00 MiB is reserved"
        " by PyTorch but unallocated."
    )
    job = JOB.heard(messages.End(v=1, pid=7, at=2.0, error="OutOfMemoryError", message=message, out_of_memory=True))
    finished = completed("python", "train.py", jobs=(job,))
    print_report(finished, seen_in(finished, None), None)
    said = capsys.readouterr().err
    assert "within the process's own limit of 10.00 GiB" in said
    assert "Refused" not in said
