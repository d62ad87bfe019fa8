"""The document of an estimate, the same from Python (`JobEstimate.to_dict`) and from `vramtui estimate --json`."""

from collections.abc import Iterable

import msgspec

from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.estimate.fits import FitVerdict, fit_on
from vramtui.core.schema.preset import PresetFile
from vramtui.core.schema.workload import Workload, beyond_own_length
from vramtui.records.documents import like

Printed = dict[str, object]


class PrintedDevice(msgspec.Struct, frozen=True, kw_only=True):
    """The card that was asked about; `capability` as NVIDIA writes it, memory in bytes."""

    name: str
    capability: str
    total_memory: int


PrintedEstimate = like(
    Estimate,
    "PrintedEstimate",
    "One method's answer, with its totals and whether it fits.",
    allocated=int,
    reserved=int | None,
    process=int,
    fits=bool | None,
    verdict=FitVerdict | None,
    spare=int | None,
)


class EstimateDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Output of `vramtui estimate --json` and `JobEstimate.to_dict` gives: an answer of each method, in bytes.

    Attributes:
        device: null unless a card or a memory was named; so are `fits`, `verdict` and `spare` then.
        notes: sentences on what the model was not made for, or what is not known of it.
    """

    schema: int
    preset: str
    workload: Workload
    device: PrintedDevice | None
    notes: tuple[str, ...]
    estimates: tuple[PrintedEstimate, ...]  # type: ignore[valid-type] # made by msgspec


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
        "device": None if device is None else msgspec.to_builtins(device_document(device)),
        "notes": [*notes_on(workload)],
        "estimates": estimates,
    }


def device_document(device: Device) -> PrintedDevice:
    """The card, as every document has it."""
    capability = ".".join(map(str, device.capability))
    return PrintedDevice(name=device.name, capability=capability, total_memory=device.total_memory)


def notes_on(workload: Workload) -> tuple[str, ...]:
    """Notes on unusual requests, a sentence each."""
    return tuple(filter(None, (beyond_own_length(workload),)))
