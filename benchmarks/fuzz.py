"""Throws broken input at everything that others write: presets, recordings, probes, nvidia-smi and names.

python benchmarks/fuzz.py [--minutes 10] [--target all] [--engine hypothesis|atheris] [--seed 1]

An input that breaks a promise (see fuzz_targets.py) is made small, printed, and kept in the folder --keep; the exit
code is then 1. Atheris has to be installed where this runs; it looks for inputs that reach new lines.
"""

import argparse
import json
import subprocess
import sys
import time
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from tempfile import mkdtemp
from typing import NoReturn

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
)
BATCH = 200
LARGEST = 1 << 16  # bytes
MOST_SECONDS, MOST_KIB = 2.0, 300 * 1024  # that an input may take


def by_hypothesis(name: str, seconds: float, seed: int) -> tuple[int, str]:
    """How many inputs there were, and what was found: an input and its failure, made small; empty where nothing was."""
    from hypothesis import HealthCheck, Phase, given, settings  # noqa: PLC0415 - the other engine does without
    from hypothesis import seed as seeded  # noqa: PLC0415 - as above

    from benchmarks.fuzz_far import FAR_TARGETS, far_seeds  # noqa: PLC0415 - as above
    from benchmarks.fuzz_inputs import near  # noqa: PLC0415 - as above
    from benchmarks.fuzz_targets import TARGETS, seeds  # noqa: PLC0415 - as above

    targets, given_seeds = {**TARGETS, **FAR_TARGETS}, far_seeds if name in FAR_TARGETS else seeds
    target, over, runs, last = targets[name], time.monotonic() + seconds, 0, b""
    for data in given_seeds(name):
        target(data)  # what is loaded or read once is no input's fault
    before = getrusage(RUSAGE_SELF).ru_maxrss

    def once(data: bytes) -> None:
        nonlocal runs, last
        runs, last, begun = runs + 1, data, time.thread_time()
        target(data)
        spent, grown = time.thread_time() - begun, getrusage(RUSAGE_SELF).ru_maxrss - before
        assert spent < MOST_SECONDS, f"{spent:.1f} s of CPU time"
        assert grown < MOST_KIB, f"{grown / 1024:.0f} MiB more memory than before"

    quiet = settings(
        max_examples=BATCH,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
    )
    inputs = near(given_seeds(name))
    while time.monotonic() < over:
        seed += 1
        try:
            seeded(seed)(quiet(given(inputs)(once)))()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what was looked for
            return runs, f"{type(error).__name__}: {error}\n{last!r}"
    return runs, ""


def by_atheris(name: str, seconds: float, seed: int, folder: Path) -> NoReturn:
    """Let libFuzzer run the target in this process, which it ends; it prints how many inputs there were."""
    atheris = import_module("atheris")  # installed only where it can be
    with atheris.instrument_imports(include=["vramtui"]):
        from benchmarks.fuzz_targets import TARGETS, seeds  # noqa: PLC0415 - instrumented as it is loaded

    corpus = folder / f"corpus-{name}"
    corpus.mkdir(parents=True, exist_ok=True)
    for data in seeds(name):
        (corpus / sha256(data).hexdigest()[:16]).write_bytes(data)
    options = [f"-max_total_time={int(seconds)}", f"-seed={seed}", f"-max_len={LARGEST}", "-print_final_stats=1"]
    options += [f"-artifact_prefix={folder}/{name}-", "-timeout=60", "-rss_limit_mb=4096"]
    atheris.Setup([sys.argv[0], *options, str(corpus)], TARGETS[name])
    atheris.Fuzz()
    raise SystemExit


def one(name: str, options: argparse.Namespace) -> int:
    """Fuzz one target and say what came of it."""
    folder = Path(options.keep)
    folder.mkdir(parents=True, exist_ok=True)
    if options.engine == "atheris":
        by_atheris(name, 60 * options.minutes, options.seed, folder)
    runs, found = by_hypothesis(name, 60 * options.minutes, options.seed)
    if found:
        (folder / f"{name}.txt").write_text(found, errors="backslashreplace")
    print(json.dumps({"target": name, "engine": options.engine, "executions": runs, "found": found}), flush=True)
    return int(bool(found))


def main() -> None:
    """Fuzz one target here, or each of them in a process of its own, one after another."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="for each target")
    parser.add_argument("--target", choices=(*NAMES, "all"), default="all")
    parser.add_argument("--engine", choices=("hypothesis", "atheris"), default="hypothesis")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", default=None, help="a folder for what is found")
    options = parser.parse_args()
    options.keep = options.keep or mkdtemp(prefix="vramtui-fuzz-")
    if options.target != "all":
        raise SystemExit(one(options.target, options))
    again = [sys.executable, __file__, "--minutes", str(options.minutes), "--engine", options.engine]
    again += ["--seed", str(options.seed), "--keep", options.keep, "--target"]
    codes = [subprocess.run([*again, name], check=False).returncode for name in NAMES]
    raise SystemExit(int(any(codes)))


if __name__ == "__main__":
    main()
