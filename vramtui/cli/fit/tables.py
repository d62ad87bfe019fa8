"""Tables of `vramtui fit` without one card to ask about: every card that is known, and presets by cards."""

import re
from collections.abc import Sequence

from vramtui.cli.common.console import print_table, print_wrapped, text_width
from vramtui.cli.estimate.command import naming_setting
from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.core.base.units import UNKNOWN, format_bytes, format_gib
from vramtui.core.estimate.devices import CARD_GROUPS, Device
from vramtui.core.schema.preset import PresetFile
from vramtui.estimators.analytic import ANALYTIC
from vramtui.estimators.planner.card_table import (
    FSDP_NOTE,
    LARGEST_TITLES,
    Axis,
    CardFit,
    Grid,
    can_share,
    card_fits,
    known_cards,
    plan_grid,
)
from vramtui.estimators.planner.planner import key_in_full
from vramtui.presets.importers.flags import spelled_option

Column = tuple[PresetFile, tuple[CardFit, ...]]


def cards_of(preset_file: PresetFile) -> tuple[CardFit, ...]:
    """The preset on every card.

    Raises:
        UserError: it cannot be estimated on any of them.
    """
    from vramtui.estimators.methods import DEFAULT

    cards, workload = known_cards(), preset_file.preset.workload
    with naming_setting(preset_file):
        ANALYTIC.estimate(workload, cards[-1])
    return tuple(card_fits(ANALYTIC, workload, cards, exact=DEFAULT))


def cards_document(columns: Sequence[Column]) -> dict[str, object]:
    """The table as JSON has it; sizes in bytes, null where a card cannot run the job."""
    return {
        "schema": 1,
        "presets": [
            {"preset": preset_file.key, "cards": [_card_document(one) for one in cards]}
            for preset_file, cards in columns
        ],
    }


def _card_document(answer: CardFit) -> dict[str, object]:
    return {
        "card": answer.card.name,
        "group": answer.group,
        "total_memory": answer.card.total_memory,
        "verdict": None if answer.fit is None else answer.fit.verdict,
        "process": None if answer.fit is None else answer.fit.needs,
        "spare": None if answer.fit is None else answer.fit.spare,
        "vary": answer.key,
        "largest": answer.largest,
        "largest_is_quick": answer.is_quick,
        "fsdp": answer.fsdp,
        "reason": answer.reason or None,
    }


def print_cards(columns: Sequence[Column]) -> None:
    """A table for each group of cards, those with the least memory first."""
    wide = text_width()
    for preset_file, cards in columns:
        print_wrapped(_smallest(cards), wide)
        print_wrapped(preset_file.title, wide)
    if any(can_share(preset_file.preset.workload) for preset_file, _ in columns):
        print_wrapped(FSDP_NOTE, wide)
    headings = ["CARD", "MEMORY"]
    for preset_file, cards in columns:
        name = f" {printable(preset_file.key)}" if len(columns) > 1 else ""
        headings += [f"SPARE{name}", LARGEST_TITLES.get(cards[0].key, "largest").upper()]
        headings += ["FSDP"] if can_share(preset_file.preset.workload) else []
    for group in CARD_GROUPS:
        rows = [_row(at, columns) for at, one in enumerate(columns[0][1]) if one.group == group]
        print(f"\n{group}")
        print_table(
            headings, rows, right=[at for at in range(1, len(headings)) if not headings[at].startswith("SPARE")]
        )


def _smallest(cards: Sequence[CardFit]) -> str:
    """The answer in a line: of each group the card with the least memory that holds it."""
    cards_by_group = []
    for group in CARD_GROUPS:
        fitting = [one for one in cards if one.group == group and one.fit is not None and one.fit.is_enough]
        least = min(fitting, key=lambda one: one.card.total_memory, default=None)
        cards_by_group.append(f"{group} {least.card.name if least else 'none'}")
    return f"smallest card that fits: {', '.join(cards_by_group)}"


def _row(at: int, columns: Sequence[Column]) -> list[str]:
    first = columns[0][1][at]
    row = [first.card.name, format_bytes(first.card.total_memory)]
    for preset_file, cards in columns:
        answer = cards[at]
        row += [answer.spare_label, answer.largest_label]
        if can_share(preset_file.preset.workload):
            row.append(answer.fsdp_label)
    return row


MOST_VALUES = 400
COLUMNS, ROWS = 10, 20
_RANGE = re.compile(r"([\w.]+)=(\d+):(\d+)(?::(\d+))?")


