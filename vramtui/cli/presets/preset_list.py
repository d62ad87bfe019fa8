"""`vramtui presets list`: every preset, your own before the bundled ones."""

import shutil
import sys
from typing import Annotated

import typer

from vramtui.cli.common.console import print_json, print_table
from vramtui.cli.common.exit_codes import exit_on_user_error
from vramtui.cli.options import WordedCommand
from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.presets.library import PresetLibrary

presets = typer.Typer(no_args_is_help=True, help="List, show, check and write presets.")
ROOM_FOR_ALL = 110


@presets.command("list", cls=WordedCommand)
def list_presets(
    word: Annotated[
        str | None, typer.Argument(metavar="[WORD]", help="Only presets with this word in their name or title.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Every preset, your own before the bundled ones."""
    with exit_on_user_error():
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
            raise UserError(f"no preset has {word!r} in its name; `vramtui presets list` names them all")
        if json:
            print_json({"schema": 1, "presets": listed})
        else:
            # A narrow terminal needs its room for the titles.
            wide = not sys.stdout.isatty() or shutil.get_terminal_size().columns >= ROOM_FOR_ALL
            columns = ("NAME", "MODEL", "RUN", "FROM", "TITLE") if wide else ("NAME", "RUN", "TITLE")
            rows = (
                {
                    "NAME": printable(str(one["name"])),
                    "MODEL": str(one["model_kind"]),
                    "RUN": str(one["run_kind"]),
                    "FROM": "bundled" if one["bundled"] else "yours",
                    "TITLE": printable(str(one["title"])),
                }
                for one in listed
            )
            print_table(columns, [[row[column] for column in columns] for row in rows])
        for problem in library.problems:
            sys.stderr.write(f"vramtui: {problem}\n")
