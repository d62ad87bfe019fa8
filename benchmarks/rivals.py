"""What the dashboard costs beside nvitop, nvtop and gpustat: the same stand-in hosts, one after the other.

python benchmarks/rivals.py [--only idle,busy] [--runs 5] [--size 120x40] [--seconds 20] [--json]

nvitop and gpustat are installed into a folder that is gone afterwards; nvtop is run where the system has it.
"""

import argparse
import json
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.crowd import Crowd, crowd
from benchmarks.dashboard import HEADINGS, Conditions, Figures, Program, cells, measure, ours, size_of

CTRL_C = "\x03"
FROM_PACKAGES = ("nvitop", "gpustat")
OURS = ("vramtui", "vramtui --monitor")
PROGRAMS = (*OURS, *FROM_PACKAGES, "nvtop")
NO_KEYS = ("gpustat",)


@dataclass(frozen=True)
class Host:
    """A host with that many GPUs and processes on each, and what happens on it."""

    gpus: int = 8
    processes: int = 64
    idle: bool = False
    held: str = ""


HOSTS = {
    "one": Host(gpus=1, processes=1),
    "idle": Host(idle=True),
    "busy": Host(),
    "full": Host(processes=128),
    "keys": Host(held="down"),
    "huge": Host(gpus=16, processes=1024),
}


@dataclass(frozen=True)
class Result:
    """What one program cost on one host; `skipped` says why there are no figures."""

    host: str
    program: str
    figures: Figures | None = None
    skipped: str = ""


@contextmanager
def rivals(wanted: list[str], interval: float) -> Iterator[tuple[list[Program], dict[str, str]]]:
    """Those that can be had here, and why the others cannot."""
    found: list[Program] = []
    missing: dict[str, str] = {}
    with TemporaryDirectory(prefix="vramtui-rivals-") as folder:
        venv.create(folder, with_pip=True)
        for name in filter(wanted.__contains__, FROM_PACKAGES):
            problem = _install(Path(folder), name)
            if problem:
                missing[name] = problem
            else:
                found.append(_program(name, Path(folder, "bin", name), interval))
        path = shutil.which("nvtop")
        if path is not None and "nvtop" in wanted:
            found.append(_program("nvtop", Path(path), interval))
        elif "nvtop" in wanted:
            missing["nvtop"] = "not on this system (it is no Python package)"
        yield [ours(interval, *name.split()[1:]) for name in OURS if name in wanted] + found, missing


def _install(folder: Path, name: str) -> str:
    """Install a package; gives the sentence that says why it could not be."""
    command = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stderr.strip().splitlines()
    return f"cannot be installed: {lines[-1] if lines else 'pip failed'}" if done.returncode else ""


def _program(name: str, path: Path, interval: float) -> Program:
    if name == "nvitop":
        return Program(name, (str(path), "--monitor", "full", "--interval", f"{interval:g}"))
    if name == "nvtop":
        return Program(name, (str(path), "-d", f"{10 * interval:.0f}"))
    return Program(name, (str(path), "--interval", f"{interval:g}", "-cup"), leave=CTRL_C)


def compare(names: list[str], programs: list[str], everyone: Conditions, runs: int) -> Iterator[Result]:
    """Run every program on every host, one after the other and again, and take the medians.

    Args:
        names: of the hosts.
        programs: of those that are to be run.
        everyone: what they are put through.
        runs: how often each.
    """
    with rivals(programs, everyone.interval) as (found, missing):
        for name in names:
            kind = HOSTS[name]
            conditions = Conditions(
                everyone.interval, everyone.seconds, everyone.starts, everyone.size, kind.idle, kind.held
            )
            with crowd(kind.gpus, kind.processes) as host:
                if kind.held:
                    yield from (Result(name, one.name, skipped="takes no keys") for one in found if one.name in NO_KEYS)
                seen: dict[str, list[Figures]] = {}
                failed: dict[str, str] = {}
                for program in runs * [one for one in found if not (kind.held and one.name in NO_KEYS)]:
                    outcome = _tried(program, host, conditions)
                    if isinstance(outcome, Figures):
                        seen.setdefault(program.name, []).append(outcome)
                    else:
                        failed[program.name] = outcome
                yield from (Result(name, program, medians(figures)) for program, figures in seen.items() if figures)
                yield from (Result(name, program, skipped=why) for program, why in failed.items())
            for absent, why in missing.items():
                yield Result(name, absent, skipped=why)


def _tried(program: Program, host: Crowd, conditions: Conditions) -> Figures | str:
    """What it cost; of another's the sentence that says why there are no figures."""
    try:
        return measure(program, host, conditions)
    except AssertionError as error:
        if program.name in OURS:
            raise
        return str(error).partition(":")[0]


def medians(figures: list[Figures]) -> Figures:
    """Of each figure the median of all runs."""
    processes = [one.first_process_seconds for one in figures if one.first_process_seconds is not None]
    return Figures(
        program=figures[0].program,
        first_gpu_seconds=median(one.first_gpu_seconds for one in figures),
        first_process_seconds=median(processes) if processes else None,
        cpu_percent=median(one.cpu_percent for one in figures),
        bytes_per_second=median(one.bytes_per_second for one in figures),
        rss_bytes=round(median(one.rss_bytes for one in figures)),
        quit_seconds=median(one.quit_seconds for one in figures),
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(HOSTS), help=f"of {','.join(HOSTS)}")
    parser.add_argument("--programs", default=",".join(PROGRAMS), help=f"of {','.join(PROGRAMS)}")
    parser.add_argument("--interval", type=float, default=1.0, help="seconds between looks, and between changes")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long each steady state is watched")
    parser.add_argument("--runs", type=int, default=1, help="how often everything is run; the medians are printed")
    parser.add_argument("--starts", type=int, default=3, help="starts whose first paint is timed")
    parser.add_argument("--size", type=size_of, default=(200, 60), help="COLUMNSxROWS")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    names, programs = options.only.split(","), options.programs.split(",")
    unknown = (set(names) - HOSTS.keys()) | (set(programs) - set(PROGRAMS))
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    conditions = Conditions(options.interval, options.seconds, options.starts, options.size)
    results = compare(names, programs, conditions, options.runs)
    if options.json:
        print(json.dumps([asdict(result) for result in results], indent=2))
        return
    print(f"{'':7}{'':10}" + "".join(f"{heading:>17}" for heading in HEADINGS))
    for result in results:
        told = "".join(f"{cell:>17}" for cell in cells(result.figures)) if result.figures else f"  {result.skipped}"
        print(f"{result.host:7}{result.program:18}{told}", flush=True)


if __name__ == "__main__":
    main()
