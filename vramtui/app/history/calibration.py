"""Estimates corrected by what this host's own runs teach: off until a key or the settings switch it on."""

from typing import TYPE_CHECKING

import msgspec

from vramtui.app.history.controller import HistoryController
from vramtui.app.messages import PresetsRead
from vramtui.app.state import View
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.schema.workload import Workload

if TYPE_CHECKING:
    from vramtui.core.runs.calibration import Calibration

NOTHING_YET = (
    "Too few past runs on this host to calibrate from: {enough} finished runs of a kind are needed. Those of `vramtui"
    " run` are the most useful."
)


class CalibrationControl(HistoryController):
    """The key of calibration. What is kept and recorded is never corrected."""

    _calibrates: bool | None = None

    @property
    def calibrates(self) -> bool:
        """Whether estimates are to go by what runs teach."""
        return self.settings.dashboard.calibration if self._calibrates is None else self._calibrates

    def complete(self, view: View, place: str) -> View:
        """Whether it is applied."""
        view = super().complete(view, place)
        if view.past is None:
            return view
        return msgspec.structs.replace(view, past=msgspec.structs.replace(view.past, applied=self._applies()))

    def on_presets_read(self, message: PresetsRead) -> None:
        """After the first paint, read the history where the settings ask for it."""
        del message
        if self.calibrates:
            self.read_past()

    def action_calibrate(self) -> None:
        """On, or off again."""
        self._calibrates = not self.calibrates
        if self._calibrates and not self.past_desk.is_read:
            self.read_past()
            return
        self._apply()
        self._say()
        self.draw()

    def learnt(self, calibration: "Calibration | None") -> None:
        """Go by the latest."""
        first = self.past_desk.calibration is None
        super().learnt(calibration)
        self._apply()
        if first and self._calibrates:
            self._say()

    def unread(self, problem: str) -> None:
        """Notify whoever asked; the History screen shows it anyway."""
        if self._calibrates and self._applies() is False:
            self._calibrates = False
            self.notify(problem, title="Calibration", severity="error", markup=False)

    def _say(self) -> None:
        if not self.calibrates:
            self.notify("Estimates are shown uncorrected.", title="Calibration off", markup=False)
        elif self._applies():
            count = self.past_desk.calibration.usable if self.past_desk.calibration is not None else 0
            what = f"{count} constant{'s' if count > 1 else ''} learned from this host's runs"
            self.notify(f"Estimates use {what}; K turns this off.", title="Calibration on", markup=False)
        else:
            from vramtui.core.runs.calibration import ENOUGH  # noqa: PLC0415 - not needed for the first paint

            self.notify(NOTHING_YET.format(enough=ENOUGH), title="Calibration", severity="warning", markup=False)

    def _applies(self) -> bool:
        found = self.past_desk.calibration
        return self.calibrates and found is not None and found.usable > 0

    def _apply(self) -> None:
        self.desk.predictor.correct_by(self._corrected if self._applies() else None)

    def _corrected(self, estimate: Estimate, workload: Workload, device: Device) -> Estimate:
        found, sample = self.past_desk.calibration, self.desk.sample
        if found is None:
            return estimate
        from vramtui.core.runs.calibration import calibrated  # noqa: PLC0415 - as above

        driver = sample.host.driver_version if sample is not None else None
        share = found.share(estimate.method, _kind(workload.model), _kind(workload.run))
        return calibrated(estimate, found.context(device.name, driver), share)


def _kind(table: msgspec.Struct) -> str:
    """What a preset calls the kind of its model or its run."""
    return str(type(table).__struct_config__.tag)
