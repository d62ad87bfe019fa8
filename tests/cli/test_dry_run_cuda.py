import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.tables import rows
from vramtui.api.dry_runs import answer_of, dry_run
from vramtui.cli.dry_run import prediction_run
from vramtui.cli.run.results import CompletedRun, completed_runs, seen_in
from vramtui.core.base.errors import UserError
from vramtui.core.base.units import GIB, MIB
from vramtui.core.estimate.devices import CARDS
from vramtui.core.observation import probe_messages as sent
from vramtui.dryrun.cuda.environment import DriverReport
from vramtui.dryrun.cuda.run import CudaRun, processes_of, result_of, workspaces_on_card
from vramtui.dryrun.job_command import DryRunJob
from vramtui.dryrun.reads import ConvolutionRun, ReadPlace
from vramtui.dryrun.shield import Rest, awaits_requests
from vramtui.estimators.torch_facts.cards import cuda_context
from vramtui.estimators.torch_facts.convolutions import ConvolutionCall, Mode
from vramtui.probe.peak import PeakHistory
from vramtui.probe.report import RepeatedPasses
from vramtui.probe.servers import LISTENS

pytestmark = pytest.mark.slow  # each test starts processes

DEVICE = CARDS["RTX4090"]


@pytest.fixture(autouse=True)
def own_runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder in which no other test's `ps` finds these cards; a short one, as sockets need."""
    with tempfile.TemporaryDirectory(prefix="run-") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    return str(folder / "bin" / "python")


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "vramtui", "dry-run", *arguments]
    return subprocess.run(words, capture_output=True, text=True, check=False, env=os.environ | environment)


@pytest.mark.parametrize(("code", "sentence"), [
    ("pass", "the job never used CUDA, so there is nothing to measure"),
    ("raise SystemExit(3)", "the job ended with 3 before it used CUDA"),
    ("import os; os.kill(0, 9)", "the job was killed, by itself or by somebody: the host's memory did not run out"),
    ("import time; time.sleep(200)", "the job was ended after 5 s, before it used CUDA"),
])  # fmt: skip
def test_a_job_that_does_not_come_to_cuda_is_one_sentence(python: str, code: str, sentence: str) -> None:
    ran = run("--gpu", "RTX4090", "--timeout", "5", python, "-c", code)
    printed = ran.stdout + ran.stderr.partition("; no namespace")[0]  # which the machine may refuse
    assert (ran.returncode, printed.strip()) == (2, f"vramtui: {sentence}")


WITHOUT_PYTORCH = """
import ctypes, sys
cuda, address = ctypes.CDLL(None), ctypes.c_uint64()
sys.exit(any([cuda.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(int(size) << 30)) for size in sys.argv[1:]]))
"""


def test_a_job_without_pytorch_is_answered_by_what_the_driver_gave_it(python: str) -> None:
    ran = run("--gpu", "RTX4090", python, "-c", WITHOUT_PYTORCH, "3", "2")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("✓ fits RTX4090: needs 5.")
    assert "reserved" not in ran.stdout
    assert "bounded" not in ran.stdout
    ran = run("--gpu", "RTX4090", python, "-c", WITHOUT_PYTORCH.replace("any", "all"), "40", "3")
    assert ran.returncode == 0, ran.stderr
    assert "✓ fits RTX4090: needs 3." in ran.stdout
    assert "a request of 40.0 GiB that failed was caught by the code" in " ".join(ran.stdout.split())


def test_a_job_without_pytorch_that_fails_for_lack_of_memory_does_not_fit(python: str) -> None:
    job = (python, "-c", WITHOUT_PYTORCH, "3", "40")
    ran = run("--gpu", "RTX4090", "--json", *job)
    document = json.loads(ran.stdout)
    assert (ran.returncode, document["exit_code"]) == (1, 1)
    result = document["gpus"][0]["result"]
    assert result["out_of_memory"] == "there was no room for 40.0 GiB more; the job ended with 1"
    answer = dry_run(job, gpu="RTX4090")
    has = answer.verdict, answer.fits, answer.peak_allocated, answer.process > 3 * GIB
    assert has == ("does not fit", False, 0, True)


