"""The folders of presets and settings."""

import os
from pathlib import Path

import vramtui
from vramtui.models.named_files import path_named


def config_dir() -> Path:
    """Where a person's own presets and settings are kept: `$VRAMTUI_CONFIG_DIR`, or `$XDG_CONFIG_HOME/vramtui`."""
    chosen = os.environ.get("VRAMTUI_CONFIG_DIR")
    return Path(chosen) if chosen else xdg_folder("XDG_CONFIG_HOME", "~/.config")


def xdg_folder(variable: str, otherwise: str) -> Path:
    """This program's folder of the XDG base directories; a variable that names no absolute path is not heeded."""
    chosen = os.environ.get(variable, "")
    return path_named(chosen if chosen.startswith("/") else otherwise) / "vramtui"


def bundled_folder() -> Path:
    """The presets that came with the program: inside an installed package, beside it in a work tree."""
    package = Path(vramtui.__file__).parent
    installed = package / "_bundled_presets"
    return installed if installed.is_dir() else package.parent / "presets"
