"""`vramtui estimate PRESET --over KEY`: one table, a row for each value that a setting can have."""

import sys
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from vramtui.cli.common.console import print_json, print_table
from vramtui.core.base.errors import UserError
from vramtui.core.base.units import format_bytes
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.estimate.fits import fit_on
from vramtui.core.schema.preset import PresetFile
from vramtui.core.schema.workload import ServeRun
from vramtui.presets import apply_overrides
from vramtui.presets.job_flags import flag_named

NONE = "none"
COLUMNS = ("weights", "KV cache", "the rest", "process")
MOST = 64


class ValueRow(msgspec.Struct, frozen=True, kw_only=True):
    """One value of the setting: its estimate, or the sentence with which it is refused."""

    value: str
    estimate: Estimate | None = None
    refused: str = ""


def values_of(preset_file: PresetFile, text: str) -> tuple[str, list[str]]:
    """The setting's key, and its values: those written behind it, or all that it can have.

    Args:
        preset_file: the preset.
        text: `KEY` of a setting that takes one of a few words, or `KEY=VALUE,VALUE`.

    Raises:
        UserError: the key is none, or takes any value and none is written.
    """
    key, equals, listed = text.partition("=")
    if equals:
        if ":" in listed:
            raise UserError(f"--over {text}: write the values themselves, with commas: --over {key}=1,2,4")
        values = [value.strip() for value in listed.split(",") if value.strip()]
        if not 0 < len(values) <= MOST:
            raise UserError(f"--over {text} has to name 1 to {MOST} values: --over {key or 'run.batch_size'}=1,2,4")
        return key, values
    key = _whole_key(preset_file, key)
    table, _, name = key.partition(".")
    inside = getattr(preset_file.preset, table, None)
    hints = get_type_hints(type(inside)) if isinstance(inside, msgspec.Struct) else {}
    words = _words(hints[name]) if name in hints else []
    if not words:
        raise UserError(
            f"--over {text} is no setting of this preset that takes one of a few words, as run.quantization or "
            f"run.attention do; write its values: --over {key}=1,2,4"
        )
    return key, words


def _whole_key(preset_file: PresetFile, key: str) -> str:
    """A key with its table: `quantization` and `quant` are `run.quantization`."""
    if "." in key:
        return key
    flag = flag_named(key)
    if flag is not None and flag.key:
        return flag.key
    tables = (table for table in ("run", "parallel", "model") if hasattr(getattr(preset_file.preset, table, None), key))
    return next((f"{table}.{key}" for table in tables), key)


def _words(hint: Any) -> list[str]:  # noqa: ANN401 - a type
    """The words that a value of this type can be; empty where it can be anything else."""
    if get_origin(hint) is Literal:
        return [str(word) for word in get_args(hint)]
    words: list[str] = []
    for part in get_args(hint):
        if part is type(None):
            words.insert(0, NONE)
        elif get_origin(part) is Literal:
            words += map(str, get_args(part))
        else:
            return []
    return words


def rows_over(preset_file: PresetFile, text: str, device: Device) -> list[ValueRow]:
    """An estimate for each value; a file's own tensors give way to a quantisation that is asked for.

    Raises:
        UserError: the key or a value is wrong.
    """
    from vramtui.estimators.methods import estimates_by

    key, values = values_of(preset_file, text)
    preset = preset_file.preset
    if key == "run.quantization" and isinstance(preset.run, ServeRun) and preset.run.stored is not None:
        preset = msgspec.structs.replace(preset, run=msgspec.structs.replace(preset.run, stored=None))
    rows = []
    for value in values:
        try:
            changed = apply_overrides(preset, [f"{key}={value}"])
        except UserError as error:
            raise UserError(str(error).replace("--set ", "--over ", 1)) from None
        try:
            (estimate,) = estimates_by(None, changed.workload, device)
        except UserError as error:
            rows.append(ValueRow(value=value, refused=str(error)))
        else:
            rows.append(ValueRow(value=value, estimate=estimate))
    return rows


def print_over(preset_file: PresetFile, text: str, device: Device, *, asked: bool, json: bool) -> None:
    """The table, or a document with the same.

    Raises:
        UserError: as `rows_over`.
    """
    key, _ = values_of(preset_file, text)
    rows = rows_over(preset_file, text, device)
    if json:
        from vramtui.records.documents.estimates import device_document

        document = {"schema": 1, "preset": preset_file.key, "device": device_document(device), "over": key}
        print_json(document | {"rows": [_row(preset_file, row, device if asked else None) for row in rows]})
        return
    sys.stdout.write(f"{preset_file.preset.name} ({preset_file.key}) on {device.name}\n\n")
    lines = [(row.value, *_cells(preset_file, row, device, asked=asked)) for row in rows]
    print_table([key, *COLUMNS, "verdict" if asked else ""], lines, right=range(1, len(COLUMNS) + 1))


def _cells(preset_file: PresetFile, row: ValueRow, device: Device, *, asked: bool) -> tuple[str, ...]:
    if row.estimate is None:
        return (*[""] * len(COLUMNS), row.refused)
    weights, cache, rest = _sizes(row.estimate)
    sizes = (weights, cache, rest, row.estimate.process)
    verdict = fit_on(row.estimate, preset_file.preset.workload, device).line(device.name) if asked else ""
    return (*map(format_bytes, sizes), verdict)


def _sizes(estimate: Estimate) -> tuple[int, int, int]:
    """Weights, keys and values, and everything else of the process."""
    weights, cache = (
        sum(part.at_peak for part in estimate.parts if part.line == line) for line in ("weights", "kv_cache")
    )
    return weights, cache, estimate.process - weights - cache


def _row(preset_file: PresetFile, row: ValueRow, device: Device | None) -> dict[str, Any]:
    estimate = row.estimate
    weights, cache, rest = (None, None, None) if estimate is None else _sizes(estimate)
    fit = None if estimate is None or device is None else fit_on(estimate, preset_file.preset.workload, device)
    return {
        "value": row.value,
        "refused": row.refused or None,
        "weights": weights,
        "kv_cache": cache,
        "rest": rest,
        "process": None if estimate is None else estimate.process,
        "verdict": None if fit is None else fit.verdict,
    }
