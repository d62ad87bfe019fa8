"""Runs go into the history on a thread of its own: a disk may be slow, locked, full or read-only."""

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from vramtui import __version__
from vramtui.core.base.errors import UserError

if TYPE_CHECKING:
    from vramtui.core.runs.run import Run

MOST_WAITING = 4096


class RunHistoryFile(Protocol):
    """Where runs are kept."""

    def keep(self, run: "Run", /) -> object:
        """Add a run, or what is known of it now.

        Raises:
            UserError: it cannot be written.
        """
        ...


class RunWriter(Protocol):
    """Keeps runs, on a thread of its own. Nothing that it does may end the dashboard or hold it up."""

    @property
    def problem(self) -> str:
        """The sentence that says why the latest ones are not kept; empty where they are."""
        ...

    def keep(self, runs: "Sequence[Run]") -> None:
        """Take the latest word on these runs, and return at once."""
        ...

    def finish(self, runs: "Sequence[Run]", patience: float) -> None:
        """Take the last words, and wait at most `patience` seconds until they are kept."""
        ...


class HistoryRunWriter:
    """Keeps the latest word on each run. What cannot be written now is tried again with the next word on any run.

    Args:
        open_history: where runs are kept; it is asked for when the first one is.
    """

    __slots__ = ("_asked", "_changed", "_done", "_open_history", "_thread", "_waiting", "problem")

    def __init__(self, open_history: Callable[[], RunHistoryFile]) -> None:
        self._open_history = open_history
        self._waiting: dict[str, Run] = {}
        self._changed = threading.Condition()
        self._asked = 0
        self._done = 0
        self._thread: threading.Thread | None = None
        self.problem = ""

    def keep(self, runs: "Sequence[Run]") -> None:
        """Take these, and return at once; a later word on a run replaces one that still waits."""
        with self._changed:
            for run in runs:
                self._waiting.pop(run.key, None)
                self._waiting[run.key] = run
            while len(self._waiting) > MOST_WAITING:
                del self._waiting[next(iter(self._waiting))]
            self._asked += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._write, name="keep runs", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def finish(self, runs: "Sequence[Run]", patience: float) -> None:
        """Take these, and wait until all were tried, for at most `patience` seconds."""
        if not runs and self._thread is None:
            return
        self.keep(runs)
        with self._changed:
            asked = self._asked
            self._changed.wait_for(lambda: self._done >= asked, patience)

    def _write(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._asked > self._done)
                asked, taken = self._asked, self._waiting
                self._waiting = {}
            problem = ""
            for key, run in taken.items():
                # After one failure the others would fail as well, each as slowly.
                problem = problem or self._try(run)
                if problem:
                    with self._changed:
                        self._waiting.setdefault(key, run)
            self.problem = problem
            with self._changed:
                self._done = asked
                self._changed.notify_all()

    def _try(self, run: "Run") -> str:
        """Keep one; the sentence that says why not, or nothing."""
        try:
            self._open_history().keep(msgspec.structs.replace(run, versions={"vramtui": __version__, **run.versions}))
        except UserError as error:
            return str(error)
        return ""
