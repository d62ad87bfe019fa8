"""Presets: find, read and check TOML files, change single values of them, and write them back."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vramtui.presets.folders import config_dir
    from vramtui.presets.library import PresetLibrary, preset_files
    from vramtui.presets.overrides import apply_overrides
    from vramtui.presets.reader import PresetProblem, check_file, find_problems, load_preset, parse_preset
    from vramtui.presets.toml.writer import set_values, write_preset_text

__all__ = [
    "PresetLibrary",
    "PresetProblem",
    "apply_overrides",
    "check_file",
    "config_dir",
    "find_problems",
    "load_preset",
    "parse_preset",
    "preset_files",
    "set_values",
    "write_preset_text",
]
_HOMES = {
    "folders": ("config_dir",),
    "library": ("PresetLibrary", "preset_files"),
    "overrides": ("apply_overrides",),
    "reader": ("PresetProblem", "check_file", "find_problems", "load_preset", "parse_preset"),
    "toml.writer": ("set_values", "write_preset_text"),
}


def __getattr__(name: str) -> object:
    """Load the module of `name`: the dashboard needs none of them before its first paint."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"vramtui.presets.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
