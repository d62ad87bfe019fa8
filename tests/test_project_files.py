import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
IGNORING = """
import signal, subprocess, sys
for number in (signal.SIGINT, signal.SIGQUIT):
    signal.signal(number, signal.SIG_IGN)
from tests.conftest import reset_ignored_signals
reset_ignored_signals()
child = "import signal; print(signal.SIG_IGN in map(signal.getsignal, (signal.SIGINT, signal.SIGQUIT)))"
print(subprocess.check_output([sys.executable, "-c", child], text=True))
"""


def test_help_names_every_target_and_tests_take_signals() -> None:
    targets = re.search(r"^\.PHONY: (.+)$", MAKEFILE, re.MULTILINE)
    assert targets is not None
    told = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert [line.split()[1] for line in told.splitlines()] == targets[1].split()
    hooks = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    check = MAKEFILE.partition("\ncheck: lint types")[2].partition("\nformat:")[0]
    for command in ("ruff format", "ruff check", "mypy vramtui tests benchmarks", "lint-imports"):
        assert f"$(BIN)/{command}" in check
        assert f".venv/bin/{command}" in hooks
    # A shell that starts `make test &` in a script lets it ignore SIGINT and SIGQUIT.
    ended = subprocess.run(
        [sys.executable, "-c", IGNORING], cwd=ROOT, capture_output=True, text=True, check=True, timeout=120
    )
    assert ended.stdout.split() == ["False"]


@pytest.mark.parametrize(("found", "code", "said"), [
    ('{"name": "rich", "skip_reason": "not found"}', 1, "nothing was audited"),  # pip-audit itself ends with 0 then
    ('{"name": "rich", "version": "1", "vulns": []}', 0, "1 of 1"),
    ('{"name": "rich", "version": "1", "vulns": [{"id": "CVE-1", "fix_versions": ["2"]}]}', 1, "CVE-1"),
])  # fmt: skip
def test_an_audit_of_nothing_is_none(found: str, code: int, said: str) -> None:
    done = audit(found=f'{{"dependencies": [{found}]}}')
    assert (done.returncode, said in done.stdout) == (code, True)


def audit(*arguments: str, found: str | None = None) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(ROOT / "packaging" / "audit.py"), *arguments]
    return subprocess.run(command, input=found, capture_output=True, text=True, check=False)


NO_INDEX = """#!/bin/sh
case "$*" in
*{failing}*) {does} ;;
esac
"""


@pytest.mark.parametrize(("failing", "does", "why"), [
    ("install", "printf 'WARNING: x\\nERROR: No matching distribution\\n' >&2; exit 1", "No matching distribution"),
    ("pip_audit", "printf 'Traceback\\nConnectionError: refused\\n' >&2; exit 1", "ConnectionError: refused"),
])  # fmt: skip
def test_an_audit_that_reaches_no_index_is_one_sentence(tmp_path: Path, failing: str, does: str, why: str) -> None:
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.write_text(NO_INDEX.format(failing=failing, does=does))
    python.chmod(0o700)
    done = audit("--with", str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith("nothing was audited: pip-audit ")
    assert why in done.stderr
    assert "make audit ADVISORIES=" in done.stderr


ADVISORY = """id: PYSEC-1
affected:
- package: {name: %s, ecosystem: PyPI}
  ranges:
  - type: ECOSYSTEM
    events: [{introduced: "0"}, {fixed: "%s"}]
modified: "2026-01-02T00:00:00Z"
"""


@pytest.mark.parametrize(("fixed", "code"), [("0.0.1", 0), ("999", 1)])
def test_an_audit_without_a_network(tmp_path: Path, fixed: str, code: int) -> None:
    folder = tmp_path / "vulns" / "psutil"
    folder.mkdir(parents=True)
    (folder / "PYSEC-1.yaml").write_text(ADVISORY % ("psutil", fixed))
    done = audit("--advisories", str(tmp_path))
    assert (done.returncode, done.stderr, "PYSEC-1 (mended in: 999)" in done.stdout) == (code, "", bool(code))
    assert "by advisories up to 2026-01-02" in done.stdout


def test_the_containers_take_wheels_by_their_hashes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    lock = runpy.run_path(str(ROOT / "packaging" / "lock.py"))
    assert lock["problem"]() is None
    monkeypatch.setitem(lock["problem"].__globals__, "pins", lambda text: dict.fromkeys(lock["pins"](text), text[:9]))
    assert "python packaging/lock.py makes it anew" in lock["problem"]()
    locked = "".join(lock[name].read_text() for name in ("LOCKED", "LOCKED_BUILD"))
    assert "://" not in locked  # whose index it was is nobody's business
    for name in ("Dockerfile", "apptainer.def"):
        text = (ROOT / "packaging" / name).read_text()
        installs = [line for line in text.splitlines() if "pip install" in line]
        assert len(installs) == 3
        assert re.search(r"^(ARG| +) ?BASE=debian@sha256:[0-9a-f]{64}$", text, re.MULTILINE)
        assert all("--require-hashes -r" in line or "--no-deps --no-index" in line for line in installs)
    dockerfile = (ROOT / "packaging" / "Dockerfile").read_text()
    assert "\nUSER vramtui\n" in dockerfile
    assert "/var/lib/dpkg" not in dockerfile


def test_every_file_states_the_same_version_and_the_changelog_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "packaging"))
    release = runpy.run_path(str(ROOT / "packaging" / "release.py"))
    agree, closed = release["versions_agree"], release["changelog_is_closed"]
    number = release["version"]()
    assert (agree(number, ROOT), closed(number, ROOT)) == (None, None)
    assert agree("9.9.9", ROOT) == "vramtui/__init__.py, packaging/conda/recipe.yaml, CITATION.cff: not 9.9.9"
    assert "has no line '## 9.9.9 - YYYY-MM-DD'" in closed("9.9.9", ROOT)
