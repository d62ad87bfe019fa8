"""The generated faults in shares: what one process judges of them."""

import os
import resource
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from tests.faults.combinations import combinations
from tests.faults.rules import bench

MEMORY = "/dev/shm"


class Share(NamedTuple):
    """What came of one process's share: how many there were, in how many the call was made, and seconds of CPU."""

    cases: int
    met: int
    broken: list[str]
    spent: float


def judge_share(words: list[str], first: int, step: int) -> Share:
    """Judge every so many of them. A world is renamed over the one before it some 20,000 times, which a disk takes
    milliseconds for, so it is kept in memory where there is such a folder.
    """
    cases = [case for case in combinations() if all(word in case.name for word in words)][first::step]
    met, broken = 0, []
    memory = MEMORY if os.access(MEMORY, os.W_OK) else None
    with TemporaryDirectory(prefix="vramtui-", dir=memory) as folder, bench(Path(folder)) as judge_of:
        for case in cases:
            judged = judge_of.judge(case)
            met += judged.met
            broken += [f"{case.name}: {'; '.join(judged.broken)}"] if judged.broken else []
    used = resource.getrusage(resource.RUSAGE_SELF)
    return Share(len(cases), met, broken, used.ru_utime + used.ru_stime)
