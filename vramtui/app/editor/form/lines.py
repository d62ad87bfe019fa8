"""The lines of the form: a heading for each table, a line for each field, and the help on the selected one."""

from collections.abc import Iterable

import msgspec
from rich.cells import cell_len
from rich.style import Style
from textual.strip import Strip

from vramtui.app.editor.editor_view import EditorView
from vramtui.app.editor.form.field_input import TypingLine
from vramtui.app.editor.form.outline import UNSET, Entry, Outline, is_title
from vramtui.app.themes import Palette
from vramtui.app.ui.lines import Piece, fit, strip, wrap
from vramtui.core.base.text import printable
from vramtui.core.base.units import UNKNOWN
from vramtui.presets.form.types import FormField, FormGroup, Kind, fields_of
from vramtui.presets.reader import PresetProblem

ABOUT = 4
LABEL_MOST = 28
KINDS: dict[Kind, str] = {
    "int": "whole number",
    "float": "number",
    "bool": "true or false",
    "choice": "choice",
    "text": "text",
    "list": "list",
    "table": "table",
}
ELEMENT = "Ins: duplicate, Del: remove, Alt+Up and Down: move."
LIST = "Right opens it, Enter edits it on one line."
LONG_LIST = "Right opens it."


def heading(group: FormGroup, palette: Palette, width: int, *, is_open: bool, in_hand: bool) -> Strip:
    """A table: whether it is open, its title, and that it is not set where it is not."""
    on = "cursor" if in_hand else "background"
    if group.key.endswith(UNSET):
        names = "" if is_open else ", ".join(field.label for field in group.fields)
        fold: list[Piece] = [(f"   {'▾' if is_open else '▸'} {group.title}", palette.ink("foreground", on))]
        shown = fit(names, max(0, width - len(group.title) - 8))
        return strip([*fold, (f"  {shown}", palette.ink("muted", on))], width, palette.ink("muted", on))
    unset = group.line is None and bool(group.key) and not any(field.value is not None for field in group.fields)
    title = palette.ink("muted" if unset else "primary", on, bold=True)
    pieces: list[Piece] = [(f" {'▾' if is_open else '▸'} {group.title}", title)]
    state = f"[{group.key}]" if group.key else ""
    if unset:
        state += "  not set"
    elif not is_open:
        state += f"  {sum(field.value is not None for field in group.fields)} set"
    return strip([*pieces, (f"  {state}", palette.ink("muted", on))], width, palette.ink("muted", on))


class FieldState(msgspec.Struct, frozen=True, kw_only=True):
    """How a field stands in the form.

    Attributes:
        depth: how many lists and tables within lists it is in.
        is_open: what is in it is shown below it.
        is_wrong: something is wrong with it or in it.
        is_changed: it is not as saved.
        in_hand: the cursor is on it.
        refused: what was typed into it and cannot stand in the text.
    """

    depth: int = 0
    is_open: bool = False
    is_wrong: bool = False
    is_changed: bool = False
    in_hand: bool = False
    refused: str | None = None


