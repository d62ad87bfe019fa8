"""Reads a preset file to a Preset, with a sentence for each problem."""

import re
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from vramtui.core.base import toml
from vramtui.core.base.errors import UserError, os_reason
from vramtui.core.base.file_limits import PRESET
from vramtui.core.base.late import late
from vramtui.core.base.text import printable
from vramtui.core.schema.preset import Preset, PresetFile
from vramtui.models.named_files import Stamp, stamp_of
from vramtui.models.readers.bounded import read_plain
from vramtui.models.stores.local_models import is_model_file
from vramtui.presets.schema import Fault, Key, NotFinite, dotted, find_faults

key_lines = late("vramtui.presets.toml_text:key_lines")  # only needed for a preset with a problem

BYTE_ORDER_MARK = "\ufeff"
_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_KEY_AT_START = re.compile(r"[a-z_]+(?:\.[a-z_]+)+")


class PresetProblem(msgspec.Struct, frozen=True):
    """One problem of a preset's text: its line from 1 (None: the file as a whole), its key, a sentence."""

    line: int | None
    key: str
    sentence: str

    def at(self, path: Path | str) -> str:
        """The sentence with file and line before it."""
        name = display_path(path) if isinstance(path, Path) else printable(path)
        return f"{name}: {self.sentence}" if self.line is None else f"{name}:{self.line}: {self.sentence}"


def load_preset(path: Path) -> Preset:
    """Read the preset in the file at `path`. Raises UserError if it cannot be read, or its text is not a preset; the
    sentence names file, line and key.
    """
    return parse_preset(read_text(path), path)


def parse_preset(text: str, path: Path | str) -> Preset:
    """Return the preset in `text`; `path` is only named in the error. Raises UserError if the text is not a preset; the
    sentence names file, line and key.
    """
    parsed = Parsed(text, path.parent if isinstance(path, Path) else None)
    if parsed.preset is None:
        raise UserError(parsed.problems[0].at(path))
    return parsed.preset


def find_problems(
    text: str, try_out: Callable[[Preset], object] | None = None, folder: Path | None = None
) -> tuple[PresetProblem, ...]:
    """Return all problems of a preset's text, in the order of its lines, and then what is missing. `try_out` is another
    check, which raises UserError with a sentence that begins with its key; files of models are relative to `folder`.
    """
    parsed = Parsed(text, folder)
    if parsed.preset is not None and try_out is not None:
        parsed.go_through(try_out)
    return parsed.problems


def check_file(path: Path, try_out: Callable[[Preset], object] | None = None) -> list[str]:
    """Return a sentence, with file and line, for each problem of the file at `path`; see `find_problems`."""
    try:
        text = read_text(path)
    except UserError as error:
        return [str(error)]
    return [problem.at(path) for problem in find_problems(text, try_out, path.parent)]


def read_text(path: Path) -> str:
    """Read a small plain file of UTF-8 text; raises UserError if it is missing, something else or too large."""
    try:
        if path.is_dir():
            raise UserError(f"{display_path(path)} is a folder without a config.json: name a .toml or a .gguf file")
        try:
            content = read_plain(path, PRESET)
        except UserError:  # now with the path as people see it, which takes longer to find out than to read the file
            content = read_plain(path, PRESET, display_path(path))
    except OSError as error:
        raise UserError(f"{display_path(path)} cannot be read: {os_reason(error)}") from None
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UserError(f"{display_path(path)}:{line}: not UTF-8 text") from None


def display_path(path: Path) -> str:
    """Return `path` as people see it: relative if it is below the working directory."""
    try:
        return printable(str(path.resolve().relative_to(Path.cwd())))
    except (OSError, ValueError, RuntimeError):
        return printable(str(path))


