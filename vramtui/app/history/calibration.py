"""Estimates corrected by what this host's own runs teach: off until a key or the settings switch it on."""

from typing import TYPE_CHECKING

import msgspec

from vramtui.app.context import AppContext
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.schema.workload import Workload

if TYPE_CHECKING:
    from vramtui.core.runs.calibration import Calibration

NOTHING_YET = (
    "Too few past runs on this host to calibrate from: {enough} finished runs of a kind are needed. Those of `vramtui"
    " run` are the most useful."
)


class CalibrationSwitch:
    """Whether estimates go by what runs teach, and what that is. What is recorded is never corrected.

    Args:
        shared: the dashboard's own parts.
        on: as the settings have it.

    Attributes:
        on: whether it is asked for; it `applies` once enough is known.
    """

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
        """Go by the latest."""
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
            from vramtui.core.runs.calibration import ENOUGH  # noqa: PLC0415 - not needed for the first paint

            notify(NOTHING_YET.format(enough=ENOUGH), title="Calibration", severity="warning", markup=False)

    def _corrected(self, estimate: Estimate, workload: Workload, device: Device) -> Estimate:
        known, sample = self._known, self._shared.state.sample
        if known is None:
            return estimate
        from vramtui.core.runs.calibration import calibrated  # noqa: PLC0415 - not needed for the first paint

        driver = sample.host.driver_version if sample is not None else None
        share = known.share(estimate.method, _kind(workload.model), _kind(workload.run))
        return calibrated(estimate, known.context(device.name, driver), share)


def _kind(table: msgspec.Struct) -> str:
    """What a preset calls the kind of its model or its run."""
    return str(type(table).__struct_config__.tag)
