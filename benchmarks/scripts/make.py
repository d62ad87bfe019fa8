"""Make up what a script reads: `python -m benchmarks.scripts.make rounds.toml NAME CLONE`, or dry_runs.toml.

Runs under the scripts' own Python, whose packages it may use.
"""

import importlib
import sys
from pathlib import Path

# The modules with the makers of a list; a later one's stand before an earlier one's of the same name.
MAKERS_OF = {
    "rounds.toml": ("rounds_data", "pictures_data", "sounds_data", "series_data", "bodies_data"),
    "dry_runs.toml": ("data", "dry_runs_data"),
}


def make(listed: str, name: str, clone: Path) -> None:
    """Call the maker `name` of the list `listed` for `clone`."""
    for module in reversed(MAKERS_OF[listed]):
        makers = importlib.import_module(f"benchmarks.scripts.{module}").MAKERS
        if name in makers:
            makers[name](clone)
            return
    raise KeyError(name)


if __name__ == "__main__":
    make(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
