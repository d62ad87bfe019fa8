"""Where things are kept: settings and presets, and what the program writes."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from vramtui.presets.library import config_dir

if TYPE_CHECKING:
    from vramtui.records.run_history import RunHistory

__all__ = ["config_dir", "data_dir", "run_history"]


def data_dir() -> Path:
    """Where recordings and the history of runs are kept: `$VRAMTUI_DATA_DIR`, or the platform's place."""
    chosen = os.environ.get("VRAMTUI_DATA_DIR")
    if chosen:
        return Path(chosen)
    from platformdirs import user_data_path  # noqa: PLC0415 - only where nothing else was said

    return user_data_path("vramtui", appauthor=False)


def run_history() -> "RunHistory":
    """The history of runs in the data folder."""
    from vramtui.records.run_history import FILE, RunHistory  # noqa: PLC0415 - only where runs are kept or shown

    return RunHistory(data_dir() / FILE)
