"""What the dashboard costs: the installed program in a terminal, on a stand-in for a busy host.

python benchmarks/dashboard.py [--gpus 16 --processes 1024] [--idle] [--held down] [--json]
"""

import argparse
import json
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from threading import Event, Thread

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.crowd import Crowd, crowd
from tests.installed.terminal import Terminal

SETTLE = 12.0  # by then what looks at new processes once has ended
PATIENCE = 120.0
ROOM_FOR_PROCESSES = 10.0  # seconds behind the first GPU, after which a screen is taken to have no room for processes
JOB = re.compile(r"job-\d{4}")
GPU = re.compile(r"\d ?[GM]iB")
KEYS = {"down": ("\x1b[B", "\x1b[A"), "steps": ("]", "[")}
HELD_RATE = 30
TURN = 240


@dataclass(frozen=True)
class Program:
    """A program that has been installed: its command line, and the key that leaves it."""

    name: str
    command: tuple[str, ...]
    leave: str = "q"


@dataclass(frozen=True)
class Conditions:
    """What a program is put through.

    Attributes:
        interval: seconds between changes on the host; the program's own interval is in its command line.
        seconds: how long the steady state is watched.
        starts: how many starts are timed.
        size: columns and rows of the terminal.
        idle: nothing changes on the host.
        held: a name of KEYS: that key comes 30 times a second, as when it is held down.
    """

    interval: float = 1.0
    seconds: float = 30.0
    starts: int = 5
    size: tuple[int, int] = (200, 60)
    idle: bool = False
    held: str = ""


def ours(interval: float, *options: str) -> Program:
    """The program of this environment, started as people start it."""
    paced = () if interval == 1 else ("--interval", f"{interval:g}")
    return Program(" ".join(("vramtui", *options)), (str(Path(sys.executable).with_name("vramtui")), *options, *paced))


@dataclass(frozen=True)
class Figures:
    """What was measured: seconds, percent of one core, bytes each second to the terminal, resident bytes.

    First is from the start of the program to the arrival of the bytes that put a GPU's memory on the screen, and a
    process (None where there is no room for one), the median of several starts; the other figures are of the last one.
    """

    program: str
    first_gpu_seconds: float
    first_process_seconds: float | None
    cpu_percent: float
    bytes_per_second: float
    rss_bytes: int
    quit_seconds: float


def measure(program: Program, host: Crowd, conditions: Conditions) -> Figures:
    """Start the program several times, and watch it for a while the last time.

    Raises:
        AssertionError: it never showed a GPU.
    """
    _launch(program, host, conditions)  # so that nobody is timed while Python compiles its files
    firsts = [_launch(program, host, conditions) for _ in range(conditions.starts - 1)]
    wandering = host.wandering(0 if conditions.idle else conditions.interval)
    with wandering, _terminal(program, host, conditions) as terminal:
        firsts.append(_first_rows(terminal, host))
        with _held(terminal, conditions.held):
            time.sleep(SETTLE)
            cpu, _ = terminal.usage()
            sent, begun = terminal.bytes_sent, time.monotonic()
            time.sleep(conditions.seconds)
            now_cpu, resident = terminal.usage()
            elapsed = time.monotonic() - begun
            sent = terminal.bytes_sent - sent
        return Figures(
            program=program.name,
            first_gpu_seconds=median(gpu for gpu, _ in firsts),
            first_process_seconds=_median([process for _, process in firsts]),
            cpu_percent=100 * (now_cpu - cpu) / elapsed,
            bytes_per_second=sent / elapsed,
            rss_bytes=resident,
            quit_seconds=_quit(terminal, program),
        )


@contextmanager
def _held(terminal: Terminal, name: str) -> Iterator[None]:
    """Hold a key down while the block runs; now and then the opposite one, so that no end is reached."""
    over = Event()

    def type_on() -> None:
        sent = 0
        while not over.wait(1 / HELD_RATE):
            terminal.send(KEYS[name][sent // TURN % 2])
            sent += 1

    typist = Thread(target=type_on, daemon=True)
    if name:
        typist.start()
    try:
        yield
    finally:
        over.set()
        if name:
            typist.join()


def _median(seconds: list[float | None]) -> float | None:
    known = [one for one in seconds if one is not None]
    return median(known) if known else None


def _launch(program: Program, host: Crowd, conditions: Conditions) -> tuple[float, float | None]:
    with _terminal(program, host, conditions) as terminal:
        firsts = _first_rows(terminal, host)
        _quit(terminal, program)
    return firsts


def _terminal(program: Program, host: Crowd, conditions: Conditions) -> Terminal:
    return Terminal(program.command, size=conditions.size, env=host.environment, keep=False, whole_frames=False)


def _first_rows(terminal: Terminal, host: Crowd) -> tuple[float, float | None]:
    """Seconds until the first GPU and the first process."""
    terminal.wait(lambda screen: GPU.search(screen) is not None, "a GPU on the screen", PATIENCE)
    gpu = terminal.drawn_at - terminal.started_at
    pids = {str(pid) for pid in host.pids}

    def shows_a_process(screen: str) -> bool:
        return JOB.search(screen) is not None or not pids.isdisjoint(screen.split())

    try:
        terminal.wait(shows_a_process, "a process on the screen", ROOM_FOR_PROCESSES)
    except AssertionError:
        return gpu, None
    return gpu, terminal.drawn_at - terminal.started_at


def _quit(terminal: Terminal, program: Program) -> float:
    asked_at = time.monotonic()
    terminal.send(program.leave)
    terminal.process.wait(PATIENCE)
    return time.monotonic() - asked_at


HEADINGS = ("first GPU", "first process", "CPU", "to the terminal", "RSS", "quit")


def cells(figures: Figures) -> tuple[str, ...]:
    """The figures as they stand under HEADINGS."""
    return (
        f"{1000 * figures.first_gpu_seconds:.0f} ms",
        "no room" if figures.first_process_seconds is None else f"{1000 * figures.first_process_seconds:.0f} ms",
        f"{figures.cpu_percent:.2f} %",
        f"{figures.bytes_per_second / 1000:.2f} KB/s",
        f"{figures.rss_bytes / 1e6:.0f} MB",
        f"{1000 * figures.quit_seconds:.0f} ms",
    )


def size_of(text: str) -> tuple[int, int]:
    """The size of a terminal, from `COLUMNSxROWS`."""
    columns, _, rows = text.partition("x")
    return int(columns), int(rows)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--processes", type=int, default=64, help="on each GPU")
    parser.add_argument("--interval", type=float, default=1.0, help="seconds between looks, and between changes")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long the steady state is watched")
    parser.add_argument("--starts", type=int, default=5, help="starts whose first paint is timed")
    parser.add_argument("--size", type=size_of, default=(200, 60), help="COLUMNSxROWS")
    parser.add_argument("--idle", action="store_true", help="a host on which nothing changes")
    parser.add_argument("--held", choices=KEYS, default="", help="a key that is held down")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    conditions = Conditions(options.interval, options.seconds, options.starts, options.size, options.idle, options.held)
    with crowd(options.gpus, options.processes) as host:
        figures = measure(ours(options.interval), host, conditions)
    if options.json:
        facts = {"gpus": options.gpus, "processes": options.processes, **asdict(conditions)}
        print(json.dumps({**facts, "figures": asdict(figures)}, indent=2))
        return
    for row in (HEADINGS, cells(figures)):
        print("".join(f"{cell:>17}" for cell in row))


if __name__ == "__main__":
    main()
