"""Runs Python on an emulated card, in this process' place: `run_python NAME MAJOR.MINOR BYTES COUNT ARGUMENTS...`.

A trace starts it by its name (`estimators/traced/process/start.py`), under its own Python, to ask PyTorch's CUDA build.
NAME and the numbers describe the card: its compute capability, bytes and multiprocessors.
"""

import os
import sys
from pathlib import Path

from vramtui.core.estimate.devices import Device
from vramtui.driver.build import build
from vramtui.driver.environment import EmulatedCard, emulating


def main() -> None:
    """Become the Python that is given ARGUMENTS."""
    name, capability, total, multiprocessors, *arguments = sys.argv[1:]
    major, minor = map(int, capability.split("."))
    device = Device(name=name, capability=(major, minor), total_memory=int(total))
    card = EmulatedCard(device=device, multiprocessors=int(multiprocessors))
    # Where the command line keeps a driver that it compiled; what is installed has one.
    libraries = build(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vramtui")
    environment = emulating(os.environ, card, libraries, None)
    os.execve(sys.executable, [sys.executable, *arguments], environment)  # noqa: S606 - our own module


if __name__ == "__main__":
    main()
