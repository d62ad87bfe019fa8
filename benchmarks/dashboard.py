"""What the dashboard costs: the installed program in a terminal, on a stand-in for a busy host.

python benchmarks/dashboard.py [--gpus 16 --processes 1024] [--idle] [--against nvitop,nvtop,gpustat] [--json]
"""

import argparse
import json
import re
import shutil
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.crowd import Crowd, crowd
from tests.installed.terminal import Terminal

SETTLE = 3.0
PATIENCE = 120.0
JOB = re.compile(r"job-\d{4}")
CTRL_C = "\x03"


@dataclass(frozen=True)
class Program:
    """How to start a program that looks again every `{interval}` seconds, and how to leave it."""

    name: str
    arguments: tuple[str, ...]
    leave: str = "q"

    def command(self, interval: float) -> list[str] | None:
        """Its command line; None where it is not installed."""
        beside = Path(sys.executable).with_name(self.name)
        path = str(beside) if beside.exists() else shutil.which(self.name)
        values = {"interval": f"{interval:g}", "tenths": f"{10 * interval:.0f}"}
        return [path, *(argument.format(**values) for argument in self.arguments)] if path else None


OURS = Program("vramtui", ("--interval", "{interval}"))
OTHERS = {
    program.name: program
    for program in (
        Program("nvitop", ("--monitor", "full", "--interval", "{interval}")),
        Program("nvtop", ("-d", "{tenths}")),
        Program("gpustat", ("--interval", "{interval}", "-cup"), leave=CTRL_C),
    )
}


@dataclass(frozen=True)
class Figures:
    """What was measured: seconds, percent of one core, bytes each second to the terminal, resident bytes.

    The first paint is from the start of the program to the arrival of the bytes that put a process on the screen,
    the median (and the best) of several starts; the other figures are of the last one.
    """

    program: str
    first_paint_seconds: float
    best_first_paint_seconds: float
    cpu_percent: float
    bytes_per_second: float
    rss_bytes: int
    quit_seconds: float


def measure(program: Program, command: list[str], host: Crowd, options: argparse.Namespace) -> Figures:
    """Start the program several times, and watch it for a while the last time."""
    paints = [_launch(command, host, options, program) for _ in range(options.starts - 1)]
    with host.wandering(0 if options.idle else options.interval), _terminal(command, host, options) as terminal:
        paints.append(_first_paint(terminal, host))
        time.sleep(SETTLE)
        cpu, _ = terminal.usage()
        sent, begun = terminal.bytes_sent, time.monotonic()
        time.sleep(options.seconds)
        now_cpu, resident = terminal.usage()
        elapsed = time.monotonic() - begun
        sent = terminal.bytes_sent - sent
        return Figures(
            program=program.name,
            first_paint_seconds=median(paints),
            best_first_paint_seconds=min(paints),
            cpu_percent=100 * (now_cpu - cpu) / elapsed,
            bytes_per_second=sent / elapsed,
            rss_bytes=resident,
            quit_seconds=_quit(terminal, program),
        )


def _launch(command: list[str], host: Crowd, options: argparse.Namespace, program: Program) -> float:
    with _terminal(command, host, options) as terminal:
        painted = _first_paint(terminal, host)
        _quit(terminal, program)
    return painted


def _terminal(command: list[str], host: Crowd, options: argparse.Namespace) -> Terminal:
    return Terminal(command, size=options.size, env=host.environment, keep=False)


def _first_paint(terminal: Terminal, host: Crowd) -> float:
    pids = {str(pid) for pid in host.pids}

    def shows_a_process(screen: str) -> bool:
        return JOB.search(screen) is not None or not pids.isdisjoint(screen.split())

    terminal.wait(shows_a_process, "a process on the screen", PATIENCE)
    return terminal.drawn_at - terminal.started_at


def _quit(terminal: Terminal, program: Program) -> float:
    asked_at = time.monotonic()
    terminal.send(program.leave)
    terminal.process.wait(PATIENCE)
    return time.monotonic() - asked_at


def _print(figures: list[Figures], skipped: dict[str, str]) -> None:
    headings = ("", "first paint", "best", "CPU", "to the terminal", "RSS", "quit")
    rows = [
        (
            one.program,
            f"{1000 * one.first_paint_seconds:.0f} ms",
            f"{1000 * one.best_first_paint_seconds:.0f} ms",
            f"{one.cpu_percent:.1f} %",
            f"{one.bytes_per_second / 1000:.2f} KB/s",
            f"{one.rss_bytes / 1e6:.0f} MB",
            f"{1000 * one.quit_seconds:.0f} ms",
        )
        for one in figures
    ]
    for row in (headings, *rows):
        print(f"{row[0]:10}" + "".join(f"{cell:>17}" for cell in row[1:]))
    for name, why in skipped.items():
        print(f"{name:10}  skipped: {why}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--processes", type=int, default=64, help="on each GPU")
    parser.add_argument("--interval", type=float, default=1.0, help="seconds between looks, and between changes")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long the steady state is watched")
    parser.add_argument("--starts", type=int, default=5, help="starts whose first paint is timed")
    parser.add_argument("--size", type=_size, default=(200, 60), help="COLUMNSxROWS")
    parser.add_argument("--idle", action="store_true", help="a host on which nothing changes")
    parser.add_argument("--against", default="", help=f"others to run too, of {','.join(OTHERS)}")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    unknown = set(filter(None, options.against.split(","))) - OTHERS.keys()
    if unknown:
        parser.error(f"unknown program: {', '.join(sorted(unknown))}")
    return options


def _size(text: str) -> tuple[int, int]:
    columns, _, rows = text.partition("x")
    return int(columns), int(rows)


def main() -> None:
    """Measure and print."""
    options = _options()
    programs = [OURS, *(OTHERS[name] for name in options.against.split(",") if name)]
    figures: list[Figures] = []
    skipped: dict[str, str] = {}
    with crowd(options.gpus, options.processes) as host:
        for program in programs:
            command = program.command(options.interval)
            if command is None:
                skipped[program.name] = "not installed"
                continue
            try:
                _launch(command, host, options, program)  # so that nobody is timed while Python compiles its files
                figures.append(measure(program, command, host, options))
            except AssertionError as error:
                if program is OURS:
                    raise
                skipped[program.name] = str(error).partition(":")[0]
    if options.json:
        facts = {"gpus": options.gpus, "processes": options.processes, "idle": options.idle, "size": options.size}
        print(json.dumps({**facts, "figures": [asdict(one) for one in figures], "skipped": skipped}, indent=2))
    else:
        _print(figures, skipped)


if __name__ == "__main__":
    main()
