"""`vramtui config`: the settings file, shown, checked and edited."""

import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from vramtui.cli.common.console import print_json
from vramtui.cli.common.exit_codes import BAD_INPUT, exit_on_user_error
from vramtui.cli.groups import WordedCommand
from vramtui.core.base.errors import UserError, os_reason
from vramtui.core.schema.settings import CONFIG

config = typer.Typer(no_args_is_help=True, help="Show, check and edit the settings.")


@config.command(cls=WordedCommand)
def show(json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False) -> None:
    """Every setting as it holds now, and where the file is."""
    with exit_on_user_error():
        from vramtui.cli.common.settings import set_variables, settings_in_force

        path, variables = _path(), {key: variable for variable, key in set_variables().items()}
        settings = msgspec.to_builtins(settings_in_force())
        if json:
            document = {"schema": 1, "path": str(path), "exists": path.exists(), "environment": variables}
            print_json({**document, "settings": settings})
            return
        sys.stdout.write(f"# {path}{'' if path.exists() else ' (not found: all defaults)'}\n")
        for table, values in settings.items():
            sys.stdout.write(f"\n[{table}]\n")
            for key, value in values.items():
                variable = variables.get(f"{table}.{key}")
                sys.stdout.write(f"{_line(key, value)}{f'  # {variable}' if variable else ''}\n")


@config.command(cls=WordedCommand)
def check() -> None:
    """Report every error in the file; exit code 2 when something is."""
    with exit_on_user_error():
        from vramtui.presets.reader import read_text
        from vramtui.presets.settings import find_setting_problems

        path = _path()
        if not path.exists():
            sys.stdout.write(f"there is no {path}: all defaults\n")
            return
        problems = find_setting_problems(read_text(path))
        for problem in problems:
            sys.stderr.write(f"{problem.at(path)}\n")
        if problems:
            raise SystemExit(BAD_INPUT)
        sys.stdout.write(f"{path} is right\n")


@config.command(cls=WordedCommand)
def edit() -> None:
    """Open the file in $VISUAL or $EDITOR; one with every setting explained is made where there is none."""
    with exit_on_user_error():
        from vramtui.presets.draft.external_editor import run_editor
        from vramtui.presets.settings import example_settings
        from vramtui.presets.toml.whole_files import write_new

        path = _path()
        if not path.exists():
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                write_new(path, example_settings().encode())
            except OSError as error:
                raise UserError(f"{path} cannot be created: {os_reason(error)}") from None
        run_editor(path)
        check()


def _path() -> Path:
    from vramtui.presets import config_dir

    return config_dir() / CONFIG


def _line(key: str, value: object) -> str:
    """A setting as TOML has it; one that is not set is a comment."""
    import json  # only here; strings and lists of them are spelt alike in JSON and TOML

    shown = f'"{key}"' if "." in key else key
    return f"# {shown} is not set" if value is None else f"{shown} = {json.dumps(value, ensure_ascii=False)}"
