"""How long after a key its answer stands on the terminal, on a stand-in for a busy host.

python benchmarks/keystroke.py [--presses 200] [--preset llama-3.1-8b-lora] [--json]
"""

import argparse
import json
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.crowd import crowd
from benchmarks.dashboard import ours
from tests.installed.terminal import Terminal

PATIENCE = 10.0
# Between keys, so that each is one by itself, and none falls always into the same part of a second.
PAUSES = (0.11, 0.17, 0.23, 0.31)
TOTAL = re.compile(r"process\s+(\d[\d.,]*\s*\w*)")
CURSOR = re.compile(r"▸ *(\d+)")


@dataclass(frozen=True)
class Scene:
    """Something that is typed, and what changes on the screen by it.

    Attributes:
        name: as it is printed.
        opens: keys typed before.
        keys: typed one after the other; then the program is started anew, for it keeps the estimates it has made.
        answer: what of the screen is another after each of them; None while it cannot be seen.
    """

    name: str
    opens: tuple[str, ...]
    keys: tuple[str, ...]
    answer: Callable[[str], str | None]


def _found(pattern: re.Pattern[str]) -> Callable[[str], str | None]:
    def find(screen: str) -> str | None:
        match = pattern.search(screen)
        return match[1] if match is not None else None

    return find


def _cursor(screen: str) -> str | None:
    """The pid beside the table's cursor; the GPU panel has a mark of its own above it."""
    below = screen.partition("COMMAND")[2]
    return _found(CURSOR)(below)


# Through other batch sizes and sequence lengths each time, so that no estimate is asked for twice.
STEPS = tuple("]]]]}[[[[}]]]]{{{]]]]}[[[[}")

# Whoever adds a place in which a key changes an estimate adds a line.
SCENES = (
    Scene("steps in the estimate panel", (), STEPS, _found(TOTAL)),
    Scene("cursor in the table", (), ("\x1b[B",) * 20 + ("\x1b[A",) * 20, _cursor),
)


@dataclass(frozen=True)
class Figures:
    """Seconds from typing a key to the arrival of the bytes that changed the answer, over `presses` of them."""

    scene: str
    presses: int
    median: float
    p95: float
    longest: float


def measure(command: Sequence[str], env: dict[str, str | None], scene: Scene, presses: int) -> Figures:
    """Type so many keys, and wait for the answer each time.

    Raises:
        AssertionError: a key changed nothing.
    """
    taken: list[float] = []
    while len(taken) < presses:
        with Terminal(command, size=(200, 60), env=env, keep=False) as terminal:
            terminal.wait_for("job-0")
            taken += _type(terminal, scene, presses - len(taken))
    taken.sort()
    return Figures(scene.name, presses, taken[presses // 2], taken[int(presses * 0.95)], taken[-1])


def _type(terminal: Terminal, scene: Scene, most: int) -> list[float]:
    for key in scene.opens:
        terminal.send(key)
    shown = scene.answer(terminal.wait(lambda screen: scene.answer(screen) is not None, f"the {scene.name}"))
    taken: list[float] = []
    for press, key in enumerate(scene.keys[:most]):
        time.sleep(PAUSES[press % len(PAUSES)])
        answered = partial(_differs, scene.answer, shown)
        typed_at = time.monotonic()
        terminal.send(key)
        shown = scene.answer(terminal.wait(answered, f"another {scene.name} after {key!r}", PATIENCE))
        taken.append(terminal.drawn_at - typed_at)
    return taken


def _differs(answer: Callable[[str], str | None], former: str | None, screen: str) -> bool:
    return answer(screen) not in (None, former)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presses", type=int, default=200)
    parser.add_argument("--preset", default="llama-3.1-8b-lora")
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--processes", type=int, default=64, help="on each GPU")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    program = ours(1.0)
    figures: list[Figures] = []
    with crowd(options.gpus, options.processes) as host, host.wandering(1.0):
        for scene in SCENES:
            command = (*program.command, "--preset", options.preset)
            figures.append(measure(command, host.environment, scene, options.presses))
    if options.json:
        print(json.dumps([asdict(one) for one in figures], indent=2))
        return
    print(f"{'':42}{'median':>10}{'95 %':>10}{'longest':>10}")
    for one in figures:
        cells = "".join(f"{1000 * seconds:7.0f} ms" for seconds in (one.median, one.p95, one.longest))
        print(f"{one.scene:42}{cells}")


if __name__ == "__main__":
    main()
