"""A job's command line: its program, its script, and its options however they are written."""

import re
import shlex
from collections.abc import Iterator
from pathlib import PurePath

import msgspec

LONGEST = 1 << 16
_SET = re.compile(r"(-{0,2}[A-Za-z][\w.-]*)=(.*)", re.DOTALL)
_FLAG = re.compile(r"--?[A-Za-z][\w.-]*")
_PYTHON = re.compile(r"python[\d.]*")


class Option(msgspec.Struct, frozen=True):
    """One option: `name` without dashes and with underscores, `value` (empty for a switch), and `flag` as written."""

    name: str
    value: str
    flag: str


class CommandLine(msgspec.Struct, frozen=True):
    """All `words` of a command line; the `script` (a file or module without its folder, or the program itself); the
    `options` in their order.
    """

    words: tuple[str, ...]
    script: str
    options: tuple[Option, ...]

    def find(self, *names: str) -> Option | None:
        """Return the last option with one of the names, which is the one in force."""
        return next((option for option in reversed(self.options) if option.name in names), None)


def read_command_line(command: str) -> CommandLine:
    """Parse a command line; one that no shell would accept is split at its spaces."""
    command = command[:LONGEST]
    try:
        words = tuple(shlex.split(command))
    except ValueError:
        words = tuple(command.split())
    return CommandLine(words, _script(words), tuple(_options(words)))


def _options(words: tuple[str, ...]) -> Iterator[Option]:
    for word, following in zip(words, (*words[1:], ""), strict=False):
        pair = _SET.fullmatch(word)
        if pair and "/" not in pair[1]:
            yield Option(pair[1].lstrip("-").replace("-", "_"), pair[2], word)
        elif _FLAG.fullmatch(word):
            value = "" if _FLAG.fullmatch(following) or _SET.fullmatch(following) else following
            yield Option(word.lstrip("-").replace("-", "_"), value, f"{word} {value}".rstrip())


def _script(words: tuple[str, ...]) -> str:
    """The first Python file, the module after `-m`, torchtune's recipe, or the program that an interpreter runs."""
    names = [PurePath(word).name for word in words]
    files = [name for name in names if name.endswith(".py") and not name.startswith("-")]
    if files:
        return files[0]
    for number, name in enumerate(names[:-1]):
        launcher = names[number - 1] if number else ""
        if name == "-m" and (_PYTHON.fullmatch(launcher) or launcher in {"torchrun", "launch"}):
            return names[number + 1]
    if names[:2] == ["tune", "run"]:
        return next((name for name in names[2:] if "_" in name and not _FLAG.fullmatch(name)), "tune")
    programs = [name for name in names if not _FLAG.fullmatch(name)]
    behind = programs[1:] if programs and _PYTHON.fullmatch(programs[0]) else programs
    return behind[0] if behind and not _SET.fullmatch(behind[0]) else ""
