"""The prediction for a preset on a card, made once and kept."""

from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.schema.preset import PresetFile
from vramtui.core.schema.workload import Workload


class Predictor:
    """Estimates by workload and card. `failures` holds the sentence for a preset that cannot be estimated."""

    def __init__(self) -> None:
        self._made: dict[tuple[Workload, Device], Estimate | None] = {}
        self.failures: dict[str, str] = {}

    def __call__(self, found: PresetFile, device: Device) -> Estimate | None:
        """The estimate for `found` on `device`; None when there can be none, and `failures` says why."""
        wanted = (found.preset.workload, device)
        if wanted not in self._made:
            self._made[wanted] = self._make(found, device)
        return self._made[wanted]

    def _make(self, found: PresetFile, device: Device) -> Estimate | None:
        from vramtui.estimators.analytic import ANALYTIC  # noqa: PLC0415 - takes 40 ms, and often no preset matches

        try:
            return ANALYTIC.estimate(found.preset.workload, device)
        except UserError as error:
            self.failures[found.key] = str(error)
            return None
