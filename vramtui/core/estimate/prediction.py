"""A prediction as it was made: the preset, its exact workload, the card, and what the estimator answered."""

import msgspec

from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.schema.preset import PresetFile
from vramtui.core.schema.workload import Workload


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """What was predicted for a process.

    Attributes:
        preset: the key of the preset that the process was matched to.
        title: that preset's name.
        workload: what the estimator looked at, changes made in the panel included.
        device: the card that it was made for.
        estimate: the answer.
    """

    preset: str
    title: str
    workload: Workload
    device: Device
    estimate: Estimate


def prediction_of(preset_file: PresetFile, device: Device, estimate: Estimate | None) -> Prediction | None:
    """The prediction by a preset as its file has it; None where there is no estimate of it."""
    if estimate is None:
        return None
    return Prediction(
        preset=preset_file.key,
        title=preset_file.preset.name,
        workload=preset_file.preset.workload,
        device=device,
        estimate=estimate,
    )