def line_of(field: FormField, place: FieldState, palette: Palette, width: int, typed: TypingLine | None) -> Strip:
    """A field: ✗ where it is wrong, * where it is not as saved, its name, its value or (dim) its default, its unit."""
    on = "cursor" if place.in_hand else "background"
    mark: Piece = (" ", palette.ink("muted", on))
    if place.is_wrong:
        mark = ("✗", palette.ink("error", on, bold=True))
    elif place.is_changed:
        mark = ("*", palette.ink("accent", on))
    has_value = field.value is not None or typed is not None
    label = max(10, min(LABEL_MOST, width * 3 // 5 - 2))
    opener = ("▾ " if place.is_open else "▸ ") if field.items else ""
    pieces: list[Piece] = [
        (" ", palette.ink("muted", on)),
        mark,
        (" " + fit("  " * place.depth + opener + field.label, label) + " ", _ink(palette, on, has_value=has_value)),
    ]
    room = width - label - 4
    if typed is not None:
        pieces += _typed(typed, palette, room)
    else:
        pieces += _value(field, place, palette, room, on)
    return strip(pieces, width, palette.ink("muted", on))


def _ink(palette: Palette, on: str, *, has_value: bool) -> Style:
    return palette.ink("foreground" if has_value else "muted", on)


def _value(field: FormField, place: FieldState, palette: Palette, room: int, on: str) -> list[Piece]:
    text, name = _value_text(field, place) if place.refused is None else (shown_text(place.refused), "error")
    style = palette.ink("error" if place.is_wrong else name, on, bold=field.value is not None and name == "foreground")
    arrow = palette.ink("foreground", on)
    unit = f" {field.unit}" if field.unit and field.value is not None else ""
    steps = place.in_hand and field.settable and not field.is_new and field.kind in {"choice", "bool", "int", "float"}
    taken = cell_len(unit) + (4 if steps else 0)
    shown = text if cell_len(text) <= room - taken else fit(text, room - taken)
    inner: list[Piece] = [(shown, style), (unit, palette.ink("muted", on))]
    return [("‹ ", arrow), *inner, (" ›", arrow)] if steps else inner


def _value_text(field: FormField, place: FieldState) -> tuple[str, str]:
    """The value and its colour; of a field that says nothing, what holds then."""
    if field.is_new:
        return ("Enter add" if field.kind in {"table", "list"} else "type here" if place.in_hand else ""), "muted"
    if field.many and field.value is not None and (place.is_open or not field.settable or "\n" in field.value):
        count = len(field.items) - 1
        return f"{count} element{'' if count == 1 else 's'}", "muted" if place.is_open else "foreground"
    if field.value is not None and field.items and not field.many:
        keys = [f"{item.label} {shown_text(item.value)}" for item in field.items if item.value is not None]
        return ", ".join(keys), "muted" if place.is_open else "foreground"
    if field.value is not None:
        return shown_text(field.value), "foreground"
    if field.required:
        return "needed", "warning"
    return (shown_text(field.default) or '""') if field.default is not None else UNKNOWN, "muted"


def shown_text(text: str) -> str:
    """Text in one line."""
    return printable(text.replace("\n", "⏎"))


def _typed(typed: TypingLine, palette: Palette, room: int) -> list[Piece]:
    """What is typed, the stretch of it around the caret that fits."""
    start = 0
    while cell_len(shown_text(typed.text[start : typed.caret])) > room - 2:
        start += 1
    style = palette.ink("foreground", "panel", bold=True)
    under = typed.text[typed.caret : typed.caret + 1] or " "
    head = shown_text(typed.text[start : typed.caret])
    rest = shown_text(typed.text[typed.caret + 1 :])
    left = max(0, room - cell_len(head) - 1)
    return [
        (head, style),
        (shown_text(under), palette.ink("background", "accent", bold=True)),
        (fit(rest, left), style),
    ]


def about(
    entry: FormGroup | FormField | None, problem: PresetProblem | None, palette: Palette, width: int
) -> list[Strip]:
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
    facts = facts_of(entry, width - 2)
    if facts:
        lines.append(strip([(" " + fit(facts, width - 2), palette.text)], width, palette.text))
    lines += [strip([(f" {part}", palette.dim)], width, palette.text) for part in wrap(_help(entry), width - 2)]
    return lines[:ABOUT]


def _help(entry: FormGroup | FormField) -> str:
    if isinstance(entry, FormField) and entry.is_new:
        return f"Add at the end. {entry.help}"
    if isinstance(entry, FormField) and entry.key.endswith("]"):
        return f"{ELEMENT} {entry.help}"
    if isinstance(entry, FormField) and entry.many:
        return f"{LIST if entry.settable else LONG_LIST} {entry.help}"
    if isinstance(entry, FormField) and entry.choice_helps and entry.value in entry.choices:
        chosen = entry.choice_helps[entry.choices.index(entry.value or "")]
        return f"{chosen} {entry.help}"
    return entry.help


def facts_of(entry: FormGroup | FormField, width: int) -> str:
    """Name, sort, range, unit and default in one line; the sort gives way where they do not fit."""
    if isinstance(entry, FormGroup) and entry.key.endswith(UNSET):
        return "not set in this preset"
    if isinstance(entry, FormGroup):
        needed = "" if entry.required else " · optional; Del clears it"
        return f"[{entry.key}]{needed}" if entry.key else "before all tables"
    kind = "list" if entry.many else KINDS[entry.kind]
    facts = [entry.key, kind, entry.range, entry.unit]
    if entry.default is not None:
        facts.append(f"default {printable(entry.default) or 'empty'}")
    elif entry.required:
        facts.append("needed")
    whole = " · ".join(fact for fact in facts if fact)
    return whole if cell_len(whole) <= width else " · ".join(fact for fact in facts if fact and fact != kind)


FIRST = "batch_size"
NUMBERS = {"int", "float"}


def first_key(groups: tuple[FormGroup, ...], problems: Iterable[PresetProblem] = ()) -> str:
    """The key of the field to begin at; empty where there is none."""
    tables = {group.key: group for group in groups}
    fields = fields_of(groups)
    for problem in problems:
        if problem.key in fields:
            return _needed(fields[problem.key].items) or problem.key
        if problem.key in tables and (needed := _needed(tables[problem.key].fields)):
            return needed
    rule = tables.get("rule")
    tries = [rule] if rule is not None and rule.line is not None else []
    return next((key for table in (*tries, tables.get("run")) if table is not None and (key := _best(table))), "")


def _needed(fields: Iterable[FormField]) -> str:
    """The first field of a table that has to be said and is not."""
    return next((field.key for field in fields if field.required and field.value is None), "")


def _best(group: FormGroup) -> str:
    """The batch size; else the first number that is said, or could be; else the first field at all."""
    fields: list[FormField] = [*group.fields[1:], *group.fields[:1]]
    numbers = [field for field in fields if field.kind in NUMBERS]
    order = [
        *(field for field in fields if field.label.replace(" ", "_") == FIRST),
        *(field for field in numbers if field.value is not None),
        *numbers,
        *fields,
    ]
    return order[0].key if order else ""


AHEAD = 4


class FormRows:
    """All that a preset can say, table by table, with a cursor."""

    def __init__(self) -> None:
        self.outline = Outline()
        self._look: EditorView | None = None
        self._top = 0
        self._wrong: dict[str, PresetProblem] = {}

    def read(self, look: EditorView, at: str | None = None) -> None:
        """Show this draft from now on; the cursor stays on its field.

        Args:
            look: the draft.
            at: it is another draft than before: the cursor goes to the field of that key, its table's title in sight.
        """
        self._look = look
        self._wrong = {problem.key: problem for problem in reversed(look.problems) if problem.key}
        self.outline.take(look.groups, anew=at is not None)
        if at is not None:
            self.outline.reveal(at)
            self._top = self.outline.title_above()

    @property
    def entry(self) -> Entry | None:
        return self.outline.entry

    def refused(self, key: str) -> str | None:
        """What was typed into the field of that key and cannot stand in the text."""
        return self._look.refused.get(key) if self._look is not None else None

    def at_row(self, row: int, height: int) -> int | None:
        """Which entry is drawn `row` lines from the top, of `height` lines; None where none is."""
        at = self._top + row
        return at if row < height - ABOUT and 0 <= at < len(self.outline.entries) else None

    def moved(self, by: int) -> int:
        """The entry that is `by` from the cursor, the last one where there are not as many."""
        return max(0, min(len(self.outline.entries) - 1, self.outline.at + by))

    def next_table(self, direction: int) -> int:
        """How far it is to the next table's title."""
        entries = self.outline.entries
        at = self.outline.at + direction
        while 0 <= at < len(entries) and not is_title(entries[at]):
            at += direction
        return at - self.outline.at

    def build(self, palette: Palette, width: int, height: int, typed: TypingLine | None) -> list[Strip]:
        """The entries around the cursor, and the help on the one under it, into which `typed` is being typed."""
        look, at, count = self._look, self.outline.at, len(self.outline.entries)
        if look is None:
            return []
        notes = about(self.entry, self._problem(self.entry), palette, width)
        rows = max(1, height - ABOUT)
        ahead = min(AHEAD, rows // 4)
        self._top = min(self._top, max(0, at - ahead))
        self._top = max(self._top, at - rows + 1 + ahead)
        self._top = max(0, min(self._top, count - rows))
        lines = [self._line(n, look, palette, width, typed) for n in range(self._top, min(count, self._top + rows))]
        blank = Strip.blank(width, palette.text)
        return [*lines, *[blank] * (rows - len(lines)), *notes][:height]

    def _line(self, at: int, look: EditorView, palette: Palette, width: int, typed: TypingLine | None) -> Strip:
        entry, in_hand = self.outline.entries[at], at == self.outline.at
        if isinstance(entry, FormGroup):
            return heading(entry, palette, width, is_open=self.outline.is_open(entry), in_hand=in_hand)
        place = FieldState(
            depth=self.outline.depths[at],
            is_open=self.outline.is_open(entry),
            is_wrong=self._problem(entry) is not None,
            is_changed=entry.value != look.saved.get(entry.key) and not entry.is_new,
            in_hand=in_hand,
            refused=look.refused.get(entry.key),
        )
        return line_of(entry, place, palette, width, typed if in_hand else None)

    def _problem(self, entry: Entry | None) -> PresetProblem | None:
        """What is wrong at an entry, or within a value that is a list."""
        if entry is None or not entry.key:
            return None
        if entry.key in self._wrong:
            return self._wrong[entry.key]
        if isinstance(entry, FormGroup):
            return None
        inner = (f"{entry.key}[", f"{entry.key}.")
        return next((problem for key, problem in self._wrong.items() if key.startswith(inner)), None)
