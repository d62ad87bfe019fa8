"""The command line, put together: one line per command."""

import gc
import os
import shlex
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import typer

from vramtui import __version__
from vramtui.cli import options
from vramtui.cli.common.exit_codes import BAD_INPUT, exit_on_user_error, fail
from vramtui.cli.common.option_groups import DashboardOptions, SourceOptions

# In the module of each command's name there is a function or a Typer app of that name.
COMMANDS = (
    "ps", "estimate", "fit", "snapshot", "record", "export", "run", "pick", "oom", "dry-run", "history", "doctor",
    "presets", "help",
)  # fmt: skip


@options.command_of
def root(*, context: typer.Context, dashboard: DashboardOptions, once: bool = False, version: bool = False) -> None:
    """Start here:

    vramtui - the dashboard of this machine's GPUs

    vramtui estimate Qwen3-8B --gpu 4090 - does it fit? with --lora, --train …

    vramtui dry-run --gpu 4090 train.py - does my own script fit? without a GPU

    What holds your GPU's memory, what your job should need, and how far apart the two are.
    """
    if version:
        typer.echo(f"vramtui {__version__}")
    elif (command := context.invoked_subcommand) is not None:
        # Options of the dashboard before a command are never dropped: say what to write instead.
        asked: Any = context.command
        taken = {name for parameter in asked.get_command(context, command).params for name in parameter.opts}
        for parameter in asked.params:
            source = context.get_parameter_source(parameter.name)
            if source is None or source.name != "COMMANDLINE":
                continue
            name, value = max(parameter.opts, key=len), context.params.get(parameter.name)
            values = value if isinstance(value, (list, tuple)) else [value]
            written = name if parameter.is_flag else " ".join(f"{name} {shlex.quote(str(one))}" for one in values)
            if name in taken:
                fail(BAD_INPUT, f"{name} goes after the command: vramtui {command} {written}")
            fail(BAD_INPUT, f"{name} is an option of the dashboard; vramtui {command} does not have it")
    elif once:
        from vramtui.cli.ps import PsOptions, ps

        shown = SourceOptions(dashboard.demo, dashboard.replay, dashboard.hosts)
        ps(PsOptions(source=shown, feed=dashboard.feed, gpu=dashboard.only))
    else:
        from vramtui.cli.dashboard.command import open_dashboard

        open_dashboard(dashboard)


def program(names: Sequence[str] = COMMANDS) -> typer.Typer:
    """The command line with these commands; each one's module is loaded for it."""
    app = typer.Typer(
        name="vramtui",
        cls=options.WordedGroup,
        no_args_is_help=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True, epilog=options.EXIT_CODES)(root)
    for name in names:
        module = "run.command" if name == "run" else name.replace("-", "_")
        command = getattr(import_module(f"vramtui.cli.{module}"), name.replace("-", "_"))
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, epilog=options.EXIT_CODES)
        else:
            command = options.command_of(command) if name == "ps" else command  # which is also run past the parser
            codes = options.OWN_EXIT_CODES.get(name, options.EXIT_CODES)
            app.command(name, cls=options.WordedCommand, epilog=codes)(command)
    return app


def run() -> None:
    asked = None
    if os.environ.get(options.VARIABLE):  # a shell wants these words completed
        asked = (os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or "").split()[1:]
        from typer.completion import completion_init  # type: ignore[attr-defined]  # not in the list of what it exports

        completion_init()
    with exit_on_user_error():  # of what a command or `--help` writes as well, and what stands in a buffer at the end
        if sys.argv[1:] in (["--help"], ["-h"]) and asked is None:
            print(options.help_screen())
            return
        words = sys.argv[1:] if asked is None else asked
        if words and words[0] in COMMANDS:
            asked_program = program(words[:1])
        else:  # none for the dashboard with options
            asks_for_all = {"-h", "--help", *COMMANDS}.intersection(words) or not words or words[0][:1] != "-"
            asked_program = program(COMMANDS if asks_for_all else ())
        gc.freeze()
        gc.enable()  # which whoever starts the program leaves off while it is loaded
        asked_program(prog_name="vramtui")
