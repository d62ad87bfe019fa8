"""How many of transformers' language architectures are answered from their config alone, and how many to the number.

    make python ARGS=benchmarks/architectures.py     # prints the table of the README
    python benchmarks/architectures.py --rest        # and every other by name, with the reason

The truth is recorded in tests/golden/architectures by `architectures_golden.py`: what transformers builds on the meta
device from each default config.
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import card
from vramtui.core.schema.decoder_models import TransformerModel
from vramtui.core.schema.preset import Preset
from vramtui.estimators.analytic import ANALYTIC, parameter_count
from vramtui.presets.model_files.as_preset import tables_of_config
from vramtui.presets.model_files.bounded import Damaged
from vramtui.presets.model_files.config import parse_config

GOLDEN = Path(__file__).parent.parent / "tests" / "golden" / "architectures"
KINDS = {"causal": "causal language models", "image-text": "image-text models", "masked": "masked language models"}
# As `architectures_golden.py` ran them.
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
        """How far the count is off, as a fraction of the truth."""
        if not self.true or self.counted is None:
            return None
        return self.counted / self.true - 1


def recorded(kind: str) -> list[dict[str, Any]]:
    """The golden rows of a kind."""
    lines = (GOLDEN / f"{kind}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def preset_from(config: dict[str, Any]) -> Preset:
    """The preset that a config file with these values stands for.

    Raises:
        UserError: it is refused.
    """
    try:
        return msgspec.convert(tables_of_config("config", parse_config(config)), Preset)
    except (Damaged, msgspec.ValidationError) as error:
        raise UserError(str(error)) from None


def checked(row: dict[str, Any]) -> Checked:
    """One architecture's verdict."""
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


def table(kinds: Iterable[str] = KINDS) -> list[str]:
    """The rows of the README's table."""
    lines = [
        "| transformers 5.23, default configs | architectures | answered | parameters equal |",
        "|---|---:|---:|---:|",
    ]
    for kind in kinds:
        found = [one for one in map(checked, recorded(kind)) if one.verdict != "unbuilt"]
        answered = sum(one.verdict != "refused" for one in found)
        equal = sum(one.verdict == "equal" for one in found)
        lines.append(
            f"| {KINDS[kind]} | {len(found)} | {answered} ({answered / len(found):.1%}) | "
            f"{equal} ({equal / len(found):.1%}) |"
        )
    return lines


def main() -> None:
    """Print it."""
    out = table()
    if "--rest" in sys.argv:
        for kind in KINDS:
            for one in map(checked, recorded(kind)):
                if one.verdict != "equal":
                    off = "" if one.off is None else f" ({one.off:+.1%})"
                    out.append(f"{kind:10} {one.verdict:8} {one.model_type} ({one.architecture}): {one.reason}{off}")
    sys.stdout.write("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
