"""`vramtui presets`: which there are, what one says, whether files are right, and new and changed ones."""

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from vramtui.cli.common.exit_codes import BAD_INPUT, say
from vramtui.cli.options import WordedCommand, WordedGroup, command_of, job_command
from vramtui.core.base.errors import UserError, nearest
from vramtui.core.base.text import printable
from vramtui.core.schema.models import TorchModel
from vramtui.models.named_files import path_named
from vramtui.presets.library import PresetLibrary

if TYPE_CHECKING:
    from vramtui.core.schema.preset import Preset

presets = typer.Typer(cls=WordedGroup, no_args_is_help=True, help="List, show, check and write presets.")
ROOM_FOR_ALL = 110
LISTED = "`vramtui presets list` names them all"


@presets.command("list", cls=WordedCommand)
@command_of
def list_presets(word: str | None = None, *, json: bool = False) -> None:
    """Every preset, your own before the bundled ones."""
    from vramtui.cli.common.console import print_json, print_table

    library = PresetLibrary()
    listed = [
        {
            "name": one.key,
            "title": one.preset.name,
            "path": one.path,
            "bundled": one.bundled,
            "model_kind": str(one.preset.model.__struct_config__.tag),
            "run_kind": str(one.preset.run.__struct_config__.tag),
        }
        for one in library.all()
        if word is None or word.lower() in f"{one.key} {one.preset.name}".lower()
    ]
    if word is not None and not listed:
        raise UserError(f"no preset has {word!r} in its name; {LISTED}")
    if json:
        print_json({"schema": 1, "presets": listed})
    else:
        # A narrow terminal needs its room for the titles.
        wide = not sys.stdout.isatty() or shutil.get_terminal_size().columns >= ROOM_FOR_ALL
        columns = {"NAME": "name", "MODEL": "model_kind", "RUN": "run_kind", "FROM": "bundled", "TITLE": "title"}
        shown = [heading for heading in columns if wide or heading not in {"MODEL", "FROM"}]
        cells = ({**one, "bundled": "bundled" if one["bundled"] else "yours"} for one in listed)
        print_table(shown, [[printable(str(one[columns[heading]])) for heading in shown] for one in cells])
    for problem in library.problems:
        say(problem)


@presets.command(cls=WordedCommand)
@command_of
def show(name: str) -> None:
    """A preset's file: its path, then its text."""
    from vramtui.presets.draft import text_of
    from vramtui.presets.named_presets import preset_named

    preset_file = preset_named(name, PresetLibrary())
    text = text_of(preset_file)
    typer.echo(f"# {printable(preset_file.path)}")
    for line in text.split("\n"):
        typer.echo("\t".join(map(printable, line.rstrip("\r").split("\t"))))


@presets.command(cls=WordedCommand)
@command_of
def check(files: list[Path] | None = None) -> None:
    """Check preset files: a sentence with file, line and key for each mistake, and exit code 2."""
    from vramtui.models.stores.local_models import is_model_file
    from vramtui.presets import check_file, preset_files

    given, problems = [], list[str]()
    for path in files or ():
        if is_model_file(str(path)):
            model = printable(str(path))
            problems.append(f"{model} is a model, no preset; `vramtui estimate {model}` reads it")
        else:
            given.append(path)
    paths = [path for one in given for path in (preset_files(one) if one.is_dir() else (one,))]
    if given and not paths:
        problems.append(f"{printable(str(given[0]))} holds no TOML files")
    if not files:
        library = PresetLibrary()
        paths, problems = list(library.files()), list(library.doubles)
    problems += (problem for path in paths for problem in check_file(path, try_out))
    for problem in problems:
        say(problem)
    if problems:
        raise typer.Exit(BAD_INPUT)
    typer.echo(f"{len(paths)} {'preset is' if len(paths) == 1 else 'presets are'} right")


@presets.command(cls=WordedCommand)
@job_command()
def new(name: str, source: str, settings: list[str] | None = None, *, hub: bool = False) -> None:
    """A preset of your own from a model's file or another preset; never over one that is there."""
    from vramtui.presets.draft import create_preset

    typer.echo(printable(str(create_preset(PresetLibrary(), name, source, settings=settings or (), hub=hub))))


@presets.command(cls=WordedCommand)
@command_of
def edit(name: str) -> None:
    """Open a preset in $VISUAL or $EDITOR and check it afterwards; a bundled one as a copy of your own."""
    from vramtui.presets import bundled_folder, check_file
    from vramtui.presets.draft import run_editor
    from vramtui.presets.reader import display_path, read_text
    from vramtui.presets.whole_files import write_whole

    # What was typed stays in the file, right or wrong. A copy in which nothing was changed goes again.
    library = PresetLibrary()
    files = dict(zip(library.keys(), library.files(), strict=True))
    file = files.get(name, path_named(name))
    if name not in files:
        if "/" not in name and file.suffix != ".toml":
            raise UserError(f"no preset is called {printable(repr(name[:60]))}{nearest(name, files)}; {LISTED}")
        if file.suffix != ".toml":
            new = "`vramtui presets new NAME --from` makes one from a model's file"
            raise UserError(f"{display_path(file)} is not a preset; {new}")
        read_text(file)
    bundled = file.resolve().is_relative_to(bundled_folder().resolve())
    path = library.user_folder / file.name if bundled else file
    if bundled and not path.exists():
        write_whole(path, file.read_bytes(), display_path(path))
    before = path.read_bytes()
    try:
        while True:
            run_editor(path)
            problems = check_file(path, try_out)
            if not problems:
                typer.echo(f"{display_path(path)} is right")
                return
            for problem in problems:
                say(problem)
            if not (asks() and typer.confirm("Open the editor again?", default=True)):
                say(f"{display_path(path)} has what you wrote")
                raise typer.Exit(BAD_INPUT)
    finally:
        if path.is_file() and path.read_bytes() == before:
            typer.echo(f"{display_path(path)} is unchanged")
            if bundled and before == file.read_bytes():
                path.unlink()


def try_out(preset: "Preset") -> None:
    """Estimate it, which finds what no single key is wrong with: heads that do not divide, a sequence too long.

    On a card that holds anything: a server that no usual card holds is not wrong for it.
    """
    import msgspec

    from vramtui.core.estimate.devices import DEFAULT_CARD, card
    from vramtui.estimators.methods import estimates_by

    if not isinstance(preset.model, TorchModel):  # known only by running it
        boundless = msgspec.structs.replace(card(DEFAULT_CARD), total_memory=1 << 50)
        estimates_by("analytic", preset.workload, boundless)  # finds every fault without simulating the allocator


def asks() -> bool:
    return sys.stdin.isatty()
