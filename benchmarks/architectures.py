"""How many of transformers' architectures are answered from their config alone, and how many to the number.

    make python ARGS=benchmarks/architectures.py       # prints the table
    python benchmarks/architectures.py --rest          # and every other by name, with how far off it is
    python benchmarks/architectures.py --markdown    # the section of docs/accuracy.md

The truth is recorded in tests/golden/architectures: what transformers builds on the meta device from
each default config.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.recorded.architectures import KINDS, checked, page, recorded, table


def main() -> None:
    """Print it."""
    if "--markdown" in sys.argv:
        sys.stdout.write("\n".join(page()) + "\n")
        return
    out = table()
    if "--rest" in sys.argv:
        for kind in KINDS:
            for one in map(checked, recorded(kind)):
                if one.verdict != "equal":
                    off = "" if one.off is None else f" ({one.off:+.1%})"
                    out.append(f"{kind:10} {one.verdict:8} {one.model_type} ({one.architecture}): {one.reason}{off}")
    sys.stdout.write("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
