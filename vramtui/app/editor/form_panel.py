"""The panels of the editor: the draft that they show, the form, the text, and the estimate."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Literal

import msgspec
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.strip import Strip
from textual.widgets import Input, OptionList, Static, TextArea
from textual.widgets.option_list import Option
from textual.widgets.text_area import TextAreaTheme

from vramtui.app.keys import FORM_BINDINGS
from vramtui.app.state.view import View
from vramtui.app.themes import FIT_COLOURS, Palette
from vramtui.app.ui.chooser import ChoiceList
from vramtui.app.ui.lines import Framed, Lines, Piece, fit, paragraph, strip, wrap
from vramtui.app.ui.parts import Figures, compared, part_lines, size_of, sizes
from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.core.base.units import UNKNOWN, format_column, format_percent
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import PHASE_TITLES, Estimate, Ledger, Line
from vramtui.core.estimate.fits import ShownRow, compare_ledgers, shown_rows
from vramtui.core.schema.preset import Preset
from vramtui.core.schema.workload import Workload
from vramtui.monitor.predictor import Predictor, verdict
from vramtui.presets.draft import Draft, FormField, FormGroup, fields_of, form_of
from vramtui.presets.reader import PresetProblem
from vramtui.presets.toml_text import same_ends

if TYPE_CHECKING:
    from vramtui.app.editor.controller import EditorController

# `typed`: by the form, which goes on; `changed`: by something else; `other`: another draft; `estimate`: only that.
Change = Literal["typed", "changed", "other", "estimate"]


class DraftCard(msgspec.Struct, frozen=True):
    """The GPU that a draft is estimated for, its name, and the bytes that other processes leave."""

    device: Device
    name: str
    room: int | None = None


class EditorView(msgspec.Struct, frozen=True, eq=False):
    """A draft at one moment: what was `refused` and the values of the `saved` text by key, the estimate of the last
    valid text (`is_current` if that is this one, `is_quick` if a more exact one follows), that of the saved text
    `before` by the same method, and the memory observed of the process that the preset was opened for.
    """

    groups: tuple[FormGroup, ...]
    problems: tuple[PresetProblem, ...]
    refused: Mapping[str, str]
    saved: Mapping[str, str | None]
    is_current: bool
    estimate: Estimate | None
    is_quick: bool
    workload: Workload | None
    before: Estimate | None
    card: DraftCard
    observed: Ledger | None = None


class DraftEstimator:
    """Estimates a draft and its saved text for one GPU."""

    __slots__ = ("_before", "_saved", "card", "predictor")

    def __init__(self, predictor: Predictor, card: DraftCard) -> None:
        self.card, self.predictor = card, predictor
        self._before: Workload | None = None
        self._saved: Mapping[str, str | None] = {}

    def __call__(self, preset: Preset) -> Estimate:
        """Estimate a preset; UserError if it cannot be."""
        answer = self.predictor.ask(preset.workload, self.card.device)
        if answer.estimate is None:
            raise UserError(answer.problem)
        return answer.estimate

    def remember(self, draft: Draft) -> None:
        """Compare with this text of the draft from now on."""
        self._saved = {key: field.value for key, field in fields_of(form_of(draft.saved_text, draft.folder)).items()}
        if draft.is_current or self._before is None:
            self._before = None if draft.preset is None else draft.preset.workload

    def look(self, draft: Draft, observed: Ledger | None = None) -> EditorView:
        workload = None if draft.preset is None else draft.preset.workload
        if self._before is None and draft.is_current:
            self._before = workload
        before = self._estimate(self._before)  # first, so that the draft is simulated next
        estimate = self._estimate(workload)
        if estimate is not None and before is not None and self._before is not None:
            # A difference between two methods says nothing.
            quick = before if before.method == estimate.method else self.predictor.quick(self._before, self.card.device)
            before = quick if quick is not None and quick.method == estimate.method else None
        return EditorView(
            groups=draft.form,
            problems=draft.problems,
            refused=draft.refused,
            saved=self._saved,
            is_current=draft.is_current and not draft.problems,
            estimate=estimate,
            is_quick=workload is not None and self.predictor.is_quick(workload, self.card.device),
            workload=workload,
            before=before,
            card=self.card,
            observed=observed,
        )

    def is_nearer(self, view: EditorView) -> bool:
        """Return whether there is a more exact estimate than the one shown, of the draft or of the saved text."""
        if view.is_quick:
            return self._estimate(view.workload) is not view.estimate
        if view.estimate is None or view.before is not None or self._before is None:
            return False
        before = self._estimate(self._before)
        return before is not None and before.method == view.estimate.method

    def _estimate(self, workload: Workload | None) -> Estimate | None:
        return None if workload is None else self.predictor.ask(workload, self.card.device).estimate


class OpenDraft:
    """One draft and its estimate; `look` is the draft as it was last shown, by `show`."""

    __slots__ = ("_show", "draft", "estimator", "host", "look")

    def __init__(
        self, draft: Draft, estimator: DraftEstimator, host: "EditorController", show: Callable[[Change], None]
    ) -> None:
        self.draft, self.estimator, self.host, self._show = draft, estimator, host, show
        estimator.remember(draft)
        self.look: EditorView = estimator.look(draft, host.observed())

    def begin(self, draft: Draft) -> None:
        self.draft = draft
        self.estimator = DraftEstimator(self.estimator.predictor, self.estimator.card)
        self.estimator.remember(draft)
        self.refresh("other")

    def refresh(self, change: Change = "changed") -> None:
        if change not in {"typed", "estimate"}:
            self.draft.end_step()
        self.look = self.estimator.look(self.draft, self.host.observed())
        self._show(change)

    def saved(self) -> None:
        self.estimator.remember(self.draft)
        self.refresh()

    def put(self, key: str, raw: str) -> None:
        self.draft.set_value(key, raw)
        self.refresh("typed")

    def choose(self, key: str, raw: str | None) -> None:
        """Set a key as one step; None clears it."""
        self.draft.end_step()
        if raw is None:
            self.draft.unset(key)
        else:
            self.draft.set_value(key, raw)
        self.refresh()

    def typed(self, text: str) -> bool:
        """Take the text of the text view; return whether it changed anything."""
        before = self.draft.text
        self.draft.set_text(text)
        if self.draft.text == before:
            return False
        self.look = self.estimator.look(self.draft, self.host.observed())
        self._show("changed")
        return True


SIZE, CHANGE, DELTA = 10, 12, 9
NOTHING_YET = "No estimate yet: it appears as soon as the text is a valid preset."


class Totals(Framed[View], can_focus=True):
    """The estimate of the last valid text; grey while the text is not valid."""

    _look: EditorView | None = None

    def read(self, look: EditorView) -> None:
        self._look = look
        if self.view is not None and self.palette is not None:
            self.take(self.view, self.palette)

    def titles(self, view: View) -> tuple[str, str]:
        look = self._look
        if look is None or look.estimate is None:
            return "Estimate", ""
        method, process = look.estimate.method, view.chosen.process if view.chosen is not None else None
        whose = f"pid {process.pid} · " if look.observed is not None and process is not None else ""
        return f"Estimate · {whose}{printable(look.card.name)}", method if look.is_current else f"{method} · last valid"

    def build(self, view: View, palette: Palette, width: int, height: int) -> list[Strip]:
        """Draw the first two errors, the parts, the totals, the verdict, and the phase of the peak."""
        look = self._look
        if look is None:
            return []
        errors = [
            f" {' ' if n else '✗'} {part}"
            for problem in look.problems[:2]
            for n, part in enumerate(wrap(sentence_of(problem), width - 4))
        ]
        errors += [f"   and {len(look.problems) - 2} more"] if len(look.problems) > 2 else []
        lines = [strip([(line, palette.ink("error", bold=True))], width, palette.text) for line in errors]
        estimate = look.estimate
        if estimate is None:
            return [*lines, *paragraph(NOTHING_YET, palette, width)][:height]
        sentence, colour = verdict_of(look, estimate)
        closing = paragraph(sentence, palette, width, palette.ink(colour, bold=True) if look.is_current else None)
        peak = f"peak: {PHASE_TITLES.get(estimate.peak_phase, estimate.peak_phase)}"
        closing += paragraph(peak, palette, width)
        vendor, observed = look.card.device.vendor, look.observed

        def change(row: ShownRow, unit: int) -> tuple[str, Style | None]:
            moved = 0 if row.is_subtotal else _moved(look, row.line)
            ink = palette.ink("error" if moved > 0 else "success")
            return _signed(moved, format_column(abs(moved), unit)) if moved else "", ink

        def weight(row: ShownRow) -> int:
            return (row.predicted or 0) + abs(_moved(look, row.line))

        rows = shown_rows(compare_ledgers(estimate.ledger, observed or Ledger(), look.before), vendor)
        room, now = height - len(lines) - len(closing), look.is_current
        figures = [sizes("predicted", SIZE, lambda row: row.predicted), Figures("change", CHANGE, change)]
        figures += compared(palette, SIZE, DELTA) if observed is not None else ()
        lines += part_lines(rows, figures, palette, width, room, weight=weight, is_current=now)
        return [*lines, *closing][:height]


class TotalLine(Lines[View]):
    _look: EditorView | None = None

    def read(self, look: EditorView) -> None:
        self._look = look
        self.redraw()

    def build(self, view: View, palette: Palette, width: int, height: int) -> list[Strip]:
        look = self._look
        if look is None:
            return []
        bar, count = palette.ink("muted", "bar"), len(look.problems)
        pieces: list[Piece] = []
        if count:
            error = f" ✗ {count} error{'s' if count > 1 else ''} "
            pieces.append((error, palette.ink("background", "error", bold=True)))
        colour = "muted"
        if look.estimate is None or (count and not look.problems[0].key):
            sentence = f" {sentence_of(look.problems[0]) if count else NOTHING_YET}"
        else:
            ink = palette.ink("foreground" if look.is_current else "muted", "bar", bold=look.is_current)
            pieces.append((f" {size_of(look.estimate.process)} ", ink))
            moved = _moved(look, "process")
            if moved:
                pieces.append((f"({_signed(moved, size_of(abs(moved)))}) ", palette.ink("accent", "bar")))
            if look.observed is not None and look.observed.process:
                off = format_percent(look.observed.process / (look.estimate.process or 1) - 1)
                pieces.append((f"observed {size_of(look.observed.process)} ({off}) ", palette.ink("accent", "bar")))
            sentence, colour = verdict_of(look, look.estimate)
            if not look.is_current:
                sentence, colour = f"last valid: {sentence}", "muted"
        room = width - sum(cell_len(text) for text, _ in pieces)
        if cell_len(sentence) > room:
            sentence = sentence.split(": needs")[0]  # its figures
        return [strip([*pieces, (fit(sentence, room), palette.ink(colour, "bar"))], width, bar)]


def sentence_of(problem: PresetProblem) -> str:
    return printable(problem.sentence if problem.line is None else f"line {problem.line}: {problem.sentence}")


def verdict_of(look: EditorView, estimate: Estimate) -> tuple[str, str]:
    """Return whether it fits, and the colour; nothing that may change while a simulation runs."""
    if look.is_quick:
        return "≈ calculating", "muted"
    name = printable(look.card.name)
    fits = verdict(estimate, look.workload, look.card.device, look.card.room, name)
    return fits.line(name), FIT_COLOURS[fits.verdict]


def _moved(look: EditorView, line: Line) -> int:
    """Return by how many bytes a part is larger than in the saved text."""
    if look.before is None or look.estimate is None:
        return 0
    return (look.estimate.ledger.bytes_of(line) or 0) - (look.before.ledger.bytes_of(line) or 0)


def _signed(moved: int, size: str) -> str:
    return f"{'+' if moved > 0 else '−'}{size}"


_TOKEN = re.compile(
    r"""(?P<comment>\#.*)
    |^\s*(?P<table>\[\[?[^\[\]#]*\]\]?)(?=\s*(?:\#|$))
    |^\s*(?P<key>(?:[\w.-]|"[^"]*"|'[^']*')+)(?=\s*=)
    |(?P<string>"{3}.*?(?:"{3}|$)|'{3}.*?(?:'{3}|$)|"(?:\\.|[^"\\])*"?|'[^']*'?)
    |(?P<number>[+-]?(?<![\w.])\d[\w.]*(?:[eE][+-]\d+)?)
    |(?P<word>\b(?:true|false|inf|nan)\b)""",
    re.VERBOSE,
)
INKS = {
    "comment": "muted", "table": "primary", "key": "foreground", "string": "secondary", "number": "accent",
    "word": "accent",
}  # fmt: skip
LEAST_REASON = 12


def token_spans(line: str) -> Iterator[tuple[int, int, str]]:
    """Return start, end and kind of each part of a line that has a colour."""
    for match in _TOKEN.finditer(line):
        kind = match.lastgroup or ""
        yield *match.span(kind), kind


class TomlText(TextArea):
    """Textual's text area with our colours. Its own undo history is not used: the draft has one for form and text."""

    def __init__(self) -> None:
        super().__init__(id="text", soft_wrap=False, show_line_numbers=True, max_checkpoints=0)
        self.cursor_blink = False
        self.palette: Palette | None = None
        self._wrong: dict[int, str] = {}

    def take(self, view: View, palette: Palette) -> None:
        if palette is not self.palette:
            self.palette = palette
            theme = TextAreaTheme(
                name=f"vramtui-{id(palette)}",
                base_style=palette.text,
                gutter_style=palette.dim,
                cursor_style=palette.ink("background", "accent"),
                # The cursor's line keeps the colours of its words.
                cursor_line_style=Style(bgcolor=palette.ink("foreground", "bar").bgcolor),
                cursor_line_gutter_style=palette.ink("primary", "bar", bold=True),
                bracket_matching_style=Style(bold=True, underline=True),
                selection_style=Style(bgcolor=palette.ink("foreground", "cursor").bgcolor),
            )
            self.register_theme(theme)
            self.theme = theme.name

    def read(self, look: EditorView) -> None:
        """Mark what is wrong in this draft."""
        wrong: dict[int, str] = {}
        for problem in look.problems:
            if problem.line is not None:
                wrong.setdefault(problem.line - 1, problem.sentence)
        if wrong != self._wrong:
            self._wrong = wrong
            self.notify_style_update()
            self.refresh()

    def show_text(self, text: str) -> None:
        """Show `text`; lines that stay are not touched, so that the view does not jump."""
        before, after = self.document.lines, text.splitlines() + ([""] if text.endswith("\n") or not text else [])
        if list(before) == after:
            return
        top, below = same_ends(before, after)
        old, new = len(before) - below, len(after) - below
        # Whole lines, with the line end before or after them: one of the two is there unless all lines differ.
        if below:
            self.replace("".join(f"{line}\n" for line in after[top:new]), (top, 0), (old, 0))
        elif top:
            insert = "".join(f"\n{line}" for line in after[top:])
            self.replace(insert, (top - 1, len(before[top - 1])), (old - 1, len(before[-1])))
        else:
            self.load_text(text)

    def get_line(self, line_index: int) -> Text:
        """A line in its colours; a dot replaces each character that cannot be shown."""
        line = self.document.get_line(line_index)
        shown = line if line.isprintable() else "".join(c if c.isprintable() or c == "\t" else "·" for c in line)
        text = Text(shown, end="", no_wrap=True)
        if self.palette is None:
            return text
        for start, stop, kind in token_spans(line):
            style = Style(color=self.palette.ink(INKS[kind]).color, bold=kind == "table" or None)
            text.stylize(style, start, stop)
        if line_index in self._wrong:
            text.stylize(Style(color=self.palette.ink("error").color, underline=True))
        return text

    def render_line(self, y: int) -> Strip:
        """The line as the text area draws it; a wrong line with its error, if there is room."""
        strip = super().render_line(y)
        at = y + self.scroll_offset.y
        if at not in self._wrong or self.palette is None or at >= self.document.line_count:
            return strip
        line = self.document.get_line(at).expandtabs(self.indent_width)
        x = self.gutter_width + cell_len(line) + 2 - self.scroll_offset.x
        room = self.scrollable_content_region.width - x
        if room < LEAST_REASON or x < self.gutter_width:
            return strip
        reason = Segment(fit(f"✗ {printable(self._wrong[at])}", room), self.palette.ink("error"))
        return Strip.join([strip.crop(0, x), Strip([reason], room)])


Entry = FormGroup | FormField
# Behind the key of a table: the line for the keys that it does not set.
UNSET = "/unset"
FOLD_FROM = 3
OFF = {None, "false", "0", "0.0"}
# Numbers go by 1 up to 32, then by 8 up to 256, and so on.
STEPS = ((1, 32), (8, 256), (64, 1024), (512, 1 << 14), (4096, 1 << 17), (1 << 16, 1 << 62))
SHARE = 0.05
LABEL = 26
KINDS = {"int": "whole number", "float": "number", "bool": "true or false"}
MODEL_FILE = "model.config"  # a path may begin with the letter that finds a field elsewhere


class FieldList(ChoiceList):
    """The fields. Letters begin to type into the selected one, so they are not keys of the dashboard here."""

    BINDINGS = FORM_BINDINGS

    def __init__(self, panel: "FormPanel") -> None:
        super().__init__(markup=False, id="fields")
        self._panel = panel

    def check_consume_key(self, key: str, character: str | None) -> bool:
        return character is not None and character.isprintable()

    async def on_key(self, event: events.Key) -> None:
        entry = self._panel.entry
        if event.character == "/" and (entry is None or entry.key != MODEL_FILE):
            event.stop()
            await self.run_action("screen.find")
        elif (event.is_printable and event.character is not None) or event.key == "backspace":
            event.stop()
            self._panel.type(event.character if event.is_printable else None)

    def on_paste(self, event: events.Paste) -> None:
        event.stop()
        self._panel.type("".join(c for c in event.text if c.isprintable()))

    def action_step(self, direction: int) -> None:
        self._panel.step(direction)

    def action_table(self, direction: int) -> None:
        at = (self.highlighted or 0) + direction
        while 0 <= at < self.option_count - 1 and not re.fullmatch(rf"\[.*(?<!{UNSET})\]", self.options[at].id or ""):
            at += direction
        self.highlighted = max(0, min(self.option_count - 1, at))

    def action_clear(self) -> None:
        self._panel.clear()


class FormPanel(Vertical):
    """The selected field can be stepped, chosen, cleared or typed into. Each change goes to the draft at once."""

    def __init__(
        self, opened: OpenDraft, ask_choice: Callable[[FormField], object], show_line: Callable[[int], object]
    ) -> None:
        super().__init__(id="form")
        self._open, self._ask_choice, self._show_line = opened, ask_choice, show_line
        self._look: EditorView | None = None
        self._prompts: dict[str, Content] = {}
        self.outline = Outline()
        self.fields = FieldList(self)
        # The field that is typed into; the input is shown while there is one.
        self._typed: FormField | None = None
        self.input = Input(id="value", compact=True, select_on_focus=False)
        self.input.cursor_blink = self.input.display = False
        self._about = Static(id="about", markup=False)

    def compose(self) -> ComposeResult:
        yield self.fields
        yield self.input
        yield self._about

    @property
    def entry(self) -> Entry | None:
        """The selected table or field."""
        at = self.fields.highlighted
        entries = self.outline.entries()
        return entries[at] if at is not None and at < len(entries) else None

    def read(self, look: EditorView, at: str | None = None) -> None:
        """Show a draft. The same field stays selected, or `at` in another draft."""
        self._look = look
        self.outline.take(look.groups, anew=at is not None)
        if at is not None:
            self.outline.reveal(at)
        self._fill(at)
        if at is not None:
            self.call_after_refresh(self.fields.scroll_to_highlight)

    def go_to(self, key: str) -> None:
        self.outline.reveal(key)
        self._fill(key)

    def show_line(self, line: int) -> None:
        key = self.outline.key_at_line(line)
        if key:
            self.finish()
            self.go_to(key)

    def _fill(self, at: str | None = None) -> None:
        entries = self.outline.entries()
        keys, place = [key_of_entry(entry) for entry in entries], self.fields.highlighted
        before = list(self._prompts)[place] if place is not None and place < len(self._prompts) else ""
        selected = at if at in keys else before
        highlighted = keys.index(selected) if selected in keys else min(place or 0, len(keys) - 1)
        prompts = {
            key: self._prompt(entry, on=at == highlighted)
            for at, (key, entry) in enumerate(zip(keys, entries, strict=True))
        }
        if keys != list(self._prompts):
            with self.prevent(OptionList.OptionHighlighted):
                self.fields.clear_options()
                self.fields.add_options([Option(prompt, key) for key, prompt in prompts.items()])
        else:
            for number, (key, prompt) in enumerate(prompts.items()):
                if prompt != self._prompts[key]:
                    self.fields.replace_option_prompt_at_index(number, prompt)
        self._prompts = prompts
        self.fields.highlighted = highlighted
        # The error of the selected entry, then its key, kind, limits and default, and its help.
        entry, problem = self.entry, self._problem(self.entry)
        lines = [Content.styled(f"✗ {printable(problem.sentence)}", "bold $error")] if problem is not None else []
        if entry is not None:
            lines += [Content.styled(facts_of(entry), "$foreground"), Content(help_of(entry))]
        self._about.update(Content("\n").join(lines))

    def on_option_list_option_highlighted(self) -> None:
        self._fill()

    def _prompt(self, entry: Entry, *, on: bool) -> Content:
        """Return the line of an entry: ✗ if it is wrong, * if it is not saved, its name, and its value or default."""
        assert self._look is not None
        if isinstance(entry, FormGroup):
            is_open = self.outline.is_open(entry)
            arrow = "▾" if is_open else "▸"
            if entry.key.endswith(UNSET):
                names = "" if is_open else ", ".join(field.label for field in entry.fields)
                return Content.assemble(f"   {arrow} {entry.title}", (f"  {names}", "$muted"))
            count = sum(field.value is not None for field in entry.fields)
            unset = entry.line is None and bool(entry.key) and not count
            state = f"[{entry.key}]" if entry.key else ""
            state += "  not set" if unset else "" if is_open else f"  {count} set"
            return Content.assemble(
                (f" {arrow} {entry.title}", "bold $muted" if unset else "bold $primary"), (f"  {state}", "$muted")
            )
        wrong = self._problem(entry) is not None
        mark, value = (" ", ""), ("", "")
        if wrong:
            mark = ("✗", "bold $error")
        elif entry.value != self._look.saved.get(entry.key):
            mark = ("*", "$accent")
        refused = self._look.refused.get(entry.key)
        if refused is not None:
            value = (one_line(refused), "$error")
        elif entry.value is not None:
            value = (one_line(entry.value) or '""', "$error" if wrong else "bold")
        elif entry.required:
            value = ("needed", "$warning")
        else:
            value = (UNKNOWN if entry.default is None else one_line(entry.default) or '""', "$muted")
        steps = on and entry.settable and entry.kind in {"choice", "bool", "int", "float"}
        unit = f" {entry.unit}" if entry.unit and entry.value is not None else ""
        label = f" {fit(entry.label, LABEL)} ", "" if entry.value is not None else "$muted"
        less, more = ("‹ ", " ›") if steps else ("", "")
        return Content.assemble(" ", mark, label, less, value, (unit, "$muted"), more)

    def _problem(self, entry: Entry | None) -> PresetProblem | None:
        """Return the error at an entry or within its value."""
        if entry is None or self._look is None or not entry.key:
            return None
        inside = () if isinstance(entry, FormGroup) else (f"{entry.key}[", f"{entry.key}.")
        return next((one for one in self._look.problems if one.key == entry.key or one.key.startswith(inside)), None)

    def type(self, text: str | None) -> None:
        """Begin to type; None removes the last character. In choices, a letter selects the next one."""
        entry = self.entry
        if isinstance(entry, FormGroup) or entry is None:
            if text == " " and entry is not None:
                self.open_entry(entry)
        elif entry.kind in {"choice", "bool"}:
            choices = entry.choices or ("true", "false")
            now = choices.index(entry.value) if entry.value in choices else -1
            order = (*choices[now + 1 :], *choices[: now + 1])
            match = next((choice for choice in order if text and choice.startswith(text)), None)
            if text == " ":
                self.step(1)
            elif match is not None:
                self._open.choose(entry.key, match)
        else:
            self._begin(entry, (entry.value or "")[:-1] if text is None else text)

    def _begin(self, field: FormField, text: str) -> None:
        if not field.settable and field.line is not None:
            self.notify(f"{printable(field.key)} spans several lines; edit it in the text.")
            self._show_line(field.line)
            return
        self._open.draft.end_step()
        self._typed, self.input.display = field, True
        self.input.value = text
        self.input.cursor_position = len(text)
        self.input.focus()
        self.call_after_refresh(self.fields.scroll_to_highlight)

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        field = self._typed
        if field is not None and event.value == self.input.value and event.value != self._value_of(field.key):
            self._open.put(field.key, event.value)

    def _value_of(self, key: str) -> str | None:
        refused = self._open.draft.refused.get(key)
        now = next((f.value for group in self._open.look.groups for f in group.fields if f.key == key), None)
        return now if refused is None else refused

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.finish(focus=True)

    def on_input_blurred(self, event: Input.Blurred) -> None:
        event.stop()
        self.finish()

    def on_key(self, event: events.Key) -> None:
        """Escape restores the value; up and down go on to the next field."""
        field = self._typed
        if field is None or event.key not in {"escape", "up", "down"}:
            return
        event.stop()
        event.prevent_default()
        self.finish(focus=True)
        if event.key == "escape":
            self._open.choose(field.key, field.value)
        else:
            self.fields.action_cursor_up() if event.key == "up" else self.fields.action_cursor_down()

    def finish(self, *, focus: bool = False) -> None:
        """Take what was typed, and close the input."""
        if self._typed is None:
            return
        field, value, self._typed = self._typed, self.input.value, None
        if value != (self._value_of(field.key) or ""):
            self._open.put(field.key, value)
        self._open.draft.end_step()
        if focus or self.input.has_focus:
            self.fields.focus()
        self.input.display = False

    def step(self, direction: int) -> None:
        """Set the next value or the one before; open or close a table."""
        entry = self.entry
        if isinstance(entry, FormGroup):
            self.outline.open(entry, wanted=direction > 0)
            self._fill()
        elif entry is not None and entry.settable:
            value = stepped(entry, direction)
            if value is not None and value != entry.value:
                self._open.choose(entry.key, value)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        if self.entry is not None:
            self.open_entry(self.entry)

    def open_entry(self, entry: Entry) -> None:
        """Open a table, list the choices of a field, or type into it."""
        if isinstance(entry, FormGroup):
            self.step(-1 if self.outline.is_open(entry) else 1)
        elif entry.kind == "choice":
            self._ask_choice(entry)
        elif entry.kind == "bool":
            self.step(1)
        else:
            self._begin(entry, self._value_of(entry.key) or "")

    def clear(self) -> None:
        """Remove the selected key, or the selected table if a preset does not need it."""
        entry = self.entry
        is_table = isinstance(entry, FormGroup)
        if entry is not None and entry.key and not entry.key.endswith(UNSET) and not (is_table and entry.required):
            self._open.choose(entry.key, None)


def one_line(text: str) -> str:
    return printable(text.replace("\n", "⏎"))


def facts_of(entry: Entry) -> str:
    """Return key, kind, limits, unit and default in one line."""
    if isinstance(entry, FormGroup):
        if entry.key.endswith(UNSET):
            return "not set in this preset"
        return (f"[{entry.key}]" if entry.key else "above all tables") + ("" if entry.required else " · Del clears it")
    facts = [entry.key, KINDS.get(entry.kind, entry.kind), entry.range, entry.unit]
    if entry.default is not None:
        facts.append(f"default {one_line(entry.default) or 'empty'}")
    elif entry.required:
        facts.append("needed")
    return " · ".join(fact for fact in facts if fact)


def help_of(entry: Entry) -> str:
    if isinstance(entry, FormField) and entry.choice_helps and entry.value in entry.choices:
        return f"{entry.choice_helps[entry.choices.index(entry.value)]} {entry.help}"
    if isinstance(entry, FormField) and not entry.settable:
        return f"Enter goes to it in the text. {entry.help}"
    return entry.help


class Outline:
    """The entries in their order. Tables that the text does not have are closed."""

    __slots__ = ("_folded", "_opened", "groups")

    def __init__(self) -> None:
        self.groups: tuple[FormGroup, ...] = ()
        self._opened: dict[str, bool] = {}
        self._folded: dict[str, frozenset[str]] = {}

    def take(self, groups: tuple[FormGroup, ...], *, anew: bool = False) -> None:
        """Show another form. In another draft (`anew`) unset keys are folded again; within a draft fields stay where
        they are when they get or lose a value.
        """
        if anew:
            self._opened.clear()
            self._folded.clear()
        for group in groups:
            # Another kind of model has other keys.
            if not self._folded.get(group.key, frozenset()) <= {field.key for field in group.fields}:
                del self._folded[group.key]
            self._folded.setdefault(group.key, _folded(group))
        self.groups = groups

    def entries(self) -> list[Entry]:
        entries: list[Entry] = []
        for group in self.groups:
            entries.append(group)
            if not self.is_open(group):
                continue
            fold = f"{group.key}{UNSET}"
            shows_all = self._opened.get(fold, False)
            # A key that was set while the fold was closed moves out of it.
            behind = [f for f in group.fields if f.key in self._folded[group.key] and (f.value is None or shows_all)]
            entries += [field for field in group.fields if field not in behind]
            if behind:
                title = f"{len(behind)} more key{'s' if len(behind) > 1 else ''}"
                shown_help = "Right shows them, / finds one by its name."
                entries.append(FormGroup(title=title, key=fold, help=shown_help, fields=tuple(behind)))
                entries += behind if shows_all else []
        return entries

    def is_open(self, group: FormGroup) -> bool:
        if group.key in self._opened or group.key.endswith(UNSET):
            return self._opened.get(group.key, False)
        return group.required or group.line is not None or any(field.value is not None for field in group.fields)

    def open(self, group: FormGroup, *, wanted: bool) -> None:
        self._opened[group.key] = wanted

    def reveal(self, key: str) -> None:
        """Open the table and the fold that a field is in."""
        for group in self.groups:
            if key in {field.key for field in group.fields}:
                self._opened[group.key] = True
                if key in self._folded.get(group.key, ()):
                    self._opened[f"{group.key}{UNSET}"] = True

    def key_at_line(self, line: int) -> str:
        entries: list[Entry] = [*self.groups, *(field for group in self.groups for field in group.fields)]
        keys = [(entry.line, key_of_entry(entry)) for entry in entries if entry.line is not None and entry.line <= line]
        return max(keys, key=lambda one: one[0], default=(0, ""))[1]


def _folded(group: FormGroup) -> frozenset[str]:
    """Return the keys that a table does not set and that are off by default; none if it sets nothing at all."""
    if not any(field.value is not None for field in group.fields):
        return frozenset()
    keys = frozenset(f.key for f in group.fields if f.value is None and not f.required and f.default in OFF)
    return keys if len(keys) >= FOLD_FROM else frozenset()


def key_of_entry(entry: Entry) -> str:
    """Return a field's key, or a table's in brackets."""
    return f"[{entry.key}]" if isinstance(entry, FormGroup) else entry.key


def first_key(groups: tuple[FormGroup, ...], problems: Iterable[PresetProblem] = ()) -> str:
    """Return the field to begin at: the first error, else the batch size, else the first number of the run."""
    tables, fields = {group.key: group for group in groups}, fields_of(groups)
    for problem in problems:
        if problem.key in fields:
            return problem.key
        inside = tables[problem.key].fields if problem.key in tables else ()
        if needed := next((field.key for field in inside if field.required and field.value is None), ""):
            return needed
    run = tables.get("run")
    inside = () if run is None else run.fields
    numbers = [field for field in inside if field.kind in {"int", "float"}]
    order = [
        *(field for field in inside if field.key.endswith(".batch_size")),
        *(field for field in numbers if field.value is not None),
        *numbers,
        *inside,
    ]
    return order[0].key if order else ""


def stepped(field: FormField, direction: int) -> str | None:
    """Return the value after (1) or before (-1) the field's value or default; None if there is none."""
    now = field.value if field.value is not None else field.default
    if field.kind == "bool":
        return "false" if now == "true" else "true"
    if field.kind == "choice" and field.choices:
        if now not in field.choices:
            return field.choices[0 if direction > 0 else -1]
        return field.choices[(field.choices.index(now) + direction) % len(field.choices)]
    try:
        number = float((now or "0").replace("_", "")) if field.kind == "float" else int(now or "0", 0)
    except ValueError:
        return None
    if field.kind == "int":
        lowest = 0 if field.minimum is None else int(field.minimum) + field.minimum_excluded
        if now is None:
            return str(lowest)
        step = next(step for step, below in STEPS if abs(number) < below or (abs(number) == below and direction < 0))
        wanted = (number // step + 1) * step if direction > 0 else (-(-number // step) - 1) * step
        highest = wanted if field.maximum is None else int(field.maximum) - field.maximum_excluded
        return str(int(max(lowest, min(highest, wanted))))
    if field.kind != "float":
        return None
    share = round(number + direction * (SHARE if abs(number) <= 1 else 1.0), 6)
    low, high = field.minimum, field.maximum
    if low is not None and (share < low or (share == low and field.minimum_excluded)):
        return None
    if high is not None and (share > high or (share == high and field.maximum_excluded)):
        return None
    return repr(share)
