"""The preset editor as a whole screen with its dialogs: saving, renaming, leaving, new drafts."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from rich.cells import cell_len
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container, Vertical, VerticalScroll
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, OptionList, SelectionList, Static, TextArea
from textual.widgets.option_list import Option
from textual.widgets.selection_list import Selection

from vramtui.app.context import ask
from vramtui.app.editor import form_panel
from vramtui.app.keys import EDITOR_BINDINGS
from vramtui.app.state.view import View
from vramtui.app.themes import Palette
from vramtui.app.ui.chooser import Ask, CheckList, Chooser, TextWindow, Window, fault_of, ranked
from vramtui.app.ui.lines import fit, plain
from vramtui.app.ui.view_screen import Header, KeyBar, ViewScreen
from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.core.base.units import UNKNOWN
from vramtui.core.schema.preset import PresetFile
from vramtui.models.named_files import path_named
from vramtui.presets import draft as drafts
from vramtui.presets.importers.derived import finder_of
from vramtui.presets.importers.flags import TITLES
from vramtui.presets.importers.job_files import JobFile, Offer, files_of, not_read, read_job_file
from vramtui.presets.importers.process_offers import draft_from_process, start_from
from vramtui.presets.reader import load_preset
from vramtui.presets.whole_files import NotDurableError

if TYPE_CHECKING:
    from vramtui.app.editor.controller import EditorController

WIDTH, KEY, VALUE = 110, 36, 20


class QuestionDialog(Window[str]):
    """Dismissed with the letter of an answer, or None by Escape; a unified difference helps to decide."""

    def __init__(self, title: str, question: str, answers: Mapping[str, str], difference: str = "") -> None:
        super().__init__(title, "Esc cancel")
        self._question, self._answers, self._difference = question, answers, difference

    def inside(self) -> ComposeResult:
        yield Static(Content(printable(self._question)))
        if self._difference:
            with VerticalScroll():
                yield Static(coloured(self._difference))
        lines = [Content.assemble((f"  {key}", "bold $primary"), f"  {what}") for key, what in self._answers.items()]
        yield Static(Content("\n").join(lines), id="answers")

    def on_key(self, event: events.Key) -> None:
        if event.character is not None and event.character in self._answers:
            event.stop()
            self.dismiss(event.character)


class Difference(TextWindow):
    def __init__(self, title: str, difference: str) -> None:
        super().__init__(title, "arrows scroll · Esc close")
        self._difference = difference

    def text(self) -> Content:
        return coloured(self._difference)


def coloured(difference: str) -> Content:
    styles = {"+": "$success", "-": "$error", "@": "$primary"}
    lines = (Content.styled(printable(line), styles.get(line[:1], "$muted")) for line in difference.splitlines())
    return Content("\n").join(lines)


class Pick(Window[int]):
    """A list of lines with a note each; dismissed with the number of the chosen one. The cursor begins at `first`."""

    def __init__(self, title: str, lines: Sequence[tuple[str, str]], first: int = 0) -> None:
        super().__init__(title, "Enter select · Esc close")
        self._lines, self._first = lines, first

    def inside(self) -> ComposeResult:
        wide = max((len(printable(line)) for line, _ in self._lines), default=0)
        prompts = (
            Content.assemble((f"{printable(line):<{wide}}", "bold"), (f"  {printable(more)}", "$muted"))
            for line, more in self._lines
        )
        yield OptionList(*map(Option, prompts), markup=False)

    def on_mount(self) -> None:
        options = self.query_one(OptionList)
        options.highlighted = self._first
        options.focus()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option_index)


class FieldChooser(Chooser):
    """Dismissed with the key of the chosen field of a form; None if none was chosen."""

    def __init__(self, groups: tuple[drafts.FormGroup, ...]) -> None:
        super().__init__("Find a field")
        self._fields = list(drafts.fields_of(groups).values())
        self._places = {field.key: at for at, field in enumerate(self._fields)}

    def fill(self, wanted: str) -> None:
        """List the fields with these words in their names, then in their help; fields that are set come first."""
        fields = ranked(
            wanted,
            self._fields,
            # `lora rank` and `run.lora.rank` find the same.
            lambda field: (field.key.replace(".", " ").replace("_", " "), f"{field.key} {field.help}"),
            lambda field: (field.value is None, self._places[field.key]),
        )
        options = []
        for field in fields:
            value = field.value if field.value is not None else field.default
            shown = printable((UNKNOWN if value is None else value).replace("\n", " "))
            help_width = max(0, self.room(WIDTH) - max(KEY, cell_len(field.key) + 1) - VALUE - 1)
            line = Content.assemble(
                (f"{printable(field.key):<{KEY - 1}} ", "bold"),
                (f"{fit(shown, VALUE)} ", "" if field.value is not None else "$muted"),
                (fit(printable(field.help), help_width), "$muted"),
            )
            options.append(Option(line, field.key))
        self.list_options(options, "no field has this name")


class Offers(Window[str]):
    """The values found for a new preset, each with its flag. `take` makes the draft of the selected ones; an error that
    it raises is shown and keeps the window open. `notes` say what is not read.
    """

    BINDINGS = [
        Binding(
            "ctrl+s", "take", "Take", id="offers.take", show=False, priority=True, tooltip="Use the selected values"
        ),
        Binding("escape", "close", "Close", id="offers.close", show=False),
    ]

    def __init__(
        self,
        title: str,
        name: str,
        offers: tuple[Offer, ...],
        take: Callable[[str, tuple[Offer, ...]], object],
        notes: Sequence[str] = (),
    ) -> None:
        super().__init__(title, "Space toggle · Tab next · Ctrl+S create the preset · Esc cancel")
        self.offers = offers
        self._name, self._take, self._notes = name, take, notes

    def inside(self) -> ComposeResult:
        yield Static(Content("Values found; select those to use:"))
        texts = [f"{printable(offer.key)} = {printable(offer.value)}" for offer in self.offers]
        wide = min(52, max(map(len, texts), default=0))
        lines = [
            Content.assemble((f"{text:<{wide}}", "bold"), (f"  from {offer.flag}", "$muted"))
            for text, offer in zip(texts, self.offers, strict=True)
        ]
        yield CheckList[int](*(Selection(line, at, initial_state=True) for at, line in enumerate(lines)))
        if self._notes:
            yield Static(Content(printable(" ".join(self._notes))), id="notes")
        yield Static(Content("Name of the new preset:"))
        yield Input(self._name)
        yield Static(id="wrong")

    def on_mount(self) -> None:
        self.query_one(Input).cursor_blink = False
        self.query_one(SelectionList).focus()

    def on_input_submitted(self) -> None:
        self.action_take()

    def action_take(self) -> None:
        selected = set(self.query_one(SelectionList).selected)
        taken = tuple(offer for at, offer in enumerate(self.offers) if at in selected)
        name = self.query_one(Input).value.strip()
        self.finish(fault_of(lambda: self._take(name, taken)), name)


Then = Callable[[], None]
PROMPT = "Name of the preset, as commands use it:"


def at_home(path: Path) -> str:
    """Return a path safe to show, with `~` for the home folder."""
    home = Path.home()
    return printable(f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path))


WIDE, VERY_WIDE = 112, 170
LOOK_EVERY = 1.0


class EditorScreen(ViewScreen):
    """The form next to the text, the estimate below; narrow terminals show one of them at a time."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide"), (VERY_WIDE, "-very-wide")]
    CSS_PATH = "editor.tcss"
    BINDINGS = EDITOR_BINDINGS
    PLACE = "editor"
    PAGES = ("form", "text", "estimate")
    is_asking = False  # the question about unsaved changes is on the screen
    TYPES = True
    FIRST_FOCUS = "FieldList"

    def __init__(self, draft: drafts.Draft, estimator: form_panel.DraftEstimator, host: "EditorController") -> None:
        super().__init__()
        self.open = form_panel.OpenDraft(draft, estimator, host, self._show_change)
        self.form = form_panel.FormPanel(self.open, self._ask_choice, self._show_in_text)
        self.area = form_panel.TomlText()
        self._totals = form_panel.Totals(id="totals")
        self._total_line = form_panel.TotalLine(id="total")
        self._row = 0  # the line of the text that the form followed last

    def compose(self) -> ComposeResult:
        yield Header("Editor")
        with Container(id="editor"):
            yield self.form
            with Vertical(id="beside"):
                yield self.area
                yield self._totals
        yield self._total_line
        # Letters are typed here, and panels share some of the keys.
        yield KeyBar(only=[one.id or "" for one in EDITOR_BINDINGS if isinstance(one, Binding)])

    def on_mount(self) -> None:
        self.open.refresh("other")
        self.set_interval(LOOK_EVERY, self.look)

    def show(self, view: View, palette: Palette) -> None:
        super().show(view, palette)
        if self.open.estimator.is_nearer(self.open.look) or self.open.host.observed() != self.open.look.observed:
            self.open.refresh("estimate")

    def _show_change(self, change: form_panel.Change) -> None:
        """Show the draft, the estimate first: each panel is on the terminal before the next begins."""
        look = self.open.look
        if change in {"changed", "other"}:
            self.form.finish()
        self._totals.read(look)
        self._total_line.read(look)
        if change == "estimate":
            return
        self.form.read(look, form_panel.first_key(look.groups, look.problems) if change == "other" else None)
        if change == "other":
            self.area.load_text(self.draft.text)
        self.area.show_text(self.draft.text)
        self.area.read(look)
        draft, place, where = self.draft, "new", "new, not saved"
        if draft.path is not None and draft.bundled:
            place = printable("/".join(draft.path.parts[-3:]))
            where = "Bundled preset: saving creates your copy"
        elif draft.path is not None:
            place = at_home(draft.path)
            where = "unsaved changes" if draft.is_changed else "saved"
        self.form.border_title = plain(f"Preset · {printable(draft.name)}{'*' if draft.is_changed else ''}")
        self.form.border_subtitle = where
        count = len(look.problems)
        self.area.border_title = f"TOML · {plain(place)}"
        self.area.border_subtitle = f"{count} error{'s' if count > 1 else ''}" if count else ""
        self.follow(anyway=change == "other")
        first = look.problems[0] if look.problems else None
        if change == "other" and first is not None and not first.key and first.line is not None:
            line = first.line
            self.call_after_refresh(lambda: self._show_in_text(line))

    def follow(self, *, anyway: bool = False) -> None:
        """Move the text's cursor to the selected field, unless the text has the focus."""
        entry = self.form.entry
        if entry is not None and entry.line is not None and (anyway or not self.area.has_focus):
            row = min(entry.line - 1, self.area.document.line_count - 1)
            if row != self.area.cursor_location[0]:
                self.area.move_cursor((row, 0))
        self._row = self.area.cursor_location[0]

    def go_to(self, key: str) -> None:
        """Select a field and focus the form."""
        self.form.fields.focus()
        self.form.go_to(key)
        self.follow()

    def _show_in_text(self, line: int) -> None:
        self.area.focus()
        self._row = min(line, self.area.document.line_count) - 1
        self.area.move_cursor((self._row, 0))

    def on_option_list_option_highlighted(self) -> None:
        self.follow()

    def _ask_choice(self, field: drafts.FormField) -> None:
        def choose(at: int) -> None:
            self.open.choose(field.key, field.choices[at])
            if field.key.endswith(".kind"):
                self.ask_about_unknown(field.choices[at])

        now = field.value if field.value is not None else field.default
        first = field.choices.index(now) if now in field.choices else 0
        helps = field.choice_helps or ("",) * len(field.choices)
        lines = [
            (choice, about or ("default" if choice == field.default else ""))
            for choice, about in zip(field.choices, helps, strict=True)
        ]
        ask(self.app, Pick(field.key, lines, first), choose)

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        event.stop()
        if self.open.typed(self.area.text):
            self._lead()

    def on_text_area_selection_changed(self, event: TextArea.SelectionChanged) -> None:
        event.stop()
        if self.area.cursor_location[0] != self._row:
            self.draft.end_step()
            self._lead()

    def _lead(self) -> None:
        self._row = self.area.cursor_location[0]
        if self.area.has_focus:
            self.form.show_line(self._row + 1)

    def on_resize(self) -> None:
        self.call_after_refresh(self.on_descendant_focus)

    def action_turn(self, direction: int) -> None:
        """Show the next page of a narrow terminal; elsewhere focus the next panel."""
        panels = self._panels_in_order()
        now = next((at for at, panel in enumerate(panels) if panel.has_focus), 0)
        if self.has_class("-narrow"):
            now = next(at for at, page in enumerate(self.PAGES) if self.has_class(f"page-{page}"))
        at = (now + direction) % len(panels)
        self._turn_to(at)
        panels[at].focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return True

    def on_descendant_focus(self) -> None:
        at = next((at for at, panel in enumerate(self._panels_in_order()) if panel.has_focus), None)
        if at is not None:
            self._turn_to(at)

    def _turn_to(self, at: int) -> None:
        for number, page in enumerate(self.PAGES):
            self.set_class(number == at, f"page-{page}")

    def _panels_in_order(self) -> tuple[Widget, Widget, Widget]:
        return self.form.fields, self.area, self._totals

    def action_undo(self, name: str = "undo") -> None:
        self.form.finish()
        if not (self.draft.undo() if name == "undo" else self.draft.redo()):
            self.notify(f"There is nothing to {name}.", timeout=2)
        self.open.refresh()

    def action_save(self) -> None:
        self.form.finish()
        self.save()

    def action_find(self) -> None:
        self.form.finish()
        ask(self.app, FieldChooser(self.draft.form), self.go_to)

    @property
    def draft(self) -> drafts.Draft:
        return self.open.draft

    def _confirm(self, title: str, question: str, what: str, then: Then, difference: str = "") -> None:
        """Ask a question whose answer `y` does it."""
        dialog = QuestionDialog(title, question, {"y": what}, difference)
        ask(self.app, dialog, lambda key: then() if key == "y" else None)

    def save(self, then: Then | None = None, *, replace: bool = False) -> None:
        """Save the draft and go on with `then`. A bundled preset asks for a name first."""
        draft = self.draft
        bundled = draft.path.stem if draft.bundled and draft.path is not None else ""
        if draft.name == bundled and not replace and not draft.refused:
            prompt = f"Name of your own copy. The name {printable(bundled)} overrides the bundled preset."
            self._ask_name(bundled, then, f"{bundled}-mine", prompt)
        else:
            self._write(bundled, then, replace=replace)

    def _write(self, bundled: str, then: Then | None, *, replace: bool = False, use: bool = False) -> None:
        """Save the draft under its name, and `use` it for the process. `bundled` is the bundled preset that it was."""
        draft, app, warning = self.draft, self.app, ""
        try:
            path = draft.save(replace=replace)
        except drafts.NameTakenError as error:

            def on_answer(key: str) -> None:
                if key == "r":
                    self.save(then, replace=True)
                elif key == "n":
                    self._ask_name(bundled, then, draft.name, PROMPT)

            answers = {"r": "replace the file", "n": "choose another name"}
            ask(app, QuestionDialog("Save the preset", f"{error.path} exists already.", answers), on_answer)
            return
        except drafts.ChangedOnDiskError:
            self._ask_whose(lambda: self.save(then, replace=True))
            return
        except NotDurableError as error:
            path, warning = draft.path or Path(draft.name), str(error)
        except UserError as error:
            app.clear_notifications()
            self.notify(f"Not saved: {error}", title="Preset", severity="error", timeout=10)
            return
        self.open.host.preset_saved(PresetFile(key=draft.name, path=str(path), bundled=False, preset=load_preset(path)))
        self.open.saved()
        user = ""  # first: the line may be cut
        if use and self.open.host.process is not None:
            self.open.host.use(draft.name)
            user = f" for pid {self.open.host.process.pid}"
        message = f"Saved{user} as {at_home(path)}"
        if bundled == path.stem:
            message = f"Saved{user}, overrides the bundled one; delete {at_home(path)} to undo this."
        elif bundled:
            message += "; the bundled one is unchanged."
        app.clear_notifications()  # a failure before this one is over
        self.notify(warning or message, title="Preset", severity="warning" if warning else "information")
        if then is not None:
            then()

    def _ask_name(self, bundled: str, then: Then | None, name: str, prompt: str) -> None:
        def check(typed: str) -> None:
            self.draft.name = drafts.checked_name(typed)

        process = self.open.host.process
        choice = f"use for pid {process.pid}" if process is not None else ""
        dialog = Ask("Save the preset", prompt, name, check, choice)
        ask(self.app, dialog, lambda _: self._write(bundled, then, use=dialog.is_ticked))

    def action_rename(self) -> None:
        """Give the preset another name. Unsaved changes stay unsaved."""
        draft, before, host = self.draft, self.draft.name, self.open.host

        def on_name(name: str) -> None:
            if name == before:
                return
            message = f"Ctrl+S saves it as {printable(name)}."
            if draft.path is not None and not draft.bundled:
                host.preset_deleted(before)
                with suppress(UserError):  # the file may be wrong; the draft says how
                    preset = load_preset(draft.path)
                    host.preset_saved(PresetFile(key=name, path=str(draft.path), bundled=False, preset=preset))
                message = f"{printable(before)} is now {at_home(draft.path)}."
            self.open.refresh()
            self.notify(message, title="Preset")

        prompt = "New name of the preset, as commands use it:"
        ask(self.app, Ask("Rename the preset", prompt, before, draft.rename), on_name)

    def look(self) -> None:
        """If another program changed the file, take its text, or ask if there are unsaved changes."""
        path = self.draft.path
        if path is None or self.app.screen is not self or not self.draft.changed_on_disk():
            return
        name = at_home(path)
        if self.draft.disk_text is None:
            self.draft.keep_mine()
            self.notify(f"{name} was deleted; saving writes it again.", severity="warning")
            self.open.refresh()
        elif self.draft.is_unsaved:
            self._ask_whose(None)
        else:
            self._take_theirs()
            self.notify(f"{name} was changed by another program; this is its new text.")

    def _ask_whose(self, then: Then | None) -> None:
        """Ask which text to keep. Without an answer nothing changes, and it is asked again."""

        def on_answer(key: str) -> None:
            if key == "t":
                self._take_theirs()
            elif key == "k":
                self.draft.keep_mine()
                self.open.saved()
                if then is not None:
                    then()

        self.app.clear_notifications()  # they would cover the answers
        name = at_home(self.draft.path) if self.draft.path is not None else ""
        question = f"{name} was changed by another program. From yours to the file's:"
        answers = {"t": "use the file's version; Ctrl+Z restores yours", "k": "keep mine; saving overwrites the file"}
        difference = drafts.difference_between(self.draft.text, self.draft.disk_text or "", "yours", "theirs")
        ask(self.app, QuestionDialog("Changed on disk", question, answers, difference), on_answer)

    def _take_theirs(self) -> None:
        draft = self.draft
        draft.take_disk()
        self.open.saved()
        if draft.is_current and draft.preset is not None and draft.path is not None:
            file = PresetFile(key=draft.name, path=str(draft.path), bundled=draft.bundled, preset=draft.preset)
            self.open.host.preset_saved(file)

    def action_difference(self) -> None:
        difference = self.draft.difference()
        if difference:
            self.app.push_screen(Difference(f"Differences · {printable(self.draft.name)}", difference))
        else:
            self.notify("No differences from the saved text.", timeout=3)

    def action_revert(self) -> None:
        difference = self.draft.difference()
        if not difference:
            self.notify("There are no changes to discard.", timeout=3)
            return

        def discard() -> None:
            self.draft.revert()
            self.open.refresh()

        self._confirm("Revert", "Discard the changes? Ctrl+Z restores them.", "discard", discard, difference)

    def action_delete(self) -> None:
        path = self.draft.path
        if self.draft.bundled or path is None:
            sentence = "is a bundled preset and cannot be deleted" if path is not None else "has no file yet"
            self.notify(f"{printable(self.draft.name)} {sentence}.")
            return

        def delete() -> None:
            try:
                self.draft.delete()
            except UserError as error:
                self.notify(str(error), title="Preset", severity="error")
                return
            self.open.host.preset_deleted(self.draft.name)
            self.open.refresh()
            self.notify(f"{at_home(path)} is deleted.", title="Preset")

        question = f"Delete {at_home(path)}? Its text stays here until you close the editor, so it can be saved again."
        self._confirm("Delete the preset", question, "delete the file", delete)

    def action_leave(self) -> None:
        self.ask_to_leave(self.leave)

    def leave(self) -> None:
        if self.app.screen is self:
            self.app.pop_screen()
            self.open.host.preset_closed()

    def ask_to_leave(self, then: Then) -> None:
        """Ask about unsaved changes, then go on; at once if there are none."""
        self.draft.end_step()
        if not self.draft.is_unsaved:
            then()
            return
        self.is_asking = True

        def on_answer(key: str | None) -> None:
            self.is_asking = False
            if key == "s":
                self.save(then)
            elif key == "d":
                then()

        answers = {"s": "save it", "d": "discard the changes"}
        difference = self.draft.difference() if self.draft.path is not None else ""
        question = f"{printable(self.draft.name)} is not saved."
        self.app.push_screen(QuestionDialog("Unsaved changes", question, answers, difference), on_answer)

    def ask_about_unknown(self, kind: str) -> None:
        """After another kind was chosen, ask whether to remove the keys that it does not have."""
        keys = [problem.key for problem in self.draft.problems if "is not a key of" in problem.sentence]

        def drop() -> None:
            self.draft.drop_unknown()
            self.open.refresh()

        if keys:
            question = f"These are not keys of {kind}: {', '.join(keys)}. Ctrl+Z restores them."
            self._confirm("Another kind", question, "remove them", drop)

    def action_new(self) -> None:
        self.ask_to_leave(self._ask_for_new)

    def _ask_for_new(self) -> None:
        opened, app = self.open, self.app
        running, name, text = opened.host.running(), self.draft.name, self.draft.text
        lines = [
            ("a model", "a file, a folder, or a name in the local caches"),
            ("a copy", f"of {name}, with its changes"),
            ("a training file", "YAML or JSON of accelerate, DeepSpeed, axolotl …"),
        ]
        if running is not None:
            lines.append((f"pid {running[0]}", running[1]))

        def from_model(path: str) -> None:
            opened.begin(drafts.draft_from_model(path.strip(), try_out=opened.estimator))

        def copy(copied: str) -> None:
            opened.begin(drafts.Draft(text, drafts.checked_name(copied), try_out=opened.estimator))

        read: list[JobFile] = []

        def check(path: str) -> None:
            read[:] = [read_job_file(path_named(path))]

        def offer(file: JobFile) -> None:
            stem = PurePath(file.name).stem
            title = f"A new preset from {file.name} ({TITLES[file.kind]})"
            offers = draft_from_process("", opened.host.known_presets, (file,))
            self._offer(
                title, stem if drafts.NAME.fullmatch(stem) else "job", offers, tuple(filter(None, [not_read(file)]))
            )

        def begin(at: int) -> None:
            if at == 0:
                prompt = "Path of config.json, *.safetensors, *.gguf or a folder;"
                prompt += " or a downloaded model, as meta-llama/Llama-3.1-8B:"
                app.push_screen(Ask("A new preset from a model's file", prompt, "", from_model))
            elif at == 1:
                app.push_screen(Ask("A new preset as a copy", f"Name of the copy of {name}:", f"{name}-copy", copy))
            elif at == 2:
                prompt = f"Path of a YAML or JSON file of {', '.join(sorted(TITLES.values(), key=str.lower))}:"
                ask(app, Ask("A new preset from a training file", prompt, "", check), lambda _: offer(read[0]))
            elif running is not None:
                pid, command = running
                files, notes = files_of(command, finder_of(pid, command))
                offers = draft_from_process(command, opened.host.known_presets, files)
                self._offer(f"A new preset from pid {pid}", f"pid-{pid}", offers, notes)

        ask(app, Pick("A new preset from", lines), begin)

    def _offer(self, title: str, name: str, offers: tuple[Offer, ...], notes: tuple[str, ...]) -> None:
        if not offers:
            self.notify(printable(" ".join(("It has nothing that a preset could use.", *notes))), title=title)
            return
        opened, library = self.open, self.open.host.known_presets

        def begin(typed: str, taken: tuple[Offer, ...]) -> None:
            opened.begin(start_from(taken, library, drafts.checked_name(typed), try_out=opened.estimator))

        self.app.push_screen(Offers(title, name, offers, begin, notes))
