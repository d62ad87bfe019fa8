"""The recorded training runs on an emulated card: `emulated_training.py PYTHON [NAME …]`.

PYTHON is an interpreter with torch 2.13.0's CUDA build (`pip install 'torch===2.13.0' numpy transformers==5.23.0`).
Each run is `vramtui run --on CARD --json -- PYTHON golden_training.py NAME`; its peaks, and what is allocated and
reserved at the end of each forward and backward pass and step, are held against the recording, to the byte.
`--record FILE` writes what came of it as JSON.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests" / "golden" / "training"
CARDS = {"h200": "H200", "a100": "A100-80GB"}
PHASES = ("forward", "backward", "step")


def measured(python: str, card: str, name: str) -> dict[str, Any]:
    """What `vramtui run --on` says of one run."""
    command = [sys.executable, "-m", "vramtui", "run", "--on", card, "--json", "--"]
    job = [python, str(ROOT / "benchmarks" / "golden_training.py"), name]
    ran = subprocess.run([*command, *job], capture_output=True, text=True, check=False, cwd=ROOT, timeout=1800)
    if not ran.stdout.startswith("{"):
        raise SystemExit(f"{name}: {ran.stderr[-500:]}")
    found: dict[str, Any] = json.loads(ran.stdout)["cards"][0]
    return found


def difference(found: dict[str, Any], golden: dict[str, Any]) -> str:
    """The first figure that is not the recording's; empty where all are."""
    for ours, theirs in (("allocated", "peak_allocated"), ("reserved", "peak_reserved")):
        if found[ours] != golden[theirs]:
            return f"{theirs} {found[ours]} for {golden[theirs]}"
    ends = {(row[0], row[1]): (row[2], row[3]) for row in golden["rows"]}  # the last of a phase, as with accumulation
    told = {(one["phase"], one["step"]): (one["allocated"], one["reserved"]) for one in found["phases"]}
    for key, end in ends.items():
        if key[0] in PHASES and told.get(key) != end:
            return f"{key[0]} of step {key[1]}: {told.get(key)} for {end}"
    return ""


def main() -> None:
    """Run them and print a line for each."""
    asked = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    asked.add_argument("python")
    asked.add_argument("names", nargs="*")
    asked.add_argument("--record", type=Path)
    options = asked.parse_args()
    rows = []
    for folder, card in CARDS.items():
        for path in sorted((GOLDEN / folder).glob("*.json")):
            if options.names and path.stem not in options.names:
                continue
            since = time.perf_counter()
            golden = json.loads(path.read_text(encoding="utf-8"))
            found = measured(options.python, card, path.stem)
            off = difference(found, golden)
            seconds = round(time.perf_counter() - since, 1)
            figures = {key: found[key] for key in ("allocated", "reserved", "verdict", "unmodelled", "reads")}
            rows.append({"card": card, "name": path.stem, "difference": off, "seconds": seconds, **figures})
            print(f"{card:10} {path.stem:36} {seconds:6.1f} s  {off or 'equal to the byte'}", flush=True)
            if options.record is not None:
                document = {"torch": "2.13.0+cu130", "runs": rows}
                options.record.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(f"{sum(not row['difference'] for row in rows)} of {len(rows)} equal to the byte")


if __name__ == "__main__":
    main()
