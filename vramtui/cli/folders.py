"""Where things are kept: settings and presets, and what the program writes by itself."""

import os
from pathlib import Path

from vramtui.presets.library import config_dir

__all__ = ["config_dir", "data_dir"]


def data_dir() -> Path:
    """Where recordings and the history of runs are kept: `$VRAMTUI_DATA_DIR`, or the platform's place."""
    chosen = os.environ.get("VRAMTUI_DATA_DIR")
    if chosen:
        return Path(chosen)
    from platformdirs import user_data_path  # noqa: PLC0415 - only where nothing else was said

    return user_data_path("vramtui", appauthor=False)
