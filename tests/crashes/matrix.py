"""Lets writes fail, and kills the writer, at each system call; the file is then the old one or the new one."""

import ctypes
import errno
import os
import shutil
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.crashes.subjects import NEW, OLD, Subject

NOTHING, FAIL, FULL, KILL, HALF, KILL_AFTER = range(6)
COUNT_ALL = 1 << 30
# What happens at a call: (in words, the shim's number, errno).
WAYS = (
    ("is refused (EIO)", FAIL, errno.EIO),
    ("is refused (ENOSPC)", FAIL, errno.ENOSPC),
    ("finds the disk full from there on", FULL, errno.ENOSPC),
    ("is not reached: killed", KILL, 0),
    ("is half done: killed", HALF, 0),
    ("is done: killed", KILL_AFTER, 0),
)
DONE, SAID_NO, BROKE, KILLED = 0, 3, 4, 137


@dataclass(frozen=True)
class Case:
    subject: Subject
    at: int
    way: tuple[str, int, int]

    @property
    def name(self) -> str:
        return f"{self.subject.name}: call {self.at} {self.way[0]}"


class Matrix:
    """All cases of some subjects.

    Args:
        shim: the library of crash_shim.c, which stands in front of the C library in this process.
        folder: where everything is done; CRASH_FOLDER.
    """

    def __init__(self, shim: ctypes.CDLL, folder: Path) -> None:
        self._shim, self._work = shim, folder / "work"
        # Where nothing fails.
        self._ready, self._broke = folder.with_name("ready"), folder.with_name("broke")

    def cases(self, subject: Subject, every: int) -> Iterator[Case]:
        self._make_ready(subject)
        calls = self._child(subject, COUNT_ALL, (0, KILL, 0), count=True)
        for at in range(0, calls, every):
            for way in WAYS:
                yield Case(subject, at, way)

    def judge(self, case: Case) -> str:
        subject = case.subject
        self._begin()
        code = self._child(subject, case.at, case.way)
        if code not in (DONE, SAID_NO, KILLED):
            return f"a traceback: {self._broke.read_text() if code == BROKE else code}"
        state = self._state(subject)
        if state not in (OLD, NEW):
            return f"neither: {state}"
        if code == DONE and state != NEW:
            return "it is said to be written, and the old one is there"
        if code == SAID_NO and case.way[1] == FULL and (left := self._left_behind()):
            return f"left behind: {left}"
        return self._gone_on_with(subject) if subject.is_gone_on_with else ""

    def _state(self, subject: Subject) -> str:
        try:
            return subject.state(self._work)
        except Exception as error:  # noqa: BLE001 - whatever cannot be read is neither
            return f"{type(error).__name__}: {error}"

    def _gone_on_with(self, subject: Subject) -> str:
        try:
            subject.change(self._work)
        except Exception as error:  # noqa: BLE001 - as above
            return f"it cannot be gone on with: {type(error).__name__}: {error}"
        state = self._state(subject)
        return "" if state == NEW else f"gone on with: {state}"

    def _left_behind(self) -> list[str]:
        before = {path.name for path in self._ready.iterdir()}
        known = ("new.", "history.sqlite3", "made.toml")  # a recording's beginning; SQLite's own files
        names = (path.name for path in self._work.iterdir())
        return [name for name in names if name not in before and not name.startswith(known)]

    def _make_ready(self, subject: Subject) -> None:
        shutil.rmtree(self._ready, ignore_errors=True)
        self._ready.mkdir()
        subject.prepare(self._ready)
        self._begin()

    def _begin(self) -> None:
        shutil.rmtree(self._work, ignore_errors=True)
        shutil.copytree(self._ready, self._work)

    def _child(self, subject: Subject, at: int, way: tuple[object, int, int], *, count: bool = False) -> int:
        ready, tell = os.pipe()
        child = os.fork()
        if child == 0:
            code = BROKE
            try:
                self._shim.crash_arm(at, way[1], way[2])
                subject.change(self._work)
                code = DONE
            except BaseException as error:  # noqa: BLE001 - told by the exit code
                self._broke.write_text(traceback.format_exc())
                code = SAID_NO if isinstance(error, subject.raises) else BROKE
            finally:
                calls = self._shim.crash_count()
                self._shim.crash_arm(0, NOTHING, 0)
                os.write(tell, calls.to_bytes(4, "little"))
                os._exit(code)
        os.close(tell)
        calls = int.from_bytes(os.read(ready, 4), "little")
        os.close(ready)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return calls if count else code
