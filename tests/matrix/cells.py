"""The cells of the matrix: their axes, the jobs, and what is compared."""

import contextlib
import itertools
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tests.dryrun import test_shielded_jobs as jobs
from tests.dryrun.test_shielded_jobs import AS_USER, START, SYSTEM

USERS = ("root", "ordinary")
NAMESPACES = ("namespace", "none")
BUILDS = ("no-torch", "cpu", "cuda")
COMMANDS = ("run", "json", "show", "keep")  # the last three are dry runs
BEGIN = """
import ctypes, os, signal, subprocess, sys, time
def take(size):
    if BUILD != "no-torch":
        import torch
        return torch.empty(size, dtype=torch.uint8, device="cuda" if torch.cuda.is_available() else "cpu")
    malloc = getattr(ctypes.CDLL(None), "cudaMalloc", None)
    if malloc is not None and malloc(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(size)):
        raise MemoryError
def say(text):
    os.write(1, f"out {text}\\n".encode())
    os.write(2, f"err {text}\\n".encode())
    with open(f"left-{text}", "w") as file:
        file.write(text)
"""
JOBS = {
    "exit-0": "take(1 << 20); say('zero')",
    "exit-3": "take(1 << 20); say('three'); sys.exit(3)",
    "signal": "take(1 << 20); say('signal'); os.setpgid(0, 0); os.killpg(0, signal.SIGUSR1)",
    "out-of-memory": "say('before')\nif MANY:\n    take(100 << 30)\nsys.exit(1)",
    "fork": "say('parent')\nif os.fork() == 0:\n    say('child')\n    os._exit(5)\ncode = os.wait()[1] >> 8\n"
    "take(1 << 20)\nsys.exit(code)",
    "spawn": "take(1 << 20)\nif sys.argv[1:]:\n    say('child'); sys.exit(6)\n"
    "sys.exit(subprocess.call([sys.executable, __file__, 'child']))",
    "daemon": "take(1 << 20); say('before')\nif os.fork() == 0:\n    os.setsid()\n    os.closerange(0, 3)\n"
    "    time.sleep(60)\nsys.stdout.flush()",
    "closed-descriptors": "take(1 << 20); os.closerange(3, 256)\nown = os.open('own', os.O_CREAT | os.O_WRONLY)\n"
    "os.write(own, b'own'); say('closed'); os.close(own)",
    "full-disk": "take(1 << 20); say('full')\ntry:\n    with open('/dev/full', 'w') as file:\n        file.write('x')\n"
    "except OSError as error:\n    say(str(error.errno)); sys.exit(4)",
    "no-home": "take(1 << 20); say(str(os.environ.get('HOME')))",
}
ENDED = re.compile(r"ended with (\d+)")


class Cell(msgspec.Struct, frozen=True):
    user: str
    namespace: str
    build: str
    command: str
    job: str

    @property
    def name(self) -> str:
        return " ".join(msgspec.structs.astuple(self))


CELLS = [Cell(*axes) for axes in itertools.product(USERS, NAMESPACES, BUILDS, COMMANDS, JOBS)]


def sampled(cells: Sequence[Cell], count: int) -> list[Cell]:
    return [cells[at * 97 % len(cells)] for at in range(min(count, len(cells)))]


class Outcome(msgspec.Struct, frozen=True):
    code: int
    out: bytes
    error: bytes
    files: dict[str, bytes]


