"""`vramtui attach`: the probe, into a Python that runs already."""

import os
import platform
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vramtui.cli.common.exit_codes import NO_SOURCE, exit_on_user_error, fail
from vramtui.cli.run.child import hook_folder
from vramtui.core.base.errors import SourceFailed, UserError
from vramtui.core.base.units import format_bytes

if TYPE_CHECKING:
    from vramtui.core.observation.probe_messages import ObservedJob
    from vramtui.sources.probe_listener import ProbeListener

LOOK_EVERY = 0.05
TOO_OLD = (
    "attach needs Python 3.14 or newer, here and in the job, and this is {version}. Start the job with "
    "`vramtui run -- COMMAND`, or give it a line of code: import vramtui.probe; vramtui.probe.start()"
)
# The job's own Python runs this between two of its instructions: as the hook does at a start, under another name.
SCRIPT = """\
with open({hook!r}, encoding="utf-8") as _file:
    exec(compile(_file.read(), {hook!r}, "exec"), {{"__file__": {hook!r}, "__name__": "_vramtui_attached"}})
"""


def attach(
    pid: Annotated[int, typer.Argument(min=1, help="A Python process of yours that runs PyTorch.")],
    timeout: Annotated[float, typer.Option(min=0, help="Seconds to wait for its first message.")] = 10.0,
) -> None:
    """Load the probe into a running job (Python 3.14 or newer): from then on the dashboard shows it from the inside."""
    with exit_on_user_error():
        load = getattr(sys, "remote_exec", None)
        if load is None:
            fail(NO_SOURCE, TOO_OLD.format(version=platform.python_version()))
        _own(pid)
        from vramtui.sources.probe_listener import ProbeListener  # noqa: PLC0415 - only here

        listener = ProbeListener(f"attach-{os.getpid()}")
        script = listener.path.with_suffix(".py")
        try:
            script.write_text(SCRIPT.format(hook=str(hook_folder() / "sitecustomize.py")), encoding="utf-8")
            _load(load, pid, script)
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


def _load(load: Any, pid: int, script: Path) -> None:  # noqa: ANN401 - Python's own function, from 3.14 on
    try:
        load(pid, str(script))
    except PermissionError:
        raise SourceFailed(
            f"The system does not let this process attach to pid {pid}.",
            "Look at /proc/sys/kernel/yama/ptrace_scope, or start the job with `vramtui run`.",
        ) from None
    except (OSError, RuntimeError) as error:
        raise SourceFailed(f"Python cannot load the probe into pid {pid}: {error}.") from error


def _first_word(listener: "ProbeListener", pid: int, timeout: float) -> "ObservedJob | None":
    until = time.monotonic() + timeout
    while True:
        found = next((job for job in listener.jobs() if job.pid == pid and job.beat is not None), None)
        if found is not None or time.monotonic() >= until:
            return found
        time.sleep(LOOK_EVERY)


def _allocation(job: "ObservedJob") -> str:
    if job.beat is None or not job.beat.devices:
        return ""
    held = job.beat.devices[0]
    return f": {format_bytes(held.allocated)} allocated, {format_bytes(held.reserved)} reserved on cuda:{held.index}"
