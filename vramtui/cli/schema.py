"""`vramtui schema`: the JSON Schema of what the program writes and reads."""

from typing import Annotated

import typer

from vramtui.cli.common.console import print_json
from vramtui.cli.common.exit_codes import exit_on_user_error
from vramtui.cli.completion import schemas


def schema(
    name: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]", help="As presets list; all names when absent.", autocompletion=schemas),
    ] = None,
) -> None:
    """Print the JSON Schema of what a command prints with --json, of an error, of a preset, or of what Python gives."""
    with exit_on_user_error():
        from vramtui.api.schemas import SCHEMAS
        from vramtui.api.schemas import schema as made

        if name is None:
            print("\n".join(SCHEMAS))
        else:
            print_json(made(" ".join(name)))
