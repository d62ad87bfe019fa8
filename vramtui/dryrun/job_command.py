"""A job's command: its Python, its script, its folder and its variables. No PyTorch is imported here."""

import contextlib
import os
import shlex
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec

from vramtui.core.base.errors import UserError, os_reason
from vramtui.core.base.text import printable
from vramtui.dryrun.child import hook_folder
from vramtui.dryrun.result import JobCommand, Progress
from vramtui.estimators.torch_facts.releases import NEWEST, OLDEST, OLDEST_CUDA, OLDEST_PYTHON, TAKES, release_of
from vramtui.probe import socket_dir

LIMIT = 4.0  # seconds, of each that is looked at
Engine = Literal["cuda", "fake"]
LIMIT_CHOSEN = 30.0  # of one that a job runs under, on a machine that may be busy: no other takes its place for that
_SILENT = f"it is no Python, or does not answer within {LIMIT_CHOSEN:g} s"
# What `uv tool install` (uv 0.4 on) and pipx (0.15 on) leave in an environment that they make for one program.
RECEIPTS = ("uv-receipt.toml", "pipx_metadata.json")
_FIRST = 256  # bytes of a program in which its interpreter is named
# Finds torch's version and CUDA release without importing it, which would take seconds and much memory. Python puts the
# current folder first for `-c`, and anything may stand there under the name of a module.
PROGRAM = """
import sys
sys.path[:] = [path for path in sys.path if path]
import importlib.util, json, os, re
found = {"python": sys.version.split()[0]}
spec = importlib.util.find_spec("torch")
if spec is not None and spec.origin:
    with open(os.path.join(os.path.dirname(spec.origin), "version.py"), encoding="utf-8") as opened:
        text = opened.read()
    for key, name in (("torch", "__version__"), ("cuda", "cuda")):
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


class Interpreter(msgspec.Struct, frozen=True, kw_only=True):
    """A Python program within reach, why it is, and its versions; None if unknown, as `cuda` is for a CPU build."""

    path: Path
    why: str
    python: str | None = None
    torch: str | None = None
    cuda: str | None = None

    def refusal(self, engine: Engine = "cuda") -> str:
        """Why this engine, or `fake` for a CPU build, runs nothing with it; empty where it does."""
        if self.torch is None:
            return f"{self.path} ({self.why}) has no torch"
        works = "`vramtui run` and the dashboard show such a job as it runs, and `vramtui estimate` needs no torch"
        if not (OLDEST if engine == "fake" or self.cuda is None else OLDEST_CUDA) <= release_of(self.torch) <= NEWEST:
            return f"{TAKES}; {self.path} ({self.why}) has {self.torch}; {works}"
        if release_of(self.python or "") < OLDEST_PYTHON:
            needs = ".".join(map(str, OLDEST_PYTHON))
            return f"a dry run needs Python {needs} or newer, and {self.path} ({self.why}) is {self.python}; {works}"
        return ""

    def checked(self, engine: Engine = "cuda") -> "Interpreter":
        if refusal := self.refusal(engine):
            raise UserError(refusal)
        return self

    def line(self) -> str:
        built = f"CUDA {self.cuda}" if self.cuda else "CPU build"
        return printable(f"torch {self.torch} ({built}) in {self.path}, Python {self.python}, {self.why}")


def job_interpreter(script: str = "", named: str | None = None, engine: Engine = "cuda") -> Interpreter:
    """The Python that a job runs under: the one that a person names, else the first within reach that has torch.

    Raises:
        UserError: there is none, or its torch is of a release that cannot be traced.
    """
    if named is not None:
        path = Path(named).expanduser()
        path = path / "bin" / "python" if path.is_dir() else path
        program = path if path.exists() else shutil.which(named)
        if program is None:
            raise UserError(f"--python {named}: there is no such program, and no environment in that folder")
        one = _ask(Path(program).absolute(), "--python", limit=LIMIT_CHOSEN)
        if one.python is None:
            raise UserError(f"--python {named}: {_SILENT}")
        return one.checked(engine)
    looked: list[str] = []
    for one in interpreters(script, LIMIT_CHOSEN):  # those behind the first with torch are not asked
        if one.torch is not None:
            return one.checked(engine)
        silent = "" if one.python else f", {_SILENT}"
        looked.append(f"{one.path} ({one.why}{silent})")
    raise UserError(
        f"no Python within reach has torch: {', '.join(looked)}; --python names the job's own, or install torch there"
    )


def interpreter_at(path: str, environment: Mapping[str, str]) -> Interpreter:
    """The Python that a job runs, asked in that job's own surroundings: PYTHONPATH may bring its torch."""
    return _ask(Path(path), "the job's own", tuple(sorted(environment.items())))


