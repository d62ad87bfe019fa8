"""How long `q` takes while another host sends names of a megabyte and 20,000 problems, on each screen.

python benchmarks/hostile_feed.py

The installed program in a terminal, on a feed whose every sample is as long as its reader lets one be; a screen or
dialog is opened, and after two samples more `q` is typed. Exit: 1 where it once took more than 0.5 s.
"""

import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.dashboard import ours
from tests.hostile_feed import hostile_feed
from tests.installed.terminal import Terminal

MOST = 0.5  # seconds
INTERVAL = 1.0
SCREENS = {"Watch": "", "details": "i", "problems": "!", "explain": "x", "Plan": "2", "Timeline": "3", "History": "4"}


def time_of_leaving(keys: str) -> float:
    """Seconds from `q` to the program's end."""
    with TemporaryDirectory(prefix="vramtui-") as folder, hostile_feed(Path(folder), INTERVAL) as feed:
        command = [*ours(INTERVAL).command, "--feed", str(feed)]
        with Terminal(command, env={"VRAMTUI_CONFIG_DIR": folder, "VRAMTUI_DATA_DIR": folder}) as terminal:
            terminal.wait_for("Processes", "ccc")
            terminal.send(keys)
            time.sleep(2 * INTERVAL)
            if keys and not keys.isdecimal():
                terminal.send("\x1b")
                time.sleep(0.2)
            begun = time.monotonic()
            terminal.send("q")
            terminal.ended()
            return time.monotonic() - begun


def main() -> None:
    """Run and print."""
    took = {screen: time_of_leaving(keys) for screen, keys in SCREENS.items()}
    for screen, seconds in took.items():
        print(f"{screen:<10} {seconds:5.2f} s")
    raise SystemExit(max(took.values()) > MOST)


if __name__ == "__main__":
    main()
