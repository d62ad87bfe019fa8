"""What changed from one Sample to the next, so that a day of a crowded host fits in a file of some tens of megabytes.

A delta is a JSON object with the one key `delta`:
`{"delta": {"taken_at": …, "host": {…}, "problems": […], "gpus": {"0": {"utilization": 12, "processes": {"3": {"used_memory": 1}}}}}}`.
Each inner object holds only the fields that differ, under their names in `vramtui.core.observation.readings`; GPUs and processes
are numbered by their places in the lists of the sample before. Where the processes of a GPU came or went, `processes`
is the whole list instead. What changes all the time and matters little is left for the next whole sample.
"""  # noqa: E501 - an example is easier to read on one line

from functools import cache
from typing import Any, TypeVar

import msgspec

from vramtui.core.observation.readings import Gpu, Host, Problem, Process, Sample

# Every process changes these at every tick.
LEFT_OUT = frozenset({"cpu_percent", "host_memory", "sm_percent"})
NONE_LEFT_OUT: frozenset[str] = frozenset()

Changes = dict[str, Any]
Read = TypeVar("Read", Host, Gpu, Process)


class Delta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """See the module's text."""

    taken_at: float
    host: Changes = {}
    problems: tuple[Problem, ...] | None = None
    gpus: dict[int, Changes] = {}


class DeltaLine(msgspec.Struct, frozen=True):
    """One line of a recording that holds a delta."""

    delta: Delta


def difference(before: Sample, after: Sample) -> Delta | None:
    """What changed, or None where the devices are not the same ones and only the whole sample will do."""
    if _identity(before) != _identity(after):
        return None
    gpus = {
        place: changes
        for place, (old, new) in enumerate(zip(before.gpus, after.gpus, strict=True))
        if (changes := _gpu_changes(old, new))
    }
    return Delta(
        taken_at=after.taken_at,
        host=_changes(before.host, after.host, NONE_LEFT_OUT),
        problems=None if before.problems == after.problems else after.problems,
        gpus=gpus,
    )


def following(before: Sample, delta: Delta, left_out: list[str]) -> Sample:
    """The sample that came after `before`; what did not change is shared between the two.

    Args:
        before: the sample before it.
        delta: what changed.
        left_out: the fields whose new value is none of theirs, and which are unknown from here on; more are added.

    Raises:
        msgspec.ValidationError: the delta does not follow that sample.
    """
    gpus = list(before.gpus)
    for place, changes in delta.gpus.items():
        gpus[place] = _gpu_after(_at(before.gpus, place), changes, left_out)
    return msgspec.structs.replace(
        before,
        taken_at=delta.taken_at,
        host=_after(before.host, delta.host, left_out),
        problems=before.problems if delta.problems is None else delta.problems,
        gpus=tuple(gpus),
    )


def _identity(sample: Sample) -> tuple[object, ...]:
    return (sample.schema, sample.source, [gpu.uuid for gpu in sample.gpus])


def _gpu_changes(old: Gpu, new: Gpu) -> Changes:
    if old is new:
        return {}
    changes = _changes(old, new, frozenset({"processes"}))
    if [(row.pid, row.started_at) for row in old.processes] != [(row.pid, row.started_at) for row in new.processes]:
        changes["processes"] = msgspec.to_builtins(new.processes)
        return changes
    rows = {
        str(place): inner
        for place, (one, other) in enumerate(zip(old.processes, new.processes, strict=True))
        if one is not other and (inner := _changes(one, other, LEFT_OUT))
    }
    if rows:
        changes["processes"] = rows
    return changes


def _gpu_after(gpu: Gpu, changes: Changes, left_out: list[str]) -> Gpu:
    rest = {name: value for name, value in changes.items() if name != "processes"}
    rows = changes.get("processes")
    if isinstance(rows, list):
        listed = msgspec.convert(rows, tuple[Process, ...])
        return msgspec.structs.replace(_after(gpu, rest, left_out), processes=listed)
    if isinstance(rows, dict):
        processes = list(gpu.processes)
        for place, moved in msgspec.convert(rows, dict[int, Changes], strict=False, str_keys=True).items():
            processes[place] = _after(_at(gpu.processes, place), moved, left_out)
        return msgspec.structs.replace(_after(gpu, rest, left_out), processes=tuple(processes))
    if rows is not None:
        raise msgspec.ValidationError("`processes` is neither a list nor an object")
    return _after(gpu, rest, left_out)


def _changes(old: Read, new: Read, left_out: frozenset[str]) -> Changes:
    return {
        name: msgspec.to_builtins(value)
        for name in _fields(type(new))
        if name not in left_out and (value := getattr(new, name)) != getattr(old, name)
    }


def _after(reading: Read, changes: Changes, left_out: list[str]) -> Read:
    if not changes:
        return reading
    fields = _fields(type(reading))
    values: Changes = {}
    for name, value in changes.items():
        if name not in fields:  # a newer version may have more
            continue
        try:
            values[name] = msgspec.convert(value, fields[name].type, strict=False, str_keys=True)
        except msgspec.ValidationError:
            if fields[name].default is not None:
                raise
            values[name] = None
            left_out.append(name)
    return msgspec.structs.replace(reading, **values)


def _at(values: tuple[Read, ...], place: int) -> Read:
    if not 0 <= place < len(values):
        raise msgspec.ValidationError(f"there is no number {place} in the sample before")
    return values[place]


@cache
def _fields(kind: type) -> dict[str, msgspec.structs.FieldInfo]:
    return {field.name: field for field in msgspec.structs.fields(kind)}
