"""The History screen's actions, and the threads that read, remove and report past runs for it."""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from vramtui.app.messages import PastRead, RunAnswered, RunChosen, RunFilterTyped, RunSortChosen
from vramtui.app.monitor.dashboard_base import DashboardBase
from vramtui.app.state import View
from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable

if TYPE_CHECKING:
    from vramtui.app.history.model import HistoryModel, RunStore
    from vramtui.core.runs.calibration import Calibration
    from vramtui.core.runs.run import StoredRun

PLACE = "history"
LOOK_EVERY = 5.0  # seconds between two looks whether the history has changed, while it is shown
NOTHING = "No run is selected: the list is empty."


class HistoryController(DashboardBase):
    """What the History screen's keys ask for. Without a `past` there is nothing to show."""

    past: "RunStore | None" = None
    _past_desk: "HistoryModel | None" = None
    _past_stamp: object = None
    _past_reading = False
    _past_looked_at = float("-inf")

    @property
    def past_desk(self) -> "HistoryModel":
        """The runs that were read, and what was chosen among them."""
        if self._past_desk is None:
            from vramtui.app.history.model import HistoryModel  # noqa: PLC0415 - not needed for the first paint

            self._past_desk = HistoryModel()
        return self._past_desk

    @property
    def is_busy(self) -> bool:
        """While the history is read."""
        return self._past_reading or super().is_busy

    def complete(self, view: View, place: str) -> View:
        """The History screen's part."""
        view = super().complete(view, place)
        if place != PLACE:
            return view
        if self._now() - self._past_looked_at >= LOOK_EVERY:
            self.read_past()
        shown = self.past_desk.view(self._now())
        return msgspec.structs.replace(
            view, past=msgspec.structs.replace(shown, note=self.past.note if self.past else "")
        )

    # --- reading -------------------------------------------------------------------------------------------------

    def read_past(self) -> None:
        """Look whether the history has changed, and read it where it has."""
        past = self.past
        if past is None:
            self.past_desk.take(())
            return
        self._past_looked_at = self._now()
        if self._past_reading:
            return
        self._past_reading = True
        former, sample = self._past_stamp, self.desk.sample
        host = past.host or (sample.host.name if sample is not None else "")

        def read() -> None:
            from vramtui.core.runs.calibration import calibrate  # noqa: PLC0415 - as above

            try:
                stamp = past.stamp()
                if stamp == former:
                    self.post_message(PastRead(stamp, None))
                    return
                runs = past.runs()
                self.post_message(PastRead(stamp, runs, calibrate((kept.run for kept in runs), host)))
            except (UserError, OSError) as error:
                self.post_message(PastRead(None, None, problem=str(error)))

        threading.Thread(target=read, name="read history", daemon=True).start()

    def on_past_read(self, message: PastRead) -> None:
        """Show what was read."""
        self._past_reading = False
        self._past_stamp = message.stamp
        if message.problem:
            self.past_desk.fail(message.problem)
            self.unread(message.problem)
        elif message.runs is not None:
            self.past_desk.take(message.runs)
            self.learnt(message.calibration)
        self.draw()

    def unread(self, problem: str) -> None:
        """The history could not be read, and this is why."""

    def learnt(self, calibration: "Calibration | None") -> None:
        """The history was read, and this is what its runs teach."""
        self.past_desk.calibration = calibration

    # --- the list ------------------------------------------------------------------------------------------------

    def on_run_chosen(self, message: RunChosen) -> None:
        """Another row has the cursor."""
        self.past_desk.choose(message.number)
        self.draw()

    def on_run_sort_chosen(self, message: RunSortChosen) -> None:
        """A heading was clicked."""
        self.past_desk.sort_by(message.column)
        self.draw()

    def action_sort_runs(self, direction: int) -> None:
        """Sort by the next column."""
        self.past_desk.sort_next(direction)
        self.draw()

    def action_reverse_runs(self) -> None:
        """The other way round."""
        self.past_desk.sort_by(self.past_desk.sort)
        self.draw()

    def action_filter_runs(self) -> None:
        """Ask for the words that runs must hold."""
        from vramtui.app.ui.filter_bar import RunFilterBar  # noqa: PLC0415 - loads Input

        screen = self.place
        if screen is not None and screen.PLACE == PLACE and not screen.query(RunFilterBar):
            screen.mount(RunFilterBar(self.past_desk.filter), before="KeyBar")

    def on_run_filter_typed(self, message: RunFilterTyped) -> None:
        """Show the runs that hold the words."""
        self.past_desk.set_filter(message.text)
        self.draw()

    def action_leave_history(self) -> None:
        """Escape: first the filter, then the screen."""
        if self.past_desk.filter:
            self.past_desk.set_filter("")
            self.draw()
        else:
            self.action_show("watch")

    # --- one run -------------------------------------------------------------------------------------------------

    def action_open_run(self) -> None:
        """Details of the selected run."""
        from vramtui.app.history.run_window import RunWindow  # noqa: PLC0415 - not needed for the first paint

        kept = self._chosen_run()
        if kept is not None and self.palette is not None:
            self.push_screen(RunWindow(kept, self.palette, self._now()))

    def action_report_run(self) -> None:
        """Write a report of the selected run."""
        kept, past = self._chosen_run(), self.past
        if kept is not None and past is not None:
            self._aside(f"Report of run {kept.id} written", lambda: past.report(kept))

    def action_forget_run(self) -> None:
        """Delete the selected run (asks first)."""
        kept, past = self._chosen_run(), self.past
        if kept is None or past is None:
            return
        from vramtui.app.ui.confirm import Confirm  # noqa: PLC0415 - not needed for the first paint

        run = kept.run
        what = f"run {kept.id}, {printable(run.preset or run.command or 'without a preset')} on {printable(run.host)}"
        question = f"Remove {what}, from the history? This cannot be undone."

        def forget() -> list[str]:
            past.forget(kept.id)
            return []

        def answered(yes: bool | None) -> None:
            if yes:
                self._aside(f"Run {kept.id} deleted", forget)

        self.push_screen(Confirm("Delete this run?", question, "y delete · n or Esc cancel"), answered)

    def _chosen_run(self) -> "StoredRun | None":
        kept = self.past_desk.chosen
        if kept is None:
            self.notify(NOTHING, markup=False)
        return kept

    def _aside(self, done: str, work: Callable[[], list[str]]) -> None:
        """Do `work` on a thread, then say so."""

        def run() -> None:
            try:
                self.post_message(RunAnswered(done, work()))
            except (UserError, OSError) as error:
                self.post_message(RunAnswered("History", [], str(error)))

        threading.Thread(target=run, name="history", daemon=True).start()

    def on_run_answered(self, message: RunAnswered) -> None:
        """Say what became of it, and look at the history again."""
        if message.problem:
            self.notify(message.problem, title=message.title, severity="error", markup=False)
        else:
            self.notify("\n".join(message.lines) or "Done.", title=message.title, markup=False)
        self.read_past()
