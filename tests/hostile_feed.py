"""A feed of samples whose names, commands and problems are as long and as many as a line of a recording may hold."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from tests.app import scenes
from vramtui.core.observation.readings import Problem, Sample, encode_sample

MEGABYTE = 1 << 20
PROBLEMS = 20_000


def hostile_sample() -> Sample:
    """A usual host's, each text of it a megabyte or two, with 20,000 problems."""
    usual = scenes.usual()
    replace = msgspec.structs.replace
    gpus = tuple(
        replace(
            gpu,
            name="N" * MEGABYTE,
            processes=tuple(
                replace(row, user="u" * MEGABYTE, command="c" * 2 * MEGABYTE, name="n" * MEGABYTE)
                for row in gpu.processes
            ),
        )
        for gpu in usual.gpus
    )
    problems = tuple(Problem(where=f"w{number}", message=f"m{number}") for number in range(PROBLEMS))
    return replace(usual, gpus=gpus, problems=problems)


@contextmanager
def hostile_feed(folder: Path, interval: float = 0.5) -> Iterator[Path]:
    """A pipe in `folder` through which such a sample comes each `interval` seconds, until somebody read and went."""
    path = folder / "feed"
    os.mkfifo(path)
    sample, over = hostile_sample(), threading.Event()

    def write() -> None:
        with suppress(OSError), path.open("wb", 0) as pipe:  # whoever read has gone
            while not over.wait(interval):
                pipe.write(encode_sample(msgspec.structs.replace(sample, taken_at=time.time())) + b"\n")

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    try:
        yield path
    finally:
        over.set()
        path.unlink()
