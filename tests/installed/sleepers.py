"""Real processes with telling command lines that do nothing: what a GPU's process list points at."""

import hashlib
import os
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).with_name("sleeper.c")


@contextmanager
def sleepers(commands: Iterable[Sequence[str]]) -> Iterator[list[int]]:
    """The pids of one sleeping process for each of `commands`, its whole argv; they end with the block."""
    program = _program()
    # Their own session, so that a Ctrl-C typed at a terminal is not theirs.
    started = [subprocess.Popen(list(argv), executable=program, start_new_session=True) for argv in commands]
    try:
        for process in started:
            _wait_for_arguments(process)
        yield [process.pid for process in started]
    finally:
        for process in started:
            process.kill()
        for process in started:
            process.wait()


def _wait_for_arguments(process: "subprocess.Popen[bytes]") -> None:
    """Popen returns when the kernel closes its pipe, which exec does a moment before it puts the arguments in place
    (begin_new_exec and create_elf_tables, fs/exec.c and fs/binfmt_elf.c of Linux 6); until then there are none to read.
    """
    while not Path(f"/proc/{process.pid}/cmdline").read_bytes() and process.poll() is None:
        time.sleep(0.001)


@cache
def _program() -> Path:
    key = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"vramtui-stub-{os.getuid()}"
    program = folder / f"sleeper-{key}"
    if not program.exists():
        folder.mkdir(parents=True, exist_ok=True)
        made = program.with_suffix(f".{os.getpid()}")
        subprocess.run([os.environ.get("CC", "cc"), "-O1", "-o", str(made), str(SOURCE)], check=True)
        made.replace(program)
    return program
