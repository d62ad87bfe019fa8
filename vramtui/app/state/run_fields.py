"""The fields of a run that the estimate panel can step up and down."""

from typing import Any, get_args

import msgspec

from vramtui.core.schema import workload as workloads
from vramtui.core.schema.models import TorchModel

MOST = 2**31


class RunField(msgspec.Struct, frozen=True):
    """One field of `[run]`: `name` in the preset, `label` in the panel.

    Attributes:
        choices: the values of a field that is not a number; None if the preset may leave it out.
        least: the smallest number.
        tokens: a number of tokens, which goes in larger steps.
        share: a fraction of 1, in steps of 0.05.
        attends: only for models with attention.
        usual: the first value of a number that the preset leaves out; else 1.
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
    RunField("precision", "precision", get_args(workloads.Precision)),
    RunField("quantization", "quantized", (None, *get_args(workloads.Quantization)), attends=True),
    RunField("optimizer", "optimizer", get_args(workloads.Optimizer)),
    RunField("attention", "attention", get_args(workloads.Attention), attends=True),
    RunField("checkpointing", "checkpointing", get_args(workloads.Checkpointing), attends=True),
    RunField("kv_cache", "KV cache", (None, *get_args(workloads.CacheType)), attends=True),
)
USUAL_LENGTH = 1024  # the first length of a sequence that the preset leaves out
# The fields that the keys for batch and sequence step: the first that a run has.
SIZES = ("batch_size", "max_num_seqs")
LENGTHS = ("sequence_length", "max_model_len")


def fields_of(workload: workloads.Workload) -> tuple[RunField, ...]:
    """Return the fields of this kind of run and model; user code has its own in its file."""
    if isinstance(workload.model, TorchModel):
        return ()
    known = {field.name for field in msgspec.structs.fields(workload.run)}
    attends = hasattr(workload.model, "num_attention_heads")
    frozen = not isinstance(workload.run, workloads.TrainRun) or workload.run.lora is not None
    return tuple(
        field
        for field in FIELDS
        if field.name in known and (attends or not field.attends) and (frozen or field.name != "quantization")
    )


def first_of(workload: workloads.Workload, names: tuple[str, ...]) -> str | None:
    known = {field.name for field in fields_of(workload)}
    return next((name for name in names if name in known), None)


def value_of(workload: workloads.Workload, field: RunField) -> Any:  # noqa: ANN401 - a number or one of the choices
    """Return the field's value; None if the preset leaves it out."""
    return getattr(workload.run, field.name)


def step(workload: workloads.Workload, name: str, direction: int) -> workloads.Workload:
    """Return `workload` with the field `name` one step up (1) or down (-1); unchanged at the end of its range.

    Choices wrap around. Tokens step through 1 and 1.5 times the powers of two.
    """
    field = next((field for field in fields_of(workload) if field.name == name), None)
    if field is None:
        return workload
    value = value_of(workload, field)
    after: Any
    if field.choices:
        at = field.choices.index(value) if value in field.choices else (-1 if direction > 0 else 0)
        after = field.choices[(at + direction) % len(field.choices)]
    elif field.share:
        after = min(20, max(1, round((value or 0.9) * 20) + direction)) / 20
    elif field.tokens and value is not None:
        rungs = sorted({field.least, *(rung for power in range(4, 31) for rung in (1 << power, 3 << (power - 1)))})
        beyond = [rung for rung in rungs if (rung > value if direction > 0 else rung < value)]
        after = beyond[0 if direction > 0 else -1] if beyond else value
    elif value is None and (field.tokens or field.usual is not None):
        after = USUAL_LENGTH if field.tokens else field.usual
    else:
        after = min(MOST, max(field.least, (value or 0) + direction))
    return workload.with_run(**{name: after})


def changes_of(workload: workloads.Workload, original: workloads.Workload) -> frozenset[str]:
    """Return the names of the fields that differ; `workload` if only something else does."""
    fields = {one.name for one in fields_of(workload) if value_of(workload, one) != value_of(original, one)}
    return frozenset(fields) if fields or workload == original else frozenset({"workload"})
