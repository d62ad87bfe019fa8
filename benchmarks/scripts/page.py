"""The tables of docs/scripts.md: a row a script, what rows say, and whether a new one is worse."""

import re
from typing import Any

MOVED = 0.0005  # of a figure: the tables' own are rounded to a tenth of a MiB
_ROW = re.compile(r"^\| (?:\d+ \| )?\[(?P<name>[^]]+)\]")
ROUNDS = "| round | "  # how the head of their table begins
WITHIN = {"allocated": 0.005, "reserved": 0.03}  # of the truth
# What came of a script at the first try, and the column of the counts that it stands in.
FIRST = {
    "answered": "answered at the first try",
    "limit": "refused as a limit of the trace",
    "blamed": "blamed the script",
    "slow": "no answer in 500 s",
}

HEAD = (
    "| script | arguments | CPU seconds | allocated MiB | error | reserved MiB | error | run at | |",
    "|---|---|---:|---:|---:|---:|---:|---|---|",
)


def line(row: dict[str, Any]) -> str:
    """What is known of a script, as a row of Markdown; peaks in MiB, errors as (trace - truth) / truth."""
    cells = [
        f"[{row['name']}](https://github.com/{row['repository']}/tree/{row['commit']})",
        f"`{row['arguments']}`",
    ]
    cells.append(f"{row['seconds']:.0f}")
    cells += [*_peaks(row), row.get("run_at", "")]
    note = row.get("refusal") or ("bounded" if row.get("bounded") else "")
    cells.append("; ".join(filter(None, (note, row.get("note", "")))))
    return f"| {' | '.join(cells)} |"


def _peaks(row: dict[str, Any]) -> list[str]:
    """The four cells of figures; empty where there is none."""
    cells = []
    for figure in WITHIN:
        size, truth = row.get(figure), row.get(f"true_{figure}")
        cells.append("" if size is None else f"{size / 2**20:,.1f}")
        cells.append("" if size is None or not truth else f"{100 * (size - truth) / truth:+.2f} %")
    return cells


def round_line(row: dict[str, Any]) -> str:
    """A script of a round as a row of Markdown; its note says why it has no figures, or no truth."""
    script = f"[{row['name']}](https://github.com/{row['repository']}/tree/{row['commit']})"
    note = row.get("note") or ("bounded" if row.get("bounded") else "")
    return f"| {' | '.join([str(row['round']), script, *_peaks(row), row.get('run_at', ''), note])} |"


def figures(page: str) -> dict[str, dict[str, float]]:
    """What the tables in `page` say of each script: MiB, and its error against the truth where there is one."""
    columns = ("allocated", "allocated_error", "reserved", "reserved_error")
    known = {}
    for one in page.splitlines():
        row = _ROW.match(one)
        if row:
            begin = 3 if one[2].isdigit() else 4
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", one)[begin : begin + 4]]
            known[row["name"]] = {
                name: float(cell.removesuffix("%").replace(",", "")) / (100 if "%" in cell else 1)
                for name, cell in zip(columns, cells, strict=True)
                if cell
            }
    return known


def got_worse(row: dict[str, Any], before: dict[str, float]) -> str:
    """Why a script's new row is worse than the table's, in words; "" where it is not."""
    if "allocated" not in before:
        return ""
    if "refusal" in row:
        return f"no longer answered: {row['refusal']}"
    worse = []
    for name in WITHIN:
        error = before.get(f"{name}_error")
        if error is not None and before[name]:
            now = (1 + error) * row[name] / 2**20 / before[name] - 1
            if abs(now) > abs(error) + max(MOVED, 0.05 / before[name]):
                worse.append(f"{name} {100 * error:+.2f} % to {100 * now:+.2f} %")
    return ", ".join(worse)


def moved(row: dict[str, Any], before: dict[str, float]) -> str:
    """By how much a script's peaks are others than the table's, in words; "" where they are not."""
    seen = {name: f"{row[name] / 2**20:,.1f}" for name in WITHIN if name in row and name in before}
    return ", ".join(
        f"{name} {before[name]:,.1f} to {size} MiB" for name, size in seen.items() if size != f"{before[name]:,.1f}"
    )


def with_table(page: str, names: list[str], rows: dict[str, dict[str, Any]]) -> str:
    """`page` with its table made anew: the scripts of `names` in their order, those without a row in `rows` as they
    stand on the page; what stands before and after the table stays.
    """
    before = {one[3:].partition("]")[0]: one for one in _table(page, "| script ") if one.startswith("| [")}
    table = [line(rows[name]) if name in rows else before.get(name, "") for name in names]
    return _replaced(page, "| script ", [*HEAD, *filter(None, table)])


def with_rounds(page: str, scripts: list[dict[str, Any]], rows: dict[str, dict[str, Any]]) -> str:
    """`page` with the rows of rounds.toml: one that stands there stays as it came; and with the counts of all.

    Args:
        page: docs/scripts.md.
        scripts: those of rounds.toml; `first` says what came of each at the first try.
        rows: what is known of them by now.
    """
    table = _table(page, ROUNDS)
    before = {found["name"]: one for one in table if (found := _ROW.match(one))}
    lines = {
        one["name"]: before.get(one["name"]) or round_line(rows[one["name"]] | one)
        for one in sorted(scripts, key=lambda one: int(one["round"]))
        if one["name"] in before or one["name"] in rows
    }
    page = _replaced(page, ROUNDS, [*table[:2], *lines.values()])
    counted = [one for one in scripts if one["name"] in lines]
    known = figures("\n".join(lines.values()))
    heads = _table(page, "| | tried ")[:2]
    return _replaced(page, "| | tried ", [*heads, *_counts(counted, known)])


def _counts(scripts: list[dict[str, Any]], known: dict[str, dict[str, float]]) -> list[str]:
    lines = []
    for number in sorted({one["round"] for one in scripts}):
        chosen = [one for one in scripts if one["round"] == number]
        true = [known[one["name"]] for one in chosen if "allocated_error" in known[one["name"]]]
        good = [one for one in true if all(abs(one[f"{name}_error"]) <= most for name, most in WITHIN.items())]
        first = [sum(one["first"] == kind for one in chosen) for kind in FIRST]
        lines.append(f"| round {number} | {' | '.join(map(str, (len(chosen), *first, len(true), len(good))))} |")
    return lines


def _table(page: str, begins: str) -> list[str]:
    """The lines of the first table of `page` whose head begins so."""
    lines = page.splitlines()
    first = next((i for i, one in enumerate(lines) if one.startswith(begins)), len(lines))
    last = next((i for i in range(first, len(lines)) if not lines[i].startswith("|")), len(lines))
    return lines[first:last]


def _replaced(page: str, begins: str, table: list[str]) -> str:
    """`page` with another table in place of that; at its end where it has none."""
    lines, old = page.splitlines(), _table(page, begins)
    first = lines.index(old[0]) if old else len(lines)
    return "\n".join([*lines[:first], *table, *lines[first + len(old) :]]) + "\n"