class Machine:
    def __init__(self, folder: str) -> None:
        self._refusing = jobs.refusing_library(folder)
        self._bare: dict[tuple[str, str, str], Outcome] = {}

    def differences(self, cell: Cell) -> list[str] | None:
        """Sentences on what differs from the bare job; None if the cell cannot be run here."""
        python = str(SYSTEM) if cell.build == "no-torch" else os.environ.get(f"MATRIX_{cell.build.upper()}", "")
        if not Path(python).is_file() or (cell.user == "ordinary" and (os.geteuid() or not shutil.which("setpriv"))):
            return None
        before = AS_USER if cell.user == "ordinary" else ()
        if subprocess.call([*before, "sh", "-c", f"exec {python} -c ''"], stderr=subprocess.DEVNULL):
            return None
        key = cell.user, cell.build, cell.job
        bare = self._bare.get(key) or self._bare.setdefault(key, self._run(cell, [*before, python, "job.py"])[0])
        words = {
            "run": ["run", "--"],
            "json": ["dry-run", "--gpu", "RTX4090", "--json", "--steps", "0"],
            "show": ["dry-run", "--gpu", "RTX4090", "--show-output", "--steps", "0"],
            "keep": ["dry-run", "--gpu", "RTX4090", "--json", "--keep-files", "--steps", "0"],
        }[cell.command]
        words[1:1] = ["--engine", "cuda"] if cell.command != "run" and cell.build != "cpu" else []
        got, left = self._run(cell, [*before, str(SYSTEM), "-c", START, *words, python, "job.py"])
        return [*_compared(cell, bare, got), *(f"process {one} is left" for one in left)]

    def _run(self, cell: Cell, words: Sequence[str]) -> tuple[Outcome, list[str]]:
        with tempfile.TemporaryDirectory(prefix="vt", dir=jobs.open_folder(), ignore_cleanup_errors=True) as folder:
            place = jobs.made_place(folder)
            for path in place.rglob("*") if cell.user == "ordinary" else ():
                os.chown(path, jobs.USER, jobs.USER)
            is_bare = "job.py" in words[-1] and START not in words
            begin = f"BUILD, MANY = {cell.build!r}, {not is_bare and cell.command != 'run'}\n{BEGIN}"
            (place / "job" / "job.py").write_text(begin + JOBS[cell.job], encoding="utf-8")
            variables = jobs.environment(place, self._refusing if cell.namespace == "none" else "")
            if cell.job == "no-home":
                del variables["HOME"]
            with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as error:
                code = subprocess.run(
                    words, cwd=place / "job", env=variables, stdin=subprocess.DEVNULL, stdout=out, stderr=error,
                    check=False, timeout=300,
                ).returncode  # fmt: skip
                jobs.wait_for(lambda: not _left(place.name), 2 if START in words else 0)
                left = _left(place.name)
                for pid in left:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(pid), 9)
                out.seek(0)
                error.seek(0)
                files = {path.name: path.read_bytes() for path in (place / "job").iterdir() if path.name != "job.py"}
                outcome = Outcome(code if code >= 0 else 128 - code, out.read(), error.read(), files)
            is_own = cell.command == "run" and cell.job == "daemon"  # a real job's daemon may stay
            return outcome, [] if is_own else left


def _left(mark: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark.encode() in path.read_bytes():
                found.append(path.parent.name)
    return found


def _compared(cell: Cell, bare: Outcome, got: Outcome) -> list[str]:
    code, found = got.code, []
    if cell.command != "run":
        if cell.command == "show":
            ended = ENDED.search(got.error.decode(errors="replace"))
            code = int(ended[1]) if ended else bare.code if got.code in {0, 1} else -1
        else:
            if not got.out:
                return [f"it did not answer: {got.error.decode(errors='replace')[-900:]}"]
            (answer,) = json.loads(got.out)["gpus"]
            ended = ENDED.search(answer["error"])
            code = answer["result"]["exit_code"] if answer.get("result") else int(ended[1]) if ended else -1
            is_out = cell.job == "out-of-memory"
            wanted = "does not fit" if is_out else "failed" if bare.code else "fits"
            if answer["verdict"] != wanted:
                found.append(f"it is {answer['verdict']}, not {wanted}: {answer['error']}")
    if code != bare.code:
        found.append(f"exit code {code}, bare {bare.code}: {got.error.decode(errors='replace')[-300:]}")
    streams = {"run": (got.out, got.error), "show": (got.error, got.error)}.get(cell.command)
    for is_error, stream in enumerate(streams or ()):
        lines = stream.splitlines()
        kept = [
            line for line in (bare.error if is_error else bare.out).splitlines() if not line.startswith(b"Traceback")
        ]
        if [line for line in lines if line in set(kept)] != kept:
            found.append(f"{'stderr' if is_error else 'stdout'} is {stream[:200]!r}, bare {kept!r}")
    if cell.command == "run" and got.out != bare.out:
        found.append(f"stdout is {got.out!r}, bare {bare.out!r}")
    wanted_files = bare.files if cell.command in {"run", "keep"} else {}
    if got.files != wanted_files:
        found.append(f"files {sorted(got.files)}, not {sorted(wanted_files)}")
    return found
