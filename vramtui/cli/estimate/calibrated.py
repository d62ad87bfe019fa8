"""`vramtui estimate --calibrated`: estimates corrected by what this host's own runs teach, beside what they were."""

import platform
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from vramtui.core.base.text import printable
from vramtui.core.base.units import format_bytes
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.schema.preset import PresetFile

if TYPE_CHECKING:
    from vramtui.core.runs.calibration import Calibration

ALL = 1 << 30


class Corrected(msgspec.Struct, frozen=True):
    """An estimate and what it was before; the same one twice where nothing could be corrected."""

    plain: Estimate
    now: Estimate


def side_by_side(made: Sequence[Corrected]) -> list[Estimate]:
    """The estimates to show: alone the corrected one, several as they were with the corrected ones beside them."""
    if len(made) == 1:
        return [made[0].now]
    return [
        one
        for pair in made
        for one in (
            (pair.plain,)
            if pair.now is pair.plain
            else (pair.plain, msgspec.structs.replace(pair.now, method=f"{pair.now.method} calibrated"))
        )
    ]


def uncalibrated_lines(made: Sequence[Corrected]) -> list[str]:
    """What a single estimate was before, a sentence."""
    if len(made) != 1 or made[0].now is made[0].plain:
        return []
    plain = made[0].plain
    context, reserved = format_bytes(plain.ledger.context, 2), format_bytes(plain.reserved, 2)
    return [f"Uncalibrated: CUDA context {context}, reserved {reserved}, process {format_bytes(plain.process, 2)}"]


def corrected(estimates: Sequence[Estimate], found: PresetFile, device: Device) -> list[Corrected]:
    """Each of `estimates` for `found` on `device`, and as it is by this host's runs.

    Raises:
        UserError: the history cannot be read.
    """
    from vramtui.cli.common.paths import run_history
    from vramtui.core.runs.calibration import ENOUGH, calibrate

    calibration = calibrate((kept.run for kept in run_history().runs(limit=ALL)), platform.node())
    made = [_correct(one, calibration, found, device) for one in estimates]
    if all(one.now is one.plain for one in made):
        sys.stderr.write(
            f"vramtui: nothing is calibrated: this host has fewer than {ENOUGH} finished runs on"
            f" {printable(device.name)} or of such a model; `vramtui history --calibration` shows them\n"
        )
    return made


def _correct(one: Estimate, calibration: "Calibration", found: PresetFile, device: Device) -> Corrected:
    from vramtui.core.runs.calibration import calibrated

    workload = msgspec.to_builtins(found.preset.workload)
    share = calibration.share(one.method, str(workload["model"]["kind"]), str(workload["run"]["kind"]))
    return Corrected(one, calibrated(one, calibration.context(device.name), share))
