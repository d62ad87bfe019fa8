"""Reading what a newer version of the program may have written: it is refused only where its format says so."""

import re
from typing import Any, TypeVar

import msgspec

from vramtui.core.base.errors import UserError

Value = TypeVar("Value")
MOST_DROPPED = 256  # fields; what has more is no newer version of anything
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>.*?)`(?: - at `\$(?P<path>.*)`)?$", re.DOTALL)
_STEP = re.compile(r"\.(?P<key>[^.\[]+)|\[(?P<place>\d+|\.\.\.)\]")


class NewerFormatError(UserError):
    """It was written by a version whose format this one does not know."""


def check_format(version: int, known: int) -> None:
    """See that this version can read it. The number of a format goes up where an older reader would be wrong about
    what it reads; what only adds fields keeps it, and readers pass over what they do not know.

    Raises:
        NewerFormatError: it cannot.
    """
    if version > known:
        raise NewerFormatError(
            f"made by a newer version of vramtui (format {version}, this one reads {known}); upgrade it"
        )


def with_known_fields(data: bytes, kind: type[Value]) -> Value:
    """The JSON in `data` as a `kind`, without the fields that `kind` does not have.

    Presets are read strictly, so that a slip of the pen is found. The same tables in a recording were written by a
    program, and what a newer one adds to them is no mistake.

    Raises:
        msgspec.ValidationError: it is no `kind` without them either.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        document, found = msgspec.json.decode(data), error
    for _ in range(MOST_DROPPED):
        unknown = _UNKNOWN.search(str(found))
        if unknown is None or not _drop(document, unknown["path"] or "", unknown["name"]):
            raise found
        try:
            return msgspec.convert(document, kind, str_keys=True)
        except msgspec.ValidationError as error:
            found = error
    raise found


def _drop(document: Any, path: str, name: str) -> bool:  # noqa: ANN401 - whatever JSON can hold
    """Take the field away from the objects at that path; False where there is none."""
    places = [document]
    for step in _STEP.finditer(path):
        places = [inner for place in places for inner in _inside(place, step["key"], step["place"])]
    holders = [place for place in places if isinstance(place, dict) and name in place]
    for holder in holders:
        del holder[name]
    return bool(holders)


def _inside(value: Any, key: str | None, place: str | None) -> list[Any]:  # noqa: ANN401 - as above
    if key is not None:
        return [value[key]] if isinstance(value, dict) and key in value else []
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    return inner if place == "..." else inner[int(place or 0) :][:1]