def own_interpreter() -> Interpreter:
    return _ask(Path(sys.executable), "vramtui's own")


def import_problem(interpreter: Interpreter, limit: float = LIMIT) -> str | None:
    """Why its torch cannot be imported; empty where it can be."""
    try:
        done = _answer(interpreter.path, IMPORT, limit)
    except subprocess.TimeoutExpired:
        return None
    except OSError as error:
        return str(error.strerror)
    if done.returncode == 0:
        return ""
    lines = done.stderr.strip().splitlines()
    return printable(lines[-1]) if lines else f"it ended with exit code {done.returncode}"


def _answer(
    path: Path, program: str, limit: float, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - an interpreter that this user's own surroundings name
        [path, "-c", program], capture_output=True, timeout=limit, check=False, stdin=subprocess.DEVNULL,
        env=variables, text=True, errors="replace",
    )  # fmt: skip


def interpreters(script: str = "", limit: float = LIMIT) -> Iterator[Interpreter]:
    """The active environment, a `.venv` next to the script, its shebang, this Python, `python3` in PATH; each once, and
    given `limit` seconds to answer. This one comes last where it was made only for vramtui (`uv tool`, pipx), and has
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
            yield parent / ".venv" / "bin" / "python", "next to the script" if script else "in this folder"
            break
    with contextlib.suppress(OSError, ValueError):
        program = Path(*_shebang(Path(script))[:1])
        if "python" in program.name:
            yield program, "the script's first line"
    own = Path(sys.executable), "vramtui's own"
    is_tools = any(Path(sys.prefix, name).exists() for name in RECEIPTS)
    if not is_tools:
        yield own
    for name in ("python3", "python"):
        if in_path := shutil.which(name):
            yield Path(in_path), "in PATH"
    if is_tools:
        yield own


@cache
def _ask(
    path: Path, why: str, variables: tuple[tuple[str, str], ...] | None = None, limit: float = LIMIT
) -> Interpreter:
    """An interpreter with its answer about itself; without its versions if it is no Python, or silent."""
    try:
        done = _answer(path, PROGRAM, limit, None if variables is None else dict(variables))
        return Interpreter(path=path, why=why, **msgspec.json.decode(done.stdout, type=dict[str, str | None]))
    except (OSError, subprocess.TimeoutExpired, msgspec.DecodeError):
        return Interpreter(path=path, why=why)


LAUNCHERS = {"torchrun", "torch.distributed.run", "torch.distributed.launch"}
# Python's own options that take a word behind them; `-c` and `-m` end them.
_WITH_VALUE = {"-W", "-X", "--check-hash-based-pycs"}
# torchrun's options without a value (torch/distributed/run.py, get_args_parser); all others have one.
_SWITCHES = {"--standalone", "--no-python", "--run-path", "--use-env", "--virtual-local-rank"}
_OWN = (socket_dir.SOCKET, socket_dir.RUN, socket_dir.PRESET, socket_dir.STEPS, socket_dir.CARD)


class DryRunJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job to run without its GPU: a command as a shell takes it, where a Python file is enough; its engine, None:
    `cuda` if its PyTorch is a CUDA build, else `fake`; optimizer steps after which it is ended, 0: at its own end, and
    whether it goes on to the end of their epoch, made short; the descriptor that its standard input reads, if any, or
    else what it is given there; a folder that all its runs share; whether others go first; the `EVERY:FILE:LINE` whose
    guessed condition goes the other way, each time or each second, None: none is tried, empty: each is; which numbers
    are read for unknown ones, one of `reads.NUMBERS`; and bytes of convolutions' workspaces, by the probe's keys.
    """

    words: tuple[str, ...]
    folder: str
    environment: dict[str, str]
    engine: Engine | None = None
    steps: int = 3
    rest: bool = False
    timeout: float | None = None
    keep_files: bool = False
    show_output: bool = False
    keyboard: int | None = None
    typed: bytes = b""
    shared: str = ""
    is_idle: bool = False
    other_way: str | None = ""
    other_numbers: str = ""
    workspaces: dict[str, int] = {}


