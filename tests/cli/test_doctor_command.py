import errno
import threading
import venv
from functools import partial
from pathlib import Path

import pytest

from tests.tables import rows
from vramtui.cli import doctor as checks
from vramtui.cli.doctor import Finding, ask_all, exit_code
from vramtui.cli.main import program
from vramtui.dryrun.job_command import Interpreter, import_problem


def found(check: str, verdict: str) -> Finding:
    return Finding(check=check, verdict=verdict, message="")  # type: ignore[arg-type]  # told in the test's words


def test_the_exit_code_says_whether_it_works() -> None:
    assert exit_code([found("a", "ok"), found("b", "unknown")]) == 0
    assert exit_code([found("a", "ok"), found("b", "warning")]) == 0
    assert exit_code([found("a", "failed"), found("b", "warning")]) == 2
    assert exit_code([found("nvml", "failed"), found("nvidia-smi", "ok")]) == 0


def test_a_machine_without_a_gpu(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    missing = Finding("nvml", "failed", "no library", "Install the driver.")
    monkeypatch.setattr(checks, "CHECKS", {"a": lambda: found("a", "ok"), "nvml": lambda: missing})
    with pytest.raises(SystemExit) as ended:
        program(["doctor"])(["doctor"])
    assert (ended.value.code, capsys.readouterr().out.splitlines()[-1]) == (2, "✗ Not usable yet: nvml: no library.")


def test_its_help_lists_the_exit_codes_once(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        program(["doctor"])(["doctor", "--help"])
    printed = " ".join(capsys.readouterr().out.split())
    assert printed.lower().count("exit code") == 1
    assert "Exit codes: 0 it works, perhaps with warnings, 2 it does not work, or wrong use." in printed


def test_a_check_that_hangs_or_breaks_is_a_finding() -> None:
    never = threading.Event()

    def hang() -> Finding:
        never.wait()
        return found("hang", "ok")

    def broken() -> Finding:
        raise ZeroDivisionError("by nothing")

    def refused() -> Finding:
        raise PermissionError(errno.EACCES, "Permission denied", "/proc/1\x1b[2J/maps")

    hung, failed, locked, fine = ask_all(
        {"hang": hang, "broken": broken, "refused": refused, "fine": lambda: found("fine", "ok")}, 0.1
    )
    never.set()
    assert (hung.verdict, hung.message) == ("unknown", "no answer within 0.1 s")
    assert (failed.verdict, failed.message) == ("unknown", "the check itself broke")
    assert "ZeroDivisionError: by nothing" in failed.hint
    assert (locked.verdict, locked.hint) == ("unknown", "")
    assert locked.message.startswith("not known: permission denied (/proc/1")
    assert locked.message.isprintable()
    assert fine.verdict == "ok"


def test_folders_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("VRAMTUI_CONFIG_DIR", str(tmp_path / "new" / "config"))
    monkeypatch.setenv("VRAMTUI_DATA_DIR", str(file))
    finding = checks.folders()
    assert finding.verdict == "warning"
    assert str(file) in finding.message
    assert "config" not in finding.message
    assert not (tmp_path / "new").exists()


def test_a_folder_that_may_not_be_looked_into_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until Python 3.12 `exists` raises for a folder inside of one that belongs to somebody else."""

    def exists(_: Path) -> bool:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setenv("VRAMTUI_CONFIG_DIR", "/somebody/config")
    monkeypatch.setattr(Path, "exists", exists)
    finding = checks.folders()
    assert finding.verdict == "warning"
    assert "cannot write to the config folder /somebody/config" in finding.message


TRAPS = ("json", "runpy", "torch", "pathlib", "importlib", "msgspec", "sitecustomize", "vramtui", "encodings", "typing")


@pytest.mark.torch
def test_this_pythons_torch_is_found_and_nothing_of_the_current_folder_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = tmp_path / "ran"
    for name in TRAPS:
        (tmp_path / f"{name}.py").write_text(f"open({str(ran)!r}, 'a').write({name!r})\n")
    monkeypatch.chdir(tmp_path)
    finding = checks.torch()
    assert not ran.exists()
    assert finding.verdict == "ok"
    assert "torch 2." in finding.message
    assert "run, dry run" in finding.message


@pytest.mark.parametrize(("text", "verdict", "told"), rows(__file__, "a_torch_that_cannot_be_imported_is_said_so"))
def test_a_torch_that_cannot_be_imported_is_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, verdict: str, told: str
) -> None:
    """Its version is read from a file, which stands there whatever is missing."""
    venv.create(tmp_path / "job", symlinks=True)
    torch = next((tmp_path / "job" / "lib").glob("python3*")) / "site-packages" / "torch"
    torch.mkdir()
    (torch / "__init__.py").write_text(text)
    (torch / "version.py").write_text("__version__ = '2.13.0'\ncuda = '13.0'\n")
    own = Interpreter(path=tmp_path / "job" / "bin" / "python", why="in PATH", python="3.11.7", torch="2.13.0")
    monkeypatch.setattr("vramtui.dryrun.job_command.interpreters", lambda: [own])
    monkeypatch.setattr(
        "vramtui.dryrun.job_command.import_problem", partial(import_problem, limit=1.0 if "sleep" in text else 60.0)
    )
    finding = checks.torch()
    assert finding.verdict == verdict
    assert told in finding.message
    assert ("-c 'import torch'" in finding.hint) == (verdict == "warning")


@pytest.mark.parametrize(("TERM", "verdict"), [("dumb", "unknown"), ("xterm-256color", "unknown")])
def test_a_pipe_is_no_terminal(monkeypatch: pytest.MonkeyPatch, TERM: str, verdict: str) -> None:  # noqa: N803 - the variable's name
    monkeypatch.setenv("TERM", TERM)
    assert checks.terminal().verdict == verdict
