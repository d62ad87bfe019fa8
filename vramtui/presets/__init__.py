"""Presets: TOML files to find, read, check, change and write; and their folders."""

import os
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import vramtui
from vramtui.models.named_files import path_named

if TYPE_CHECKING:
    from vramtui.presets.library import PresetLibrary, preset_files
    from vramtui.presets.overrides import apply_overrides
    from vramtui.presets.reader import PresetProblem, check_file, find_problems, load_preset, parse_preset
    from vramtui.presets.toml_text import set_values
    from vramtui.presets.whole_files import write_preset_text

__all__ = [
    "PresetLibrary", "PresetProblem", "apply_overrides", "bundled_folder", "check_file", "config_dir", "find_problems",
    "load_preset", "parse_preset", "preset_files", "set_values", "write_preset_text", "xdg_folder",
]  # fmt: skip
_HOMES = {
    "library": ("PresetLibrary", "preset_files"),
    "overrides": ("apply_overrides",),
    "reader": ("PresetProblem", "check_file", "find_problems", "load_preset", "parse_preset"),
    "toml_text": ("set_values",),
    "whole_files": ("write_preset_text",),
}


def config_dir() -> Path:
    """The folder of the user's own presets and settings: `$VRAMTUI_CONFIG_DIR`, or `$XDG_CONFIG_HOME/vramtui`."""
    chosen = os.environ.get("VRAMTUI_CONFIG_DIR")
    return Path(chosen) if chosen else xdg_folder("XDG_CONFIG_HOME", "~/.config")


def xdg_folder(variable: str, otherwise: str) -> Path:
    """The program's folder in an XDG base directory; a variable without an absolute path is ignored."""
    chosen = os.environ.get(variable, "")
    return path_named(chosen if chosen.startswith("/") else otherwise) / "vramtui"


def bundled_folder() -> Path:
    """The folder of the bundled presets: inside an installed package, next to it in a work tree."""
    package = Path(vramtui.__file__).parent
    installed = package / "_bundled_presets"
    return installed if installed.is_dir() else package.parent / "presets"


def __getattr__(name: str) -> object:
    """Load the module of `name`: the dashboard needs none of them before its first paint."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"vramtui.presets.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