class RunTools(msgspec.Struct, frozen=True):
    """Tools that a dry run gets from its caller: an opener of the probe's listener, the folder of the driver, a
    callback for each phase of engine `fake`, and an event that ends the job from another thread.
    """

    listen: Callable[[str], Any]  # gives what hears the probes of a run, by its mark; None if it cannot
    cache: Path
    progress: Callable[[Progress], None] | None = None
    cancel: threading.Event | None = None


def job_command(words: Sequence[str], folder: str, environment: Mapping[str, str]) -> JobCommand:
    """The Python, script and arguments of `words`, as a shell in `folder` with these variables would start them.

    Raises:
        UserError: it is no Python script or module that can be traced; the sentence says what it is.
    """
    variables = own_variables(environment)
    program = _program_path(words[0], folder, variables)
    python, rest = _interpreter(program, words, variables)
    if rest is None:
        rest = list(words[1:]) if Path(words[0]).name in LAUNCHERS else [program, *words[1:]]
        launched = Path(words[0]).name in LAUNCHERS
    else:
        at = 0
        while at < len(rest) and rest[at].startswith("-") and rest[at] not in {"-m", "-c", "-"}:
            at += 2 if rest[at] in _WITH_VALUE else 1
        rest = rest[at:]
        if rest[:1] in (["-c"], ["-"]):
            raise UserError("engine fake needs a script or a module, not python -c or typed input")
        launched = rest[:1] == ["-m"] and rest[1:2] != [] and rest[1] in LAUNCHERS
        rest = rest[2:] if launched else rest
    ranks, rest = _behind_launcher(rest) if launched else (0, rest)
    is_module, rest = rest[:1] == ["-m"], rest[1:] if rest[:1] == ["-m"] else rest
    if not rest or rest[0].startswith("-"):
        raise UserError(
            f"{printable(shlex.join(words))} names no Python file or module, which engine fake needs: python train.py"
        )
    script = rest[0] if is_module else str(Path(folder) / rest[0])
    if not is_module and not Path(script).is_file():
        raise UserError(f"{printable(script)} does not exist")
    return JobCommand(
        words=tuple(words),
        python=python,
        script=script,
        is_module=is_module,
        arguments=tuple(rest[1:]),
        ranks=ranks,
        folder=folder,
        environment=variables,
    )


