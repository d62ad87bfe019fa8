"""How long after a key the preset editor shows the new estimate, on a stand-in for a busy host.

python benchmarks/editor_keystroke.py [--presses 200] [--size 120x35] [--json]
"""

import argparse
import json
import re
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import partial
from itertools import count
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.crowd import crowd
from benchmarks.dashboard import ours, size_of
from benchmarks.keystroke import PATIENCE, PAUSES, Figures
from tests.installed.terminal import Terminal

LIMIT = 0.05
PRESET = "llama-3.1-8b-lora"
TOTAL = re.compile(r"── process\s+(\d[\d.,]*\s*\w*)")
BATCH = re.compile(r"batch size\s+‹ ")
RIGHT, END, F6, BACKSPACE = "\x1b[C", "\x1b[F", "\x1b[17~", "\x7f"


def _steps() -> Iterator[str]:
    """The field under the form's cursor, one up each time."""
    while True:
        yield RIGHT


def _digits() -> Iterator[str]:
    """A digit at the end of a value, and away with it: 41, 4, 42, 4 …"""
    for number in count():
        yield str(number % 9 + 1)
        yield BACKSPACE


SCENES: Mapping[str, tuple[tuple[str, ...], Iterator[str]]] = {
    "steps in the form": ((), _steps()),
    "typing into the form": (("\r",), _digits()),
    "typing into the text": ((F6, END), _digits()),
}


def measure(scene: str, env: dict[str, str | None], size: tuple[int, int], presses: int) -> Figures:
    """Type so many keys at the batch size, and wait for another total each time.

    Raises:
        AssertionError: a key changed nothing.
    """
    opens, keys = SCENES[scene]
    taken: list[float] = []
    with Terminal((*ours(1.0).command, "--preset", PRESET), size=size, env=env, keep=False) as terminal:
        terminal.wait_for("job-0")
        terminal.send("e")
        terminal.wait_for("TOML ·")
        terminal.wait_for("llama")
        terminal.wait(lambda screen: BATCH.search(screen) is not None, "the batch size")
        for key in opens:
            terminal.send(key)
        time.sleep(0.5)
        shown = _total(terminal.wait(lambda screen: _total(screen) is not None, "a total"))
        for press in range(presses):
            time.sleep(PAUSES[press % len(PAUSES)])
            key = next(keys)
            typed_at = time.monotonic()
            terminal.send(key)
            shown = _total(terminal.wait(partial(_differs, shown), f"another total after {key!r}", PATIENCE))
            taken.append(terminal.drawn_at - typed_at)
    taken.sort()
    return Figures(scene, presses, taken[presses // 2], taken[int(presses * 0.95)], taken[-1])


def _total(screen: str) -> str | None:
    match = TOTAL.search(screen)
    return match[1] if match is not None else None


def _differs(former: str | None, screen: str) -> bool:
    return _total(screen) not in (None, former)


def main() -> int:
    """Print milliseconds; 1 when the 95th percentile of one of them is above 50 ms."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presses", type=int, default=200)
    parser.add_argument("--size", type=size_of, default=(120, 35), help="COLUMNSxROWS")
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--processes", type=int, default=64, help="on each GPU")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with crowd(options.gpus, options.processes) as host, host.wandering(1.0):
        figures = [measure(scene, host.environment, options.size, options.presses) for scene in SCENES]
    if options.json:
        print(json.dumps([asdict(one) for one in figures], indent=2))
    else:
        print(f"{'':24}{'median':>10}{'95 %':>10}{'longest':>10}")
        for one in figures:
            cells = "".join(f"{1000 * seconds:7.0f} ms" for seconds in (one.median, one.p95, one.longest))
            print(f"{one.scene:24}{cells}")
    return int(any(one.p95 > LIMIT for one in figures))


if __name__ == "__main__":
    raise SystemExit(main())
