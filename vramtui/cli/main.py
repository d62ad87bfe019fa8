"""The command line, put together: one line per command."""

from pathlib import Path
from typing import Annotated

import typer

from vramtui import __version__
from vramtui.cli.allocator import allocator
from vramtui.cli.doctor import doctor
from vramtui.cli.estimate import estimate
from vramtui.cli.fit import fit
from vramtui.cli.presets import app as presets
from vramtui.cli.ps import ps
from vramtui.cli.record import record
from vramtui.cli.snapshot import snapshot

app = typer.Typer(
    name="vramtui",
    no_args_is_help=False,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(ps)
app.command()(estimate)
app.command()(fit)
app.command()(snapshot)
app.command()(allocator)
app.command()(record)
app.command()(doctor)
app.add_typer(presets, name="presets")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"vramtui {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    demo: Annotated[bool, typer.Option("--demo", help="Show the built-in demo host.")] = False,
    replay: Annotated[Path | None, typer.Option(help="Play a recording back.")] = None,
    interval: Annotated[float, typer.Option(min=0.1, max=3600, help="Seconds between looks at the GPUs.")] = 1.0,
    preset: Annotated[str | None, typer.Option(help="The preset to open with: a name or a path.")] = None,
    version: Annotated[  # noqa: ARG001 - Typer acts on it before this runs
        bool, typer.Option("--version", "-V", callback=_print_version, is_eager=True, help="Say the version.")
    ] = False,
) -> None:
    """What holds your GPU's memory, what your job should need, and how far apart the two are.

    Without a command it opens the dashboard.
    """
    if context.invoked_subcommand is not None:
        return
    from vramtui.cli.dashboard import open_dashboard  # noqa: PLC0415 - only this needs the screen

    open_dashboard(demo=demo, replay=replay, interval=interval, preset=preset)


def run() -> None:
    """Run the command line."""
    app(prog_name="vramtui")
