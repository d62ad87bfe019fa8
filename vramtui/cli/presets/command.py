"""`vramtui presets`: which there are, what one says, whether files are right, and new and changed ones."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from vramtui.cli.common.exit_codes import BAD_INPUT, exit_on_user_error
from vramtui.cli.options import Hub, Settings, WordedCommand, command_of, job_flags
from vramtui.cli.options import presets as known_presets
from vramtui.cli.presets.preset_list import presets
from vramtui.core.base.errors import UserError, nearest
from vramtui.core.base.text import printable
from vramtui.core.estimate.devices import DEFAULT_CARD, card
from vramtui.core.schema.models import TorchModel
from vramtui.core.schema.preset import Preset
from vramtui.models.named_files import path_named
from vramtui.models.stores.local_models import is_model_file
from vramtui.presets import PresetLibrary, bundled_folder, check_file, preset_files
from vramtui.presets.reader import display_path, read_text
from vramtui.presets.whole_files import write_whole


@presets.command(cls=WordedCommand)
def show(
    name: Annotated[
        str, typer.Argument(help="A preset's name, a path, or a model's name.", autocompletion=known_presets)
    ],
) -> None:
    """A preset's file: its path, then its text."""
    from vramtui.presets.draft import text_of
    from vramtui.presets.named_presets import preset_named

    with exit_on_user_error():
        preset_file = preset_named(name, PresetLibrary())
        text = text_of(preset_file)
        typer.echo(f"# {printable(preset_file.path)}")
        for line in text.split("\n"):
            typer.echo("\t".join(map(printable, line.rstrip("\r").split("\t"))))


@presets.command(cls=WordedCommand)
def check(
    files: Annotated[
        list[Path] | None, typer.Argument(help="TOML files or folders of them; all known presets by default.")
    ] = None,
) -> None:
    """Check preset files: a sentence with file, line and key for each mistake, and exit code 2."""
    with exit_on_user_error():
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
        problems += (problem for path in paths for problem in check_file(path, _try_out))
        for problem in problems:
            sys.stderr.write(f"vramtui: {problem}\n")
        if problems:
            raise typer.Exit(BAD_INPUT)
        typer.echo(f"{len(paths)} {'preset is' if len(paths) == 1 else 'presets are'} right")


@dataclass(frozen=True, kw_only=True)
class NewOptions:
    """Options of `vramtui presets new`."""

    name: Annotated[str, typer.Argument(help="The new preset's name.")]
    source: Annotated[
        str,
        typer.Option(
            "--from", metavar="SOURCE", help="A model's path or name, or another preset.", autocompletion=known_presets
        ),
    ]
    settings: Settings = None
    hub: Hub = False


@presets.command(cls=WordedCommand)
@command_of(NewOptions, flags=job_flags())
def new(options: NewOptions) -> None:
    """A preset of your own from a model's file or another preset; never over one that is there."""
    from vramtui.presets.draft import create_preset

    with exit_on_user_error():
        path = create_preset(
            PresetLibrary(), options.name, options.source, settings=options.settings or (), hub=options.hub
        )
        typer.echo(printable(str(path)))


@presets.command(cls=WordedCommand)
def edit(
    name: Annotated[str, typer.Argument(help="A preset's name, or a path.", autocompletion=known_presets)],
) -> None:
    """Open a preset in $VISUAL or $EDITOR and check it afterwards; a bundled one as a copy of your own."""
    with exit_on_user_error():
        raise typer.Exit(edit_preset(name, _try_out))


def _try_out(preset: Preset) -> None:
    """Estimate it, which finds what no single key is wrong with: heads that do not divide, a sequence too long.

    On a card that holds anything: a server that no usual card holds is not wrong for it.
    """
    from vramtui.estimators.methods import estimates_by

    if isinstance(preset.model, TorchModel):
        return  # known only by running it

    boundless = msgspec.structs.replace(card(DEFAULT_CARD), total_memory=1 << 50)
    estimates_by("analytic", preset.workload, boundless)  # finds every fault without simulating the allocator


def edit_preset(name: str, try_out: Callable[[Preset], object]) -> int:
    """Edit the preset called `name`, or at that path, until it is right or the person has enough; the exit code.

    What was typed stays in the file, right or wrong. A bundled preset is copied into the person's own folder first;
    the copy goes again where nothing was changed in it.
    """
    library = PresetLibrary()
    file = _path_of(name, library)
    bundled = file.resolve().is_relative_to(bundled_folder().resolve())
    path = library.user_folder / file.name if bundled else file
    if bundled and not path.exists():
        write_whole(path, file.read_bytes(), display_path(path))
    before = path.read_bytes()
    from vramtui.presets.draft import run_editor

    try:
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
    finally:
        if path.is_file() and path.read_bytes() == before:
            typer.echo(f"{display_path(path)} is unchanged")
            if bundled and before == file.read_bytes():
                path.unlink()


def asks() -> bool:
    """Return whether a person can answer."""
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
            f"{display_path(path)} is not a preset; `vramtui presets new NAME --from` makes one from a model's file"
        )
    read_text(path)
    return path
