"""`vramtui run --on CARD` where no job uses CUDA: what it says and how it ends. Its figures need PyTorch's CUDA build,
which `python -m benchmarks.dry_run_goldens --engine cuda` runs.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from vramtui.api.tracing import DryRun, dry_run
from vramtui.cli.run.emulated import exit_code, with_process
from vramtui.cli.run.emulated_report import EmulatedRun, document_of, lines_of, row_of
from vramtui.cli.run.history_entry import completed_runs, prediction_run
from vramtui.cli.run.results import CompletedRun, seen_in
from vramtui.core.base.errors import UserError
from vramtui.core.base.units import GIB, MIB
from vramtui.core.estimate.devices import CARDS
from vramtui.core.observation.probe_messages import (
    Beat,
    End,
    Hello,
    MemoryCounters,
    ObservedJob,
    OutOfMemory,
    ProbeDevice,
)
from vramtui.driver.environment import DriverReport
from vramtui.driver.reads import ReadPlace

DEVICE = CARDS["RTX4090"]


@pytest.fixture(autouse=True)
def own_runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder in which no other test's `ps` finds these cards; a short one, as sockets need."""
    with tempfile.TemporaryDirectory(prefix="run-") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python without torch."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    return str(folder / "bin" / "python")


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "vramtui", "run", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
    )


def test_a_job_without_cuda_is_told_what_it_needs(python: str) -> None:
    ran = run("--on", "RTX4090", "--", python, "-c", "print('done')")
    assert ran.returncode == 2
    assert ran.stdout == "done\n"
    assert "no process of it used CUDA: --on needs" in ran.stderr


WITHOUT_PYTORCH = """
import ctypes, sys
cuda, address = ctypes.CDLL(None), ctypes.c_uint64()
sys.exit(any([cuda.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(int(size) << 30)) for size in sys.argv[1:]]))
"""


def test_a_job_without_pytorch_is_told_by_what_the_driver_gave_it(python: str) -> None:
    ran = run("--on", "RTX4090", "--", python, "-c", WITHOUT_PYTORCH, "3", "2")
    assert ran.returncode == 0, ran.stderr
    assert re.search(r"what it allocated +5\.00\n", ran.stderr)
    assert "✓ fits RTX4090: needs 5." in ran.stderr
    assert "reserved" not in ran.stderr
    assert "bounded" not in ran.stderr


def test_a_job_without_pytorch_that_fails_for_want_of_memory_does_not_fit(python: str) -> None:
    job = (python, "-c", WITHOUT_PYTORCH, "3", "40")
    ran = run("--on", "RTX4090", "--", *job)
    assert ran.returncode == 1
    assert "✗ does not fit RTX4090: there was no room for 40.0 GiB more; the job ended with 1" in ran.stderr
    answer = dry_run(job, on="RTX4090")
    assert (answer.verdict, answer.fits, answer.allocated) == ("does not fit", False, None)
    assert answer.process is not None
    assert answer.process > 3 * GIB


def test_a_job_without_pytorch_that_asks_in_vain_and_goes_on_fits(python: str) -> None:
    ran = run("--on", "RTX4090", "--", python, "-c", WITHOUT_PYTORCH.replace("any", "all"), "40", "3")
    assert ran.returncode == 0, ran.stderr
    assert "✓ fits RTX4090: needs 3." in ran.stderr
    assert "a request of 40.0 GiB that did not was caught by the code" in ran.stderr


def test_what_a_job_writes_is_thrown_away_unless_it_is_to_be_kept(python: str, tmp_path: Path) -> None:
    file = tmp_path / "left"
    script = f"from pathlib import Path; p = Path({str(file)!r}); p.write_text('here'); print(p.read_text())"
    ran = run("--on", "RTX4090", "--", python, "-c", script)
    assert ran.stdout == "here\n"
    assert file.exists() == ("is not thrown away" in ran.stderr)  # where the kernel gives no namespace, that is said
    run("--on", "RTX4090", "--keep-files", "--", python, "-c", script)
    assert file.read_text() == "here"


def test_a_program_that_is_not_there_is_named() -> None:
    ran = run("--on", "RTX4090", "--", "no-such-program")
    assert (ran.returncode, ran.stderr) == (127, "vramtui: no-such-program: no such program\n")


def test_a_job_that_fails_first_is_said_to_have_failed(python: str) -> None:
    ran = run("--on", "RTX4090", "--", python, "-c", "raise SystemExit(3)")
    assert (ran.returncode, ran.stderr) == (2, "vramtui: the job ended with 3 before it used CUDA\n")


