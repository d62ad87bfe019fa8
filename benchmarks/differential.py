"""Random training scripts, traced and run under a CUDA build of PyTorch: where the two differ, and the smallest script.

    python benchmarks/differential.py --cuda "PYTHON" [--seed 0] [--count 50] [--shrink] [--save]
    python benchmarks/differential.py --replay     # trace every recorded case anew, and say how many are equal

PYTHON starts the interpreter of the CUDA build, with a card or a stubbed driver. `--shrink` cuts each difference down
while it lasts; `--save` adds every case on which the CUDA build answers to `tests/golden/differential.json`, which
`tests/estimators/traced/test_differential.py` replays a sample of without it; `--replay` traces them all.
"""

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.differential_grammar import Case, random_case, smaller
from tests.recorded.differential import GOLDEN, Answer, script_peaks, traced_peaks

ROOT = Path(__file__).parents[1]
ROUNDS = 20
NEAR = 0.01


def answers(cases: Sequence[Case], python: Sequence[str], *options: str) -> list[Answer]:
    """Peaks of allocated and reserved for each case, or why there are none."""
    return script_peaks([(case.device, case.script()) for case in cases], python, *options)


def both(cases: Sequence[Case], cuda: Sequence[str]) -> list[tuple[Answer, Answer]]:
    """What the CUDA build and the tracer say of each case."""
    return list(zip(answers(cases, cuda, "--cuda"), answers(cases, [sys.executable]), strict=True))


def differs(true: Answer, traced: Answer) -> bool:
    """Whether the tracer is off, or refuses what runs."""
    return isinstance(true, list) and (isinstance(traced, str) or true[0] != traced[0])


def shrunk(case: Case, cuda: Sequence[str]) -> Case:
    """The smallest case found that still differs."""
    for _ in range(ROUNDS):
        tries = list(smaller(case))
        left = [tried for tried, found in zip(tries, both(tries, cuda), strict=True) if differs(*found)]
        if not left:
            break
        case = left[0]
    return case


def save(cases: Sequence[Case], found: Sequence[tuple[Answer, Answer]]) -> int:
    """Add the cases with an answer to the golden file; how many it holds then."""
    kept: dict[str, Any] = {}
    if GOLDEN.exists():
        kept = {row["script"]: row for row in json.loads(GOLDEN.read_text(encoding="utf-8"))}
    for case, (true, traced) in zip(cases, found, strict=True):
        if isinstance(true, list):
            off = differs(true, traced)
            script = case.script()
            row = {"device": case.device, "allocated": true[0], "reserved": true[1], "off": off, "script": script}
            kept[script] = kept.get(script, {}) | row
    GOLDEN.write_text("[\n" + ",\n".join(map(json.dumps, kept.values())) + "\n]\n", encoding="utf-8")
    return len(kept)


def replay() -> int:
    """Trace every recorded case anew; 1 where one that was equal is no longer."""
    rows = json.loads(GOLDEN.read_text(encoding="utf-8"))
    found = traced_peaks([(row["device"], row["script"]) for row in rows])
    equal = [isinstance(got, list) and got[0] == row["allocated"] for row, got in zip(rows, found, strict=True)]
    near = sum(
        isinstance(got, list) and abs(got[1] / row["reserved"] - 1) <= NEAR
        for row, got in zip(rows, found, strict=True)
    )
    worse = [row["script"] for row, same in zip(rows, equal, strict=True) if not same and not row["off"]]
    print(f"{len(rows)} cases: allocated equal to the byte in {sum(equal)} ({sum(equal) / len(rows):.1%}),")
    print(f"reserved within {NEAR:.0%} in {near} ({near / len(rows):.1%}); {len(worse)} were equal when recorded")
    print("\n\n".join(worse))
    return 1 if worse else 0


def main() -> int:
    """Run what is asked for; 1 where anything differs."""
    if sys.argv[1:] == ["--replay"]:
        return replay()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cuda", required=True, type=shlex.split)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--shrink", action="store_true")
    parser.add_argument("--save", action="store_true")
    asked = parser.parse_args()
    cases = [random_case(seed) for seed in range(asked.seed, asked.seed + asked.count)]
    found = both(cases, asked.cuda)
    wrong = [(seed, case, pair) for seed, (case, pair) in enumerate(zip(cases, found, strict=True)) if differs(*pair)]
    ran = sum(isinstance(true, list) for true, _ in found)
    print(f"{ran} of {len(cases)} ran, {ran - len(wrong)} traced equal to the byte")
    for seed, case, (true, traced) in wrong:
        print(f"\nseed {asked.seed + seed} on {case.device}: {true} on CUDA, {traced} traced")
        print((shrunk(case, asked.cuda) if asked.shrink else case).script())
    if asked.save:
        print(f"{save(cases, found)} cases in {GOLDEN.relative_to(ROOT)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
