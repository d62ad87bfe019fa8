"""The documents of `vramtui fit`: one card, every card, and a map over two numbers."""

from typing import Any

import msgspec

from vramtui.core.estimate.fits import FitVerdict
from vramtui.records.documents.estimates import PrintedDevice


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
    """What `vramtui fit PRESET --gpu CARD --json` prints; bytes, `cheapest` null when nothing is enough."""

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
    """What `vramtui fit PRESET... --json` prints without a card."""

    schema: int
    presets: tuple[PresetCards, ...]


class PrintedAxis(msgspec.Struct, frozen=True, kw_only=True):
    """A number and its values."""

    key: str
    values: tuple[int, ...]


class MapDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What `vramtui fit --over A --over B --json` prints: a row for each value of `down`.

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