@pytest.mark.parametrize("code", [0, 1])
def test_a_library_that_brings_nvidias_runtime_is_named_where_nothing_used_cuda(python: str, code: int) -> None:
    ask = "ctypes.CDLL('libcuda.so.1').cuGetExportTable(ctypes.byref(ctypes.c_void_p()), bytes(16))"
    ran = run("--on", "RTX4090", "--", python, "-c", f"import ctypes; {ask}; raise SystemExit({code})")
    assert ran.returncode == 2
    assert "used CUDA" in ran.stderr
    assert "; not started, for NVIDIA's own runtime inside needs NVIDIA's driver: " in ran.stderr


def test_a_job_whose_time_is_over_is_ended(python: str) -> None:
    ran = run("--on", "RTX4090", "--timeout", "1", "--", python, "-c", "import time; time.sleep(200)")
    assert (ran.returncode, ran.stderr) == (2, "vramtui: the job was ended after 1 s, before it used CUDA\n")


def test_a_job_ends_with_the_run_that_nobody_can_end_gently(python: str) -> None:
    words = (sys.executable, "-m", "vramtui", "run", "--on", "RTX4090", "--", python, "-u", "-c")
    script = "import os, time; print(os.getpid()); time.sleep(200)"
    with subprocess.Popen([*words, script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as ran:
        assert ran.stdout is not None
        job = Path("/proc", ran.stdout.readline().strip(), "stat")
        assert job.exists()
        ran.kill()
        ended = time.monotonic() + 60
        while job.exists() and " Z " not in job.read_text() and time.monotonic() < ended:
            time.sleep(0.1)
        assert time.monotonic() < ended


def test_the_document_is_alone_on_standard_output(python: str) -> None:
    ran = run("--on", "RTX4090,2xH100", "--json", "--", python, "-c", "print('done')")
    document = json.loads(ran.stdout)
    assert ran.returncode == 2
    assert [(one["card"], one["cards"], one["verdict"]) for one in document["cards"]] == [
        ("RTX4090", 1, "failed"),
        ("H100", 2, "failed"),
    ]
    assert ran.stderr.count("done") == 2


def test_a_job_that_is_ended_by_hand_is_not_tried_on_a_further_card(python: str) -> None:
    ran = run(
        "--on", "RTX4090,H100", "--json", "--", python, "-c", "import os; print('ended'); os.kill(os.getpid(), 15)"
    )
    assert [(one["card"], one["exit_code"]) for one in json.loads(ran.stdout)["cards"]] == [("RTX4090", 143)]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--on", "RTX4091"), "no card called 'RTX4091' is known"),
        (("--on", "0xH100"), "--on 0xH100: 1 to 16 cards"),
        (("--on", "H100", "--when-fits"), "--on runs on no GPU"),
        (("--on", "auto"), "--on auto goes with --when-fits"),
        (("--steps", "3"), "--steps, --timeout, --values, --keep-files and --json go with --on CARD"),
    ],
)
def test_wrong_use_is_one_sentence(arguments: tuple[str, ...], sentence: str) -> None:
    ran = run(*arguments, "--", "true")
    assert ran.returncode == 2
    assert sentence in ran.stderr
    assert "Traceback" not in ran.stderr


def test_without_a_compiler_nothing_runs(tmp_path: Path) -> None:
    ran = run("--on", "H100", "--", "echo", "ran", CC="no-such-compiler", XDG_CACHE_HOME=str(tmp_path))
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "no C compiler called no-such-compiler" in ran.stderr


def test_a_torch_without_cuda_is_refused_before_anything_is_compiled_or_runs(python: str, tmp_path: Path) -> None:
    torch = tmp_path / "torch"
    torch.mkdir()
    (torch / "__init__.py").touch()
    (torch / "version.py").write_text("__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\n", encoding="utf-8")
    tool = tmp_path / "launch"
    tool.write_text(f"#!{python}\nprint('ran')\n", encoding="utf-8")
    tool.chmod(0o755)
    for command in ([python, "-c", "print('ran')"], [str(tool)]):
        ran = run("--on", "H100", "--", *command, CC="no-such-compiler", PYTHONPATH=str(tmp_path))
        assert (ran.returncode, ran.stdout) == (2, "")
        assert ran.stderr.startswith(f"vramtui: {python} has torch 2.13.0+cpu, which is not built for CUDA: --on needs")


