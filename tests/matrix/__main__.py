"""Runs jobs below the program and compares them with the bare job: python -m tests.matrix [--sample N] [WORD ...].

A cell is one of each axis; words leave only the cells that have all of them in their names. The exit code, the bytes on
both streams, the files that are left and the processes that are left have to be those of the bare job, but for files
that a dry run throws away. Set MATRIX_CPU and MATRIX_CUDA to Pythons with these builds of PyTorch; cells of a build
without one are skipped.
"""

import sys
from argparse import ArgumentParser
from concurrent.futures import ThreadPoolExecutor
from os import cpu_count
from tempfile import TemporaryDirectory

from tests.dryrun.test_shielded_jobs import open_folder
from tests.matrix.cells import CELLS, Machine, sampled


def main() -> int:
    """Run them; the exit code is 1 if one differs."""
    parser = ArgumentParser(prog="python -m tests.matrix", description=__doc__)
    parser.add_argument("--sample", type=int, default=0, help="only so many cells, spread over all")
    parser.add_argument("words", nargs="*", help="words in the cells' names")
    options = parser.parse_args()
    cells = [cell for cell in CELLS if set(options.words) <= set(cell.name.split())]
    cells = sampled(cells, options.sample) if options.sample else cells
    counts = {"equal": 0, "different": 0, "skipped": 0}
    with TemporaryDirectory(prefix="vt", dir=open_folder()) as folder, ThreadPoolExecutor(cpu_count()) as threads:
        machine = Machine(folder)
        for cell, differences in zip(cells, threads.map(machine.differences, cells), strict=True):
            result = "skipped" if differences is None else "different" if differences else "equal"
            counts[result] += 1
            for difference in differences or ():
                sys.stdout.write(f"{cell.name}: {difference}\n")
                sys.stdout.flush()
    summary = ", ".join(f"{count} {name}" for name, count in counts.items())
    sys.stdout.write(f"{len(cells)} of {len(CELLS)} cells: {summary}\n")
    return bool(counts["different"])


if __name__ == "__main__":
    sys.exit(main())
