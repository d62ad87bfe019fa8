"""Throws broken input at everything that others write: presets, recordings, probes, nvidia-smi and names.

python benchmarks/fuzz.py [--minutes 10] [--target all] [--engine lines|hypothesis] [--seed 1] [--corpus FOLDER]

An input that breaks a promise (see fuzz_targets.py) is printed and kept in the folder --keep; the exit
code is then 1. The engine `lines` needs nothing but Python and goes by which lines an input reaches; those that reach
new ones are kept in --corpus, from where the next turn goes on. `hypothesis` makes what it finds small.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from hashlib import sha256
from os import times
from pathlib import Path
from random import Random
from resource import RLIM_INFINITY, RLIMIT_AS, RUSAGE_SELF, getrusage, setrlimit
from tempfile import TemporaryDirectory, mkdtemp
from traceback import format_exception

sys.path.insert(0, str(Path(__file__).parents[1]))

NAMES = (
    "presets",
    "recordings",
    "probe",
    "nvidia-smi",
    "names",
    "feeds",
    "agents",
    "hosts",
    "job-files",
    "models",
    "shared",
    "configs",
    "gguf",
    "weights",
    "snapshots",
    "history",
    "oom-logs",
    "commands",
)
MEMORY = "/dev/shm"  # noqa: S108 - what is made there gets a name of its own
BATCH = 200
MOST_SECONDS, MOST_KIB = 2.0, 300 * 1024  # that an input may take
# Where one does not end, and where one asks for so much that the others on the machine would feel it.
GIVEN_UP, MOST_ADDRESSES = 10.0, 4 << 30


class Measured:
    """A target that fails where an input takes too long or too much memory."""

    def __init__(self, target: Callable[[bytes], None]) -> None:
        self._target = target
        self.runs, self.last = 0, b""

    def begin(self) -> None:
        """What is loaded and read once, and is no input's fault, has been by now."""
        self._before = getrusage(RUSAGE_SELF).ru_maxrss
        signal.signal(signal.SIGPROF, _give_up)
        setrlimit(RLIMIT_AS, (MOST_ADDRESSES, RLIM_INFINITY))

    def __call__(self, data: bytes) -> None:
        """Run it."""
        self.runs, self.last = self.runs + 1, data
        spent = self._timed(data)
        if spent >= MOST_SECONDS:
            # Whatever was loaded for the first time is there now, and the lines that were reached are not looked at.
            spent = self._timed(data)
        grown = getrusage(RUSAGE_SELF).ru_maxrss - self._before
        assert spent < MOST_SECONDS, f"{spent:.1f} s of CPU time"
        assert grown < MOST_KIB, f"{grown / 1024:.0f} MiB more memory than before"

    def _timed(self, data: bytes) -> float:
        """Seconds of CPU time that it takes."""
        begun = time.thread_time()
        signal.setitimer(signal.ITIMER_PROF, GIVEN_UP)
        try:
            self._target(data)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        return time.thread_time() - begun


class Endless(BaseException):
    """An input that does not end; no reader catches it as its own."""


def _give_up(number: int, _: object) -> None:
    raise Endless(f"no end after {GIVEN_UP:.0f} s of CPU time (signal {number})")


def _known() -> tuple[dict[str, Callable[[bytes], None]], Callable[[str], tuple[bytes, ...]]]:
    """Every target by its name, and what makes its seeds."""
    from benchmarks.fuzz_far import FAR_TARGETS, far_seeds  # noqa: PLC0415 - instrumented as they are loaded
    from benchmarks.fuzz_files import FILE_TARGETS, file_seeds  # noqa: PLC0415 - as above
    from benchmarks.fuzz_targets import TARGETS, seeds  # noqa: PLC0415 - as above

    def seeds_of(name: str) -> tuple[bytes, ...]:
        of = far_seeds if name in FAR_TARGETS else file_seeds if name in FILE_TARGETS else seeds
        return of(name)

    return {**TARGETS, **FAR_TARGETS, **FILE_TARGETS}, seeds_of


