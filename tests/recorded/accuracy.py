"""Every method's figure beside the true one, how the errors spread, and their table in the documentation."""

import json
import statistics
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from textwrap import fill

import msgspec

from tests.golden_workloads import LAYER_LISTS, RECORDED, TRANSFORMERS, WORKLOADS
from tests.recorded import stated_errors
from tests.recorded.architectures import preset_from
from tests.recorded.cudnn import cudnn_without_device
from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import card
from vramtui.core.estimate.estimate import TITLES
from vramtui.core.schema.workload import Workload
from vramtui.estimators.analytic import ANALYTIC
from vramtui.estimators.analytic.simulated import SIMULATED
from vramtui.estimators.rules import estimate_rules

TRAINING = Path(__file__).parents[1] / "golden" / "training"
SAVER_JOBS = TRAINING.with_name("savers.json")
PAGE = Path(__file__).parents[2] / "docs" / "accuracy.md"
CARDS = {"h200": "H200", "a100": "A100"}
WIDTH = 120
# Workloads that are told of together.
_CONVOLUTIONS = tuple(name for name in LAYER_LISTS if name.startswith("resnet"))
FAMILIES: dict[str, tuple[str, ...]] = {
    "transformers": tuple(TRANSFORMERS),
    "MLPs, linear layers, norms": tuple(name for name in LAYER_LISTS if name not in _CONVOLUTIONS),
    "convolutional nets": _CONVOLUTIONS,
}
HEAD = ("method", "of", "what it counts", "runs", "fitted to them", "median error", "worst")
# Whether something in a method was set by the runs that it is shown with.
CHECKED, SHARE, NOT_FITTED = "checked while written", "its share of reserved", "no"
SAVERS = "Liger, k-bit weights, small optimizers, selective checkpointing (3 public decoders)"


class Measured(msgspec.Struct, kw_only=True):
    name: str
    card: str
    true_allocated: int
    true_reserved: int
    allocated: dict[str, int]
    reserved: dict[str, int]


def measure() -> list[Measured]:
    paths = [TRAINING / folder / f"{name}.json" for folder in CARDS for name in WORKLOADS]
    return [_measured(path) for path in paths if path.is_file()]


@cudnn_without_device()
def _measured(path: Path) -> Measured:
    true = json.loads(path.read_text(encoding="utf-8"))
    workload, device = WORKLOADS[path.stem], card(CARDS[path.parent.name])
    estimate = ANALYTIC.estimate(workload, device)
    rules = {method: total for method, (total, _) in rules_for(path.stem).items()} if path.stem in TRANSFORMERS else {}
    return Measured(
        name=path.stem, card=CARDS[path.parent.name], true_allocated=true["peak_allocated"],
        true_reserved=true["peak_reserved"], allocated={"analytic": estimate.allocated} | rules,
        reserved={"analytic": estimate.reserved or 0, "simulated": SIMULATED.estimate(workload, device).reserved or 0},
    )  # fmt: skip


@cache
def rules_for(name: str) -> dict[str, tuple[int, tuple[str, ...]]]:
    """The total of every rule that fits, and the lines of the ledger that it has a word on."""
    try:
        estimates = estimate_rules(WORKLOADS[name], card("H200"))
    except UserError:
        return {}
    return {
        estimate.method: (estimate.process, tuple(dict.fromkeys(part.line for part in estimate.parts if part.at_peak)))
        for estimate in estimates
    }


def errors_of(measured: list[Measured], method: str, family: str = "", *, reserved: bool = False) -> list[float]:
    """The errors of `method` over one family, or over all, as fractions of the true peaks."""
    found = []
    for row in measured:
        figures, true = (row.reserved, row.true_reserved) if reserved else (row.allocated, row.true_allocated)
        if method in figures and (not family or row.name in FAMILIES[family]):
            found.append(figures[method] / true - 1)
    return found


