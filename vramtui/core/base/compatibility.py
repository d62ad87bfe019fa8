"""Reading what a newer version of the program, or one that errs, may have written: as much of it as can be read."""

import re
from collections.abc import Collection
from typing import Any, TypeVar

import msgspec

from vramtui.core.base.errors import UserError

Value = TypeVar("Value")
MOST_DROPPED = 256  # fields of a newer version
MOST_MENDED = 16  # fields with a wrong value in one line; each has the line looked at once more
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>.*?)`(?: - at `\$(?P<path>.*)`)?$", re.DOTALL)
# The last of a path's fields, and what is inside of it.
_WRONG = re.compile(r" - at `\$(?P<path>.*)\.(?P<name>[^.\[`]+)(?P<inside>(?:\[(?:\d+|\.\.\.)\])*)`$", re.DOTALL)
_STEP = re.compile(r"\.(?P<key>[^.\[]+)|\[(?P<place>\d+|\.\.\.)\]")


class NewerFormatError(UserError):
    """A file was written by a version whose format this one does not know."""


def check_format(version: int, known: int) -> None:
    """See that this version can read it. The number of a format goes up where an older reader would be wrong about what
    it reads; what only adds fields keeps it, and readers pass over what they do not know. Raises NewerFormatError if it
    cannot.
    """
    if version > known:
        raise NewerFormatError(
            f"made by a newer version of vramtui (format {version}, this one reads {known}); upgrade it"
        )


def with_known_fields(data: bytes, kind: type[Value]) -> Value:
    """The JSON in `data` as a `kind`, without the fields that `kind` does not have.

    Presets are read strictly, so that a slip of the pen is found. The same tables in a recording were written by a
    program, and a newer one may have more fields.

    Raises:
        msgspec.ValidationError: it is no `kind` without them either.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        document, refusal = msgspec.json.decode(data), error
    for _ in range(MOST_DROPPED):
        unknown = _UNKNOWN.search(str(refusal))
        holders = _holders(document, unknown["path"] or "", unknown["name"]) if unknown is not None else []
        if unknown is None or not holders:
            raise refusal
        for holder in holders:
            del holder[unknown["name"]]
        try:
            return msgspec.convert(document, kind, str_keys=True)
        except msgspec.ValidationError as error:
            refusal = error
    raise refusal


def with_possible_fields(data: bytes, kind: type[Value], rows: Collection[str], left_out: list[str]) -> Value | None:
    """The JSON in `data` as a `kind`; a field that may be unknown is so where its value is none that it can have. None
    where it is no `kind` without them either, or there is too much of that.

    Args:
        data: a line that another host or program wrote, and that is none as it stands.
        kind: what it should be.
        rows: fields that are lists of rows: they are not left out for one wrong row.
        left_out: where each such field stands; more are added.
    """
    try:
        document = msgspec.json.decode(data)
    except msgspec.DecodeError:
        return None
    for _ in range(MOST_MENDED):
        refusal = _refusal(document, kind)
        wrong = None if refusal is None else _WRONG.search(str(refusal))
        if wrong is None or (wrong["inside"] and wrong["name"] in rows):
            return None
        holders = [one for one in _holders(document, wrong["path"], wrong["name"]) if one[wrong["name"]] is not None]
        if not holders:
            return None
        for holder in holders:
            holder[wrong["name"]] = None
        left_out.append(f"{wrong['path']}.{wrong['name']}".removeprefix("."))
        if _refusal(document, kind) is None:
            return msgspec.convert(document, kind, str_keys=True)
    return None


def _refusal(document: object, kind: type[Value]) -> msgspec.ValidationError | None:
    try:
        msgspec.convert(document, kind, str_keys=True)
    except msgspec.ValidationError as error:
        return error
    return None


def _holders(document: object, path: str, name: str) -> list[dict[str, Any]]:
    """The objects at that path that have the field."""
    places: list[Any] = [document]
    for step in _STEP.finditer(path):
        inner: list[Any] = []
        for place in places:
            if step["key"] is not None:
                inner += [place[step["key"]]] if isinstance(place, dict) and step["key"] in place else []
                continue
            items = list(place.values()) if isinstance(place, dict) else place if isinstance(place, list) else []
            inner += items if step["place"] == "..." else items[int(step["place"] or 0) :][:1]
        places = inner
    return [place for place in places if isinstance(place, dict) and name in place]