def command_of_process(pid: int) -> JobCommand:
    """The command that a running process of this user was started with.

    Raises:
        UserError: it is gone, another user's, or runs no Python script.
    """
    own = Path(f"/proc/{pid}")
    try:
        if own.stat().st_uid != os.getuid():
            raise UserError(f"pid {pid} is another user's: only what you started yourself is run again")
        words = [os.fsdecode(word) for word in (own / "cmdline").read_bytes().split(b"\0")[:-1]]
        pairs = [os.fsdecode(pair).partition("=") for pair in (own / "environ").read_bytes().split(b"\0") if pair]
        folder, exe = str((own / "cwd").readlink()), str((own / "exe").readlink())
        elsewhere = str((own / "root").readlink()) != "/"
    except OSError as error:
        raise UserError(f"pid {pid} cannot be looked into: {os_reason(error)}") from None
    if elsewhere or not words or not Path(folder).is_dir():
        raise UserError(
            f"pid {pid} runs in files of its own (a container, or a folder that is gone): make the dry run there"
        )
    variables = {name: value for name, _, value in pairs}
    named = str(Path(folder) / words[0]) if os.sep in words[0] else shutil.which(words[0], path=variables.get("PATH"))
    if "python" in Path(exe).name and (named is None or str(Path(named).resolve()) != exe):
        words[0] = exe  # what runs; else an environment's name for it, on which its packages hang
    return job_command(words, folder, variables)


def python_of(words: Sequence[str], environment: Mapping[str, str]) -> str | None:
    """The Python that a command runs under, as a shell in this folder would start it; None for other programs."""
    try:
        return _interpreter(_program_path(words[0], "", environment), words, environment)[0]
    except UserError:
        return None


def own_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """`environment` as it was before a `vramtui run` put the probe into it; of a rank, the first one's."""
    variables = {name: value for name, value in environment.items() if name not in {*_OWN, "PYTHONPATH"}}
    for rank in ("RANK", "LOCAL_RANK"):
        if rank in variables:
            variables[rank] = "0"  # the one that a trace is of
    hook = str(hook_folder())
    paths = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path and path != hook]
    return variables | ({"PYTHONPATH": os.pathsep.join(paths)} if paths else {})


def _program_path(program: str, folder: str, environment: Mapping[str, str]) -> str:
    if os.sep in program:
        return str(Path(folder) / program)
    if (path := shutil.which(program, path=environment.get("PATH", os.defpath))) is None:
        raise UserError(f"{printable(program)} is not found")
    return path


def _interpreter(program: str, words: Sequence[str], environment: Mapping[str, str]) -> tuple[str, list[str] | None]:
    """The Python that runs it, and the words after it; None for these if the program is a script of that Python."""
    if Path(program).name.startswith("python"):
        return program, list(words[1:])
    try:
        named = _shebang(Path(program), environment.get("PATH", os.defpath))
    except OSError as error:
        raise UserError(f"{printable(program)} cannot be read: {os_reason(error)}") from None
    if not named or "python" not in Path(named[0]).name:
        raise UserError(
            f"{printable(words[0])} is not a Python program, which engine fake needs; name the Python command that it "
            "runs: python train.py"
        )
    return named[0], None


def _shebang(path: Path, search: str | None = None) -> list[str]:
    is_file = stat.S_ISREG(path.stat().st_mode)
    with path.open("rb") as file:
        line = file.read(_FIRST).partition(b"\n")[0] if is_file else b""
    words = [word for word in os.fsdecode(line[2:]).split() if word[0] != "-"] if line.startswith(b"#!") else []
    return [shutil.which(words[1], path=search) or ""] if len(words) > 1 and Path(words[0]).name == "env" else words


def _behind_launcher(words: list[str]) -> tuple[int, list[str]]:
    """How many ranks torchrun starts (0: as many as there are GPUs), and what it runs in each."""
    counts, at = {"nproc": 0, "nnodes": 1}, 0
    while at < len(words) and words[at].startswith("-") and words[at] not in {"-m", "--module"}:
        name, equals, value = words[at].partition("=")
        if not equals and name not in _SWITCHES:
            at, value = at + 1, words[at + 1] if at + 1 < len(words) else ""
        key = "nproc" if name.replace("_", "-") == "--nproc-per-node" else name.strip("-")
        if key in counts and value.isascii() and value.isdigit():
            counts[key] = int(value)
        at += 1
    rest = words[at:]
    return counts["nproc"] * counts["nnodes"], ["-m", *rest[1:]] if rest[:1] == ["--module"] else rest
