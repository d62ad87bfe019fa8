"""How far each method is off, for every workload whose true peak PyTorch's own allocator told.

python benchmarks/accuracy.py             a line for each workload: true peak, analytic, and the rules that fit
python benchmarks/accuracy.py --json      the same, as numbers
python benchmarks/accuracy.py --markdown  the table of methods and their errors that is in docs/accuracy.md
python benchmarks/accuracy.py --update-page
"""

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.recorded.accuracy_errors import measure
from tests.recorded.accuracy_figures import as_json, lines
from tests.recorded.accuracy_page import markdown, update_page


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
        print(json.dumps(as_json(measured), indent=2))
    elif asked.markdown:
        print(markdown(measured))
    elif asked.update_page:
        update_page(measured)
    else:
        print("\n".join(lines(measured)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
