"""How far estimates are off by kind of job, on public models that nobody fitted them to, and the ranges that follow.

    python benchmarks/stated_errors.py            # for each kind: runs, families, and how many lie inside
    python benchmarks/stated_errors.py --runs     # every run
    python benchmarks/stated_errors.py --table    # the ranges, as the estimators state them

A range reaches from the least to the most of the errors of a kind, widened by a quarter of that on each side and
rounded up to whole percents; with fewer than eight families by half of it, and to 5 % at least. A run is held against
the range that the other families of its kind alone would give.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.recorded.stated_errors import HEAD, measured, summary, table


def main(arguments: list[str]) -> None:
    """Print what is asked for."""
    what = arguments[0] if arguments else "--summary"
    if what == "--runs":
        for run in measured()[0]:
            off = ", ".join(f"{name} {error:+.2%}" for name, error in run.reserved.items())
            print(f"{run.name:<44}{run.kind:<24}allocated {run.allocated:+.2%}, reserved: {off}")
    elif what == "--table":
        print(table())
    else:
        for row in (HEAD, *summary()):
            print("".join(f"{cell:<26}" for cell in row).rstrip())


if __name__ == "__main__":
    main(sys.argv[1:])
