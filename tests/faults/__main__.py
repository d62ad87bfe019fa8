"""Prints every fault and all that a person sees of it: python -m tests.faults [WORD …] picks those with these words.

`--generated` judges every call x every way to go wrong x when by rules instead: some 4,000 combinations, in about a
minute, on every processor. `--installed N` does N of these, half of them hangs, to the installed program in a terminal.
"""

import os
import sys
import time
from argparse import ArgumentParser
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.faults.cases import FAULTS
from tests.faults.combinations import combinations
from tests.faults.host import look
from tests.faults.installed import meet, sample
from tests.faults.share import judge_share
from tests.faults.table import title


def table(words: list[str]) -> None:
    """The table, as it comes out now."""
    for fault in FAULTS:
        if not all(word in fault.name for word in words):
            continue
        with TemporaryDirectory(prefix="vramtui-") as folder:
            seen = look(fault, Path(folder))
        sys.stdout.write("\n".join((title(fault, seen), *(f"    {line}" for line in seen.lines))) + "\n\n")


def generated(words: list[str], jobs: int) -> int:
    """Judge them all; the exit code is 1 where a rule is broken."""
    begun = time.monotonic()
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        parts = list(pool.map(judge_share, [words] * jobs, range(jobs), [jobs] * jobs))
    took, spent = time.monotonic() - begun, sum(part.spent for part in parts)
    broken = [line for part in parts for line in part.broken]
    sys.stdout.writelines(f"{line}\n" for line in broken)
    cases, met = sum(part.cases for part in parts), sum(part.met for part in parts)
    sys.stdout.write(f"{cases} combinations in {took:.0f} s ({spent:.0f} s of processor): ")
    sys.stdout.write(f"in {met} the call was made; {len(broken)} broke a rule\n")
    return int(bool(broken))


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
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes that --generated uses")
    parser.add_argument("--installed", type=int, default=0, metavar="N")
    parser.add_argument("words", nargs="*", metavar="WORD")
    options = parser.parse_args()
    if options.installed:
        return installed(options.installed, options.words)
    if options.generated:
        return generated(options.words, max(1, options.jobs))
    table(options.words)
    return 0


if __name__ == "__main__":
    sys.exit(main())
