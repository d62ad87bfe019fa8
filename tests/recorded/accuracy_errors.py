"""Every method's figure beside the true one, and how the errors spread."""

import json
import statistics
from functools import lru_cache
from pathlib import Path

import msgspec

from tests.golden_workloads import LAYER_LISTS, TRANSFORMERS, WORKLOADS
from tests.recorded.cudnn import cudnn_without_device
from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import card
from vramtui.core.schema.workload import Workload
from vramtui.estimators.analytic import ANALYTIC as ESTIMATOR
from vramtui.estimators.analytic.simulated import SIMULATED as SIMULATOR
from vramtui.estimators.rules import estimate_rules

RECORDED = Path(__file__).parents[1] / "golden" / "training"
CARDS = {"h200": "H200", "a100": "A100"}
ANALYTIC, SIMULATED = "analytic", "simulated"


class Measured(msgspec.Struct, kw_only=True):
    """One recorded run: the true peaks, and the peaks by method, in bytes."""

    name: str
    card: str
    true_allocated: int
    true_reserved: int
    allocated: dict[str, int]
    reserved: dict[str, int]

    def error(self, method: str, *, reserved: bool = False) -> float:
        """How far `method` is off, as a fraction of the true peak."""
        if reserved:
            return self.reserved[method] / self.true_reserved - 1
        return self.allocated[method] / self.true_allocated - 1


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """Workloads that are told of together."""

    title: str
    names: tuple[str, ...]


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """Errors of one method: the median without its sign, and the one farthest from nothing."""

    runs: int
    median: float
    worst: float
    worst_name: str


_CONVOLUTIONS = tuple(name for name in LAYER_LISTS if name.startswith("resnet"))
FAMILIES = (
    Family(title="transformers", names=tuple(TRANSFORMERS)),
    Family(title="MLPs, linear layers, norms", names=tuple(n for n in LAYER_LISTS if n not in _CONVOLUTIONS)),
    Family(title="convolutional nets", names=_CONVOLUTIONS),
)


def measure() -> list[Measured]:
    """Every recorded run on every card, by analytic and by the rules that fit."""
    return [
        _measured(name, folder)
        for folder in CARDS
        for name in WORKLOADS
        if (RECORDED / folder / f"{name}.json").is_file()
    ]


@cudnn_without_device()
def _measured(name: str, folder: str) -> Measured:
    true = json.loads((RECORDED / folder / f"{name}.json").read_text(encoding="utf-8"))
    workload, device = WORKLOADS[name], card(CARDS[folder])
    estimate = ESTIMATOR.estimate(workload, device)
    rules = _rules(name) if name in TRANSFORMERS else {}
    return Measured(
        name=name,
        card=CARDS[folder],
        true_allocated=true["peak_allocated"],
        true_reserved=true["peak_reserved"],
        allocated={ANALYTIC: estimate.allocated} | rules,
        reserved={ANALYTIC: estimate.reserved or 0, SIMULATED: SIMULATOR.estimate(workload, device).reserved or 0},
    )


@lru_cache
def _rules(name: str) -> dict[str, int]:
    return {method: total for method, (total, _) in rules_for(WORKLOADS[name]).items()}


def rules_for(workload: Workload) -> dict[str, tuple[int, tuple[str, ...]]]:
    """The total of every rule that fits, and the lines of the ledger that it has a word on."""
    try:
        estimates = estimate_rules(workload, card("H200"))
    except UserError:
        return {}
    return {
        estimate.method: (estimate.process, tuple(dict.fromkeys(part.line for part in estimate.parts if part.at_peak)))
        for estimate in estimates
    }


def spread_of(
    measured: list[Measured], method: str, family: str | None = None, *, reserved: bool = False
) -> Spread | None:
    """The errors of `method` over one family, or over all; None where it has no figure."""
    names = {name for known in FAMILIES if family in {None, known.title} for name in known.names}
    errors = {
        f"{row.name} on {row.card}": row.error(method, reserved=reserved)
        for row in measured
        if row.name in names and method in (row.reserved if reserved else row.allocated)
    }
    if not errors:
        return None
    worst = max(errors, key=lambda name: abs(errors[name]))
    return Spread(
        runs=len(errors), median=statistics.median(map(abs, errors.values())), worst=errors[worst], worst_name=worst
    )
