"""Prints every fault and all that a person sees of it: python -m tests.faults [WORD …] picks those with these words.

`--generated` judges every call x every way to go wrong x when by rules instead: some 4,000 combinations, in about two
minutes on a quiet machine. `--installed N` does N of these, half of them hangs, to the installed program in a terminal.
"""

import sys
import time
from argparse import ArgumentParser
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.faults.cases import FAULTS
from tests.faults.combinations import combinations
from tests.faults.host import look
from tests.faults.installed import meet, sample
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


def installed(count: int, words: list[str]) -> int:
    """Some of them in the installed program: the other card lives, q ends it, and the terminal is as before."""
    cases = sample([case for case in combinations() if all(word in case.name for word in words)], count)
    broken, slowest = 0, (0.0, "")
    for case in cases:
        with TemporaryDirectory(prefix="vramtui-") as folder:
            met = meet(case, Path(folder))
        broken += bool(met.broken)
        slowest = max(slowest, (met.seconds, case.name))
        sys.stdout.writelines(f"{case.name}: {rule}\n" for rule in met.broken)
    sys.stdout.write(f"{len(cases)} programs: {broken} broke a rule; the slowest end after q took {slowest[0]:.2f} s")
    sys.stdout.write(f" ({slowest[1]})\n")
    return int(broken > 0)


def main() -> int:
    """Read the arguments; the exit code."""
    parser = ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--generated", action="store_true")
    parser.add_argument("--installed", type=int, default=0, metavar="N")
    parser.add_argument("words", nargs="*", metavar="WORD")
    options = parser.parse_args()
    if options.installed:
        return installed(options.installed, options.words)
    if options.generated:
        return generated(options.words)
    table(options.words)
    return 0


if __name__ == "__main__":
    sys.exit(main())
