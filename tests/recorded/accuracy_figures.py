"""Each recorded run beside every method: as lines of a terminal, and as JSON."""

from tests.recorded.accuracy_errors import ANALYTIC, FAMILIES, SIMULATED, Measured, Spread, spread_of

GIB = 1 << 30
PER_LINE = 3


def lines(measured: list[Measured]) -> list[str]:
    """The table for a terminal."""
    methods = [name for name in ("analytic", "traced") if any(name in row.allocated for row in measured)]
    head = "".join(f"{name:>12}{'error':>9}" for name in methods)
    found = [f"{'peak of allocated, GiB':<36}{'card':>6}{'true':>10}{head}   rules that fit, by their totals"]
    for row in measured:
        told = "".join(_figure(row, name) for name in methods)
        rules = [f"{name} {_percent(row.error(name), 0)}" for name in row.allocated if name not in methods]
        chunks = [", ".join(rules[at : at + PER_LINE]) for at in range(0, len(rules), PER_LINE)] or ["none"]
        found.append(f"{row.name:<36}{row.card:>6}{row.true_allocated / GIB:>10.4f}{told}   {chunks[0]}")
        found += [" " * (52 + 21 * len(methods) + 3) + chunk for chunk in chunks[1:]]
    found.append("")
    for family in FAMILIES:
        for name in methods:
            found.append(f"{family.title}: {name} {_spread(spread_of(measured, name, family.title))}")
    for name in (ANALYTIC, SIMULATED):
        found.append(f"reserved, all: {name} {_spread(spread_of(measured, name, reserved=True))}")
    return found


def _figure(row: Measured, name: str) -> str:
    if name not in row.allocated:
        return f"{'-':>12}{'':>9}"
    return f"{row.allocated[name] / GIB:>12.4f}{_percent(row.error(name), 2):>9}"


def _percent(share: float, digits: int) -> str:
    return f"{share:+.{digits}%}"


def _spread(spread: Spread | None) -> str:
    if spread is None:
        return "not measured"
    return f"median {spread.median:.2%}, worst {spread.worst:+.2%} ({spread.worst_name}), {spread.runs} runs"


def as_json(measured: list[Measured]) -> dict[str, object]:
    """Everything, bytes as integers and errors as fractions."""
    return {
        "schema": 1,
        "workloads": [
            {
                "name": row.name,
                "card": row.card,
                "true_peak_allocated": row.true_allocated,
                "true_peak_reserved": row.true_reserved,
                "methods": {
                    name: {
                        "peak_allocated": size,
                        "error": round(row.error(name), 6),
                        "peak_reserved": row.reserved.get(name),
                    }
                    for name, size in row.allocated.items()
                },
            }
            for row in measured
        ],
        "spreads": [
            {"family": family.title, "method": name, "runs": s.runs, "median": round(s.median, 6), "worst": s.worst}
            for family in FAMILIES
            for name in dict.fromkeys(name for row in measured for name in row.allocated)
            if (s := spread_of(measured, name, family.title)) is not None
        ],
    }
