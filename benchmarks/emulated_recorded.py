"""Run the recorded scripts and jobs on simulated GPUs: `python -m benchmarks.emulated_recorded PYTHON KEPT.json`.

PYTHON is an interpreter with torch 2.13.0's CUDA build; the saver jobs also need transformers, peft, bitsandbytes and
liger-kernel. The 477 random scripts of `tests/golden/differential.json` and the 97 jobs of `tests/golden/savers.json`
run on the driver of `dry-run`, forty at a time in forks of one process that has loaded torch. Their peaks of allocated
and reserved memory are compared with the recording, to the byte. KEPT.json has the answers, which are not computed
again; `--again` repeats those that were not equal. `differential` or `savers` as the last word runs only these. Exit
code 1 if one differs.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from itertools import groupby
from pathlib import Path

import msgspec

from tests.recorded.accuracy import SAVER_JOBS
from tests.recorded.differential import GOLDEN, RUNNER, Answer
from vramtui.core.estimate.devices import card
from vramtui.dryrun.cuda.build import build
from vramtui.dryrun.cuda.environment import EmulatedCard, emulating, lay_out
from vramtui.estimators.torch_facts.cards import card_limits

ROOT = Path(__file__).parents[1]
AT_A_TIME = 40


class RecordedScript(msgspec.Struct, frozen=True, kw_only=True):
    """A script with the peaks of allocated and reserved, in bytes, that were recorded of it on a card."""

    kind: str
    name: str
    card: str
    text: str
    peaks: list[int]


def recorded_scripts() -> list[RecordedScript]:
    """All of them, by kind and card, each under the name by which its answer is kept."""
    found = [
        RecordedScript(
            kind="differential",
            name=f"differential {number}",
            card=row["device"],
            text=row["script"],
            peaks=[row["allocated"], row["reserved"]],
        )
        for number, row in enumerate(json.loads(GOLDEN.read_text(encoding="utf-8")))
    ]
    for job in json.loads(SAVER_JOBS.read_text(encoding="utf-8")):
        peaks = [job.pop("allocated"), job.pop("reserved")]
        text = f"from benchmarks.saver_jobs import run\nrun({job!r})"
        found.append(RecordedScript(kind="savers", name=job["name"], card=job["device"], text=text, peaks=peaks))
    return sorted(found, key=lambda script: (script.kind, script.card))


def emulated_peaks(python: str, scripts: list[RecordedScript], folder: Path) -> list[Answer]:
    """Peaks of allocated and reserved of scripts of one kind and card, run in `folder`, or why there are none."""
    device = card(scripts[0].card)
    emulated = EmulatedCard(device=device, multiprocessors=card_limits(device).multiprocessors)
    source, peaks = folder / "scripts.json", folder / "peaks.json"
    source.write_text(json.dumps([[script.card, script.text] for script in scripts]), encoding="utf-8")
    libraries = build(folder / "driver")
    lay_out(folder, libraries)
    environment = emulating(os.environ, emulated, libraries, folder)
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), environment.get("PYTHONPATH"))))
    loaded = ["--loaded"] if scripts[0].kind == "savers" else []
    subprocess.run([python, str(RUNNER), str(source), str(peaks), "--cuda", *loaded], check=True, env=environment)
    found: list[Answer] = json.loads(peaks.read_text(encoding="utf-8"))
    return found


def main() -> None:
    """Run what has no answer yet and say which differ."""
    asked = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    asked.add_argument("python")
    asked.add_argument("kept", type=Path)
    asked.add_argument("kinds", nargs="*", default=["differential", "savers"])
    asked.add_argument("--again", action="store_true")
    options = asked.parse_args()
    scripts = [script for script in recorded_scripts() if script.kind in options.kinds]
    kept: dict[str, Answer] = {}
    if options.kept.exists():
        kept = json.loads(options.kept.read_text(encoding="utf-8"))
    if options.again:
        kept = {script.name: script.peaks for script in scripts if kept.get(script.name) == script.peaks}
    left = [script for script in scripts if script.name not in kept]
    for _, group in groupby(left, key=lambda script: (script.kind, script.card)):
        mine = list(group)
        for first in range(0, len(mine), AT_A_TIME):
            some = mine[first : first + AT_A_TIME]
            with tempfile.TemporaryDirectory() as folder:
                answers = emulated_peaks(options.python, some, Path(folder))
            kept |= {script.name: answer for script, answer in zip(some, answers, strict=True)}
            options.kept.write_text(json.dumps(kept, indent=0), encoding="utf-8")
            print(f"{len(kept)} of {len(scripts)} answered", flush=True)
    counts: Counter[str] = Counter()
    for script in scripts:
        answer = kept[script.name]
        word = "equal" if answer == script.peaks else "no answer" if isinstance(answer, str) else "differ"
        counts[f"{script.kind}: {word}"] += 1
        if word != "equal":
            print(f"{script.name} on {script.card}: {answer} for {script.peaks}")
    print(", ".join(f"{word} {count}" for word, count in sorted(counts.items())))
    sys.exit(0 if all(word.endswith("equal") for word in counts) else 1)


if __name__ == "__main__":
    main()
