"""`vramtui attach`: the probe, into a Python that runs already, whichever one vramtui itself runs under."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vramtui.cli.common.exit_codes import NO_SOURCE, exit_on_user_error, fail
from vramtui.cli.run.child import hook_folder
from vramtui.core.base.errors import SourceFailed, UserError, os_reason
from vramtui.core.base.text import printable
from vramtui.core.base.units import format_bytes

if TYPE_CHECKING:
    from vramtui.core.observation.probe_messages import ObservedJob
    from vramtui.sources.probe_listener import ProbeListener

LOOK_EVERY = 0.05
HOOK = str(hook_folder() / "sitecustomize.py")
TOO_OLD = (
    "pid {pid} runs Python {version}, and code can be loaded into a running Python from 3.14 on. Start the job with "
    "`vramtui run -- COMMAND`, or put this line at its beginning: import runpy; runpy.run_path({hook!r})"
)
NO_PYTHON = "pid {pid} runs {program}, which is no Python that answers"
# What the job's own interpreter is asked: only one of its release can load anything into it.
RELEASE = "import sys; print('.'.join(map(str, sys.version_info[:3])))"
LOAD = "import sys; sys.remote_exec(int(sys.argv[1]), sys.argv[2])"
OLDEST = (3, 14)
LIMIT = 20.0
# The job's own Python runs this between two of its instructions: as the hook does at a start, under another name.
SCRIPT = """\
with open({hook!r}, encoding="utf-8") as _file:
    exec(compile(_file.read(), {hook!r}, "exec"), {{"__file__": {hook!r}, "__name__": "_vramtui_attached"}})
"""


def attach(
    pid: Annotated[int, typer.Argument(min=1, help="A Python process of yours that runs PyTorch.")],
    timeout: Annotated[float, typer.Option(min=0, help="Seconds to wait for its first message.")] = 10.0,
) -> None:
    """Load the probe into a running job (its Python 3.14 or newer): the dashboard shows it from the inside then."""
    with exit_on_user_error():
        _own(pid)
        python = _interpreter(pid)
        from vramtui.sources.probe_listener import ProbeListener

        listener = ProbeListener(f"attach-{os.getpid()}")
        script = listener.path.with_suffix(".py")
        try:
            script.write_text(SCRIPT.format(hook=HOOK), encoding="utf-8")
            _load(python, pid, script)
            job = _first_word(listener, pid, timeout)
        finally:
            script.unlink(missing_ok=True)
            listener.close()
        if job is None:
            fail(
                NO_SOURCE,
                f"pid {pid} has not reported within {timeout:g} s: it is in a long call, has no torch, or does "
                "nothing with it. It will be heard as soon as it does.",
            )
        sys.stdout.write(f"pid {pid} now has the probe{_allocation(job)}\n")


def _own(pid: int) -> None:
    """Raises UserError where there is no such process, or it is not this user's."""
    try:
        owner = Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        raise UserError(f"there is no process {pid}") from None
    if owner != os.getuid():
        raise UserError(f"pid {pid} is another user's; only their own vramtui can attach to it")


def _interpreter(pid: int) -> str:
    """The program that the process runs.

    Raises:
        UserError: it is no Python, or one that loads nothing into a running process.
    """
    try:
        program = str(Path(f"/proc/{pid}/exe").readlink()).removesuffix(" (deleted)")
    except OSError as error:
        raise UserError(f"the program of pid {pid} cannot be read: {os_reason(error)}") from None
    release = ask_python(program, RELEASE).stdout.strip() if "python" in Path(program).name else ""
    if not release:
        raise UserError(NO_PYTHON.format(pid=pid, program=printable(program)))
    if tuple(map(int, release.split(".")[:2])) < OLDEST:
        raise UserError(TOO_OLD.format(pid=pid, version=release, hook=HOOK))
    return program


def ask_python(python: str, code: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """What that interpreter says when it runs `code` without its site."""
    command = [python, "-I", "-S", "-c", code, *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)  # noqa: S603 - the job's own Python
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, 1, "", str(error))


def _load(python: str, pid: int, script: Path) -> None:
    done = ask_python(python, LOAD, str(pid), str(script))
    if not done.returncode:
        return
    if "PermissionError" in done.stderr:
        raise SourceFailed(
            f"The system does not let this process attach to pid {pid}.",
            "Look at /proc/sys/kernel/yama/ptrace_scope, or start the job with `vramtui run`.",
        )
    reason = done.stderr.strip().rpartition("\n")[2]
    raise SourceFailed(f"Python cannot load the probe into pid {pid}: {printable(reason)}.")


def _first_word(listener: "ProbeListener", pid: int, timeout: float) -> "ObservedJob | None":
    until = time.monotonic() + timeout
    while True:
        attached = next((job for job in listener.jobs() if job.pid == pid and job.beat is not None), None)
        if attached is not None or time.monotonic() >= until:
            return attached
        time.sleep(LOOK_EVERY)


def _allocation(job: "ObservedJob") -> str:
    if job.beat is None or not job.beat.devices:
        return ""
    memory = job.beat.devices[0]
    return (
        f": {format_bytes(memory.allocated)} allocated, {format_bytes(memory.reserved)} reserved on cuda:{memory.index}"
    )
