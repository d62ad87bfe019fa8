"""The dialogs of the editor: a question, a line to type, lists, and a difference."""

from collections.abc import Callable, Mapping, Sequence

from rich.cells import cell_len
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Input, OptionList, SelectionList, Static
from textual.widgets.option_list import Option
from textual.widgets.selection_list import Selection

from vramtui.app.ui.chooser import CheckList, Chooser, TextWindow, Window, fault_of, ranked
from vramtui.app.ui.lines import fit
from vramtui.core.base.text import printable
from vramtui.core.base.units import UNKNOWN
from vramtui.presets.draft.form import FormGroup, fields_of
from vramtui.presets.importers.job_files import Offer

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
    """A unified difference."""

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

    def __init__(self, groups: tuple[FormGroup, ...]) -> None:
        super().__init__("Find a field")
        self._fields = list(fields_of(groups).values())
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
        wrong = fault_of(lambda: self._take(name, taken))
        if wrong:
            self.query_one("#wrong", Static).update(Content(printable(wrong)))
        else:
            self.dismiss(name)
