"""Prints every fault and all that a person sees of it: python -m tests.faults [WORD …] picks those with these words."""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.faults.cases import FAULTS
from tests.faults.host import look
from tests.faults.table import title


def main(words: list[str]) -> None:
    """The table, as it comes out now."""
    for fault in FAULTS:
        if not all(word in fault.name for word in words):
            continue
        with TemporaryDirectory(prefix="vramtui-") as folder:
            seen = look(fault, Path(folder))
        sys.stdout.write("\n".join((title(fault, seen), *(f"    {line}" for line in seen.lines))) + "\n\n")


if __name__ == "__main__":
    main(sys.argv[1:])
