"""`vramtui estimate --calibrated`: estimates corrected by what this host's own runs teach."""

import platform
import sys
from collections.abc import Sequence

import msgspec

from vramtui.cli.common.paths import run_history
from vramtui.cli.estimate.corrected import Corrected
from vramtui.core.base.text import printable
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.runs.calibration import ENOUGH, Calibration, calibrate, calibrated
from vramtui.core.schema.preset import PresetFile

ALL = 1 << 30


def corrected(estimates: Sequence[Estimate], found: PresetFile, device: Device) -> list[Corrected]:
    """Each of `estimates` for `found` on `device`, and as it is by this host's runs.

    Raises:
        UserError: the history cannot be read.
    """
    calibration = calibrate((kept.run for kept in run_history().runs(limit=ALL)), platform.node())
    made = [_correct(one, calibration, found, device) for one in estimates]
    if all(one.now is one.plain for one in made):
        sys.stderr.write(
            f"vramtui: nothing is calibrated: this host has fewer than {ENOUGH} finished runs on"
            f" {printable(device.name)} or of such a model; `vramtui history --calibration` shows them\n"
        )
    return made


def _correct(one: Estimate, calibration: Calibration, found: PresetFile, device: Device) -> Corrected:
    workload = msgspec.to_builtins(found.preset.workload)
    share = calibration.share(one.method, str(workload["model"]["kind"]), str(workload["run"]["kind"]))
    return Corrected(one, calibrated(one, calibration.context(device.name), share))
