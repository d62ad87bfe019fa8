"""The JSON document of `vramtui estimate`."""

from collections.abc import Sequence

import msgspec

from vramtui.cli.estimate.calibrated import Corrected
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate, Part
from vramtui.core.estimate.fits import fit_on
from vramtui.core.schema.preset import PresetFile
from vramtui.core.schema.workload import Workload


def estimate_document(found: PresetFile, made: Sequence[Corrected], device: Device | None) -> dict[str, object]:
    """Every estimate with its parts in bytes; `fits`, `verdict` and `spare` are null unless a card or a size was named.
    `uncalibrated` is the Ledger before a correction, null where there was none.
    """
    return {
        "schema": 1,
        "preset": found.key,
        "device": None if device is None else _device(device),
        "notes": notes_on(found.preset.workload),
        "estimates": [_corrected(one, device, found.preset.workload) for one in made],
    }


def notes_on(workload: Workload) -> list[str]:
    """What is odd about what is asked, a sentence each."""
    from vramtui.estimators.planner.keys import beyond_own_length  # noqa: PLC0415 - estimators take time to load

    return [note for note in (beyond_own_length(workload),) if note]


def _device(device: Device) -> dict[str, object]:
    return {
        "name": device.name,
        "capability": ".".join(map(str, device.capability)),
        "total_memory": device.total_memory,
    }


def _corrected(one: Corrected, device: Device | None, workload: Workload) -> dict[str, object]:
    before = None if one.now is one.plain else msgspec.to_builtins(one.plain.ledger)
    return {**_estimate(one.now, device, workload), "uncalibrated": before}


def _estimate(one: Estimate, device: Device | None, workload: Workload) -> dict[str, object]:
    fit = None if device is None else fit_on(one, workload, device)
    return {
        "method": one.method,
        "parts": [_part(part) for part in one.parts],
        "allocated": one.ledger.allocated,
        "reserved": one.ledger.reserved,
        "process": one.ledger.process,
        "peak_phase": one.peak_phase,
        "peak_step": one.peak_step,
        "assumptions": list(one.assumptions),
        "error": one.error,
        "error_below": one.error_below,
        "fits": None if fit is None or fit.unknown else fit.is_enough,
        "verdict": None if fit is None else fit.verdict,
        "spare": None if fit is None else fit.spare,
        "ledger": msgspec.to_builtins(one.ledger),
        "timeline": msgspec.to_builtins(one.timeline),
    }


def _part(part: Part) -> dict[str, object]:
    return {
        "name": part.name,
        "line": part.line,
        "bytes": part.bytes,
        "at_peak": part.at_peak,
        "formula": part.formula,
        "source": part.source,
        "lifetime": part.lifetime,
        "count": part.count,
    }