def emulated(*, oom: bool = False, calls: tuple[tuple[str, str], ...] = (), reads: int = 0) -> EmulatedRun:
    counters = MemoryCounters(index=0, allocated_peak=10 * GIB, reserved_peak=11 * GIB)
    job = ObservedJob(
        pid=7,
        hello=Hello(
            v=1,
            pid=7,
            at=1.0,
            devices=(
                ProbeDevice(index=0, name=DEVICE.name, total_memory=DEVICE.total_memory, capability=DEVICE.capability),
            ),
        ),
        beat=Beat(v=1, pid=7, at=2.0, step=3),
        peaks={0: counters},
        ooms=(OutOfMemory(v=1, pid=7, at=2.0, device=0, asked=GIB, free=0, step=3),) if oom else (),
        end=End(v=1, pid=7, at=3.0, out_of_memory=oom),
    )
    finished = CompletedRun(command=("train",), code=int(oom), started_at=0.0, ended_at=3.0, jobs=(job,))
    report = DriverReport(
        pid=7, reads=reads, read_bytes=4 * reads, peaks=(12 * GIB,), contexts=(512 * MIB,), unmodelled=calls
    )
    seen = tuple(with_process(one, (report,)) for one in seen_in(finished, None))
    return EmulatedRun(device=DEVICE, devices=1, finished=finished, seen=seen, reports=(report,))


def test_a_job_that_tells_of_a_card_that_is_not_there_is_left_as_it_is() -> None:
    run = emulated()
    (one,) = run.seen
    beyond = msgspec.structs.replace(one, counters=msgspec.structs.replace(one.counters, index=99))
    assert with_process(beyond, run.reports) == beyond


def test_a_job_that_ends_fits() -> None:
    run = emulated()
    document = document_of(run)
    assert run.verdict == "fits"
    assert (document["allocated"], document["reserved"], document["process"]) == (10 * GIB, 11 * GIB, 12 * GIB)
    assert document["bounded"] is False
    assert row_of(run) == ("RTX4090", "10.0 GiB", "11.0 GiB", "12.0 GiB", "23.6 GiB", "✓ fits")


def test_a_job_that_runs_out_does_not_fit() -> None:
    run = emulated(oom=True)
    assert run.verdict == "does not fit"
    assert document_of(run)["out_of_memory"] is not None


@pytest.mark.parametrize(
    ("decides", "takes_all", "verdict"),
    [
        (True, True, "unknown"),
        (True, False, "does not fit"),
        (False, True, "does not fit"),
        (False, False, "does not fit"),
    ],
)
def test_a_job_that_runs_out_of_all_places_of_a_computed_mask_may_fit(
    decides: bool, takes_all: bool, verdict: str
) -> None:
    place = ReadPlace(
        path="/job/loss.py", line=7, function="loss", code="x = x[mask]", times=3, decides=decides, takes_all=takes_all
    )
    run = msgspec.structs.replace(emulated(oom=True), places=(place,))
    assert run.verdict == verdict
    assert document_of(run)["verdict"] == verdict
    said, *notes = lines_of(run, alone=True)
    assert said.startswith("\n? whether it fits RTX4090 is not known") is (verdict == "unknown")
    assert ("  loss.py:7 in loss, 3 times: x = x[mask]" in notes) is decides
    assert exit_code([run]) == exit_code([emulated(), run]) == (4 if verdict == "unknown" else 1)
    assert exit_code([run, emulated(oom=True)]) == 1


def test_an_out_of_memory_error_that_the_job_caught_is_in_the_verdict() -> None:
    run = emulated(oom=True)
    (job,) = run.finished.jobs
    went_on = msgspec.structs.replace(job, end=End(v=1, pid=7, at=3.0))
    finished = msgspec.structs.replace(run.finished, code=0, jobs=(went_on,))
    (one,) = run.seen
    run = msgspec.structs.replace(run, finished=finished, seen=(msgspec.structs.replace(one, job=went_on),))
    assert (run.verdict, [oom.asked for oom in run.caught]) == ("fits", [GIB])
    verdict, note = lines_of(run, alone=True)
    assert verdict.endswith("11.6 GiB spare; a request of 1.0 GiB that did not was caught by the code")
    assert note == (
        "note: PyTorch's out-of-memory error was caught once, the last in step 3: it asked for 1.00 GiB with 0 B free; "
        "these are the figures of what ran all the same"
    )
    assert msgspec.json.decode(msgspec.json.encode(document_of(run)), type=DryRun).caught[0]["asked"] == GIB
    counted = msgspec.structs.replace(one.counters, num_ooms=2)  # the first came before the probe listened
    untold = msgspec.structs.replace(one, job=msgspec.structs.replace(went_on, ooms=()), counters=counted)
    run = msgspec.structs.replace(run, finished=msgspec.structs.replace(finished, jobs=(untold.job,)), seen=(untold,))
    verdict, note = lines_of(run, alone=True)
    assert verdict.endswith("spare; a request that did not was caught by the code")
    assert note.startswith("note: PyTorch's out-of-memory error was caught 2 times; these are")


