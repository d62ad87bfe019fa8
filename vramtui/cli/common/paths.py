"""Folders by the XDG base directories: settings and presets, recordings, history, caches."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from vramtui.presets import config_dir, xdg_folder

if TYPE_CHECKING:
    from vramtui.records.run_history import RunHistory

__all__ = ["cache_dir", "config_dir", "data_dir", "run_history", "state_dir", "welcome_marker"]


def data_dir() -> Path:
    """The folder of recordings: `$VRAMTUI_DATA_DIR`, which holds everything that the program writes, or
    `$XDG_DATA_HOME/vramtui`.
    """
    return _all_in_one() or xdg_folder("XDG_DATA_HOME", "~/.local/share")


def state_dir() -> Path:
    """The folder of the history of runs: `$VRAMTUI_DATA_DIR`, or `$XDG_STATE_HOME/vramtui`."""
    return _all_in_one() or xdg_folder("XDG_STATE_HOME", "~/.local/state")


def cache_dir() -> Path:
    """The folder of files that can be made again: `$VRAMTUI_DATA_DIR`, or `$XDG_CACHE_HOME/vramtui`."""
    return _all_in_one() or xdg_folder("XDG_CACHE_HOME", "~/.cache")


def _all_in_one() -> Path | None:
    chosen = os.environ.get("VRAMTUI_DATA_DIR")
    return Path(chosen) if chosen else None


def run_history() -> "RunHistory":
    from vramtui.records.run_history import FILE, RunHistory

    return RunHistory(state_dir() / FILE)


def welcome_marker() -> Path:
    """The file that remembers that the dashboard has been opened."""
    return state_dir() / "welcomed"
