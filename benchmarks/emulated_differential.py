"""The recorded random scripts on emulated cards: `python -m benchmarks.emulated_differential PYTHON [--every N]`.

PYTHON is an interpreter with torch 2.13.0's CUDA build. The scripts of `tests/golden/differential.json` run on the
driver of `run --on` in forks of one process a card; their peaks of allocated and reserved are held against the
recording, to the byte. `--every 8` takes every eighth. Exit code 1 where one differs.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from tests.recorded.differential import GOLDEN, RUNNER, Answer
from vramtui.core.estimate.devices import card
from vramtui.driver.build import build
from vramtui.driver.environment import EmulatedCard, emulating
from vramtui.estimators.torch_facts.cards import card_limits


def emulated_peaks(python: str, name: str, scripts: list[str], folder: Path) -> list[Answer]:
    """Peaks of allocated and reserved of each script on a card that is not there, or why there are none."""
    device = card(name)
    emulated = EmulatedCard(device=device, multiprocessors=card_limits(device).multiprocessors)
    source, peaks = folder / "scripts.json", folder / "peaks.json"
    source.write_text(json.dumps([[name, script] for script in scripts]), encoding="utf-8")
    environment = emulating(os.environ, emulated, build(folder / "driver"), folder)
    subprocess.run([python, str(RUNNER), str(source), str(peaks), "--cuda"], check=True, env=environment)
    found: list[Answer] = json.loads(peaks.read_text(encoding="utf-8"))
    return found


def main() -> None:
    """Run them card by card and say which differ."""
    asked = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    asked.add_argument("python")
    asked.add_argument("--every", type=int, default=1)
    options = asked.parse_args()
    rows: list[dict[str, Any]] = json.loads(GOLDEN.read_text(encoding="utf-8"))[:: options.every]
    counts: Counter[str] = Counter()
    for name in sorted({row["device"] for row in rows}):
        mine = [row for row in rows if row["device"] == name]
        with tempfile.TemporaryDirectory() as folder:
            answers = emulated_peaks(options.python, name, [row["script"] for row in mine], Path(folder))
        for row, answer in zip(mine, answers, strict=True):
            equal = answer == [row["allocated"], row["reserved"]]
            counts["equal" if equal else "no answer" if isinstance(answer, str) else "differ"] += 1
            if not equal:
                print(f"{name} {rows.index(row) * options.every}: {answer} for {row['allocated']} {row['reserved']}")
    print(", ".join(f"{count} {word}" for word, count in counts.most_common()))
    sys.exit(0 if counts["equal"] == len(rows) else 1)


if __name__ == "__main__":
    main()
