"""How far estimates are off by kind of job, on public models that nobody fitted them to, and the ranges that follow.

A range reaches from the least to the most of the errors of a kind, widened by a quarter of that on each side and
rounded up to whole percents; with fewer than eight families by half of it, and to 5 % at least. A run is held against
the range that the other families of its kind alone would give.
"""

import json
import math
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from tests.golden_workloads import RECORDED
from tests.recorded.architectures import preset_from
from tests.recorded.cudnn import cudnn_without_device
from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import card
from vramtui.core.estimate.estimate import Estimator
from vramtui.core.schema.workload import Workload
from vramtui.estimators.analytic import ANALYTIC
from vramtui.estimators.analytic.simulated import SIMULATED
from vramtui.estimators.analytic.stated_errors import ErrorRange, Kind, kind_of
from vramtui.models.readers.torchvision import vision_table

GOLDEN = Path(__file__).parents[1] / "golden" / "stated.json"
Job = dict[str, Any]
WIDER, LEAST = 0.25, 0.01
MOST = 0.95
FEW, WIDER_OF_FEW, LEAST_OF_FEW = 8, 0.5, 0.05
METHODS: dict[str, Estimator] = {"analytic": ANALYTIC, "simulated": SIMULATED}


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One job: its kind and family, and by method how much more than predicted was reserved, and allocated."""

    name: str
    kind: Kind
    family: str
    reserved: dict[str, float]
    allocated: float


def workload_of(job: Job) -> Workload:
    """The job as a preset would say it.

    Raises:
        UserError: its config is refused.
    """
    table: dict[str, Any] = {"run": {"torch": RECORDED, **job["run"]}}
    if job.get("parallel"):
        table["parallel"] = job["parallel"]
    if job["kind"] == "conv net":
        table["model"] = job["model"]
    elif job["kind"] == "layer list":
        table["model"] = vision_table(job["family"])
    else:
        config = job["config"]
        if job["kind"] == "unet":
            config = {"_class_name": "UNet2DConditionModel", **config}
        table["model"] = msgspec.to_builtins(preset_from(config).model)
    return msgspec.convert(table, Workload)


@cache
@cudnn_without_device()
def measured() -> tuple[tuple[Run, ...], tuple[str, ...]]:
    runs, refused = [], []
    for job in json.loads(GOLDEN.read_text(encoding="utf-8")):
        try:
            runs.append(_run(job))
        except UserError as error:  # noqa: PERF203 - each is refused for itself
            refused.append(f"{job['name']}: {error}")
    return tuple(runs), tuple(refused)


def _run(job: Job) -> Run:
    workload, device = workload_of(job), card(job["device"])
    plain = ANALYTIC.estimate(workload, device)
    reserved = {}
    for name, method in METHODS.items():
        try:
            reserved[name] = job["reserved"] / (method.estimate(workload, device).reserved or 1) - 1
        except UserError:  # noqa: PERF203 - as above
            continue  # what the simulation does not follow
    return Run(
        name=job["name"],
        kind=kind_of(workload) or "generic",
        family=job["config"]["model_type"] if "model_type" in job.get("config", {}) else job["family"],
        reserved=reserved,
        allocated=job["allocated"] / plain.allocated - 1,
    )


def spread_of(errors: Iterable[float], families: int) -> ErrorRange:
    found = [0.0, *errors]
    low, high = min(found), max(found)
    wider, least = (WIDER_OF_FEW, LEAST_OF_FEW) if families < FEW else (WIDER, LEAST)
    more = wider * (high - low)
    below, above = more - low if low else 0.0, high + more if high else 0.0
    return ErrorRange(below=min(_percent(max(below, least)), MOST), above=_percent(max(above, least)))


def _percent(share: float) -> float:
    return math.ceil(round(share * 100, 6)) / 100


def families_of(runs: Iterable[Run]) -> int:
    return len({run.family for run in runs})


def of_kind(runs: Iterable[Run], kind: str, method: str) -> list[Run]:
    return [run for run in runs if run.kind == kind and method in run.reserved]


def inside(runs: list[Run], method: str) -> int:
    held = 0
    for run in runs:
        others = [other for other in runs if other.family != run.family]
        spread = spread_of((other.reserved[method] for other in others), families_of(others))
        held += -spread.below <= run.reserved[method] <= spread.above
    return held


def kinds(runs: Iterable[Run]) -> list[Kind]:
    return sorted({run.kind for run in runs})


def summary() -> Iterator[tuple[str, ...]]:
    runs, _ = measured()
    for kind in kinds(runs):
        for method in METHODS:
            mine = of_kind(runs, kind, method)
            if not mine:
                continue
            families = families_of(mine)
            spread = spread_of((run.reserved[method] for run in mine), families)
            held = inside(mine, method)
            sizes = sorted(abs(run.reserved[method]) for run in mine)
            yield (
                kind, method, str(len(mine)), str(families), f"{sizes[len(sizes) // 2]:.1%}",
                f"-{spread.below:.0%} +{spread.above:.0%}",
                f"{held} of {len(mine)}" + ("" if families > 1 else " (one family)"),
            )  # fmt: skip


HEAD = ("kind", "method", "runs", "families", "median error", "stated range", "inside it, own family left out")


def markdown() -> str:
    lines = ["| " + " | ".join(row) + " |" for row in (HEAD, ("---",) * len(HEAD), *summary())]
    _, refused = measured()
    return "\n".join((*lines, *(f"\n- refused: {line}" for line in refused)))


def usual_rows() -> Iterator[tuple[str, str, list[float]]]:
    """Each kind with the method that is the default for it, and how far that was off, predicted over true, less one."""
    runs, _ = measured()
    for kind in kinds(runs):
        method = "simulated" if of_kind(runs, kind, "simulated") else "analytic"
        yield kind, method, [1 / (1 + run.reserved[method]) - 1 for run in of_kind(runs, kind, method)]


def table() -> str:
    runs, _ = measured()
    lines = []
    for kind in kinds(runs):
        both = []
        for method in METHODS:
            mine = of_kind(runs, kind, method)
            spread = spread_of((run.reserved[method] for run in mine), families_of(mine)) if mine else None
            both.append("None" if spread is None else f"ErrorRange({spread.below}, {spread.above})")
        lines.append(f'    "{kind}": ({both[0]}, {both[1]}),')
    return "\n".join(lines)
