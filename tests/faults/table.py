"""The fault table as text: `seen.txt`, one block a fault, an asterisk for figures of the machine it is run on."""

import re
from pathlib import Path

from tests.faults.host import Fault, Seen

FILE = Path(__file__).with_name("seen.txt")


def title(fault: Fault, seen: Seen) -> str:
    """The first line of a block: what goes wrong, where it is looked at, and the exit code of a command."""
    return f"{fault.name} · {fault.where}" + (f" · exit code {seen.code}" if fault.where == "ps" else "")


def blocks() -> dict[str, list[str]]:
    """The lines of each block, by its first line."""
    whole = [block.split("\n") for block in FILE.read_text("utf-8").strip().split("\n\n")]
    return {first: [line.strip() for line in lines] for first, *lines in whole}


def stands(line: str, seen: Seen) -> bool:
    """Whether a person sees that line."""
    wanted = re.compile(re.escape(line).replace(r"\*", ".*"))
    return any(wanted.fullmatch(other) for other in seen.lines)
