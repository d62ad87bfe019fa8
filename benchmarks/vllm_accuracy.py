"""How far the estimate of a vLLM server is from what vLLM 0.19 wrote at its start on H100s.

    python benchmarks/vllm_accuracy.py

The figures are those of 31 public start-up logs (`tests/golden/serving/vllm_h100.csv`). vLLM writes GiB with two
digits after the point, so that small parts are known to some percent only.
"""

import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.recorded.vllm_logs import PARTS, errors, rows


def main() -> None:
    """Print a row for each log and the errors of each part."""
    found = list(rows())
    print(f"{'':74}" + "".join(f"{part:>12}" for part in PARTS))
    for row in found:
        told = "".join(f"{row.parts[part][0] / row.parts[part][1] - 1:>+12.2%}" for part in PARTS)
        print(f"{row.name + ('' if row.counted else ' *'):74}{told}")
    print("* also sees, or in mxfp4: the tower, its pictures and the padding of experts are not in the estimate")
    for title, chosen in (("all", found), ("without *", [row for row in found if row.counted])):
        for label, of in (("median", statistics.median), ("worst", max)):
            told = "".join(f"{of([abs(error) for error in errors(part, chosen)]):>12.2%}" for part in PARTS)
            print(f"{f'{title}, {len(chosen)} logs: {label}, absolute':74}{told}")


if __name__ == "__main__":
    main()
