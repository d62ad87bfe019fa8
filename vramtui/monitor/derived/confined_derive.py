"""Derive presets in a child with limits: the files that a process names are another user's, and so are its sizes.

The child reads them, and makes the estimate that this side is about to make. It has so much memory, so much of a
processor for each process, and so much time; where one of these ends it, a sentence says so, and this side has read
nothing. It ends with the one that asks.
"""

import contextlib
import json
import os
import resource
import select
import subprocess
import sys
import time

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.units import GIB
from vramtui.core.schema.preset import PresetFile

MEMORY = 1 * GIB  # of address space: Python and what an estimate needs of it have 0.3
PROCESSOR = 3  # seconds for each process that is looked into
PATIENCE = 8.0  # seconds of any clock for each: others use the processor as well, and a folder may hang
# As `-m` would, but never from the current folder, which may hold anybody's files.
_START = f"import sys; del sys.path[0]; from {__name__} import answer_all; answer_all()"


class ConfinedError(UserError):
    """The child was ended by a limit, or ended by itself."""


class _Answer(msgspec.Struct):
    found: PresetFile | None = None
    failure: str = ""


class ConfinedDerive:
    """Asks the child, which it starts where there is none.

    Args:
        patience: seconds that an answer may take.
    """

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._child: subprocess.Popen[bytes] | None = None

    def __call__(self, pid: int, command: str) -> PresetFile | None:
        """The preset that a process of this host amounts to; None where it names no model.

        Raises:
            ConfinedError: finding it took more than it may.
        """
        child = self._child = self._child or _started()
        question = json.dumps({"pid": pid, "command": command})  # in ASCII, whatever the command holds
        text = b""
        with contextlib.suppress(OSError):
            assert child.stdin is not None
            child.stdin.write(question.encode() + b"\n")
            child.stdin.flush()
            text = self._line(child)
        if text.endswith(b"\n"):
            answer = msgspec.json.decode(text, type=_Answer)
            if answer.failure:
                raise ConfinedError(answer.failure)
            return answer.found
        is_late = child.poll() is None and not _has_ended(child)
        self.close()
        why = f"{self._patience:.0f} s" if is_late else f"{PROCESSOR} s of a processor or {MEMORY // GIB} GiB of memory"
        raise ConfinedError(f"its model is not estimated: what pid {pid} names takes more than {why}")

    def close(self) -> None:
        """End the child."""
        child, self._child = self._child, None
        if child is None:
            return
        with contextlib.suppress(OSError):
            child.kill()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(1.0)

    def _line(self, child: "subprocess.Popen[bytes]") -> bytes:
        """What the child answers, to the end of its line; less where it ends or is late."""
        assert child.stdout is not None
        descriptor, until, text = child.stdout.fileno(), time.monotonic() + self._patience, b""
        poll = select.poll()  # `select` knows no descriptor beyond 1023
        poll.register(descriptor, select.POLLIN)
        while not text.endswith(b"\n") and (left := until - time.monotonic()) > 0:
            if poll.poll(left * 1000):
                piece = os.read(descriptor, 1 << 16)
                if not piece:
                    break
                text += piece
        return text


def _started() -> "subprocess.Popen[bytes]":
    return subprocess.Popen(  # noqa: S603 - our own module, by this Python
        [sys.executable, "-c", _START],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for this process
    )


def _has_ended(child: "subprocess.Popen[bytes]") -> bool:
    """Whether it ends within a moment: its output is closed before it can be waited for."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(0.2)
        return True
    return False


def answer_all() -> None:
    """In the child: answer a line after another, until there is none."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    allowed = MEMORY if most == resource.RLIM_INFINITY else min(MEMORY, most)
    resource.setrlimit(resource.RLIMIT_AS, (allowed, allowed))
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    for line in sys.stdin.buffer:
        question = json.loads(line)
        used = resource.getrusage(resource.RUSAGE_SELF)
        soft = int(used.ru_utime + used.ru_stime) + PROCESSOR + 1
        resource.setrlimit(resource.RLIMIT_CPU, (soft if most == resource.RLIM_INFINITY else min(soft, most), most))
        sys.stdout.buffer.write(msgspec.json.encode(_answer(question["pid"], question["command"])) + b"\n")
        sys.stdout.buffer.flush()


def _answer(pid: int, command: str) -> _Answer:
    from vramtui.presets.importers.derived import derive  # noqa: PLC0415 - in the child alone

    try:
        found = derive(pid, command)
        if found is not None:
            _try_out(found)
    except MemoryError:
        return _Answer(failure=f"its model is not estimated: what pid {pid} names takes more than {MEMORY // GIB} GiB")
    except Exception:  # noqa: BLE001 - files of any program: one that cannot be read names no model
        return _Answer()
    return _Answer(found)


def _try_out(found: PresetFile) -> None:
    """Make the estimate that whoever asks will make, so that it ends here where it does not end."""
    from vramtui.core.estimate.devices import card  # noqa: PLC0415 - in the child alone
    from vramtui.monitor.predictor import LazyUsual  # noqa: PLC0415 - as above

    with contextlib.suppress(UserError):  # it is told where the estimate is asked for
        LazyUsual().estimate(found.preset.workload, card("H100"))
