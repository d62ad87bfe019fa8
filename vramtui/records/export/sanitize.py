"""Values on their way into a document: text that no terminal obeys, numbers that JSON knows, times a person reads."""

from datetime import datetime, timezone
from math import isfinite
from typing import Any

from vramtui.core.base.text import printable
from vramtui.core.base.units import UNKNOWN


def clean(value: Any) -> Any:  # noqa: ANN401 - a tree of whatever JSON can hold
    """`value` with every text in it (keys too) made printable, and every float that JSON cannot write as None."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, dict):
        return {printable(key): clean(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean(entry) for entry in value]
    return value


def moment(seconds: float) -> datetime | None:
    """Seconds since the epoch as this machine's local time; None for a figure that is no time at all."""
    try:
        return datetime.fromtimestamp(seconds, tz=timezone.utc).astimezone()
    except (OverflowError, ValueError, OSError):
        return None


def iso_time(seconds: float | None) -> str:
    """Seconds since the epoch as `2026-01-31 14:05:09 +01:00`."""
    when = None if seconds is None else moment(seconds)
    if when is None:
        return UNKNOWN
    offset = when.strftime("%z")
    return f"{when:%Y-%m-%d %H:%M:%S} {offset[:3]}:{offset[3:5]}"
