"""The settings file, `config.toml` next to the folder of presets; it is checked as strictly as they are."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from vramtui.core.base import toml
from vramtui.core.base.errors import UserError
from vramtui.core.schema.settings import Settings
from vramtui.presets.reader import PresetProblem, display_path, finite_float, line_of, read_text, syntax_problem
from vramtui.presets.schema import Fault, dotted, find_faults
from vramtui.presets.toml_text import key_lines, set_values
from vramtui.presets.whole_files import write_whole


def example_settings() -> str:
    """A settings file in which every setting is commented out."""
    return Path(__file__).with_name("example_config.toml").read_text(encoding="utf-8")


def read_settings(path: Path) -> Settings:
    """Return the settings in the file at `path`; the defaults without one. Raises UserError if the file cannot
    be read, or something in it is wrong; the sentence names file, line and key.
    """
    if not path.exists():
        return Settings()
    text = read_text(path)
    problems = find_setting_problems(text)
    if problems:
        raise UserError(problems[0].at(path))
    return msgspec.convert(toml.loads(text), Settings)


def write_settings(path: Path, values: Mapping[str, Any]) -> None:
    """Set values at dotted keys in the file at `path`, and leave the rest unchanged; None removes a key. Raises
    UserError if the file cannot be read or written, or the result would be wrong; it stays unchanged.
    """
    text = read_text(path) if path.exists() else ""
    problems = find_setting_problems(text)
    if not problems:
        text = set_values(text, values)
        problems = find_setting_problems(text)
    if problems:
        raise UserError(problems[0].at(path))
    write_whole(path.resolve(), text.encode(), display_path(path))


def find_setting_problems(text: str) -> tuple[PresetProblem, ...]:
    """Return all problems of a settings file's text, in the order of its lines."""
    try:
        tables = toml.loads(text, parse_float=finite_float)
    except RecursionError:
        return (PresetProblem(None, "", "nested too deeply"),)
    except ValueError as error:
        return (syntax_problem(text, str(error)),)
    faults = find_faults(tables, Settings)
    if not faults:
        try:
            msgspec.convert(tables, Settings)
        except msgspec.ValidationError as error:
            faults = [Fault((), str(error))]
    lines = key_lines(text) if faults else {}
    problems = [PresetProblem(line_of(fault.key, lines), dotted(fault.key), fault.sentence) for fault in faults]
    return tuple(sorted(problems, key=lambda problem: problem.line or 0))
