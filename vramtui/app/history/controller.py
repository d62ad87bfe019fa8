"""Past runs: read, removed and reported on threads, for the History screen."""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from vramtui.app.context import AppContext, Feature
from vramtui.core.base.errors import UserError

if TYPE_CHECKING:
    from vramtui.app.history.model import HistoryModel, HistoryView, RunStore
    from vramtui.app.ui.view_screen import ViewScreen
    from vramtui.core.runs.run import Run, StoredRun


LOOK_EVERY = 5.0  # seconds between two looks whether the history has changed, while it is shown


class _Read(NamedTuple):
    """The history was looked at; `stamp` is what it looked like, `runs` is None where it has not changed since."""

    stamp: object
    runs: "tuple[StoredRun, ...] | None" = None
    problem: str = ""


class HistoryController(Feature):
    """Without a `store` there is nothing to show.

    Args:
        shared: the dashboard's own parts.
        store: where past runs are.
    """

    __slots__ = ("_looked_at", "_model", "_shared", "_stamp", "is_reading", "store")

    def __init__(self, shared: AppContext, store: "RunStore | None") -> None:
        self._shared = shared
        self.store = store
        self._model: HistoryModel | None = None
        self._stamp: object = None
        self._looked_at = float("-inf")
        self.is_reading = False

    @property
    def model(self) -> "HistoryModel":
        if self._model is None:
            from vramtui.app.history.model import HistoryModel

            self._model = HistoryModel()
        return self._model

    @property
    def has_store(self) -> bool:
        return self.store is not None

    @property
    def busy(self) -> bool:
        return self.is_reading

    def screen(self) -> "ViewScreen":
        from vramtui.app.history.screen import HistoryScreen

        return HistoryScreen(self._shared, self)

    def view(self) -> "HistoryView":
        now = self._shared.clock()
        if not 0 <= now - self._looked_at < LOOK_EVERY:  # the clock may have been set back
            self.read()
        note = self.store.note if self.store is not None else ""
        return msgspec.structs.replace(self.model.view(now), note=note)

    # --- reading -------------------------------------------------------------------------------------------------

    def read(self) -> None:
        """Look whether the history has changed, and read it where it has."""
        store = self.store
        if store is None:
            self.model.take(())
            return
        self._looked_at = self._shared.clock()
        if self.is_reading:
            return
        self.is_reading = True
        former = self._stamp

        def read() -> None:
            self._shared.app.call_later(self._take, _read(store, former))

        threading.Thread(target=read, name="read history", daemon=True).start()

    def _take(self, result: _Read) -> None:
        self.is_reading = False
        self._stamp = result.stamp
        if result.problem:
            self.model.fail(result.problem)
        elif result.runs is not None:
            self.model.take(result.runs)
        self._shared.redraw.now()

    def of_preset(self, key: str) -> "tuple[Run, ...]":
        runs = [stored.run for stored in self.model.view(self._shared.clock()).runs if stored.run.preset == key]
        chosen = self.model.selected
        if chosen is not None and chosen.run in runs:
            runs.remove(chosen.run)
            runs.insert(0, chosen.run)
        return tuple(runs)

    # --- what is done with a run ---------------------------------------------------------------------------------

    def report(self, run: "StoredRun") -> None:
        store = self.store
        if store is not None:
            self._in_background(f"Report of run {run.id} written", lambda: store.report(run))

    def forget(self, run: "StoredRun") -> None:
        store = self.store
        if store is None:
            return

        def forget() -> list[str]:
            store.forget(run.id)
            return []

        self._in_background(f"Run {run.id} deleted", forget)

    def _in_background(self, done: str, work: Callable[[], list[str]]) -> None:
        """Do `work` on a thread, then say so."""

        def run() -> None:
            try:
                lines, problem = work(), ""
            except (UserError, OSError) as error:
                lines, problem = [], str(error)
            self._shared.app.call_later(self._report, done, lines, problem)

        threading.Thread(target=run, name="history", daemon=True).start()

    def _report(self, title: str, lines: list[str], problem: str) -> None:
        """Say what became of it, and look at the history again."""
        if problem:
            self._shared.app.notify(problem, title="History", severity="error", markup=False)
        else:
            self._shared.app.notify("\n".join(lines) or "Done.", title=title, markup=False)
        self.read()


def _read(store: "RunStore", former: object) -> _Read:
    """The runs, unless they are as they were when the history looked like `former`."""
    try:
        stamp = store.stamp()
        if stamp == former:
            return _Read(stamp)
        return _Read(stamp, store.runs())
    except (UserError, OSError) as error:
        return _Read(None, problem=str(error))
