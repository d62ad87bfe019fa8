"""`vramtui man`: the manual page, made from the very commands, options and examples that `--help` shows."""

import time
from collections.abc import Iterator
from typing import Any

import typer

from vramtui import __version__
from vramtui.cli.groups import EXAMPLES, EXIT_CODES, GROUPS

FILES = (
    ("~/.config/vramtui/config.toml", "settings; VRAMTUI_CONFIG_DIR names another folder"),
    ("~/.config/vramtui/presets/", "presets of your own"),
    ("~/.local/state/vramtui/history.sqlite3", "past runs; VRAMTUI_DATA_DIR names a folder for these three"),
    ("~/.local/share/vramtui/recordings/", "what the dashboard records"),
    ("~/.cache/vramtui/", "what can be made again"),
    ("$XDG_RUNTIME_DIR/vramtui/", "where dashboards hear jobs under `vramtui run`"),
)


def man() -> None:
    """Print the manual page: vramtui man > ~/.local/share/man/man1/vramtui.1"""
    from vramtui.cli.main import program  # that loads every command

    print("\n".join(page(typer.main.get_command(program()))))


def page(root: Any) -> Iterator[str]:  # noqa: ANN401 - Typer's own, which each of its versions has elsewhere
    """The lines of the page, in roff. `root` is whatever class of commands this version of Typer has."""
    yield f'.TH VRAMTUI 1 "{time.strftime("%Y-%m-%d")}" "vramtui {__version__}" "User Commands"'
    yield from (".SH NAME", "vramtui \\- what holds GPU memory, what a job should need, and how far apart the two are")
    yield from (".SH SYNOPSIS", ".B vramtui", "[OPTIONS] [COMMAND] [ARGS]")
    yield from (".SH DESCRIPTION", *_paragraphs(root.help or ""), ".SH OPTIONS", *_options(root))
    commands = root.commands
    yield ".SH COMMANDS"
    for title, names in GROUPS.items():
        yield f".SS {_escaped(title)}"
        for name in names:
            yield from _command(f"vramtui {name}", commands[name])
            for example in EXAMPLES.get(name, ()):
                yield from (".PP", f"Example: \\fB{_escaped(example)}\\fR")
    yield from (".SH EXIT STATUS", _escaped(EXIT_CODES.removeprefix("Exit codes: ")), ".SH FILES")
    for path, about in FILES:
        yield from (".TP", f".I {_escaped(path)}", _escaped(about))


def _command(name: str, command: Any) -> Iterator[str]:  # noqa: ANN401 - Typer's own, which each of its versions has elsewhere
    arguments = " ".join(sub.make_metavar(typer.Context(command)) for sub in command.params if _is_argument(sub))
    yield from (".PP", f"\\fB{_escaped(name)}\\fR [OPTIONS] {_escaped(arguments)}".rstrip())
    yield from ("", ".RS", *_paragraphs(command.help or ""), *_options(command), ".RE")
    for inner, sub in getattr(command, "commands", {}).items():
        yield from _command(f"{name} {inner}", sub)


def _is_argument(parameter: Any) -> bool:  # noqa: ANN401 - Typer's own, which each of its versions has elsewhere
    return bool(parameter.param_type_name == "argument")


def _options(command: Any) -> Iterator[str]:  # noqa: ANN401 - Typer's own, which each of its versions has elsewhere
    context = typer.Context(command)
    for parameter in command.params:
        record = parameter.get_help_record(context)
        if record is not None and not _is_argument(parameter):
            yield from (".TP", f"\\fB{_escaped(record[0])}\\fR", _escaped(record[1]))


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in text.strip().split("\n\n"):
        yield from (".PP", _escaped(" ".join(paragraph.split())))


def _escaped(text: str) -> str:
    """`text` as roff shows it: no line of it is a request."""
    plain = text.replace("\\", "\\e").replace("-", "\\-").replace("\n", " ")
    plain = "".join(letter if letter.isascii() else f"\\[u{ord(letter):04X}]" for letter in plain)
    return f"\\&{plain}" if plain[:1] in {".", "'"} else plain
