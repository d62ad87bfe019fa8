"""Past runs: read, removed and reported on threads, for the History screen; and what they teach, which corrects
estimates once a key or the settings switch that on.
"""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from vramtui.app.context import AppContext, Feature
from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.runs.calibration import ENOUGH, calibrate, calibrated
from vramtui.core.schema.workload import Workload

if TYPE_CHECKING:
    from vramtui.app.history.model import HistoryModel, HistoryView, RunStore
    from vramtui.app.ui.view_screen import ViewScreen
    from vramtui.core.runs.calibration import Calibration
    from vramtui.core.runs.run import Run, StoredRun


NOTHING_YET = (
    "Too few past runs on this host to calibrate from: {enough} finished runs of a kind are needed. Those of `vramtui"
    " run` are the most useful."
)
LOOK_EVERY = 5.0  # seconds between two looks whether the history has changed, while it is shown


class CalibrationSwitch:
    """Whether estimates go by what runs teach, and what that is. What is recorded is never corrected.

    Args:
        shared: the dashboard's own parts.
        on: as the settings have it.

    Attributes:
        on: whether it is asked for; it `applies` once enough is known.
    """

    __slots__ = ("_asked", "_known", "_shared", "on")

    def __init__(self, shared: AppContext, *, on: bool) -> None:
        self._shared = shared
        self.on = on
        self._asked = False
        self._known: Calibration | None = None

    @property
    def applies(self) -> bool:
        """Whether estimates are corrected now."""
        return self.on and self._known is not None and self._known.usable > 0

    def toggle(self) -> None:
        """Turn it on or off; whether that could be done is shown."""
        self.on = self._asked = not self.on

    def take(self, calibration: "Calibration | None") -> None:
        first, self._known = self._known is None, calibration
        self.apply()
        if first and self._asked:
            self.notify()

    def fail(self, problem: str) -> None:
        """The history cannot be read: say so where it was turned on; the History screen shows it anyway."""
        if self._asked and not self.applies:
            self.on = self._asked = False
            self._shared.app.notify(problem, title="Calibration", severity="error", markup=False)

    def apply(self) -> None:
        """Let the predictor correct its estimates, or no longer."""
        self._shared.state.predictor.correct_by(self._corrected if self.applies else None)

    def notify(self) -> None:
        """Say whether it is on, and what it goes by."""
        notify = self._shared.app.notify
        if not self.on:
            notify("Estimates are shown uncorrected.", title="Calibration off", markup=False)
        elif self.applies:
            count = self._known.usable if self._known is not None else 0
            what = f"{count} constant{'s' if count > 1 else ''} learned from this host's runs"
            notify(f"Estimates use {what}; K turns this off.", title="Calibration on", markup=False)
        else:
            notify(NOTHING_YET.format(enough=ENOUGH), title="Calibration", severity="warning", markup=False)

    def _corrected(self, estimate: Estimate, workload: Workload, device: Device) -> Estimate:
        known, sample = self._known, self._shared.state.sample
        if known is None:
            return estimate

        driver = sample.host.driver_version if sample is not None else None
        share = known.share(estimate.method, _kind(workload.model), _kind(workload.run))
        return calibrated(estimate, known.context(device.name, driver), share)


def _kind(table: msgspec.Struct) -> str:
    """What a preset calls the kind of its model or its run."""
    return str(type(table).__struct_config__.tag)


class _Read(NamedTuple):
    """The history was looked at; `stamp` is what it looked like, `runs` is None where it has not changed since."""

    stamp: object
    runs: "tuple[StoredRun, ...] | None" = None
    calibration: "Calibration | None" = None
    problem: str = ""


class HistoryController(Feature):
    """Without a `store` there is nothing to show.

    Args:
        shared: the dashboard's own parts.
        store: where past runs are.
        calibrates: whether the settings ask for estimates that go by what runs teach.
    """

    __slots__ = ("_looked_at", "_model", "_shared", "_stamp", "calibration", "is_reading", "store")

    def __init__(self, shared: AppContext, store: "RunStore | None", *, calibrates: bool) -> None:
        self._shared = shared
        self.store = store
        self.calibration = CalibrationSwitch(shared, on=calibrates)
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
        return msgspec.structs.replace(self.model.view(now), note=note, applied=self.calibration.applies)

    # --- reading -------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """After the first paint: read it where the settings ask for calibrated estimates."""
        if self.calibration.on:
            self.read()

    def toggle_calibration(self) -> None:
        """Let estimates go by what runs teach, or no longer; the history is read for it where it was not."""
        self.calibration.toggle()
        if self.calibration.on and not self.model.is_read:
            self.read()
            return
        self.calibration.apply()
        self.calibration.notify()
        self._shared.redraw.now()

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
        former, sample = self._stamp, self._shared.state.sample
        host = store.host or (sample.host.name if sample is not None else "")

        def read() -> None:
            self._shared.app.call_later(self._take, _read(store, former, host))

        threading.Thread(target=read, name="read history", daemon=True).start()

    def _take(self, result: _Read) -> None:
        self.is_reading = False
        self._stamp = result.stamp
        if result.problem:
            self.model.fail(result.problem)
            self.calibration.fail(result.problem)
        elif result.runs is not None:
            self.model.take(result.runs)
            self.calibration.take(result.calibration)
            self.model.calibration = result.calibration
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


def _read(store: "RunStore", former: object, host: str) -> _Read:
    """The runs, unless they are as they were when the history looked like `former`."""
    try:
        stamp = store.stamp()
        if stamp == former:
            return _Read(stamp)
        runs = store.runs()
        return _Read(stamp, runs, calibrate((stored.run for stored in runs), host))
    except (UserError, OSError) as error:
        return _Read(None, problem=str(error))
