"""The table of methods and their errors, and its page in the documentation."""

import statistics
from pathlib import Path
from textwrap import fill

from tests.golden_workloads import TRANSFORMERS, WORKLOADS
from tests.recorded import stated_errors
from tests.recorded.accuracy_errors import ANALYTIC, FAMILIES, SIMULATED, Measured, Spread, rules_for, spread_of
from tests.recorded.savers import compared
from vramtui.core.estimate.ledger import TITLES

PAGE = Path(__file__).parents[2] / "docs" / "accuracy.md"
WIDTH = 120
HEAD = ("method", "of", "what it counts", "runs", "fitted to them", "median error", "worst")
# Whether something in a method was set by the runs that it is shown with.
CHECKED, SHARE, NOT_FITTED = "checked while written", "its share of reserved", "no"
SAVERS = "Liger, k-bit weights, small optimizers, selective checkpointing (3 public decoders)"


def markdown(measured: list[Measured]) -> str:
    """The table in Markdown; it changes only with the estimators and the recorded runs."""
    everything = ", ".join(family.title for family in FAMILIES)
    savers = [*compared()]
    ours = [
        *(
            ("`analytic`", family.title, "allocated", spread_of(measured, ANALYTIC, family.title), CHECKED)
            for family in FAMILIES
        ),
        *(
            (f"`{method}`", everything, "reserved", spread_of(measured, method, reserved=True), fitted)
            for method, fitted in ((ANALYTIC, SHARE), (SIMULATED, CHECKED))
        ),
        *(
            (f"`{method}`", f"{kind} (public models)", "reserved", _unseen(errors), NOT_FITTED)
            for kind, method, errors in stated_errors.usual_rows()
        ),
        ("`analytic`", SAVERS, "allocated", _unseen([allocated for _, allocated, _ in savers]), CHECKED),
        ("`simulated`", SAVERS, "reserved", _unseen([reserved for _, _, reserved in savers]), CHECKED),
    ]
    ours.sort(key=lambda row: -abs(row[3].worst) if row[3] is not None else 0.0)
    rows = [_row(method, of, f"peak of {total}", spread, fitted) for method, of, total, spread, fitted in ours]
    rows += [
        _row(f"`{method}`", "transformers", counted, spread_of(measured, method, "transformers"))
        for method, counted in _counted().items()
    ]
    table = [" | ".join(row) for row in (HEAD, ("---",) * 3 + ("---:", "---", "---:", "---:"), *rows)]
    return "\n".join((_words(measured), "", *(f"| {line} |" for line in table)))


def _unseen(errors: list[float]) -> Spread:
    worst = max(errors, key=abs)
    return Spread(runs=len(errors), median=statistics.median(map(abs, errors)), worst=worst, worst_name="")


def _row(method: str, family: str, counts: str, spread: Spread | None, fitted: str = NOT_FITTED) -> tuple[str, ...]:
    if spread is None:
        return method, family, counts, "0", fitted, "not measured", "not measured"
    digits = 0 if method.startswith("`rules") else 2
    return (
        method,
        family,
        counts,
        str(spread.runs),
        fitted,
        f"{spread.median:.{digits}%}",
        f"{spread.worst:+.{digits}%}",
    )


def _words(measured: list[Measured]) -> str:
    cards = " and ".join(f"{sum(row.card == card for row in measured)} on {card}" for card in _cards(measured))
    return fill(
        f"Compared with PyTorch's own allocator over {len(measured)} recorded training runs ({cards}) and over runs of "
        "public models. The error is predicted peak / true peak - 1; the median is of its absolute value. `simulated` "
        "is the default on one GPU, `analytic` for several GPUs and for maps. 'checked while written' means that these "
        "runs were looked at while the method was written, 'no' that nothing was fitted to them. A rule of thumb is "
        "compared with the whole peak even if it counts only a part. The worst come first, the rules last. `python "
        "benchmarks/accuracy.py` prints every run.",
        WIDTH,
        break_on_hyphens=False,
    )


def _cards(measured: list[Measured]) -> list[str]:
    return list(dict.fromkeys(row.card for row in measured))


def _counted() -> dict[str, str]:
    """What each rule has a word on over all transformers, in the ledger's own order."""
    lines: dict[str, set[str]] = {}
    for name in TRANSFORMERS:
        for method, (_, counted) in rules_for(WORKLOADS[name]).items():
            lines.setdefault(method, set()).update(counted)
    return {
        method: ", ".join(title for line, title in TITLES.items() if line in counted)
        for method, counted in lines.items()
    }


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


def update_page(measured: list[Measured]) -> None:
    """Write both tables into the page."""
    text = with_table(PAGE.read_text(encoding="utf-8"), markdown(measured))
    PAGE.write_text(with_table(text, stated_errors.markdown(), "ranges"), encoding="utf-8")
