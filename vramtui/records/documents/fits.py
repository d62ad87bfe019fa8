"""The documents of `vramtui fit`: one card, every card, a map over two numbers, and the models that fit a card."""

from typing import Any

import msgspec

from vramtui.core.estimate.fits import FitVerdict
from vramtui.estimators.planner.planner import Edge, Effect
from vramtui.records.documents.estimates import PrintedDevice


class CheapestChange(msgspec.Struct, frozen=True, kw_only=True):
    """The smallest set of changes that makes it fit."""

    levers: tuple[str, ...]
    changes: dict[str, Any]
    process: int | None


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
    also: tuple[Edge, ...]
    refusal: str | None
    notes: tuple[str, ...]
    levers: tuple[Effect, ...]
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


class FittingModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model that fits; `contexts` in tokens by quantization, null where the asked context does not fit.

    Attributes:
        needs: bytes of the process with the asked context, in the last quantization that fits.
        own_context: the longest sequence that the model was made for.
    """

    model: str
    parameters: int
    needs: int
    own_context: int | None
    contexts: dict[str, int | None]


class GpuModels(msgspec.Struct, frozen=True, kw_only=True):
    """The models that fit a GPU, the largest first; `more` if there are smaller ones that were not asked for."""

    gpu: str
    memory: int
    models: tuple[FittingModel, ...]
    more: bool


class ModelsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Output of `vramtui fit --gpu CARD --json` without a model; `context` is the least that has to fit, in tokens."""

    schema: int
    job: str
    context: int
    gpus: tuple[GpuModels, ...]
