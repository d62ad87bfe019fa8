"""Judge every call x every way to go wrong x when by rules: some 4,000 combinations, in about a minute, on every core.

python -m tests.faults [--generated] [WORD ...] picks those with these words. Exit: 1 where a rule is broken.
"""

import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.faults.combinations import combinations
from tests.faults.rules import bench

MEMORY = "/dev/shm"
JOBS = os.cpu_count() or 1


def judge_share(words: list[str], first: int) -> tuple[int, int, list[str]]:
    """Judge every so many of them: how many there were, in how many the call was made, and what broke a rule.

    A world is renamed over the one before it some 20,000 times, which a disk takes milliseconds for, so it is kept in
    memory if there is a folder for that.
    """
    cases = [case for case in combinations() if all(word in case.name for word in words)][first::JOBS]
    met, broken = 0, []
    memory = MEMORY if os.access(MEMORY, os.W_OK) else None
    with TemporaryDirectory(prefix="vramtui-", dir=memory) as folder, bench(Path(folder)) as judge_of:
        for case in cases:
            judged = judge_of.judge(case)
            met += judged.met
            broken += [f"{case.name}: {'; '.join(judged.broken)}"] if judged.broken else []
    return len(cases), met, broken


def main(words: list[str]) -> int:
    share = import_module("tests.faults.__main__").judge_share  # spawned processes do not load a package's `__main__`
    begun = time.monotonic()
    with ProcessPoolExecutor(JOBS, mp_context=get_context("spawn")) as pool:
        counts, met, broken = zip(*pool.map(share, [words] * JOBS, range(JOBS)), strict=True)
    lines = [line for part in broken for line in part]
    sys.stdout.writelines(f"{line}\n" for line in lines)
    seconds = f"{time.monotonic() - begun:.0f} s"
    sys.stdout.write(f"{sum(counts)} in {seconds}: in {sum(met)} the call was made; {len(lines)} broke a rule\n")
    return int(bool(lines) or not sum(counts))


if __name__ == "__main__":
    sys.exit(main([word for word in sys.argv[1:] if word != "--generated"]))  # all are generated
