"""Where things are kept: settings and presets, and what the program writes."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from vramtui.presets.library import config_dir

if TYPE_CHECKING:
    from vramtui.core.schema.settings import Settings
    from vramtui.records.run_history import RunHistory

__all__ = ["config_dir", "data_dir", "read_config", "run_history"]


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


def read_config() -> "Settings":
    """The person's settings; the defaults where there is no file.

    Raises:
        UserError: the file is wrong.
    """
    from vramtui.core.schema.settings import CONFIG, Settings  # noqa: PLC0415 - few commands have settings

    path = config_dir() / CONFIG
    if not path.exists():
        return Settings()
    from vramtui.presets.settings import read_settings  # noqa: PLC0415 - only where there is something to read

    return read_settings(path)
