"""Run every case of public reports through the commands that a person would type, and compare the figures.

    python -m benchmarks.cases [-v] [KIND ...]

The cases and what counts as right are in `tests/recorded/cases.py`. `-v` prints the answers of those that are not.
"""

import os
import sys
from collections import Counter, defaultdict

from tests.recorded.cases import VERDICTS, Outcome, outcomes


def size_text(name: str, size: float | None) -> str:
    if size is None:
        return "none"
    return f"{size:,.0f}" if name.endswith("tokens") else f"{size / 2**30:.2f} GiB"


def counts_table(found: list[Outcome]) -> str:
    """How many cases of each kind have which verdict, as docs/accuracy.md has it."""
    by_kind: dict[str, Counter[str]] = defaultdict(Counter)
    for one in found:
        by_kind[one.kind][one.verdict] += 1
    lines = ["| kind | cases | " + " | ".join(VERDICTS) + " |", "| --- |" + " ---: |" * (len(VERDICTS) + 1)]
    for kind, counts in sorted(by_kind.items()):
        cells = [str(counts[verdict]) for verdict in VERDICTS]
        lines.append(f"| {kind} | {counts.total()} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(arguments: list[str]) -> None:
    """Print each figure beside the true one, what is not right, and the counts."""
    explain = "-v" in arguments
    os.environ["COLUMNS"] = "1000"  # answers in which words are looked for are not wrapped
    found = outcomes(name for name in arguments if name != "-v")
    for one in found:
        if one.figures or one.verdict != "right":
            print(f"{one.verdict:10}{one.kind}/{one.name}")
        for name, (guess, true) in one.figures.items():
            off = "" if guess is None else f"{guess / true - 1:+8.1%}"
            print(f"{'':12}{name:28}{size_text(name, guess):>14}{size_text(name, true):>14}{off}")
        if explain and one.verdict != "right" and not one.answer.startswith("{\n"):
            print(f"{'':12}{one.answer.strip()[:600]}")
    print(f"\n{counts_table(found)}")


if __name__ == "__main__":
    main(sys.argv[1:])
