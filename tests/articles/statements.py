"""The statements of the five articles, a file an article, and what the program computes for each: facts and figures
only, in our own words.
"""

from pathlib import Path
from typing import Literal

import msgspec

from vramtui.core.base import toml
from vramtui.core.base.errors import UserError, nearest
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.schema.decoder_models import RuleModel
from vramtui.core.schema.rule_inputs import BytesPerParameterRule
from vramtui.estimators.methods import estimates_by
from vramtui.presets.library import PresetLibrary
from vramtui.presets.overrides import apply_overrides

ARTICLE_CARD = "A100-80GB"  # a card before Hopper, as the articles' is: their workspaces are 8,519,680 bytes
ARTICLES = {
    "000": "Experiments on PyTorch's allocations",
    "001": "ResNet-50 and GPT-2: what takes a GPU's memory",
    "002": "An encoder-decoder transformer, term by term",
    "003": "Gemma 2 27B: a LoRA calculator",
    "004": "Precisions, mixed precision, KV cache, LoRA and QLoRA",
}

Mark = Literal["●", "◐", "○"]
Values = dict[str, int | float | str]


class Statement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One statement.

    Attributes:
        id: article and number.
        topic: what is stated.
        printed: the figure as the article prints it; empty where the statement has none.
        value: that figure as a number in `unit`.
        within: half of its last printed digit: how far a computed figure may be off and still be the printed one.
        preset: the preset that computes it, with the values in `set`, and one of part, line and moment.
        over: the same preset with other values: the figure is the first over the second.
        over_line: the figure is a share of this line.
        command: for statements without a figure: what shows it.
        partly: why it is reproduced in part.
        erratum: what the article has wrong, and by how much.
    """

    id: str
    topic: str
    printed: str = ""
    value: float | None = None
    within: float = 0
    unit: Literal["bytes", "ratio", "bytes a parameter"] = "bytes"
    preset: str = ""
    set: Values = {}
    over: Values | None = None
    over_line: str = ""
    part: str = ""
    line: str = ""
    moment: str = ""
    command: str = ""
    partly: str = ""
    erratum: str = ""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A statement beside what is computed for it.

    Attributes:
        statement: what the article says.
        computed: the program's figure in the statement's unit; None where the statement has none.
        mark: ● the same figure, or shown by the command; ◐ in part, with the reason; ○ another figure without a reason.
        command: what a person types to see it.
    """

    statement: Statement
    computed: float | None
    mark: Mark
    command: str


def statements() -> tuple[Statement, ...]:
    """Every statement, article by article."""
    files = (Path(__file__).with_name(f"{article}.toml") for article in ARTICLES)
    tables = (toml.loads(file.read_text(encoding="utf-8"))["statement"] for file in files)
    return tuple(statement for table in tables for statement in msgspec.convert(table, tuple[Statement, ...]))


def answer(statement: Statement, library: PresetLibrary, card: Device) -> Answer:
    """What the program says to `statement` on `card`.

    Raises:
        UserError: a preset, key or part is named that does not exist.
    """
    if not statement.preset:
        return Answer(
            statement=statement, computed=None, mark="◐" if statement.partly else "●", command=statement.command
        )
    computed = _figure(statement, statement.set, library, card)
    if statement.over is not None:
        computed /= _figure(statement, statement.over, library, card)
    exact = statement.value is not None and abs(computed - statement.value) <= statement.within
    return Answer(
        statement=statement,
        computed=computed,
        mark="●" if exact else "◐" if statement.partly else "○",
        command=_command(statement),
    )


def _command(statement: Statement) -> str:
    changes = "".join(f" --set {key}={value}" for key, value in statement.set.items())
    return f"vramtui estimate {statement.preset}{changes}"


def _figure(statement: Statement, changes: Values, library: PresetLibrary, card: Device) -> float:
    """Bytes, or what the statement's unit makes of them."""
    preset = library.get(statement.preset).preset
    workload = preset.workload
    if changes:
        workload = apply_overrides(preset, [f"{key}={value}" for key, value in changes.items()]).workload
    method = None if isinstance(workload.model, RuleModel) else "analytic"
    (estimate, *_) = estimates_by(method, workload, card)
    size = _bytes(statement, estimate)
    if statement.over_line:
        return size / _line(statement.over_line, estimate)
    if statement.unit == "bytes a parameter" and isinstance(workload.rule, BytesPerParameterRule):
        return size / workload.rule.parameters
    return size


def _bytes(statement: Statement, estimate: Estimate) -> int:
    if statement.part:
        sizes = {part.name: part.bytes for part in estimate.parts}
        if statement.part not in sizes:
            hint = nearest(statement.part, sizes)
            raise UserError(f"{statement.id}: {statement.preset} has no part {statement.part!r}{hint}")
        return sizes[statement.part]
    if statement.moment:
        held = {f"{moment.phase} {moment.step}": moment.allocated for moment in estimate.timeline}
        if statement.moment not in held:
            hint = nearest(statement.moment, held)
            raise UserError(f"{statement.id}: {statement.preset} has no moment {statement.moment!r}{hint}")
        return held[statement.moment]
    return _line(statement.line, estimate)


def _line(name: str, estimate: Estimate) -> int:
    found: int | None = getattr(estimate.ledger, name, None)
    if found is None:
        raise UserError(f"the estimate has nothing on the line {name!r}")
    return found
