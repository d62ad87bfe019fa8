"""The document of an estimate, the same from Python (`JobEstimate.to_dict`) and from `vramtui estimate --json`; its
schema is in api/documents.json.
"""

from collections.abc import Iterable

import msgspec

from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.estimate.fits import fit_on
from vramtui.core.schema.preset import PresetFile
from vramtui.core.schema.workload import Workload, beyond_own_length

Printed = dict[str, object]


def estimate_document(preset: PresetFile, answers: Iterable[Estimate], device: Device | None) -> Printed:
    """Return every answer with its parts, and whether it fits `device` if one was named."""
    workload = preset.preset.workload
    estimates = []
    for estimate in answers:
        fit = None if device is None else fit_on(estimate, workload, device)
        totals: Printed = {
            "allocated": estimate.allocated,
            "reserved": estimate.reserved,
            "process": estimate.process,
            "fits": None if fit is None or fit.unknown else fit.is_enough,
            "verdict": None if fit is None else fit.verdict,
            "spare": None if fit is None else fit.spare,
        }
        estimates.append(msgspec.to_builtins(estimate) | totals)
    return {
        "schema": 1,
        "preset": preset.key,
        "workload": msgspec.to_builtins(workload),
        "device": None if device is None else device_document(device),
        "notes": notes_on(workload),
        "estimates": estimates,
    }


def device_document(device: Device) -> Printed:
    capability = ".".join(map(str, device.capability))
    return {"name": device.name, "capability": capability, "total_memory": device.total_memory}


def notes_on(workload: Workload) -> list[str]:
    """Notes on unusual requests, a sentence each."""
    return [*filter(None, (beyond_own_length(workload),))]
