"""Running another program for its output, within a time limit that holds even when the program cannot be killed."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Sequence

import msgspec

from vramtui.core.base.errors import SourceFailed


class Output(msgspec.Struct, frozen=True):
    """What a program printed, errors after the rest, and its exit status."""

    text: str
    code: int


Runner = Callable[[Sequence[str], float], Output]


class LocalRunner:
    """Runs programs on this machine. One that hangs in the driver is not started again while it still hangs."""

    def __init__(self) -> None:
        self._stuck: subprocess.Popen[bytes] | None = None

    def __call__(self, command: Sequence[str], limit: float) -> Output:
        """Run it, without a shell.

        Args:
            command: the program and its arguments.
            limit: seconds.

        Raises:
            SourceFailed: it is not there, or does not end in time.
        """
        if self._stuck is not None and self._stuck.poll() is None:
            raise SourceFailed(f"{command[0]} still hangs in the driver (pid {self._stuck.pid}).", _HUNG_HINT)
        self._stuck = None
        environment = {**os.environ, "LC_ALL": "C"}
        try:
            process = subprocess.Popen(  # noqa: S603 - the callers' own commands
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            reason = (error.strerror or "it cannot be started").lower()
            raise SourceFailed(f"{command[0]}: {reason}.", "Install the NVIDIA driver's tools.") from error
        try:
            out, err = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            self._abandon(process)
            raise SourceFailed(f"{command[0]} gave no answer within {limit:g} s.", _HUNG_HINT) from None
        return Output((out + err).decode(errors="surrogateescape"), process.returncode)

    def _abandon(self, process: "subprocess.Popen[bytes]") -> None:
        """Kill it and whatever it started. What waits in the driver does not die, so nothing is waited for long."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        try:
            process.wait(0.2)
        except subprocess.TimeoutExpired:
            self._stuck = process


_HUNG_HINT = "The driver hangs; `dmesg` may name the GPU."
