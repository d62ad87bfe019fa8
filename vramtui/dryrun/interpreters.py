"""The job's own Python: which one it is, and whether the PyTorch in it is one that traces. None is imported here."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.estimators.torch_facts.releases import NEWEST, OLDEST, OLDEST_PYTHON, TAKES, release_of

LIMIT = 4.0  # seconds, of each that is looked at
LIMIT_CHOSEN = 30.0  # of one that a job runs under, on a machine that may be busy: no other takes its place for that
_SILENT = f"it is no Python, or does not answer within {LIMIT_CHOSEN:g} s"
# What `uv tool install` (uv 0.4 on) and pipx (0.15 on) leave in an environment that they make for one program.
RECEIPTS = ("uv-receipt.toml", "pipx_metadata.json")
_FIRST = 256  # bytes of a script in which its shebang stands
# Finds torch's version and CUDA release without importing it, which would take seconds and much memory. Python puts the
# current folder first for `-c`, and anything may stand there under the name of a module.
PROGRAM = """
import sys
sys.path[:] = [path for path in sys.path if path]
import importlib.util, json, os, re
found = {"python": sys.version.split()[0]}
for package, file, names in (
    ("torch", "version.py", {"torch": "__version__", "cuda": "cuda"}),
    ("transformers", "__init__.py", {"transformers": "__version__"}),
):
    spec = importlib.util.find_spec(package)
    if spec is not None and spec.origin:
        with open(os.path.join(os.path.dirname(spec.origin), file), encoding="utf-8") as opened:
            text = opened.read()
        for key, name in names.items():
            match = re.search("^" + name + r"\\b[^=]*=\\s*['\\"]([^'\\"]+)", text, re.MULTILINE)
            found[key] = match.group(1) if match else None
print(json.dumps(found))
"""
# What that version is worth: a library may be missing, or be of another Python's build.
IMPORT = """
import sys
sys.path[:] = [path for path in sys.path if path]
try:
    import torch
except Exception as error:
    sys.exit((str(error).strip() or type(error).__name__).splitlines()[0])
"""


class _Environment(msgspec.Struct, frozen=True, kw_only=True):
    """What an interpreter says of itself."""

    python: str
    torch: str | None = None
    cuda: str | None = None
    transformers: str | None = None


class Interpreter(msgspec.Struct, frozen=True, kw_only=True):
    """A Python program within reach.

    Attributes:
        path: of the program.
        why: by what it was found.
        python, torch, transformers: their versions; None where there is none, or the program did not answer.
        cuda: the release that torch was built for; None for a CPU build.
    """

    path: Path
    why: str
    python: str | None = None
    torch: str | None = None
    cuda: str | None = None
    transformers: str | None = None

    @property
    def release(self) -> tuple[int, int]:
        """The release of torch."""
        return release_of(self.torch or "")

    @property
    def refusal(self) -> str:
        """Why nothing can be traced with it; empty where it can be."""
        if self.torch is None:
            return f"{self.path} ({self.why}) has no torch"
        works = "`vramtui run` and the dashboard show such a job as it runs, and `vramtui estimate` needs no torch"
        if not OLDEST <= self.release <= NEWEST:
            return f"{TAKES}, and {self.path} ({self.why}) has {self.torch}; {works}"
        if release_of(self.python or "") < OLDEST_PYTHON:
            needs = ".".join(map(str, OLDEST_PYTHON))
            return f"a trace takes Python {needs} and newer, and {self.path} ({self.why}) is {self.python}; {works}"
        return ""

    def line(self) -> str:
        """The interpreter in one line: its torch, its path and its Python."""
        built = f"CUDA {self.cuda}" if self.cuda else "CPU build"
        return printable(f"torch {self.torch} ({built}) in {self.path}, Python {self.python}, {self.why}")


def job_interpreter(script: str = "", named: str | None = None) -> Interpreter:
    """The Python that a job runs under: the one that a person names, else the first within reach that has torch.

    Args:
        script: the job's file, beside which an environment may lie.
        named: what `--python` says: a program or an environment's folder.

    Raises:
        UserError: there is none, or its torch is of a release that cannot be traced.
    """
    chosen = _interpreter_at(named) if named is not None else _first_with_torch(script)
    if chosen.refusal:
        raise UserError(chosen.refusal)
    return chosen


def _first_with_torch(script: str) -> Interpreter:
    """The first within reach; none behind it is asked, which takes a process of Python's each."""
    looked = []
    for interpreter in interpreters(script, LIMIT_CHOSEN):
        if interpreter.torch is not None:
            return interpreter
        silent = "" if interpreter.python else f", {_SILENT}"
        looked.append(f"{interpreter.path} ({interpreter.why}{silent})")
    raise UserError(
        f"no Python within reach has torch: {', '.join(looked)}; --python names the job's own, or install torch there"
    )


def interpreter_at(path: str, environment: Mapping[str, str]) -> Interpreter:
    """The Python that a job runs, asked in that job's own surroundings: PYTHONPATH may bring its torch."""
    return _ask(Path(path), "the job's own", tuple(sorted(environment.items())))


def own_interpreter() -> Interpreter:
    """The Python that runs this, for what cannot be taken to another one."""
    return _ask(Path(sys.executable), "vramtui's own")


def import_problem(interpreter: Interpreter, limit: float = LIMIT) -> str | None:
    """Why its torch cannot be imported; empty where it can be.

    Args:
        interpreter: whose torch is tried, in a process of its own that takes seconds and much memory.
        limit: seconds after which that is given up; None is the answer then.
    """
    try:
        done = subprocess.run(  # noqa: S603 - as `_environment`
            [interpreter.path, "-c", IMPORT],
            capture_output=True,
            timeout=limit,
            check=False,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
        )
    except subprocess.TimeoutExpired:
        return None
    except OSError as error:
        return str(error.strerror)
    if done.returncode == 0:
        return ""
    lines = done.stderr.strip().splitlines()
    return printable(lines[-1]) if lines else f"it ended with exit code {done.returncode}"


def interpreters(script: str = "", limit: float = LIMIT) -> Iterator[Interpreter]:
    """The active environment, a `.venv` beside the script, its shebang, this Python, `python3` in PATH; each once, and
    given `limit` seconds to answer. This one comes last where it was made for vramtui alone (`uv tool`, pipx), and has
    torch for its own use.
    """
    seen = set()
    for path, why in _candidates(script):
        # An environment's python is a link to another one and yet has packages of its own.
        folder = path.parent.resolve()
        if path.exists() and folder not in seen:
            seen.add(folder)
            yield _ask(path, why, limit=limit)


def _candidates(script: str) -> Iterator[tuple[Path, str]]:
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if os.environ.get(variable):
            yield Path(os.environ[variable]) / "bin" / "python", f"${variable}"
    folder = Path(script).resolve().parent if script else Path.cwd()
    for parent in (folder, *folder.parents):
        if (parent / ".venv" / "bin" / "python").exists():
            yield parent / ".venv" / "bin" / "python", "beside the script" if script else "in this folder"
            break
    shebang = _shebang(script)
    if shebang is not None:
        yield shebang, "the script's first line"
    own = Path(sys.executable), "vramtui's own"
    is_tools = any(Path(sys.prefix, name).exists() for name in RECEIPTS)
    if not is_tools:
        yield own
    for name in ("python3", "python"):
        in_path = shutil.which(name)
        if in_path:
            yield Path(in_path), "in PATH"
    if is_tools:
        yield own


def _shebang(script: str) -> Path | None:
    """The Python of a script's first line; `env python3` is what PATH says and no further one."""
    try:
        with Path(script).open("rb") as file:
            line = file.read(_FIRST).partition(b"\n")[0]
    except (OSError, ValueError):
        return None
    program = os.fsdecode(line.removeprefix(b"#!").split()[0]) if line.startswith(b"#!") and line.split() else ""
    return Path(program) if "python" in Path(program).name else None


def _interpreter_at(text: str) -> Interpreter:
    path = Path(text).expanduser()
    if path.is_dir():
        path = path / "bin" / "python"
    program = path if path.exists() else shutil.which(text)
    if program is None:
        raise UserError(f"--python {text}: there is no such program, and no environment in that folder")
    answer = _ask(Path(program).absolute(), "--python", limit=LIMIT_CHOSEN)
    if answer.python is None:
        raise UserError(f"--python {text}: {_SILENT}")
    return answer


def _ask(
    path: Path, why: str, variables: tuple[tuple[str, str], ...] | None = None, limit: float = LIMIT
) -> Interpreter:
    environment = _environment(str(path), variables, limit)
    if environment is None:
        return Interpreter(path=path, why=why)
    return Interpreter(
        path=path,
        why=why,
        python=environment.python,
        torch=environment.torch,
        cuda=environment.cuda,
        transformers=environment.transformers,
    )


@cache
def _environment(path: str, variables: tuple[tuple[str, str], ...] | None, limit: float) -> _Environment | None:
    try:
        environment = None if variables is None else dict(variables)
        done = subprocess.run(  # noqa: S603 - an interpreter that this user's own surroundings name
            [path, "-c", PROGRAM],
            capture_output=True,
            timeout=limit,
            check=False,
            stdin=subprocess.DEVNULL,
            env=environment,
        )
        return msgspec.json.decode(done.stdout, type=_Environment)
    except (OSError, subprocess.TimeoutExpired, msgspec.DecodeError):
        return None