def by_hypothesis(name: str, options: argparse.Namespace) -> tuple[int, str]:
    """How many inputs there were, and what was found: an input and its failure, made small; empty where nothing was."""
    from hypothesis import HealthCheck, Phase, given, settings  # noqa: PLC0415 - the other engine does without
    from hypothesis import seed as seeded  # noqa: PLC0415 - as above

    from benchmarks.fuzz_inputs import near  # noqa: PLC0415 - as above

    targets, seeds = _known()
    over, seed, once = time.monotonic() + 60 * options.minutes, options.seed, Measured(targets[name])
    for data in seeds(name):
        targets[name](data)
    once.begin()
    quiet = settings(
        max_examples=BATCH,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
    )
    inputs = near(seeds(name))

    def run(data: bytes) -> None:
        once(data)

    while time.monotonic() < over:
        seed += 1
        try:
            seeded(seed)(quiet(given(inputs)(run)))()
        except (Exception, Endless) as error:  # noqa: BLE001 - whatever it is, it is what was looked for
            return once.runs, f"{type(error).__name__}: {error}\n{once.last!r}"
    return once.runs, ""


def by_lines(name: str, options: argparse.Namespace) -> tuple[int, str]:
    """As `by_hypothesis`: inputs that reach a line of the program's that none before reached are changed again."""
    from benchmarks.fuzz_grammar import mutated_for  # noqa: PLC0415 - as above
    from benchmarks.fuzz_lines import NewLines  # noqa: PLC0415 - as above

    targets, seeds = _known()
    over, random, once = time.monotonic() + 60 * options.minutes, Random(options.seed), Measured(targets[name])
    corpus, folder = list(seeds(name)), Path(options.corpus or options.keep) / f"corpus-{name}"
    folder.mkdir(parents=True, exist_ok=True)
    change, lines = mutated_for(name), NewLines("vramtui")
    lines.begin()
    for data in corpus:
        targets[name](data)
    once.begin()
    lines.taken()
    kept = [path.read_bytes() for path in sorted(folder.iterdir())]
    while time.monotonic() < over:
        # The newest are tried most: what they reach, the others do not.
        at = max(random.randrange(len(corpus)), random.randrange(len(corpus)))
        data = kept.pop() if kept else change(corpus[at], random.choice(corpus), random)
        try:
            once(data)
        except (Exception, Endless) as error:  # noqa: BLE001 - whatever it is, it is what was looked for
            (Path(options.keep) / f"{name}.input").write_bytes(data)
            # An error of the program's own may quote an input of megabytes.
            said = "".join(format_exception(error)).split("\n")
            return once.runs, "\n".join(line[:400] for line in said)[-4000:] + repr(data[:2000])
        if lines.taken():
            corpus.append(data)
            (folder / sha256(data).hexdigest()[:16]).write_bytes(data)
    return once.runs, ""


def again(options: argparse.Namespace) -> list[str]:
    """The options, for another process; the target's name goes behind them."""
    given = ["--minutes", str(options.minutes), "--engine", options.engine]
    return [*given, "--seed", str(options.seed), "--keep", options.keep, "--corpus", options.corpus, "--target"]


def one(name: str, options: argparse.Namespace) -> int:
    """Fuzz one target and say what came of it."""
    folder = Path(options.keep)
    folder.mkdir(parents=True, exist_ok=True)
    # A target writes each of its inputs into a file, which a disk takes longer for than the reader needs.
    with TemporaryDirectory(prefix="vramtui-fuzz-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as scratch:
        tempfile.tempdir = os.environ["TMPDIR"] = scratch
        begun = times()
        by = by_hypothesis if options.engine == "hypothesis" else by_lines
        runs, found = by(name, options)
        spent = sum(now - before for now, before in zip(times()[:4], begun[:4], strict=True))
    if found:
        (folder / f"{name}.txt").write_text(found, errors="backslashreplace")
    said = {"target": name, "engine": options.engine, "executions": runs, "cpu_seconds": round(spent), "found": found}
    print(json.dumps(said), flush=True)
    return int(bool(found))


def main() -> None:
    """Fuzz one target here, or each of them in a process of its own, one after another."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="for each target")
    parser.add_argument("--target", choices=(*NAMES, "all"), default="all")
    parser.add_argument("--engine", choices=("lines", "hypothesis"), default="lines")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", default=None, help="a folder for what is found")
    parser.add_argument("--corpus", default="", help="a folder for what reaches new lines; without it, that of --keep")
    options = parser.parse_args()
    options.keep = options.keep or mkdtemp(prefix="vramtui-fuzz-")
    if options.target != "all":
        raise SystemExit(one(options.target, options))
    command = [sys.executable, __file__, *again(options)]
    codes = [subprocess.run([*command, name], check=False).returncode for name in NAMES]
    raise SystemExit(int(any(codes)))


if __name__ == "__main__":
    main()
