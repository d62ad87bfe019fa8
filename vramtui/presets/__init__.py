"""Presets: find, read and check TOML files, change single values of them, and write them back."""

from vramtui.presets.library import PresetLibrary, config_dir, preset_files
from vramtui.presets.overrides import apply_overrides
from vramtui.presets.reading import Problem, check_file, find_problems, load_preset, parse_preset
from vramtui.presets.writing import set_values, write_preset_text

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
    "set_values",
    "write_preset_text",
]
