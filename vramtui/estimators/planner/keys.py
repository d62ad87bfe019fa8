"""Keys of a workload with a whole number, which people ask the largest of, and workloads with other values at them."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from vramtui.core.base.errors import UserError, nearest
from vramtui.core.schema.workload import ServeRun, Workload


def usual_key(workload: Workload) -> str:
    """What people ask the largest of."""
    run = workload.run
    if not isinstance(run, ServeRun):
        return "run.batch_size"
    return "run.max_num_seqs" if run.max_model_len is None else "run.max_model_len"


def other_keys(workload: Workload) -> tuple[str, ...]:
    """What else people ask the largest of, where it stands in the workload."""
    run = workload.run
    if not isinstance(run, ServeRun):
        return ("run.batch_size",) if run.sequence_length is None else ("run.batch_size", "run.sequence_length")
    return () if run.engine == "llama.cpp" else ("run.max_num_seqs",)


def key_in_full(workload: Workload, key: str) -> str:
    """`batch_size` as `run.batch_size`, where a number of that name is in one of the workload's tables."""
    return next((f"{head}.{name}" for head, name, _ in _numbers(workload) if name == key), key)


def value_at(workload: Workload, key: str, option: str = "--vary") -> int:
    """The whole number that stands at `key`, which `option` named.

    Raises:
        UserError: there is none.
    """
    table: Any = msgspec.to_builtins(workload)
    parts = key.split(".")
    for part in parts[:-1]:
        table = table.get(part) if isinstance(table, dict) else None
    value = table.get(parts[-1]) if isinstance(table, dict) else None
    if value is None and isinstance(table, dict) and parts[-1] in table:
        value = _first_of(workload, key)
    if isinstance(value, bool) or not isinstance(value, int):
        numbers = [f"{head}.{name}" for head, name, _ in _numbers(workload)]
        raise UserError(
            f"{option} {key}: not a key with a whole number{nearest(key, numbers)}; there are: {', '.join(numbers)}"
        )
    return value


def _first_of(workload: Workload, key: str) -> int | None:
    """1 where nothing stands at `key` but a whole number may."""
    try:
        changed: Any = msgspec.to_builtins(with_values(workload, {key: 1}))
    except msgspec.ValidationError:
        return None
    for part in key.split("."):
        changed = changed[part]
    return changed if isinstance(changed, int) else None


def with_values(workload: Workload, values: Mapping[str, Any]) -> Workload:
    """`workload` with the values at some dotted keys replaced; a changed shape drops the card's parameter count.

    Raises:
        msgspec.ValidationError: a key or a value is not of the schema.
    """
    tables: Any = msgspec.to_builtins(workload)
    for key, value in values.items():
        table = tables
        *heads, last = key.split(".")
        for part in heads:
            if table.get(part) is None:
                table[part] = {}
            table = table[part]
        table[last] = value
        if heads[:1] == ["model"] and last != "parameters":
            tables["model"].pop("parameters", None)
    return msgspec.convert(tables, Workload)


def _numbers(workload: Workload) -> Iterator[tuple[str, str, int]]:
    tables = msgspec.to_builtins(workload)
    for head in ("run", "parallel"):
        for name, value in (tables.get(head) or {}).items():
            if isinstance(value, int) and not isinstance(value, bool):
                yield head, name, value
