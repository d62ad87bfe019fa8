"""How far each method is off, for every workload whose true peak PyTorch's own allocator told.

python benchmarks/accuracy.py             a line for each workload: true peak, and the error of each method that fits
python benchmarks/accuracy.py --json      the same, as numbers of bytes
python benchmarks/accuracy.py --markdown  the table of methods and their errors that is in docs/accuracy.md
python benchmarks/accuracy.py --update-page
"""

import argparse
import sys
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.recorded.accuracy import PAGE, markdown, measure, page


def main() -> int:
    """Print what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true")
    how.add_argument("--markdown", action="store_true")
    how.add_argument("--update-page", action="store_true")
    asked = parser.parse_args()
    measured = measure()
    if asked.json:
        print(msgspec.json.format(msgspec.json.encode(measured)).decode())
    elif asked.markdown:
        print(markdown(measured))
    elif asked.update_page:
        PAGE.write_text(page(measured), encoding="utf-8")
    else:
        for row in measured:
            told = [f"{name} {figure / row.true_allocated - 1:+.2%}" for name, figure in row.allocated.items()]
            print(f"{row.name:<36}{row.card:>6}{row.true_allocated / (1 << 30):>10.4f} GiB  {', '.join(told)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
