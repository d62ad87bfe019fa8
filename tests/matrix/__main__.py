"""Runs jobs below the program and compares them with the bare job: python -m tests.matrix [--sample N] [WORD ...].

A cell is one of each axis; words leave only the cells that have all of them in their names. The exit code, the bytes on
both streams, the files that are left and the processes that are left have to be those of the bare job, but for files
that a dry run throws away. Set MATRIX_CPU and MATRIX_CUDA to Pythons with these builds of PyTorch that any user may run
(`/usr/bin/python3 -m venv /opt/cpu`); cells of a build without one are skipped. All take an hour on one core.
"""

import os
import sys
from argparse import ArgumentParser
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.dryrun.test_shielded_jobs import open_folder
from tests.matrix.cells import CELLS, Machine, sampled


def main() -> int:
    parser = ArgumentParser(prog="python -m tests.matrix", description=__doc__)
    parser.add_argument("--sample", type=int, default=len(CELLS), help="only so many cells, spread over all")
    parser.add_argument("--answers", type=Path, default=os.devnull, help="a file of answers; equal cells are not rerun")
    parser.add_argument("words", nargs="*", help="words in the cells' names")
    options = parser.parse_args()
    cells = sampled([cell for cell in CELLS if set(options.words) <= set(cell.name.split())], options.sample)
    counts: Counter[str] = Counter()
    with TemporaryDirectory(prefix="vt", dir=open_folder()) as folder, options.answers.open("a+") as answers:
        machine = Machine(folder)
        answers.seek(0)
        kept = set(answers.read().splitlines())
        for cell in cells:
            line = f"equal {cell.name}"
            if line not in kept:
                differences = machine.differences(cell)
                result = "skipped" if differences is None else "different" if differences else "equal"
                line = "; ".join((f"{result} {cell.name}", *(differences or ())))
                for file in (answers, sys.stdout) if differences else (answers,):
                    file.write(f"{line}\n")
                    file.flush()
            counts[line.split()[0]] += 1
    sys.stdout.write(f"{len(cells)} of {len(CELLS)} cells: {dict(counts)}\n")
    return bool(counts["different"])


if __name__ == "__main__":
    sys.exit(main())
