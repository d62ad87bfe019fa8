"""The lines of the form: a heading for each table, a line for each field, and what is told of the one in hand."""

from rich.cells import cell_len
from textual.strip import Strip

from vramtui.app.editor.look import Look
from vramtui.app.editor.typing_line import TypingLine
from vramtui.app.themes import Palette
from vramtui.app.widgets.lines import Piece, fit, strip, wrap
from vramtui.core.text import printable
from vramtui.core.units import UNKNOWN
from vramtui.presets.forms import Field, Group
from vramtui.presets.reading import Problem

ABOUT = 4
LABEL_MOST = 30
KINDS = {
    "int": "whole number",
    "float": "number",
    "bool": "true or false",
    "choice": "choice",
    "text": "text",
    "list": "list",
    "table": "TOML",
}


def heading(group: Group, palette: Palette, width: int, *, is_open: bool, in_hand: bool) -> Strip:
    """A table: whether it is open, its title, and that it is not there where it is not."""
    on = "cursor" if in_hand else "background"
    unset = group.line is None and bool(group.key) and not any(field.value is not None for field in group.fields)
    title = palette.ink("muted" if unset else "primary", on, bold=True)
    pieces: list[Piece] = [(f" {'▾' if is_open else '▸'} {group.title}", title)]
    said = f"[{group.key}]" if group.key else ""
    if unset:
        said += "  not there"
    elif not is_open:
        said += f"  {sum(field.value is not None for field in group.fields)} set"
    return strip([*pieces, (f"  {said}", palette.ink("muted", on))], width, palette.ink("muted", on))


def line_of(
    field: Field, look: Look, palette: Palette, width: int, *, wrong: bool, in_hand: bool, typed: TypingLine | None
) -> Strip:
    """A field: ✗ where it is wrong, * where it is not as saved, its name, its value or (dim) its default, its unit."""
    on = "cursor" if in_hand else "background"
    changed = field.value != look.saved.get(field.key)
    mark: Piece = (
        ("✗", palette.ink("error", on, bold=True)) if wrong else ("*" if changed else " ", palette.ink("accent", on))
    )
    said = field.value is not None or typed is not None
    label = max(10, min(LABEL_MOST, width // 2 - 2))
    pieces: list[Piece] = [
        (" ", palette.ink("muted", on)),
        mark,
        (" " + fit(field.label, label) + " ", palette.ink("foreground" if said else "muted", on)),
    ]
    room = width - label - 4
    if typed is not None:
        pieces += _typed(typed, palette, room)
    else:
        pieces += _value(field, palette, room, on, wrong=wrong, in_hand=in_hand)
    return strip(pieces, width, palette.ink("muted", on))


def _value(field: Field, palette: Palette, room: int, on: str, *, wrong: bool, in_hand: bool) -> list[Piece]:
    text, name = _said(field)
    style = palette.ink("error" if wrong else name, on, bold=field.value is not None)
    arrow = palette.ink("foreground", on)
    unit = f" {field.unit}" if field.unit and field.value is not None else ""
    steps = in_hand and field.settable and field.kind in {"choice", "bool", "int", "float"}
    taken = cell_len(unit) + (4 if steps else 0)
    shown = text if cell_len(text) <= room - taken else fit(text, room - taken)
    inner: list[Piece] = [(shown, style), (unit, palette.ink("muted", on))]
    return [("‹ ", arrow), *inner, (" ›", arrow)] if steps else inner


def _said(field: Field) -> tuple[str, str]:
    """The value and its colour; of a field that says nothing, what holds then."""
    if field.value is not None:
        return printable(field.value.replace("\n", "⏎")), "foreground"
    if field.required:
        return "needed", "warning"
    return (printable(field.default) or '""') if field.default is not None else UNKNOWN, "muted"


def _typed(typed: TypingLine, palette: Palette, room: int) -> list[Piece]:
    """What is typed, the stretch of it around the caret that fits."""
    start = 0
    while cell_len(printable(typed.text[start : typed.caret])) > room - 2:
        start += 1
    style = palette.ink("foreground", "panel", bold=True)
    after = typed.text[typed.caret + 1 :]
    under = typed.text[typed.caret : typed.caret + 1] or " "
    head = printable(typed.text[start : typed.caret])
    rest = printable(after)
    left = max(0, room - cell_len(head) - 1)
    return [
        (head, style),
        (printable(under), palette.ink("background", "accent", bold=True)),
        (fit(rest, left), style),
    ]


def about(entry: Group | Field | None, problem: Problem | None, palette: Palette, width: int) -> list[Strip]:
    """A rule, and what there is to know about the field in hand; what is wrong with it comes first."""
    lines: list[Strip] = [strip([("─" * width, palette.ink("line"))], width, palette.text)]
    if entry is None:
        return lines
    if problem is not None:
        wrong = palette.ink("error", bold=True)
        lines += [
            strip([(f" {part}", wrong)], width, palette.text)
            for part in wrap(f"✗ {printable(problem.sentence)}", width - 2)
        ]
    facts = facts_of(entry)
    if facts:
        lines.append(strip([(" " + fit(facts, width - 2), palette.text)], width, palette.text))
    lines += [strip([(f" {part}", palette.dim)], width, palette.text) for part in wrap(_help(entry), width - 2)]
    return lines[:ABOUT]


def _help(entry: Group | Field) -> str:
    if isinstance(entry, Field) and entry.choice_helps and entry.value in entry.choices:
        chosen = entry.choice_helps[entry.choices.index(entry.value or "")]
        return f"{chosen} {entry.help}"
    return entry.help


def facts_of(entry: Group | Field) -> str:
    """Name, sort, range, unit and default in one line."""
    if isinstance(entry, Group):
        needed = "" if entry.required else " · may be left out; del takes it out"
        return f"[{entry.key}]{needed}" if entry.key else "above all tables"
    facts = [entry.key, KINDS[entry.kind], entry.range, entry.unit]
    if entry.default is not None:
        facts.append(f"default {printable(entry.default) or 'empty'}")
    elif entry.required:
        facts.append("needed")
    return " · ".join(fact for fact in facts if fact)
