"""`vramtui fit PRESET...` without a card: every card that is known, and what of each preset fits it."""

from collections.abc import Sequence

from vramtui.cli.common.console import print_table, print_wrapped, text_width
from vramtui.cli.estimate.command import naming_setting
from vramtui.core.base.text import printable
from vramtui.core.base.units import format_bytes
from vramtui.core.estimate.devices import CARD_GROUPS
from vramtui.core.schema.preset import PresetFile
from vramtui.estimators.planner.card_table import (
    FSDP_NOTE,
    LARGEST_TITLES,
    CardFit,
    can_share,
    card_fits,
    known_cards,
)

Column = tuple[PresetFile, tuple[CardFit, ...]]


def cards_of(found: PresetFile) -> tuple[CardFit, ...]:
    """The preset on every card.

    Raises:
        UserError: it cannot be estimated on any of them.
    """
    from vramtui.estimators.methods import search_estimators  # noqa: PLC0415 - estimators take time to load

    cards, workload = known_cards(), found.preset.workload
    estimator, near = search_estimators(workload)
    with naming_setting(found):
        estimator.estimate(workload, cards[-1])
    return tuple(card_fits(estimator, workload, cards, near=near))


def cards_document(columns: Sequence[Column]) -> dict[str, object]:
    """The table as JSON has it; sizes in bytes, null where a card cannot run the job."""
    return {
        "schema": 1,
        "presets": [{"preset": found.key, "cards": [_card_document(one) for one in cards]} for found, cards in columns],
    }


def _card_document(one: CardFit) -> dict[str, object]:
    return {
        "card": one.card.name,
        "group": one.group,
        "total_memory": one.card.total_memory,
        "verdict": None if one.fit is None else one.fit.verdict,
        "process": None if one.fit is None else one.fit.needs,
        "spare": None if one.fit is None else one.fit.spare,
        "vary": one.key,
        "largest": one.largest,
        "largest_is_quick": one.is_quick,
        "fsdp": one.fsdp,
        "reason": one.reason or None,
    }


def print_cards(columns: Sequence[Column]) -> None:
    """A table for each group of cards, those with the least memory first."""
    wide = text_width()
    for found, cards in columns:
        print_wrapped(_smallest(cards), wide)
        print_wrapped(found.title, wide)
    if any(can_share(found.preset.workload) for found, _ in columns):
        print_wrapped(FSDP_NOTE, wide)
    headings = ["CARD", "MEMORY"]
    for found, cards in columns:
        name = f" {printable(found.key)}" if len(columns) > 1 else ""
        headings += [f"SPARE{name}", LARGEST_TITLES.get(cards[0].key, "largest").upper()]
        headings += ["FSDP"] if can_share(found.preset.workload) else []
    for group in CARD_GROUPS:
        rows = [_row(at, columns) for at, one in enumerate(columns[0][1]) if one.group == group]
        print(f"\n{group}")
        print_table(
            headings, rows, right=[at for at in range(1, len(headings)) if not headings[at].startswith("SPARE")]
        )


def _smallest(cards: Sequence[CardFit]) -> str:
    """The answer in a line: of each group the card with the least memory that holds it."""
    told = []
    for group in CARD_GROUPS:
        fitting = [one for one in cards if one.group == group and one.fit is not None and one.fit.is_enough]
        least = min(fitting, key=lambda one: one.card.total_memory, default=None)
        told.append(f"{group} {least.card.name if least else 'none'}")
    return f"smallest card that fits: {', '.join(told)}"


def _row(at: int, columns: Sequence[Column]) -> list[str]:
    first = columns[0][1][at]
    row = [first.card.name, format_bytes(first.card.total_memory)]
    for found, cards in columns:
        one = cards[at]
        row += [one.spare_label, one.largest_label]
        if can_share(found.preset.workload):
            row.append(one.fsdp_label)
    return row