def test_a_job_that_ended_before_its_steps_or_without_a_function_is_said_to() -> None:
    run = msgspec.structs.replace(emulated(calls=(("cuNew", "a.so"),)), steps=5)
    verdict, steps, *_ = lines_of(run, alone=True)
    assert verdict.endswith("spare; it called what is not modelled, and may have gone on without")
    assert steps == "note: its optimizers took 3 of the 5 steps after which it was to end"
    assert "its optimizers" not in "\n".join(lines_of(msgspec.structs.replace(run, steps=3), alone=True))


@pytest.mark.parametrize("code", [0, 143])  # ended by the probe inside, or from outside
def test_a_job_that_was_ended_by_the_time_is_said_to_be_bounded(code: int) -> None:
    run = emulated()
    finished = msgspec.structs.replace(run.finished, code=code)
    run = msgspec.structs.replace(run, finished=finished, steps=5, ended_after=30.0)
    assert (run.verdict, run.bounded, document_of(run)["ended_after"]) == ("fits", True, 30.0)

    verdict, note = lines_of(run, alone=True)
    assert verdict.endswith("spare; it was ended after 30 s")
    assert note == (
        "note: bounded: it was ended after 30 s, with 3 steps of its optimizers done; what it would have taken later "
        "is not in these figures"
    )


def test_what_was_read_and_what_did_not_start_is_said() -> None:
    run = emulated(calls=(("cuGetExportTable", "libcudnn.so.9"), ("cuNew", "a.so")), reads=2)
    assert run.bounded
    text = "\n".join(lines_of(run, alone=True))
    assert "not started, for NVIDIA's own runtime inside needs NVIDIA's driver: libcudnn.so.9" in text
    assert "not modelled: cuNew (called by a.so)" in text
    assert "its way may hang on what kernels would have computed, which reads as zeros:" in text
    assert "2 reads elsewhere" in text


def test_what_is_only_shown_bounds_nothing() -> None:
    shown = ReadPlace(path="/job/train.py", line=3, function="main", code="print(loss.item())", times=2, decides=False)
    run = msgspec.structs.replace(emulated(reads=2), places=(shown,))
    assert not run.bounded
    assert list(lines_of(run, alone=True))[1:] == [
        "note: read 2 times only to be shown or kept: train.py:3 in main, 2 times: print(loss.item())"
    ]


def test_beside_pytorch_the_process_holds_its_context_and_what_others_allocated() -> None:
    (one,) = emulated().seen
    assert (one.ledger.context, one.ledger.other, one.ledger.process) == (512 * MIB, 512 * MIB, 12 * GIB)


def test_python_reads_the_same_document() -> None:
    found = msgspec.json.decode(msgspec.json.encode(document_of(emulated(oom=True, reads=2))), type=DryRun)
    assert (found.verdict, found.fits, found.allocated, found.bounded) == ("does not fit", False, 10 * GIB, True)


def test_from_python_a_job_without_cuda_and_a_slow_one_are_one_sentence(python: str) -> None:
    with pytest.raises(UserError, match="no process of it used CUDA"):
        dry_run([python, "-c", "print('done')"], on="RTX4090")
    with pytest.raises(UserError, match="no card called 'RTX4091' is known"):
        dry_run(["true"], on="RTX4091")
    with pytest.raises(UserError, match=r"did not end within 0\.5 s"):
        dry_run([python, "-c", "import time; time.sleep(60)"], timeout=0.5)


def test_what_ran_on_an_emulated_card_is_the_prediction_of_the_real_run() -> None:
    run = emulated()
    one = run.largest
    assert one is not None
    kept = prediction_run(run.finished, one, DEVICE, "host")
    assert (kept.source, kept.method, kept.predicted.process, kept.error) == ("emulated", "emulated", 12 * GIB, None)
    real = msgspec.structs.replace(one, ledger=msgspec.structs.replace(one.ledger, process=13 * GIB))
    other = msgspec.structs.replace(kept, command="other")
    (scored,) = completed_runs(run.finished, (real,), "host", None, (other, kept))
    assert (scored.source, scored.method) == ("run", "emulated")
    assert scored.error == pytest.approx(1 / 12)
    (alone,) = completed_runs(run.finished, (real,), "host", None, (other,))
    assert (alone.method, alone.error) == ("", None)


@pytest.mark.parametrize(("steps", "verdict"), [(3, "fits"), (4, None), (None, None)])
def test_processes_that_fail_once_another_was_done_do_not_fail_the_job(steps: int | None, verdict: str | None) -> None:
    run = emulated()
    finished = msgspec.structs.replace(run.finished, code=1)
    run = msgspec.structs.replace(run, finished=finished, steps=steps)
    assert run.verdict == verdict
    assert any("one process was ended after 3 steps" in one for one in lines_of(run, alone=True)) == (steps == 3)
