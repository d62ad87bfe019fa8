"""A stand-in for the nvidia-smi program: answers from the JSON file that VRAMTUI_STUB_SMI names.

Keys: `gpus`, a list of {query: text}; `apps`, lines of the process list; `rejected`, fields it does not know;
`text` and `code`, what it prints and exits with instead; `before`, a line it prints first; `sleep`, seconds.
"""

import json
import os
import stat
import sys
import time
from pathlib import Path
from typing import Any

CARD = {
    "driver_version": "550.54.15", "memory.total": "81559", "memory.used": "1024", "memory.free": "79900",
    "memory.reserved": "635", "utilization.gpu": "37", "utilization.memory": "12", "power.draw": "123.45",
    "enforced.power.limit": "700.00", "temperature.gpu": "41", "clocks.sm": "1980", "clocks.mem": "2619",
    "fan.speed": "[N/A]", "pcie.link.gen.current": "5", "pcie.link.width.current": "16",
    "ecc.errors.uncorrected.volatile.total": "0", "clocks_event_reasons.active": "0x0000000000000004",
    "compute_cap": "9.0", "mig.mode.current": "Disabled", "name": "NVIDIA H100 80GB HBM3",
}  # fmt: skip


def card(index: int, **changed: str) -> dict[str, str]:
    """One GPU's answers; a query's dots are written as two underscores in `changed`."""
    own = {
        "index": str(index),
        "uuid": f"GPU-5a51{index:04d}-0000-4000-8000-000000000000",
        "pci.bus_id": f"00000000:{0x10 + index:02X}:00.0",
    }
    return {**CARD, **own, **{key.replace("__", "."): value for key, value in changed.items()}}


def install(folder: Path) -> None:
    program = folder / "nvidia-smi"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I "{__file__}" "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


def say(text: str) -> None:
    sys.stdout.write(text + "\n")


def answer(state: dict[str, Any], arguments: list[str]) -> int:
    time.sleep(state.get("sleep", 0))
    if state.get("before"):
        say(state["before"])
    if "text" in state:
        say(state["text"])
        return int(state.get("code", 0))
    question = arguments[0] if arguments else ""
    if question == "--version":
        say("NVIDIA-SMI version  : 550.54.15\nDRIVER version      : 550.54.15\nCUDA Version        : 12.4")
        return 0
    name, _, fields = question.partition("=")
    for field in fields.split(","):
        if field in state.get("rejected", ()):
            say(f'Field "{field}" is not a valid field to query.\n')
            return 2
    if name == "--query-gpu":
        for gpu in state["gpus"]:
            say(", ".join(gpu[field] for field in fields.split(",")))
    elif name == "--query-compute-apps":
        say("\n".join(state.get("apps", [])))
        return int(state.get("apps_code", 0))
    return 0


if __name__ == "__main__":
    sys.exit(answer(json.loads(Path(os.environ["VRAMTUI_STUB_SMI"]).read_text()), sys.argv[1:]))
