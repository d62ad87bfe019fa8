"""How messages are looked for in a log: sizes, words that a terminal may have broken across lines, and frames."""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from vramtui.core.base.errors import UserError
from vramtui.core.base.units import GIB, parse_size
from vramtui.core.observation.oom.report import OomCause, OomReport, Way

_SIZE = r"(\d[\d.,]{0,30} ?(?:[KMGT]i?B|[Bb]ytes|B))"
# More than the longest message there is: PyTorch's own is about 700 characters.
_MOST = 4096


Fields = Callable[[str, "re.Match[str]"], dict[str, Any]]


class OomMessage(NamedTuple):
    """How a message is found, and its report by its log and match: `fields` adds to what it always states."""

    pattern: "re.Pattern[str]"
    program: str
    cause: OomCause | None
    fields: Fields

    def report(self, log: str, match: "re.Match[str]") -> OomReport:
        fields: dict[str, Any] = {"program": self.program, "known_cause": self.cause, **self.fields(log, match)}
        ways = (Way(way) if isinstance(way, str) else way for way in fields.pop("own_ways", ()))
        return OomReport(**fields, own_ways=tuple(ways))


class OomMessages(list[OomMessage]):
    """Messages whose last one in a log counts."""

    def reads(
        self, pattern: "re.Pattern[str]", program: str = "PyTorch", cause: OomCause | None = "not enough memory"
    ) -> Callable[[Fields], Fields]:
        """Add a message of a program, whose figures and sentences the decorated function reads from its log."""

        def add(fields: Fields) -> Fields:
            self.append(OomMessage(pattern, program, cause, fields))
            return fields

        return add

    def states(self, pattern: "re.Pattern[str]", program: str, cause: OomCause, headline: str, *ways: str) -> None:
        """Add a message that states only that memory ran out."""
        self.reads(pattern, program, cause)(lambda _log, _match: {"headline": headline, "own_ways": ways})


def wording(text: str) -> "re.Pattern[str]":
    """A message as a pattern: `SIZE` takes a number and its unit, and a space any white space."""
    spaced = text.replace(" ?", r"\s*").replace(" ", r"\s+")
    return re.compile(spaced.replace("SIZE", _SIZE))


def message_at(text: str, start: int) -> str:
    """The message around a place: from the begin of its line to the next empty one."""
    begin = max(text.rfind("\n", 0, start), start - _MOST, 0)
    return text[begin : start + _MOST].partition("\n\n")[0]


def bytes_of(text: str) -> int | None:
    """The bytes of `3.00 GiB`, `7406166528 bytes` or `2,147,483,648 bytes`; None if it is not a size."""
    try:
        return parse_size(re.sub(r"\s*[Bb]ytes", "", text.replace(",", "")))
    except UserError:
        return None


def gib(number: str) -> int:
    """The bytes of a number that its message calls GiB, or GB and means GiB, as vLLM and SGLang do."""
    return round(float(number) * GIB)


def last(pattern: "re.Pattern[str]", text: str, end: int) -> "re.Match[str] | None":
    match = None
    for match in pattern.finditer(text, 0, end):  # noqa: B007 - the last one is what is wanted
        pass
    return match
