"""The fields that changed from one value to the next, so that a day of a crowded host fits in some tens of megabytes.

`{"utilization": 12, "memory": {"used": 1}, "processes": {"3": {"used_memory": 1}}}`: an object has only the fields that
differ, by their names in `vramtui.core.observation`. Rows that are still the same GPUs, processes or devices are
numbered by their places in the list before; otherwise the whole list is there.
"""

from functools import cache
from operator import attrgetter
from typing import Any, TypeVar

import msgspec

from vramtui.core.observation.readings import Process

# Fields that are lists of rows, and what makes two rows the same.
ROWS = {"gpus": attrgetter("uuid"), "processes": attrgetter("pid", "started_at"), "devices": attrgetter("index")}
# Every process changes these at every tick: they wait for the next whole sample.
LEFT_OUT = frozenset({"cpu_percent", "host_memory", "sm_percent"})

Changes = dict[str, Any]
Value = TypeVar("Value", bound=msgspec.Struct)


def changes_between(old: msgspec.Struct, new: msgspec.Struct) -> Changes:
    """The fields of `new` that differ from `old`, ready for JSON."""
    left_out = LEFT_OUT if type(new) is Process else ()
    changes: Changes = {}
    for name in new.__struct_fields__:
        was, now = getattr(old, name), getattr(new, name)
        if was is now or name in left_out:
            continue
        if name in ROWS and list(map(ROWS[name], was)) == list(map(ROWS[name], now)):
            rows = {
                str(place): inner
                for place, (one, other) in enumerate(zip(was, now, strict=True))
                if one is not other and (inner := changes_between(one, other))
            }
            if rows:
                changes[name] = rows
        elif was != now:
            is_nested = isinstance(now, msgspec.Struct) and type(was) is type(now)
            changes[name] = changes_between(was, now) if is_nested else msgspec.to_builtins(now, str_keys=True)
    return changes


def with_changes(old: Value, changes: Changes, left_out: list[str] | None = None) -> Value:
    """The value after `old`; what did not change is shared between the two. Fields of a newer version are ignored.
    `left_out` takes the names of fields with an impossible value, which become None; without it they are an error.

    Raises:
        msgspec.ValidationError: the changes do not fit `old`.
    """
    if not changes:
        return old
    fields = _fields(type(old))
    values: Changes = {}
    for name, change in changes.items():
        if name not in fields:
            continue
        was = getattr(old, name)
        if isinstance(change, dict) and isinstance(was, msgspec.Struct):
            values[name] = with_changes(was, change, left_out)
        elif isinstance(change, dict) and name in ROWS:
            rows = list(was)
            for place, inner in msgspec.convert(change, dict[int, Changes], strict=False, str_keys=True).items():
                if not 0 <= place < len(rows):
                    raise msgspec.ValidationError(f"number {place} is missing in the sample before")
                rows[place] = with_changes(rows[place], inner, left_out)
            values[name] = tuple(rows)
        else:
            try:
                values[name] = msgspec.convert(change, fields[name].type, strict=False, str_keys=True)
            except msgspec.ValidationError:
                if left_out is None or fields[name].default is not None:
                    raise
                values[name] = None
                left_out.append(name)
    return msgspec.structs.replace(old, **values)


@cache
def _fields(kind: type) -> dict[str, msgspec.structs.FieldInfo]:
    return {field.name: field for field in msgspec.structs.fields(kind)}
