"""The documents of an estimate, the same from Python (`JobEstimate.to_dict`) and from `vramtui estimate --json`, and of
`vramtui fit`: one card, every card, and a map over two numbers.
"""

from collections.abc import Iterable
from typing import Any

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
        "device": None if device is None else device_document(device),
        "notes": notes_on(workload),
        "estimates": estimates,
    }


def device_document(device: Device) -> Printed:
    """The card, as every document has it."""
    return {
        "name": device.name,
        "capability": ".".join(map(str, device.capability)),
        "total_memory": device.total_memory,
    }


def notes_on(workload: Workload) -> list[str]:
    """Notes on unusual requests, a sentence each."""
    return [note for note in (beyond_own_length(workload),) if note]


class LargestSize(msgspec.Struct, frozen=True, kw_only=True):
    """The largest value of a number that fits; null where not even 1 does."""

    vary: str
    largest: int | None
    process_at_largest: int | None
    reason: str


class PrintedChange(msgspec.Struct, frozen=True, kw_only=True):
    """One change, what it costs, and what it frees; bytes."""

    name: str
    changes: dict[str, Any]
    cost: str
    process: int
    frees: int
    fits: bool
    largest: int | None


class CheapestChange(msgspec.Struct, frozen=True, kw_only=True):
    """The smallest set of changes that makes it fit."""

    levers: tuple[str, ...]
    changes: dict[str, Any]
    process: int


class FitDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Output of `vramtui fit PRESET --gpu CARD --json`; bytes, `cheapest` null when nothing is enough."""

    schema: int
    preset: str
    device: PrintedDevice
    gpus: int
    fits: bool
    verdict: FitVerdict
    process: int
    spare: int
    vary: str
    largest: int | None
    process_at_largest: int | None
    process_beyond: int | None
    reason: str
    also: tuple[LargestSize, ...]
    refusal: str | None
    notes: tuple[str, ...]
    levers: tuple[PrintedChange, ...]
    cheapest: CheapestChange | None


class PrintedCardFit(msgspec.Struct, frozen=True, kw_only=True):
    """A preset on one card; null where the card cannot run it, which `reason` says."""

    card: str
    group: str
    total_memory: int
    verdict: FitVerdict | None
    process: int | None
    spare: int | None
    vary: str
    largest: int | None
    largest_is_quick: bool
    fsdp: int | None
    reason: str | None


class PresetCards(msgspec.Struct, frozen=True, kw_only=True):
    """A preset on every card that is known."""

    preset: str
    cards: tuple[PrintedCardFit, ...]


class CardsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Output of `vramtui fit PRESET... --json` without a card."""

    schema: int
    presets: tuple[PresetCards, ...]


class PrintedAxis(msgspec.Struct, frozen=True, kw_only=True):
    """A number and its values."""

    key: str
    values: tuple[int, ...]


class MapDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Output of `vramtui fit --over A --over B --json`: a row for each value of `down`.

    Attributes:
        process: bytes, null where the estimator refuses.
        exact: false where sizes between the nodes of a coarser net are interpolated.
        quick: whether `estimate` simulates such a job, so that its figure may be another one.
    """

    schema: int
    preset: str
    device: PrintedDevice
    across: PrintedAxis
    down: PrintedAxis
    process: tuple[tuple[int | None, ...], ...]
    fits: tuple[tuple[bool, ...], ...]
    exact: bool
    method: str
    quick: bool
