"""The fields of a run that can be stepped up and down in the estimate panel."""

from typing import Any, get_args

import msgspec

from vramtui.core.schema.decoder_models import TorchModel
from vramtui.core.schema.workload import (
    Attention,
    CacheType,
    Checkpointing,
    Optimizer,
    Precision,
    Quantization,
    TrainRun,
    Workload,
)

MOST = 2**31


class RunField(msgspec.Struct, frozen=True):
    """One field of `[run]`: `name` as the preset writes it, `label` as the panel does.

    Attributes:
        choices: what it can be, when it is not a number; None among them where the preset may leave it open.
        least: the smallest number.
        tokens: a number of tokens, which goes up and down a ladder.
        share: a fraction of 1, which goes by twentieths.
        attends: only models with attention have a use for it.
        usual: where a number begins that the preset leaves open; one above 0 when absent.
    """

    name: str
    label: str
    choices: tuple[str | None, ...] = ()
    least: int = 1
    tokens: bool = False
    share: bool = False
    attends: bool = False
    usual: int | None = None


FIELDS = (
    RunField("batch_size", "batch"),
    RunField("max_num_seqs", "sequences", usual=256),
    RunField("sequence_length", "seq", tokens=True, attends=True),
    RunField("max_model_len", "context", tokens=True, attends=True),
    RunField("new_tokens", "new tokens", least=0, tokens=True, attends=True),
    RunField("gpu_memory_utilization", "share", share=True),
    RunField("gradient_accumulation_steps", "accumulate"),
    RunField("precision", "precision", get_args(Precision)),
    RunField("quantization", "quantized", (None, *get_args(Quantization)), attends=True),
    RunField("optimizer", "optimizer", get_args(Optimizer)),
    RunField("attention", "attention", get_args(Attention), attends=True),
    RunField("checkpointing", "checkpointing", get_args(Checkpointing), attends=True),
    RunField("kv_cache", "KV cache", (None, *get_args(CacheType)), attends=True),
)
# Where a sequence begins whose length the preset leaves open.
USUAL_LENGTH = 1024
# What the keys for batch and sequence step, in the order in which a run is looked at.
SIZES = ("batch_size", "max_num_seqs")
LENGTHS = ("sequence_length", "max_model_len")


def fields_of(workload: Workload) -> tuple[RunField, ...]:
    """The fields that this kind of run has and this kind of model uses; none for somebody's own code, whose file has
    them.
    """
    if isinstance(workload.model, TorchModel):
        return ()
    known = {field.name for field in msgspec.structs.fields(workload.run)}
    attends = hasattr(workload.model, "num_attention_heads")
    frozen = not isinstance(workload.run, TrainRun) or workload.run.lora is not None
    return tuple(
        field
        for field in FIELDS
        if field.name in known and (attends or not field.attends) and (frozen or field.name != "quantization")
    )


def first_of(workload: Workload, names: tuple[str, ...]) -> str | None:
    """The first of these fields that the run has; None where it has none."""
    known = {field.name for field in fields_of(workload)}
    return next((name for name in names if name in known), None)


def value_of(workload: Workload, field: RunField) -> Any:  # noqa: ANN401 - a number or one of the choices
    """What the field holds: a number, one of its choices, or None where the preset leaves it open."""
    return getattr(workload.run, field.name)


def step(workload: Workload, name: str, direction: int) -> Workload:
    """`workload` with the field called `name` one step up (1) or down (-1); unchanged at the end of its range.

    Choices go round. Tokens go up and down a ladder of 1 and 1.5 times the powers of two.
    """
    field = next((field for field in fields_of(workload) if field.name == name), None)
    if field is None:
        return workload
    return workload.with_run(**{name: _next(field, value_of(workload, field), direction)})


def _next(field: RunField, value: Any, direction: int) -> Any:  # noqa: ANN401 - as value_of
    if field.choices:
        at = field.choices.index(value) if value in field.choices else (-1 if direction > 0 else 0)
        return field.choices[(at + direction) % len(field.choices)]
    if field.share:
        return min(20, max(1, round((value or 0) * 20) + direction)) / 20
    if field.tokens:
        if value is None:
            return USUAL_LENGTH
        return _rung(value, direction, field.least)
    if value is None and field.usual is not None:
        return field.usual
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


def changes_of(workload: Workload, original: Workload) -> frozenset[str]:
    """The keys that differ, as `changed_fields`; `workload` stands for differences outside of its fields."""
    fields = changed_fields(workload, original)
    return fields if fields or workload == original else frozenset({"workload"})
