"""`vramtui presets edit`: a preset in the person's own editor, and what is wrong with it afterwards."""

import sys
from collections.abc import Callable
from pathlib import Path

import typer

from vramtui.cli.common.exit_codes import BAD_INPUT
from vramtui.core.base.errors import UserError, nearest
from vramtui.core.base.text import printable
from vramtui.core.schema.preset import Preset
from vramtui.models.named_files import path_named
from vramtui.presets import PresetLibrary, check_file
from vramtui.presets.draft.external_editor import run_editor
from vramtui.presets.library import bundled_folder
from vramtui.presets.reader import display_path, read_text
from vramtui.presets.toml.whole_files import write_whole


def edit_preset(name: str, try_out: Callable[[Preset], object]) -> int:
    """Edit the preset called `name`, or at that path, until it is right or the person has enough; the exit code.

    What was typed stays in the file, right or wrong. A bundled preset is copied into the person's own folder first;
    the copy goes again where nothing was changed in it.

    Raises:
        UserError: there is no such preset, or the editor cannot be started.
    """
    library = PresetLibrary()
    found = _path_of(name, library)
    bundled = found.resolve().is_relative_to(bundled_folder().resolve())
    path = library.user_folder / found.name if bundled else found
    if bundled and not path.exists():
        write_whole(path, found.read_bytes(), display_path(path))
    before = path.read_bytes()
    try:
        return _until_right(path, try_out)
    finally:
        if path.is_file() and path.read_bytes() == before:
            typer.echo(f"{display_path(path)} is unchanged")
            if bundled and before == found.read_bytes():
                path.unlink()


def _until_right(path: Path, try_out: Callable[[Preset], object]) -> int:
    while True:
        run_editor(path)
        problems = check_file(path, try_out)
        if not problems:
            typer.echo(f"{display_path(path)} is right")
            return 0
        for problem in problems:
            sys.stderr.write(f"vramtui: {problem}\n")
        if not (asks() and typer.confirm("Open the editor again?", default=True)):
            sys.stderr.write(f"vramtui: {display_path(path)} has what you wrote\n")
            return BAD_INPUT


def asks() -> bool:
    """Whether somebody is there to answer."""
    return sys.stdin.isatty()


def _path_of(name: str, library: PresetLibrary) -> Path:
    """The file of a preset that need not be right."""
    files = dict(zip(library.keys(), library.files(), strict=True))
    if name in files:
        return files[name]
    path = path_named(name)
    if "/" not in name and path.suffix != ".toml":
        guess = nearest(name, files)
        listed = "`vramtui presets list` names them all"
        raise UserError(f"no preset is called {printable(repr(name[:60]))}{guess}; {listed}")
    if path.suffix != ".toml":
        raise UserError(
            f"{display_path(path)} is no preset's file; `vramtui presets new NAME --from` makes one of a model's"
        )
    read_text(path)
    return path
