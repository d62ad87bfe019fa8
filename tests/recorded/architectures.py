"""Transformers' architectures answered from their config alone, beside what transformers builds of each.

The truth is recorded in tests/golden/architectures: what transformers builds on the meta device
from each default config.
"""

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec

from vramtui.core.base import toml
from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import card
from vramtui.core.schema.models import TransformerModel
from vramtui.core.schema.preset import Preset
from vramtui.estimators.analytic import ANALYTIC, parameter_count
from vramtui.models.readers.bounded import DamagedError
from vramtui.models.readers.config_json import parse_config
from vramtui.presets.model_presets import tables_of_config

GOLDEN = Path(__file__).parents[1] / "golden" / "architectures"
_TABLE = toml.loads((GOLDEN / "kinds.toml").read_text(encoding="utf-8"))
KINDS: dict[str, str] = {kind: row["title"] for kind, row in _TABLE.items()}
REASONS: dict[str, dict[str, str]] = {kind: row.get("reasons", {}) for kind, row in _TABLE.items()}
# As they were recorded.
TOKENS, WINDOW = 80, 32
Verdict = Literal["equal", "near", "refused", "unbuilt"]


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """One architecture: our count of parameters beside that of the module, and a sentence where they differ."""

    model_type: str
    architecture: str
    verdict: Verdict
    counted: int | None = None
    true: int | None = None
    reason: str = ""

    @property
    def off(self) -> float | None:
        return None if not self.true or self.counted is None else self.counted / self.true - 1


def recorded(kind: str) -> list[dict[str, Any]]:
    lines = (GOLDEN / f"{kind}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def preset_from(config: dict[str, Any]) -> Preset:
    """The preset that a config file with these values stands for.

    Raises:
        UserError: it is refused.
    """
    try:
        found = parse_config(config)
        if found.undescribed:
            raise UserError(f"the net in {found.undescribed} is not known")
        return msgspec.convert(tables_of_config("config", found), Preset)
    except (DamagedError, msgspec.ValidationError) as error:
        raise UserError(str(error)) from None


def checked(row: dict[str, Any]) -> Checked:
    known = {"model_type": row["type"], "architecture": row["architecture"]}
    if "parameters" not in row:
        return Checked(**known, verdict="unbuilt", reason=row["unbuilt"])
    true = row["parameters"] + row["router_buffers"]
    try:
        preset = preset_from(row["config"])
        ANALYTIC.estimate(preset.workload, card("H100"))
        counted = parameter_count(preset.model)
    except UserError as error:
        return Checked(**known, verdict="refused", true=true, reason=str(error))
    if counted in {true, row["parameters"]}:
        return Checked(**known, verdict="equal", counted=counted, true=true)
    basis = preset.model.basis if isinstance(preset.model, TransformerModel) else "shapes"
    return Checked(**known, verdict="near", counted=counted, true=true, reason=f"{basis}: {counted:,} of {true:,}")


@cache
def all_checked(kind: str) -> tuple[Checked, ...]:
    return tuple(map(checked, recorded(kind)))


def table(kinds: Iterable[str] = KINDS) -> list[str]:
    lines = [
        "| transformers 5.23, default configs | architectures | answered | parameters equal |",
        "|---|---:|---:|---:|",
    ]
    for kind in kinds:
        found = [one for one in all_checked(kind) if one.verdict != "unbuilt"]
        answered = sum(one.verdict != "refused" for one in found)
        equal = sum(one.verdict == "equal" for one in found)
        lines.append(
            f"| {KINDS[kind]} | {len(found)} | {answered} ({answered / len(found):.1%}) | "
            f"{equal} ({equal / len(found):.1%}) |"
        )
    return lines


def page() -> list[str]:
    """The section of docs/accuracy.md: the table, and every architecture that is not equal with the reason."""
    out = [*table(), "", "| not equal | kind | reason | off |", "|---|---|---|---:|"]
    for kind, title in KINDS.items():
        for one in all_checked(kind):
            if one.verdict not in {"equal", "unbuilt"}:
                off = "refused" if one.off is None else f"{one.off:+.2%}"
                out.append(f"| `{one.model_type}` | {title} | {REASONS[kind][one.model_type]} | {off} |")
    unbuilt = len({one.model_type for kind in KINDS for one in all_checked(kind) if one.verdict == "unbuilt"})
    return [*out, "", f"{unbuilt} more are not counted: transformers does not build them from their default config."]