((_, SERVER),) = rows(__file__, "server")


def test_a_job_ends_as_a_whole_once_it_waits_for_requests(python: str, tmp_path: Path) -> None:
    (tmp_path / "serve.py").write_text(SERVER)
    ran = run("--gpu", "RTX4090", "--timeout", "100", python, str(tmp_path / "serve.py"))
    assert ran.stdout.startswith("✓ fits RTX4090: needs 4."), ran.stderr
    assert f"bounded: {LISTENS}" in " ".join(ran.stdout.split())


def test_a_port_where_ranks_meet_awaits_no_requests_nor_is_a_job_that_computes_at_rest() -> None:
    with socket.create_server(("127.0.0.1", 0)) as waits:
        own, rest = {os.getpid()}, Rest()
        assert awaits_requests(own)
        with socket.create_connection(waits.getsockname()), waits.accept()[0]:
            assert not awaits_requests(own)
    assert (sum(range(10**7)), rest.lasts(own))[1] == 0
    ends = time.monotonic() + 60
    while rest.lasts(own) <= 0.2:  # one that waits for a core is not at rest
        assert time.monotonic() < ends
        time.sleep(0.3)


def test_a_dry_run_beside_its_job_has_the_processor_only_if_nobody_else_wants_it(python: str) -> None:
    idle = "import os, time; time.sleep(1)\nif os.sched_getscheduler(0) != os.SCHED_IDLE: sys.exit(7)\n"
    code = WITHOUT_PYTORCH.replace("sys.exit", f"{idle}sys.exit")
    job = DryRunJob(words=(python, "-c", code, "3"), folder="/", environment=dict(os.environ), is_idle=True)
    answer = answer_of(job, (CARDS["RTX4090"], 1))
    assert answer.verdict == "fits", answer.error


def test_what_a_job_writes_is_thrown_away_unless_it_is_to_be_kept(python: str, tmp_path: Path) -> None:
    file = tmp_path / "left"
    script = f"from pathlib import Path; p = Path({str(file)!r}); p.write_text('here'); print(p.read_text())"
    run("--gpu", "RTX4090", python, "-c", script)
    assert not file.exists()
    run("--gpu", "RTX4090", "--keep-files", python, "-c", script)
    assert file.read_text() == "here"


@pytest.mark.parametrize("code", [0, 1])
def test_a_library_that_brings_nvidias_runtime_is_named_where_nothing_used_cuda(python: str, code: int) -> None:
    ask = "ctypes.CDLL('libcuda.so.1').cuGetExportTable(ctypes.byref(ctypes.c_void_p()), bytes(16))"
    ran = run("--gpu", "RTX4090", python, "-c", f"import ctypes; {ask}; raise SystemExit({code})")
    assert ran.returncode == 2
    assert "used CUDA" in ran.stderr
    assert "; not started because NVIDIA's runtime inside needs NVIDIA's driver: " in ran.stderr


