"""The form next to the text: a list of fields, an input for the selected one, and help on it."""

import re
from collections.abc import Callable, Iterable

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from vramtui.app.editor.open_draft import EditorView, OpenDraft
from vramtui.app.keys import FORM_BINDINGS
from vramtui.app.ui.chooser import ChoiceList
from vramtui.app.ui.lines import fit
from vramtui.core.base.text import printable
from vramtui.core.base.units import UNKNOWN
from vramtui.presets.draft.form import FormField, FormGroup, fields_of
from vramtui.presets.reader import PresetProblem

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
# A path may begin with the letter that finds a field elsewhere.
MODEL_FILE = "model.config"


class FieldList(ChoiceList):
    """The fields. Letters begin to type into the selected one, so they are not keys of the dashboard here."""

    BINDINGS = FORM_BINDINGS

    def __init__(self, panel: "FormPanel") -> None:
        super().__init__(markup=False, id="fields")
        self._panel = panel

    def check_consume_key(self, key: str, character: str | None) -> bool:
        del key
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
        """Go to the next table, or to the one before."""
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
        """Select the field or table with this key."""
        self.outline.reveal(key)
        self._fill(key)

    def show_line(self, line: int) -> None:
        """Select the entry at a line of the text."""
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
        return Content.assemble(
            " ", mark, (f" {fit(entry.label, LABEL)} ", "" if entry.value is not None else "$muted"),
            "‹ " if steps else "", value, (unit, "$muted"), " ›" if steps else "",
        )  # fmt: skip

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
            self.notify(f"{printable(field.key)} spans several lines; edit it in the text.", markup=False)
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
        """Return what the form shows for a key."""
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
        """Return the key of the entry at a line of the text or before it."""
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
