"""Past runs: read, deleted and reported on threads, for the History screen."""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from vramtui.app.context import AppContext, Feature
from vramtui.core.base.errors import UserError

if TYPE_CHECKING:
    from vramtui.app.history.screen import HistoryModel, HistoryView, RunStore
    from vramtui.app.ui.view_screen import ViewScreen
    from vramtui.core.runs.run import StoredRun

LOOK_EVERY = 5.0  # seconds between two looks for changes of the history while it is shown


class HistoryController(Feature):
    """Without a `store` there is nothing to show."""

    __slots__ = ("_looked_at", "_model", "_shared", "_stamp", "is_reading", "store")

    def __init__(self, shared: AppContext, store: "RunStore | None") -> None:
        self._shared, self.store = shared, store
        self._model: HistoryModel | None = None
        self._stamp: object = None
        self._looked_at = float("-inf")
        self.is_reading = False

    @property
    def model(self) -> "HistoryModel":
        if self._model is None:
            from vramtui.app.history.screen import HistoryModel

            self._model = HistoryModel()
        return self._model

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

    def read(self) -> None:
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
            stamp, runs, problem = None, None, ""
            try:
                stamp = store.stamp()
                runs = store.runs() if stamp != former else None
            except (UserError, OSError) as error:
                stamp, problem = None, str(error)
            self._shared.app.call_later(take, stamp, runs, problem)

        def take(stamp: object, runs: "tuple[StoredRun, ...] | None", problem: str) -> None:
            self.is_reading, self._stamp = False, stamp
            if problem:
                self.model.fail(problem)
            elif runs is not None:
                self.model.take(runs)
            self._shared.redraw.now()

        threading.Thread(target=read, name="read history", daemon=True).start()

    def report(self, run: "StoredRun") -> None:
        store = self.store
        if store is not None:
            self._in_background(f"Report of run {run.id} written", lambda: store.report(run))

    def forget(self, run: "StoredRun") -> None:
        store = self.store
        if store is not None:
            self._in_background(f"Run {run.id} deleted", lambda: store.forget(run.id))

    def _in_background(self, title: str, work: Callable[[], list[str] | None]) -> None:
        """Do `work` on a thread, notify the user, and read the history again."""

        def ended(lines: list[str], problem: str) -> None:
            if problem:
                self._shared.app.notify(problem, title="History", severity="error")
            else:
                self._shared.app.notify("\n".join(lines) or "Done.", title=title)
            self.read()

        def run() -> None:
            try:
                lines, problem = work() or [], ""
            except (UserError, OSError) as error:
                lines, problem = [], str(error)
            self._shared.app.call_later(ended, lines, problem)

        threading.Thread(target=run, name="history", daemon=True).start()
