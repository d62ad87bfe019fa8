"""Prints every fault and all that a person sees of it: python -m tests.faults [WORD …] picks those with these words.

`python -m tests.faults --generated [WORD …]` judges every call x every way to go wrong x when by rules instead.
"""

import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.faults.cases import FAULTS
from tests.faults.combinations import combinations
from tests.faults.host import look
from tests.faults.rules import bench
from tests.faults.table import title


def table(words: list[str]) -> None:
    """The table, as it comes out now."""
    for fault in FAULTS:
        if not all(word in fault.name for word in words):
            continue
        with TemporaryDirectory(prefix="vramtui-") as folder:
            seen = look(fault, Path(folder))
        sys.stdout.write("\n".join((title(fault, seen), *(f"    {line}" for line in seen.lines))) + "\n\n")


def generated(words: list[str]) -> int:
    """Judge them all; the exit code is 1 where a rule is broken."""
    cases = [case for case in combinations() if all(word in case.name for word in words)]
    begun, met, broken = time.monotonic(), 0, 0
    with TemporaryDirectory(prefix="vramtui-") as folder, bench(Path(folder)) as judge_of:
        for case in cases:
            judged = judge_of.judge(case)
            met += judged.met
            broken += bool(judged.broken)
            sys.stdout.writelines(f"{case.name}: {rule}\n" for rule in judged.broken)
    took = time.monotonic() - begun
    sys.stdout.write(f"{len(cases)} combinations in {took:.0f} s: in {met} the call was made; {broken} broke a rule\n")
    return int(broken > 0)


if __name__ == "__main__":
    if "--generated" in sys.argv:
        sys.exit(generated([word for word in sys.argv[1:] if word != "--generated"]))
    table(sys.argv[1:])