def saver_errors() -> Iterator[tuple[str, float, float]]:
    """Each job of `benchmarks/saver_jobs.py`, and how far off allocated (analytic) and reserved (simulated) are."""
    for job in json.loads(SAVER_JOBS.read_text(encoding="utf-8")):
        table = {
            "model": msgspec.to_builtins(preset_from(job["config"]).model),
            "run": {"torch": RECORDED, **job["run"]},
        }
        workload, device = msgspec.convert(table, Workload), card(job["device"])
        reserved = SIMULATED.estimate(workload, device).reserved or 0
        allocated = ANALYTIC.estimate(workload, device).allocated
        yield job["name"], allocated / job["allocated"] - 1, reserved / job["reserved"] - 1


def markdown(measured: list[Measured]) -> str:
    """The table in Markdown; it changes only with the estimators and the recorded runs."""
    everything, savers = ", ".join(FAMILIES), [*saver_errors()]
    ours = [
        *(("analytic", family, "allocated", errors_of(measured, "analytic", family), CHECKED) for family in FAMILIES),
        *(
            (method, everything, "reserved", errors_of(measured, method, reserved=True), fitted)
            for method, fitted in (("analytic", SHARE), ("simulated", CHECKED))
        ),
        *(
            (method, f"{kind} (public models)", "reserved", errors, NOT_FITTED)
            for kind, method, errors in stated_errors.usual_rows()
        ),
        ("analytic", SAVERS, "allocated", [allocated for _, allocated, _ in savers], CHECKED),
        ("simulated", SAVERS, "reserved", [reserved for _, _, reserved in savers], CHECKED),
    ]
    ours.sort(key=lambda row: -max(map(abs, row[3]), default=0.0))
    rows = [_row(method, of, f"peak of {total}", errors, fitted) for method, of, total, errors, fitted in ours]
    counted: dict[str, set[str]] = {}  # what each rule has a word on over all transformers
    for name in TRANSFORMERS:
        for method, (_, lines) in rules_for(name).items():
            counted.setdefault(method, set()).update(lines)
    for method, words in counted.items():
        told = ", ".join(title for line, title in TITLES.items() if line in words)
        rows.append(_row(method, "transformers", told, errors_of(measured, method, "transformers"), NOT_FITTED))
    table = [" | ".join(row) for row in (HEAD, ("---",) * 3 + ("---:", "---", "---:", "---:"), *rows)]
    return "\n".join((_words(measured), "", *(f"| {line} |" for line in table)))


def _row(method: str, family: str, counts: str, errors: list[float], fitted: str) -> tuple[str, ...]:
    if not errors:
        return f"`{method}`", family, counts, "0", fitted, "not measured", "not measured"
    digits = 0 if method.startswith("rules") else 2
    median, worst = statistics.median(map(abs, errors)), max(errors, key=abs)
    return f"`{method}`", family, counts, str(len(errors)), fitted, f"{median:.{digits}%}", f"{worst:+.{digits}%}"


def _words(measured: list[Measured]) -> str:
    names = dict.fromkeys(row.card for row in measured)
    cards = " and ".join(f"{sum(row.card == name for row in measured)} on {name}" for name in names)
    return fill(
        f"Compared with PyTorch's own allocator over {len(measured)} recorded training runs ({cards}) and over runs of "
        "public models. The error is predicted peak / true peak - 1; the median is of its absolute value. `simulated` "
        "is the default on one GPU, `analytic` for several GPUs and for maps. 'checked while written' means that these "
        "runs were looked at while the method was written, 'no' that nothing was fitted to them. A rule of thumb is "
        "compared with the whole peak. The worst come first, the rules last. `python "
        "benchmarks/accuracy.py` prints every run.",
        WIDTH,
        break_on_hyphens=False,
    )


def with_table(text: str, table: str, name: str = "accuracy") -> str:
    """Return `text` with `table` between its markers `<!-- NAME -->` and `<!-- /NAME -->`.

    Raises:
        ValueError: the markers are missing.
    """
    first, last = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, start, rest = text.partition(first)
    _, end, after = rest.partition(last)
    if not start or not end:
        raise ValueError(f"docs/accuracy.md needs a line {first} and a line {last}")
    return f"{before}{first}\n{table}\n{last}{after}"


def page(measured: list[Measured]) -> str:
    text = with_table(PAGE.read_text(encoding="utf-8"), markdown(measured))
    return with_table(text, stated_errors.markdown(), "ranges")
