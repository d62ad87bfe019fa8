"""Names of hosts as people write them: `gpu01`, `user@gpu[02-16]`, `@group`."""

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence

from vramtui.core.base.errors import UserError, nearest
from vramtui.core.base.text import printable

LONGEST_SHOWN = 200  # characters; a host's name has 253 at most, and most have twenty
MOST_HOSTS = 1024
_NAME = re.compile(r"(?:[A-Za-z0-9._][A-Za-z0-9._+-]*@)?[A-Za-z0-9_.:][A-Za-z0-9_.:%-]*")
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
_BETWEEN = re.compile(r",(?![^\[]*\])")  # a comma outside of brackets


def host_names(asked: Iterable[str], groups: Mapping[str, Sequence[str]] | None = None) -> tuple[str, ...]:
    """Every host that is asked for, once and in order, as ssh is to be told of it.

    Args:
        asked: names, ranges as Slurm writes them, several with commas between, and `@group`.
        groups: what the names of groups stand for.

    Raises:
        UserError: a name that no host has, or begins with `-`; an unknown group; too many.
    """
    known = {} if groups is None else groups
    names: dict[str, None] = {}
    for text in asked:
        for part in _BETWEEN.split(text):
            members: Iterable[str] = (part.strip(),)
            if part.strip().startswith("@"):
                members = itertools.chain.from_iterable(map(_BETWEEN.split, _group(part.strip()[1:], known)))
            for member in members:
                for name in _expanded(member.strip()):
                    names[_checked(name, text)] = None
                    if len(names) > MOST_HOSTS:
                        raise UserError(f"--host {_short_text(text)}: more than {MOST_HOSTS} hosts")
    return tuple(names)


def _group(name: str, groups: Mapping[str, Sequence[str]]) -> Sequence[str]:
    if name not in groups:
        raise UserError(
            f"there is no group of hosts called {_short_text(name)}{nearest(name, groups)}; "
            f"groups are in the table [hosts] of the settings: {_short_text(name)} = ['gpu[01-08]']"
        )
    return groups[name]


def _expanded(text: str) -> Iterable[str]:
    """`r[1-2]n[01,03]` is r1n01, r1n03, r2n01, r2n03; zeros at the front are kept."""
    pieces = _BRACKETS.split(text)
    choices = [[piece] if at % 2 == 0 else _numbers(piece, text) for at, piece in enumerate(pieces)]
    count = 1
    for choice in choices:
        count *= len(choice)
        if count > MOST_HOSTS:
            raise UserError(f"--host {_short_text(text)}: more than {MOST_HOSTS} hosts")
    return ("".join(parts) for parts in itertools.product(*choices))


def _numbers(ranges: str, text: str) -> list[str]:
    numbers: list[str] = []
    for part in ranges.split(","):
        matched = _RANGE.fullmatch(part.strip())
        if matched is None:
            raise UserError(
                f"--host {_short_text(text)}: [{_short_text(ranges)}] is no range; write gpu[01-08] or gpu[1,4]"
            )
        first, last = matched[1], matched[2] or matched[1]
        if int(last) < int(first) or int(last) - int(first) >= MOST_HOSTS:
            raise UserError(
                f"--host {_short_text(text)}: {_short_text(part)} is not a range of at most {MOST_HOSTS} hosts"
            )
        numbers += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    return numbers


def _checked(name: str, text: str) -> str:
    """The name; one that begins with `-` would be an option of ssh's.

    Raises:
        UserError: it is no name.
    """
    if not _NAME.fullmatch(name):
        shown = _short_text(name) or "nothing"
        raise UserError(f"--host {_short_text(text)}: {shown} is no name of a host")
    return name


def _short_text(text: str) -> str:
    """A name as it stands in a sentence: printable, and cut where somebody typed a long one."""
    return printable(text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…")
