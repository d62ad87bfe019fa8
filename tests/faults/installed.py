"""Generated faults as a person meets them: the installed program in a terminal, one program for each combination."""

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.faults.combinations import GIB, HANGS, IS_SLOW, RUNNING, Combination, used_at
from tests.installed.terminal import Terminal
from tests.stub.build import build

PATIENCE = 20.0  # seconds for a figure to come; only what never comes takes so long


@dataclass
class Met:
    """What came of it: the rules that were broken, and seconds from `q` to the end."""

    broken: list[str]
    seconds: float = 0.0


def meet(case: Combination, folder: Path) -> Met:
    """Open the dashboard, let the combination happen, see that the other card lives, and press q."""
    state, met = folder / "world", Met([])
    begins_broken = case.when != RUNNING
    case.world(broken=begins_broken, tick=1).write(state)
    environment: dict[str, str | None] = {
        "LD_LIBRARY_PATH": str(build()),
        "VRAMTUI_STUB_STATE": str(state),
        "VRAMTUI_CONFIG_DIR": str(folder / "config"),
        "VRAMTUI_DATA_DIR": str(folder / "data"),
        "PATH": "",  # no nvidia-smi of this machine's
    }
    program = str(Path(sys.executable).with_name("vramtui"))
    with Terminal([program, "--interval", "0.2"], env=environment) as terminal:
        try:
            terminal.wait(lambda text: "vramtui" in text, "the first frame", PATIENCE)
            if not begins_broken:
                terminal.wait(lambda text: "NVIDIA B" in text, "both cards", PATIENCE)
            for tick in (40, 50):
                case.world(broken=True, tick=tick).write(state)
                if not case.is_of_the_driver or case.what == IS_SLOW:
                    wanted = f"{used_at(tick) / GIB:.1f}/80.0"
                    terminal.wait(lambda text, wanted=wanted: wanted in text, "the other card", PATIENCE)  # type: ignore[misc]  # as mypy sees it
            terminal.wait(lambda text: "quit" in text or "Quit" in text, "the key bar", PATIENCE)
        except AssertionError as error:
            met.broken.append(str(error))
        begun = time.monotonic()
        terminal.send("q")
        try:
            code = terminal.ended(PATIENCE)
        except subprocess.TimeoutExpired:
            met.broken.append("q does not end it")
            return met
        met.seconds = time.monotonic() - begun
        met.broken += [f"it ended with {code}"] if code else []
        met.broken += terminal.left_behind()
        met.broken += ["a traceback"] if b"Traceback" in terminal.sent else []
    return met


def sample(cases: list[Combination], count: int) -> list[Combination]:
    """So many of them, evenly; hangs, which are the hardest to leave, are half of them."""
    hangs = [case for case in cases if case.what == HANGS]
    others = [case for case in cases if case.what != HANGS]
    half = max(1, count // 2)
    return [*hangs[:: max(1, len(hangs) // half)][:half], *others[:: max(1, len(others) // half)][: count - half]]
