"""The fields of a run that can be stepped up and down in the estimate panel."""

from typing import Any, get_args

import msgspec

from vramtui.core.workload import Attention, CacheType, Checkpointing, Optimizer, Precision, Workload

MOST = 2**31


class Field(msgspec.Struct, frozen=True):
    """One field of `[run]`: `name` as the preset writes it, `label` as the panel does; `choices` when not a number."""

    name: str
    label: str
    choices: tuple[str, ...] = ()
    least: int = 1


FIELDS = (
    Field("batch_size", "batch"),
    Field("sequence_length", "seq"),
    Field("new_tokens", "new tokens", least=0),
    Field("gradient_accumulation_steps", "accumulate"),
    Field("precision", "precision", get_args(Precision)),
    Field("optimizer", "optimizer", get_args(Optimizer)),
    Field("attention", "attention", get_args(Attention)),
    Field("checkpointing", "checkpointing", get_args(Checkpointing)),
    Field("kv_cache", "KV cache", get_args(CacheType)),
)
# Where a sequence begins whose length the preset leaves open.
USUAL_LENGTH = 1024
_LADDERS = {"sequence_length", "new_tokens"}


def fields_of(workload: Workload) -> tuple[Field, ...]:
    """The fields that this kind of run has."""
    known = {field.name for field in msgspec.structs.fields(workload.run)}
    return tuple(field for field in FIELDS if field.name in known)


def value_of(workload: Workload, field: Field) -> Any:  # noqa: ANN401 - a number or one of the choices
    """What the field holds: a number, one of its choices, or None where the preset leaves it open."""
    return getattr(workload.run, field.name)


def step(workload: Workload, name: str, direction: int) -> Workload:
    """`workload` with the field called `name` one step up (1) or down (-1); unchanged at the end of its range.

    Choices go round. Tokens go up and down a ladder of 1 and 1.5 times the powers of two.
    """
    field = next((field for field in fields_of(workload) if field.name == name), None)
    if field is None:
        return workload
    value = _next(field, value_of(workload, field), direction)
    return msgspec.structs.replace(workload, run=msgspec.structs.replace(workload.run, **{name: value}))


def _next(field: Field, value: Any, direction: int) -> Any:  # noqa: ANN401 - as value_of
    if field.choices:
        at = field.choices.index(value) if value in field.choices else (-1 if direction > 0 else 0)
        return field.choices[(at + direction) % len(field.choices)]
    if field.name in _LADDERS:
        if value is None:
            return USUAL_LENGTH
        return _rung(value, direction, field.least)
    return min(MOST, max(field.least, (value or 0) + direction))


def _rung(value: int, direction: int, least: int) -> int:
    ladder = sorted({least, *(rung for power in range(4, 31) for rung in (1 << power, 3 << (power - 1)))})
    if direction > 0:
        return next((rung for rung in ladder if rung > value), value)
    return next((rung for rung in reversed(ladder) if rung < value), value)


def changed_fields(workload: Workload, original: Workload) -> frozenset[str]:
    """Names of the fields in which the two runs differ."""
    return frozenset(
        field.name for field in fields_of(workload) if value_of(workload, field) != value_of(original, field)
    )