@pytest.mark.parametrize("sign", ["TERM", "KILL"])
def test_a_job_ends_with_the_command(python: str, sign: str) -> None:
    words = (sys.executable, "-m", "vramtui", "dry-run", "--show-output", "--gpu", "RTX4090", python, "-u", "-c")
    script = "import os, time; print(os.getpid()); time.sleep(200)"
    with subprocess.Popen([*words, script], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as ran:
        job = Path("/proc", ran.stderr.readline().strip(), "stat")
        assert job.exists()
        ran.send_signal(getattr(signal, f"SIG{sign}"))
        ended = time.monotonic() + 60
        while job.exists() and " Z " not in job.read_text() and time.monotonic() < ended:
            time.sleep(0.1)
        assert time.monotonic() < ended


def test_several_gpus_are_one_document(python: str) -> None:
    ran = run("--gpu", "RTX4090,2xH100", "--json", python, "-c", "print('done')")
    document = json.loads(ran.stdout)
    assert (ran.returncode, document["exit_code"], document["engine"]) == (2, 2, "cuda")
    answers = [(one["gpu"], one["verdict"], one["output"]) for one in document["gpus"]]
    assert answers == [("RTX4090", "failed", ["done"]), ("2xH100", "failed", ["done"])]


def test_without_a_compiler_nothing_runs(python: str, tmp_path: Path) -> None:
    ran = run("--gpu", "H100", python, "-c", "print('ran')", CC="no-such-compiler", XDG_CACHE_HOME=str(tmp_path))
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "needs a C compiler; no-such-compiler was not found" in ran.stderr


def test_a_torch_without_cuda_is_refused_before_anything_is_compiled_or_runs(python: str, tmp_path: Path) -> None:
    torch = tmp_path / "torch"
    torch.mkdir()
    (torch / "__init__.py").touch()
    (torch / "version.py").write_text("__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\n", encoding="utf-8")
    tool = tmp_path / "launch"
    tool.write_text(f"#!{python}\nprint('ran')\n", encoding="utf-8")
    tool.chmod(0o755)
    for command in ([python, "-c", "print('ran')"], [str(tool)]):
        asked = ("--gpu", "H100", "--engine", "cuda")
        ran = run(*asked, *command, CC="no-such-compiler", PYTHONPATH=str(tmp_path))
        assert (ran.returncode, ran.stdout) == (2, "")
        assert ran.stderr.startswith(f"vramtui: {python} has torch 2.13.0+cpu, which is not built for CUDA")


def emulated(*, oom: bool = False, calls: tuple[tuple[str, str], ...] = (), reads: int = 0) -> CudaRun:
    counters = sent.MemoryCounters(index=0, allocated_peak=10 * GIB, reserved_peak=11 * GIB)
    card = sent.ProbeDevice(index=0, name=DEVICE.name, total_memory=DEVICE.total_memory, capability=DEVICE.capability)
    job = sent.ObservedJob(
        pid=7,
        hello=sent.Hello(v=1, pid=7, at=1.0, devices=(card,)),
        beat=sent.Beat(v=1, pid=7, at=2.0, step=3),
        peaks={0: counters},
        ooms=(sent.OutOfMemory(v=1, pid=7, at=2.0, device=0, asked=GIB, free=0, step=3),) if oom else (),
        end=sent.End(v=1, pid=7, at=3.0, out_of_memory=oom),
    )
    report = DriverReport(pid=7, reads=reads, peaks=(12 * GIB,), contexts=(512 * MIB,), unmodelled=calls)
    return CudaRun(device=DEVICE, gpus=1, code=int(oom), jobs=(job,), reports=(report,))


def test_a_job_that_ends_fits_and_one_that_runs_out_does_not() -> None:
    full = result_of(emulated(oom=True))
    assert full.verdict == "does not fit"
    assert full.out_of_memory == "out of memory in step of step 3: asked for 1.00 GiB"
    result = result_of(emulated())
    assert (result.verdict, result.peak_allocated, result.peak_reserved) == ("fits", 10 * GIB, 11 * GIB)
    assert (result.context, result.other, result.process) == (512 * MIB, 512 * MIB, 12 * GIB)
    assert (result.bounded, result.steps, result.engine) == (False, 3, "cuda")
    assert result.verdict_line == "✓ fits RTX4090: needs 12.0 GiB, has 23.6 GiB: 11.6 GiB spare"


def test_a_job_that_reports_a_gpu_that_does_not_exist_keeps_its_own_figures() -> None:
    run = emulated()
    beyond = msgspec.structs.replace(run.jobs[0], peaks={99: sent.MemoryCounters(index=99, reserved_peak=11 * GIB)})
    (one,) = processes_of(msgspec.structs.replace(run, jobs=(beyond,)))
    assert (one.index, one.process) == (99, 11 * GIB)


# GiB in use when it ran and of its workspace; the least peak and the most: none, copies of all tensors, what can be
# tried (spectra forth and back, columns and copies), or all free.
COPIES, FREE = 10 * GIB + 333_971_968, CARDS["RTX4090"].total_memory - cuda_context((8, 9)).bytes
TRIED = 7_751_073_792 + 10_070_523_904 + 333_971_456 + (256 << 20)
MOVED = [(2, 0, "chosen", None), (10, 0, "chosen", (10 * GIB, COPIES)), (9, 1, "chosen", (9 * GIB, 10 * GIB)),
         (9, 1, "limited", (9 * GIB, 10 * GIB)), (2, 1, "trial", (10 * GIB, 2 * GIB + TRIED)),
         (9, 1, "tried", (9 * GIB, FREE))]  # fmt: skip


@pytest.mark.parametrize(("in_use", "taken", "mode", "expected"), MOVED)
def test_a_convolution_bounds_a_peak_that_its_workspace_can_move(
    in_use: int, taken: int, mode: Mode, expected: tuple[int, int] | None
) -> None:
    one, shapes = (1, 1), ((128, 512, 28, 28), (256, 512, 7, 7), (128, 256, 28, 28))
    call = ConvolutionCall(shapes=shapes, dtype="float32", itemsize=4, stride=one, padding=(3, 3), dilation=one)
    run = msgspec.structs.replace(
        emulated(calls=(("cuDNN's engines that need a device", "a.so"),)),
        convolutions=(ConvolutionRun("net.py:7", "key", "weight", call, mode, in_use * GIB, taken * GIB),),
        peaks={(7, 0): {"peak": 10 * GIB, "steady": (10 - taken * (in_use == 9)) * GIB}},
    )
    bounds = {} if expected is None else {"net.py:7": expected}
    assert (result_of(run).bounded, result_of(run).bounds) == (bool(bounds), bounds)
    assert workspaces_on_card(run) == {}  # only Hopper's were measured on one
    call = msgspec.structs.replace(call, shapes=((64, 128, 32, 32), (64, 128, 3, 3), (64, 64, 32, 32)), padding=one)
    measured = msgspec.structs.replace(run.convolutions[0], call=call)
    hopper = msgspec.structs.replace(run, device=CARDS["H100"], convolutions=(measured,))
    assert workspaces_on_card(hopper) == ({"key": 432_013_312} if mode == "chosen" else {})


@pytest.mark.parametrize(("ran", "died", "size", "note"), rows(__file__, "collected"))
def test_what_waits_for_pythons_collector_bounds_a_peak_whose_parts_are_whole_however_long_its_history_is(
    ran: tuple[int, int], died: int, size: int, note: str
) -> None:
    history, names = PeakHistory(None, set()), ("time_us", "action", "addr", "size")
    history.collections.append((ran[0], ran[1]))
    events = sorted([(10, "alloc", 1, size * MIB), (died, "free_completed", 1, size * MIB), (40, "alloc", 2, 9 * GIB)])
    summary = history.summarise([dict(zip(names, one, strict=True)) for one in events])
    result = result_of(msgspec.structs.replace(emulated(), peaks={(7, 0): summary}))
    assert ([one.startswith(note) for one in result.warnings], result.bounded) == ([True] * bool(note), "b" in note[:1])
    vars(history).update(_turns=[(5, "build", 0)], _labels={1: [(3, "weights", "w")]}, _running=("forward", 0))
    events = [(10, "free_completed", 4, 2 * GIB), (40, "alloc", 2, 9 * GIB)]  # what led to them is lost
    there = [{"address": 1, "requested_size": size * MIB, "state": "active_allocated"}]
    summary = history.summarise([dict(zip(names, one, strict=True)) for one in events], there)
    assert summary["categories"] == {"weights": size * MIB, "activations": 9 * GIB}


@pytest.mark.parametrize(("code", "error", "is_known"), [(134, None, True), (139, None, True), (134, "E", False),
                                                       (3, None, False), (139, "unheard", False)])  # fmt: skip
def test_a_job_that_aborts_in_its_own_exit_keeps_its_answer(code: int, error: str | None, is_known: bool) -> None:
    run = emulated()
    ended = msgspec.structs.replace(run.jobs[0], end=sent.End(v=1, pid=7, at=3.0, error=error))
    aborted = msgspec.structs.replace(run, code=code, jobs=() if error == "unheard" else (ended,))
    if is_known:
        assert result_of(aborted).verdict == "fits"
        assert any("ended the job in its own exit" in note for note in result_of(aborted).warnings)
    else:
        with pytest.raises(UserError, match=f"ended with {code}"):
            result_of(aborted)


@pytest.mark.parametrize(
    ("decides", "takes_all", "verdict"),
    rows(__file__, "a_job_that_runs_out_of_all_places_of_a_computed_mask_may_fit"),
)
def test_a_job_that_runs_out_of_all_places_of_a_computed_mask_may_fit(
    decides: bool, takes_all: bool, verdict: str
) -> None:
    place = ReadPlace(
        path="/job/loss.py", line=7, function="loss", code="x = x[mask]", times=3, decides=decides, takes_all=takes_all
    )
    result = result_of(msgspec.structs.replace(emulated(oom=True), places=(place,)))
    assert result.verdict == verdict
    assert result.verdict_line.startswith("? unknown whether it fits RTX4090") is (verdict == "unknown")
    assert ("  loss.py:7 in loss, 3 times: x = x[mask]" in "\n".join(result.warnings)) is decides


def test_an_out_of_memory_error_that_the_job_caught_is_in_the_verdict() -> None:
    run = emulated(oom=True)
    (job,) = run.jobs
    went_on = msgspec.structs.replace(job, end=sent.End(v=1, pid=7, at=3.0))
    result = result_of(msgspec.structs.replace(run, code=0, jobs=(went_on,)))
    assert result.verdict == "fits"
    assert result.verdict_line.endswith("11.6 GiB spare; a request of 1.0 GiB that failed was caught by the code")
    counted = {0: msgspec.structs.replace(job.peaks[0], num_ooms=2)}  # the first came before the probe listened
    untold = msgspec.structs.replace(went_on, ooms=(), peaks=counted)
    result = result_of(msgspec.structs.replace(run, code=0, jobs=(untold,)))
    assert result.verdict_line.endswith("spare; a request that failed was caught by the code")


def test_a_job_that_ended_before_its_steps_or_without_a_function_is_shown() -> None:
    run = msgspec.structs.replace(emulated(calls=(("cuNew", "a.so"),)), steps=5)
    result = result_of(run)
    assert result.verdict_line.endswith("it called functions that are not modelled, and may have gone on without")
    assert result.warnings[0] == "its optimizers took 3 of the 5 steps after which it was to end"
    assert "its optimizers" not in "\n".join(result_of(msgspec.structs.replace(run, steps=3)).warnings)


@pytest.mark.parametrize(
    ("end", "how"),
    [(None, "a signal"), (sent.End(v=1, pid=7, at=3.0, error="ValueError"), "ValueError"),
     (sent.End(v=1, pid=7, at=3.0), "")],
)  # fmt: skip
def test_a_worker_that_failed_leaves_it_unknown_whatever_its_parent_ended_with(end: sent.End | None, how: str) -> None:
    run = emulated()
    result = result_of(msgspec.structs.replace(run, steps=5, jobs=(msgspec.structs.replace(run.jobs[0], end=end),)))
    assert (result.verdict, result.bounded) == (("unknown", True) if how else ("fits", False))
    assert (f"process 7 ended with {how}, although the job ended with 0" in result.verdict_line) is bool(how)


@pytest.mark.parametrize("code", [0, 143])  # ended by the probe inside, or from outside
def test_a_job_that_was_ended_by_the_time_is_bounded(code: int) -> None:
    result = result_of(msgspec.structs.replace(emulated(), code=code, steps=5, ended_after=30.0))
    assert (result.verdict, result.bounded, result.ended_after) == ("fits", True, 30.0)
    assert result.verdict_line.endswith("spare; it was ended after 30 s")
    assert result.warnings == ("bounded: it was ended after 30 s, with 3 steps done; later ones may take any more",)
    settled = result_of(msgspec.structs.replace(emulated(), code=code, steps=3, ended_after=30.0))
    assert (settled.bounded, settled.doubts) == (False, ("it was ended after 30 s",))
    passes = RepeatedPasses().summary(0) | {"is_end": False, "awaits_step": False}
    repeats = msgspec.structs.replace(emulated(), code=code, peaks={(7, 0): {"passes": passes}}, ended_after=30.0)
    assert (result_of(repeats).bounded, result_of(repeats).doubts) == (False, ())
    (job,) = emulated().jobs
    hello = msgspec.structs.replace(job.hello or sent.Hello(v=1, pid=7, at=1.0), torch="2.13.0")
    early = msgspec.structs.replace(job, hello=hello, beat=None)
    result = result_of(msgspec.structs.replace(emulated(), code=code, jobs=(early,), ended_after=30.0))
    why = "it was ended after 30 s, before its first step; --timeout gives it more"
    assert (result.verdict, result.unknown) == ("unknown", why)


def test_what_was_read_and_what_did_not_start_is_shown_and_a_log_bounds_nothing() -> None:
    result = result_of(emulated(calls=(("cuGetExportTable", "libcudnn.so.9"), ("cuNew", "a.so")), reads=2))
    text = "\n".join(result.warnings)
    assert result.bounded
    assert "not started because NVIDIA's runtime inside needs NVIDIA's driver: libcudnn.so.9" in text
    assert "not modelled: cuNew (called by a.so)" in text
    assert "bounded: its way may depend on computed values, which read as zeros:" in text
    assert "2 reads elsewhere" in text
    shown = ReadPlace(path="/job/train.py", line=3, function="main", code="print(loss.item())", times=2, decides=False)
    result = result_of(msgspec.structs.replace(emulated(reads=2), places=(shown,)))
    assert (result.bounded, result.warnings) == (False, ())


def test_a_dry_run_is_the_prediction_of_the_real_run() -> None:
    run = emulated()
    kept = prediction_run(("train",), result_of(run), 3.0, "host")
    assert (kept.source, kept.method, kept.predicted.process, kept.error) == ("dry-run", "dry-run", 12 * GIB, None)
    finished = CompletedRun(command=("train",), code=0, started_at=0.0, ended_at=3.0, jobs=run.jobs)
    (one,) = seen_in(finished, None)
    real = msgspec.structs.replace(one, ledger=msgspec.structs.replace(one.ledger, process=13 * GIB))
    other = msgspec.structs.replace(kept, command="other")
    (scored,) = completed_runs(finished, (real,), "host", None, (other, kept))
    assert (scored.source, scored.method) == ("run", "dry-run")
    assert scored.error == pytest.approx(1 / 12)
    (alone,) = completed_runs(finished, (real,), "host", None, (other,))
    assert (alone.method, alone.error) == ("", None)


@pytest.mark.parametrize("steps", [3, 4, None])
def test_processes_that_fail_once_another_was_done_do_not_fail_the_job(steps: int | None) -> None:
    run = msgspec.structs.replace(emulated(), code=1, steps=steps)
    if steps != 3:
        with pytest.raises(UserError, match="the job ended with 1"):
            result_of(run)
        return
    result = result_of(run)
    assert (result.verdict, "one process was ended after 3 steps" in result.verdict_line) == ("fits", True)
