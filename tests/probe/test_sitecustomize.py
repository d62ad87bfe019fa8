"""The hook that brings the probe into a job: under each Python that a job may run under, from 3.8 on."""

import ast
import importlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.probe.conftest import Start
from tests.tables import rows
from vramtui.probe.import_hook import when_imported
from vramtui.probe.socket_dir import UNTIL

OLDEST = (3, 8)
FILES = sorted(Path(sys.modules[when_imported.__module__].__file__ or "").parent.rglob("*.py"))
# Names of the standard library that came after 3.8, of which one is easily written without a thought.
NEWER = {
    "removeprefix", "removesuffix", "waitstatus_to_exitcode", "cache", "pairwise", "TypeAlias", "ParamSpec", "strict",
    "bit_count", "add_note", "randbytes", "to_thread", "batched", "chdir_context", "is_relative_to", "readlink",
}  # fmt: skip
TORCH, JOB, CLOCK = (text for _, text in rows(__file__, "job"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_travels_into_a_job_has_nothing_that_python_3_8_cannot_read(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source, feature_version=OLDEST)
    later = {id(node) for hidden in _never_evaluated(tree) for node in ast.walk(hidden)}
    if later:
        assert "from __future__ import annotations" in source
    for node in ast.walk(tree):
        if id(node) in later:
            continue
        name = getattr(node, "attr", None) or getattr(node, "arg", None) or getattr(node, "id", None)
        assert name not in NEWER, f"{path.name}:{node.lineno} uses {name}"  # type: ignore[attr-defined]  # it has a name
        generic = isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id
        assert generic not in {"dict", "list", "tuple", "set", "frozenset", "type", "Callable", "Iterable", "Iterator"}


def test_several_functions_wait_for_one_module() -> None:
    seen: list[str] = []
    for _ in range(2):
        when_imported("tabnanny", lambda module: seen.append(module.__name__))
    importlib.import_module("tabnanny")
    assert seen == ["tabnanny"] * 2


def _never_evaluated(tree: ast.AST) -> Iterator[ast.AST]:
    """Annotations that need more than a name, and what only a type checker reads."""
    for node in ast.walk(tree):
        for annotation in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            if isinstance(annotation, (ast.Subscript, ast.BinOp)):
                yield annotation
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            yield from node.body


def _pythons() -> dict[str, str]:
    """Other interpreters that are at hand, by their release; of an environment manager's shims the program itself."""
    found = {}
    for minor in range(OLDEST[1], 16):
        program = shutil.which(f"python3.{minor}")
        versions = Path.home() / ".pyenv" / "versions"
        for path in (*([Path(program)] if program else ()), *versions.glob(f"3.{minor}.*/bin/python3")):
            ask = [str(path), "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
            if "shims" not in path.parts and _answer(ask) == f"3.{minor}":
                found[f"3.{minor}"] = str(path)
    return found


def _answer(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stdout.strip()
    except OSError:
        return ""


def test_a_job_tells_its_phases_under_every_python_at_hand(start: Start, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(TORCH, encoding="utf-8")
    (tmp_path / "job.py").write_text(JOB, encoding="utf-8")
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    for release, python in ({here: sys.executable} | _pythons()).items():
        heard = start(str(tmp_path / "job.py"), python=python, PATH=os.environ["PATH"])
        assert (release, heard.code, heard.stdout, heard.stderr) == (release, 0, "trained\n", "")
        hello = heard.job.hello
        assert (hello.python.rpartition(".")[0], hello.torch) == (release, "2.4.1+stub")
        told = [(end.phase, end.step, (end.allocated or 0) >> 20) for end in heard.job.moments]
        assert told[:4] == [("build", 0, 30), ("forward", 0, 50), ("backward", 0, 70), ("step", 0, 90)], release
        assert heard.job.end.error is None


@pytest.mark.parametrize(
    ("last", "error"), [('raise ValueError("bad")', "ValueError"), ("sys.exit(3)", None), ("os._exit(0)", None)]
)
def test_a_worker_tells_how_it_ended(start: Start, tmp_path: Path, last: str, error: str | None) -> None:
    (tmp_path / "torch.py").write_text(TORCH, encoding="utf-8")
    (tmp_path / "job.py").write_text(
        "import multiprocessing, os, sys\n"
        f"def work():\n    exec({JOB!r}, {{}})\n    {last}\n"
        "if __name__ == '__main__':\n"
        "    worker = multiprocessing.get_context('spawn').Process(target=work)\n"
        "    worker.start()\n    worker.join()\n",
        encoding="utf-8",
    )
    heard = start(str(tmp_path / "job.py"))
    assert (heard.code, heard.job.end.error) == (0, error), heard.stderr


def test_a_job_is_ended_when_its_time_is_over_and_tells_so(start: Start, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(CLOCK + TORCH, encoding="utf-8")
    (tmp_path / "job.py").write_text(f"{JOB}torch.is_over.set()\ntorch.threading.Event().wait()\n", encoding="utf-8")
    heard = start(str(tmp_path / "job.py"), **{UNTIL: str(int(time.monotonic()) + 1000)})
    assert (heard.code, heard.stdout, heard.stderr) == (0, "trained\n", "")
    assert heard.job.end is not None
    assert heard.job.beat.step == 2
