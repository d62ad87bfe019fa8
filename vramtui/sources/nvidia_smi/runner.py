"""Running another program for its output, within limits that hold even when the program cannot be killed."""

import contextlib
import os
import selectors
import signal
import subprocess
from collections.abc import Callable, Sequence
from time import monotonic

import msgspec

from vramtui.core.base.errors import SourceFailed
from vramtui.core.base.units import MIB

MOST_OUTPUT = 8 * MIB  # bytes; the tables of 16 cards and 4,096 processes take less than one
_CHUNK = 1 << 16


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
            SourceFailed: it is not there, does not end in time, or prints more than any answer has.
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
        out, err = bytearray(), bytearray()
        try:
            _read(process, out, err, limit)
        except subprocess.TimeoutExpired:
            self._abandon(process)
            if out:
                raise SourceFailed(f"{command[0]} still prints after {limit:g} s.", _ODD_HINT) from None
            raise SourceFailed(f"{command[0]} gave no answer within {limit:g} s.", _HUNG_HINT) from None
        except OverflowError:
            self._abandon(process)
            raise SourceFailed(f"{command[0]} prints without an end.", _ODD_HINT) from None
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


def _read(process: "subprocess.Popen[bytes]", out: bytearray, err: bytearray, limit: float) -> None:
    """Take what it prints until it has ended.

    Raises:
        TimeoutExpired: it has not ended after `limit` seconds.
        OverflowError: it printed more than MOST_OUTPUT.
    """
    until = monotonic() + limit
    with selectors.PollSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ, out)  # type: ignore[arg-type]  # pipes, both
        selector.register(process.stderr, selectors.EVENT_READ, err)  # type: ignore[arg-type]  # as above
        while selector.get_map():
            if (left := until - monotonic()) <= 0:
                raise subprocess.TimeoutExpired(process.args, limit)
            for key, _ in selector.select(left):
                chunk = os.read(key.fd, _CHUNK)
                key.data.extend(chunk)
                if not chunk:
                    selector.unregister(key.fileobj)
            if len(out) + len(err) > MOST_OUTPUT:
                raise OverflowError
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    process.wait(max(0.0, until - monotonic()))


_HUNG_HINT = "The driver hangs; `dmesg` may name the GPU."
_ODD_HINT = "Run `nvidia-smi` by hand to see what it prints; `type -a nvidia-smi` says which program that is."