class Parsed:
    """One text as a `preset`, or its `problems`. `is_toml` is False if it is not even TOML."""

    def __init__(self, text: str, folder: Path | None = None) -> None:
        self.text = text
        self.folder = folder
        self.preset: Preset | None = None
        self.problems: tuple[PresetProblem, ...] = ()
        self.is_toml = False
        try:
            tables = toml.loads(text, parse_float=finite_float)
        except RecursionError:
            self.problems = (PresetProblem(None, "", "nested too deeply"),)
        except ValueError as error:
            self.problems = (syntax_problem(text, str(error)),)
        else:
            self.is_toml = True
            model = tables.get("model")
            try:
                if isinstance(model, dict) and {"config", "file"} & model.keys():
                    from vramtui.presets.model_presets import filled  # noqa: PLC0415 - 7 ms that few presets need

                    tables = filled(tables, folder)
                with suppress(msgspec.ValidationError):
                    self.preset = msgspec.convert(tables, Preset)
                    return  # few presets have "32k", which is 32,768
                from vramtui.presets.importers.flags import whole  # noqa: PLC0415 - for an error or a number like 32k

                for table in (table for table in tables.values() if isinstance(table, dict)):
                    texts = {key: value for key, value in table.items() if isinstance(value, str)}
                    short = {key: whole(text) for key, text in texts.items() if text[-1:] in "kKmM"}
                    table.update((key, int(number)) for key, number in short.items() if number is not None)
                self.preset = msgspec.convert(tables, Preset)
            except msgspec.ValidationError as error:
                self._explain(find_faults(tables) or [Fault((), str(error))])
            except UserError as error:
                self._explain([_fault_of(error)])

    def go_through(self, try_out: Callable[[Preset], object]) -> None:
        """Let a further check look at the preset, which may find contradictions."""
        try:
            if self.preset is not None:
                try_out(self.preset)
        except UserError as error:
            self._explain([_fault_of(error)])

    def _explain(self, faults: list[Fault]) -> None:
        lines = key_lines(self.text)
        problems = [PresetProblem(line_of(fault.key, lines), dotted(fault.key), fault.sentence) for fault in faults]
        # A misspelt key is also a missing one: the former comes first.
        order = {
            problem: (fault.missing, problem.line or sys.maxsize)
            for problem, fault in zip(problems, faults, strict=True)
        }
        self.problems = tuple(sorted(problems, key=order.__getitem__))


def finite_float(text: str) -> float | NotFinite:
    """Parse a float for the TOML reader; `nan` and `inf`, which no key takes, become NotFinite."""
    value = float(text)
    return value if abs(value) < float("inf") else NotFinite(text)


def line_of(key: Key, lines: dict[Key, int]) -> int | None:
    """Return the line of `key`, or of the table that should have it."""
    return next((lines[key[:length]] for length in range(len(key), 0, -1) if key[:length] in lines), None)


def _fault_of(error: UserError) -> Fault:
    """A contradiction that a Struct or check found; its sentence begins with its key."""
    start = _KEY_AT_START.match(str(error))
    return Fault(tuple(start[0].split(".")) if start else (), str(error))


def syntax_problem(text: str, message: str) -> PresetProblem:
    """Make a problem of the TOML reader's `message` about `text`."""
    place = _PLACE.search(message)
    reason = message[: place.start()] if place else message
    line = int(place[1]) if place and place[1] else text.count("\n") + 1
    if "overwrite a value" in reason or "Cannot declare" in reason:
        lines = text.split("\n")
        statement = lines[min(line, len(lines)) - 1].split("=")[0].strip()
        return PresetProblem(line, statement, f"{printable(statement)} is in this file twice")
    return PresetProblem(line, "", f"not valid TOML: {printable(reason[:1].lower() + reason[1:])}")


class OpenedFile(msgspec.Struct, frozen=True):
    """A file's text without its byte order mark, the mark or an empty string, and its stamp before it was read."""

    text: str
    mark: str
    stamp: Stamp | None


def open_text(path: Path) -> OpenedFile:
    """Read the file at `path`; raises UserError if it is missing, or not a small plain file of UTF-8 text."""
    stamp = stamp_of(path)
    text = read_text(path)
    try:
        with path.open("rb") as file:
            marked = file.read(3) == BYTE_ORDER_MARK.encode()
    except OSError:
        marked = False
    return OpenedFile(text, BYTE_ORDER_MARK if marked else "", stamp)


def is_written(preset_file: PresetFile) -> bool:
    """Return whether a person wrote its file; otherwise it was made from a running job, a training program's file, a
    model's own file, or a model's name.
    """
    is_own = preset_file.path.startswith(("http://", "https://")) or preset_file.path.endswith((".yaml", ".yml"))
    is_own = is_own or preset_file.path == preset_file.key  # torchvision's or timm's name of a net
    return not (preset_file.derived or is_own or is_model_file(preset_file.path))
