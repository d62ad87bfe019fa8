"""Presets: find, read and check TOML files, and change single values of them."""

from vramtui.presets.library import PresetLibrary, config_dir, preset_files
from vramtui.presets.overrides import apply_overrides
from vramtui.presets.reading import Problem, check_file, find_problems, load_preset, parse_preset

__all__ = [
    "PresetLibrary",
    "Problem",
    "apply_overrides",
    "check_file",
    "config_dir",
    "find_problems",
    "load_preset",
    "parse_preset",
    "preset_files",
]
