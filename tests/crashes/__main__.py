"""Lets every write, fsync and rename of what vramtui keeps fail or be the last: python -m tests.crashes [--every 1].

Old or new, never neither: history, presets, settings, recordings and snapshots. The calls are caught by a library in
front of the C library (crash_shim.c), so that SQLite's are among them. A kill here is one of the process; what a power
cut leaves of data that was not synced is not tried.
"""

import ctypes
import os
import subprocess
import sys
from argparse import ArgumentParser
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.crashes.matrix import Matrix
from tests.crashes.subjects import CARELESS, SUBJECTS

SOURCE = Path(__file__).with_name("crash_shim.c")
FLAGS = ("-std=gnu11", "-O1", "-fPIC", "-shared", "-Wall", "-Wextra", "-U_FORTIFY_SOURCE")


def behind_the_shim() -> int:
    with TemporaryDirectory(prefix="vramtui-") as folder:
        shim = Path(folder) / "crash_shim.so"
        command = [os.environ.get("CC", "cc"), *FLAGS, "-o", str(shim), str(SOURCE), "-ldl"]
        subprocess.run(command, check=True)
        work = Path(folder) / "disk"
        work.mkdir()
        environment = {**os.environ, "LD_PRELOAD": str(shim), "CRASH_FOLDER": f"{work}/"}
        again = [sys.executable, "-m", "tests.crashes", *sys.argv[1:]]
        return subprocess.run(again, env=environment, check=False).returncode


def main() -> int:
    """Do all; the exit code is 1 where something is neither."""
    parser = ArgumentParser(prog="python -m tests.crashes", description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="only every so many-th call")
    parser.add_argument("words", nargs="*", help="words in the subjects' names")
    options = parser.parse_args()
    if "CRASH_FOLDER" not in os.environ:
        return behind_the_shim()
    matrix = Matrix(ctypes.CDLL(os.environ["LD_PRELOAD"]), Path(os.environ["CRASH_FOLDER"]))
    broken = 0
    for subject in (CARELESS,) if options.words == [CARELESS.name] else SUBJECTS:
        if not all(word in subject.name for word in options.words):
            continue
        cases = list(matrix.cases(subject, options.every))
        found = {case.name: wrong for case in cases if (wrong := matrix.judge(case))}
        broken += len(found)
        sys.stdout.writelines(f"{name}: {wrong}\n" for name, wrong in found.items())
        calls = len({case.at for case in cases})
        sys.stdout.write(f"{subject.name}: {len(cases)} cases at {calls} calls, {len(found)} broken\n")
        sys.stdout.flush()
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())