def axes_of(over: list[str]) -> tuple[Axis, Axis]:
    """The two axes, the first across and the second down.

    Raises:
        UserError: there are not two, or one is not written KEY=FROM:TO or KEY=FROM:TO:STEP.
    """
    if len(over) != 2:
        other = "sequence_length=512:8192:512" if "batch" in over[0] else "batch_size=1:32"
        raise UserError(f"a map needs --over twice: --over {over[0]} --over {other}")
    first, second = (_axis(text) for text in over)
    if first[0] == second[0]:
        raise UserError(f"--over {first[0]} is given twice; a map needs two different numbers")
    return first, second


def _axis(text: str) -> Axis:
    match = _RANGE.fullmatch(text)
    if match is None:
        raise UserError(f"--over {text} is not written KEY=FROM:TO or KEY=FROM:TO:STEP, as run.batch_size=1:32")
    start, stop, step = int(match[2]), int(match[3]), int(match[4] or 1)
    if step < 1 or start < 1 or stop < start:
        raise UserError(f"--over {text}: write FROM:TO, rising from 1 or more: --over {match[1]}=1:32")
    if (stop - start) // step >= MOST_VALUES:
        fewer = _round(-(-(stop - start) // ROWS))
        raise UserError(
            f"--over {text} has more than {MOST_VALUES} values; give a step: --over {match[1]}={start}:{stop}:{fewer}"
        )
    return match[1], range(start, stop + 1, step)


def _round(step: int) -> int:
    """The next power of two, which sizes mostly go by."""
    return 1 << (step - 1).bit_length()


def map_of(preset_file: PresetFile, device: Device, axes: tuple[Axis, Axis]) -> Grid:
    """The map; an axis may leave the table of its key out, as --set may.

    Raises:
        UserError: an axis names no number of the preset.
    """
    workload = preset_file.preset.workload
    across, down = ((key_in_full(workload, _key(key)), values) for key, values in axes)
    return plan_grid(ANALYTIC, workload, device, across, down)


def _key(name: str) -> str:
    """A name that the options of programs have, `batch`, as the key that it stands for."""
    spelled = spelled_option(name, "1")
    return name if spelled is None else spelled[0]


def map_document(preset_file: PresetFile, device: Device, grid: Grid) -> dict[str, object]:
    """The map as JSON has it: a row of bytes for each value of `down`, null where it is refused."""
    from vramtui.estimators.analytic.simulated import unfollowed
    from vramtui.records.documents.estimates import device_document

    return {
        "schema": 1,
        "preset": preset_file.key,
        "device": device_document(device),
        "across": {"key": grid.across[0], "values": list(grid.across[1])},
        "down": {"key": grid.down[0], "values": list(grid.down[1])},
        "process": [list(row) for row in grid.sizes],
        "fits": [list(row) for row in grid.fits],
        "exact": grid.exact,
        "method": "analytic",
        "quick": not unfollowed(preset_file.preset.workload),
    }


def print_map(preset_file: PresetFile, device: Device, grid: Grid) -> None:
    """GiB of the process for some of the values, what does not fit in brackets, and the largest of each row."""
    from vramtui.estimators.analytic.simulated import unfollowed

    room = format_bytes(device.total_memory)
    quick = "" if unfollowed(preset_file.preset.workload) else "≈ quick figures, which --gpu alone simulates: "
    print(f"{preset_file.preset.name} on {device.name}: {quick}GiB of the process; [in brackets] is over {room}")
    (across, xs), (down, ys) = grid.across, grid.down
    columns, rows = _some(len(xs), COLUMNS), _some(len(ys), ROWS)
    headings = (f"{down} \\ {across}", *(f"{xs[x]:,}" for x in columns), "LARGEST")
    lines = []
    for y in rows:
        cells = (_cell(grid.sizes[y][x], fits=grid.fits[y][x]) for x in columns)
        fitting = sum(grid.fits[y])
        lines.append((f"{ys[y]:,}", *cells, f"{xs[fitting - 1]:,}" if fitting else UNKNOWN))
    print_table(headings, lines, right=tuple(range(len(headings))))


def _cell(size: int | None, *, fits: bool) -> str:
    return UNKNOWN if size is None else f"{format_gib(size)} " if fits else f"[{format_gib(size)}]"


def _some(count: int, most: int) -> list[int]:
    """At most `most` places of `count`, evenly chosen, the last among them."""
    if count <= most:
        return list(range(count))
    return [round(number * (count - 1) / (most - 1)) for number in range(most)]
