"""How long the commands take that scripts call often, on a stand-in for a busy host.

python benchmarks/startup.py [--runs 20] [--gpus 8 --processes 64] [--json]
"""

import argparse
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.crowd import crowd

PROGRAM = str(Path(sys.executable).with_name("vramtui"))
COMMANDS = {
    "python -c pass": (sys.executable, "-c", "pass"),
    "vramtui --version": (PROGRAM, "--version"),
    "vramtui ps --json": (PROGRAM, "ps", "--json"),
    "vramtui ps": (PROGRAM, "ps"),
    "vramtui estimate gpt2-124m --json": (PROGRAM, "estimate", "gpt2-124m", "--json"),
    "vramtui presets list --json": (PROGRAM, "presets", "list", "--json"),
}


def seconds(command: tuple[str, ...], env: dict[str, str]) -> float:
    """How long one run takes, from its start to its end."""
    begun = time.perf_counter()
    subprocess.run(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begun


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--processes", type=int, default=64, help="on each GPU")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` is no error
    figures: dict[str, list[float]] = {}
    with crowd(options.gpus, options.processes) as host:
        env = host.whole_environment()
        for name, command in COMMANDS.items():
            seconds(command, env)
            figures[name] = [seconds(command, env) for _ in range(options.runs)]
    if options.json:
        told = [
            {"command": n, "best_seconds": min(taken), "median_seconds": median(taken)} for n, taken in figures.items()
        ]
        print(json.dumps(told, indent=2))
        return
    print(f"{'':36}{'best':>10}{'median':>10}")
    for name, taken in figures.items():
        print(f"{name:36}{1000 * min(taken):7.0f} ms{1000 * median(taken):7.0f} ms")


if __name__ == "__main__":
    main()
