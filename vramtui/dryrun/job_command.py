"""A job's command, taken apart so that it can be traced: its Python, its script, its folder and its variables."""

import os
import shlex
import shutil
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from vramtui.core.base.errors import UserError, os_reason
from vramtui.core.base.text import printable
from vramtui.dryrun.child import hook_folder
from vramtui.dryrun.result import JobCommand
from vramtui.probe import socket_dir

LAUNCHERS = {"torchrun", "torch.distributed.run", "torch.distributed.launch"}
# Python's own options that take a word behind them; `-c` and `-m` end them.
_WITH_VALUE = {"-W", "-X", "--check-hash-based-pycs"}
# torchrun's options without a value (torch/distributed/run.py, get_args_parser); all others have one.
_SWITCHES = {"--standalone", "--no-python", "--run-path", "--use-env", "--virtual-local-rank"}
_FIRST = 256  # bytes of a program in which its interpreter is named
_OWN = (socket_dir.SOCKET, socket_dir.RUN, socket_dir.PRESET, socket_dir.STEPS, socket_dir.CARD)
Engine = Literal["cuda", "fake"]


class DryRunJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job to run without its GPU.

    Attributes:
        words: its command, as a shell takes it; a Python file may stand alone.
        folder: its working folder.
        environment: its variables.
        engine: None: `cuda` if the job's PyTorch is a CUDA build, else `fake`.
        steps: optimizer steps after which it is ended; 0: at its own end.
        timeout: seconds after which it is ended.
        values: how values that kernels would have computed are read, with engine `cuda`.
        keep_files: let it write its files and reach the network.
        show_output: let what it prints through to standard error.
        keyboard: the descriptor that its standard input reads; None: nothing.
        is_idle: give it only what nobody else wants of the processor.
    """

    words: tuple[str, ...]
    folder: str
    environment: dict[str, str]
    engine: Engine | None = None
    steps: int = 3
    timeout: float | None = None
    values: Literal["zeros", "ones"] = "zeros"
    keep_files: bool = False
    show_output: bool = False
    keyboard: int | None = None
    is_idle: bool = False


def job_command(words: Sequence[str], folder: str, environment: Mapping[str, str]) -> JobCommand:
    """What `words` run, as a shell in `folder` with these variables would start them.

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
        rest = _behind_options(rest)
        launched = rest[:1] == ["-m"] and rest[1:2] != [] and rest[1] in LAUNCHERS
        rest = rest[2:] if launched else rest
    ranks = 0
    if launched:
        ranks, rest = _behind_launcher(rest)
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
    """What a running process of this user was started with.

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
        raise UserError(f"pid {pid} runs in files of its own (a container, or a folder that is gone): trace it there")
    variables = {name: value for name, _, value in pairs}
    named = str(Path(folder) / words[0]) if os.sep in words[0] else shutil.which(words[0], path=variables.get("PATH"))
    if "python" in Path(exe).name and (named is None or str(Path(named).resolve()) != exe):
        words[0] = exe  # what runs; else an environment's name for it, on which its packages hang
    return job_command(words, folder, variables)


def python_of(words: Sequence[str], environment: Mapping[str, str]) -> str | None:
    """The Python that a command runs under, as a shell in this folder would start it; None where it is no Python's."""
    try:
        return _interpreter(_program_path(words[0], "", environment), words, environment)[0]
    except UserError:
        return None


def own_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """`environment` as it was before a `vramtui run` put the probe into it; of a rank, the first one's."""
    variables = {name: value for name, value in environment.items() if name not in _OWN}
    for rank in ("RANK", "LOCAL_RANK"):
        if rank in variables:
            variables[rank] = "0"  # the one that a trace is of
    hook = str(hook_folder())
    paths = [path for path in variables.get("PYTHONPATH", "").split(os.pathsep) if path and path != hook]
    if paths:
        variables["PYTHONPATH"] = os.pathsep.join(paths)
    else:
        variables.pop("PYTHONPATH", None)
    return variables


def _program_path(program: str, folder: str, environment: Mapping[str, str]) -> str:
    if os.sep in program:
        return str(Path(folder) / program)
    path = shutil.which(program, path=environment.get("PATH", os.defpath))
    if path is None:
        raise UserError(f"{printable(program)} is not found")
    return path


def _interpreter(program: str, words: Sequence[str], environment: Mapping[str, str]) -> tuple[str, list[str] | None]:
    """The Python that runs it, and what stands behind that; None where the program is a script of that Python."""
    if Path(program).name.startswith("python"):
        return program, list(words[1:])
    try:
        is_file = stat.S_ISREG(Path(program).stat().st_mode)
        with Path(program).open("rb") as file:
            line = file.read(_FIRST).partition(b"\n")[0] if is_file else b""
    except OSError as error:
        raise UserError(f"{printable(program)} cannot be read: {os_reason(error)}") from None
    named = os.fsdecode(line[2:]).split() if line.startswith(b"#!") else []
    if named and Path(named[0]).name == "env" and named[1:]:
        named = [shutil.which(named[-1], path=environment.get("PATH", os.defpath)) or ""]
    if not named or "python" not in Path(named[0]).name:
        raise UserError(
            f"{printable(words[0])} is not a Python program, which engine fake needs; name the Python command that it "
            "runs: python train.py"
        )
    return named[0], None


def _behind_options(words: list[str]) -> list[str]:
    """What Python runs, behind its own options: `-m`, a module and its words, or a file and its words."""
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] not in {"-m", "-c", "-"}:
        at += 2 if words[at] in _WITH_VALUE else 1
    if words[at : at + 1] in (["-c"], ["-"]):
        raise UserError("engine fake needs a script or a module, not python -c or typed input")
    return words[at:]


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
