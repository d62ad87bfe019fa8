"""Windows over a screen: text, questions, and lists with a filter, ranked by the typed words; and a filter bar."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.app import ComposeResult, SystemCommand
from textual.binding import Binding
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.strip import Strip
from textual.theme import Theme
from textual.widgets import Input, OptionList, SelectionList, Static
from textual.widgets.option_list import Option, OptionDoesNotExist
from textual.widgets.selection_list import Selection

from vramtui.app.terminal.textual_private import CurrentSize
from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable

Result = TypeVar("Result")


class Window(CurrentSize, ModalScreen[Result]):
    """A framed window in the middle; Escape, q and a click outside close it."""

    CSS_PATH = Path(__file__).with_name("windows.tcss")  # absolute: subclasses are in other folders
    BINDINGS = [Binding("escape,q", "close", "Close", id="window.close", show=False)]

    def __init__(self, title: str, hint: str = "Esc closes") -> None:
        super().__init__()
        self._title, self._hint = title, hint

    def compose(self) -> ComposeResult:
        with Vertical(id="window") as window:
            window.border_title = self._title.replace("[", "\\[")
            window.border_subtitle = self._hint.replace("[", "\\[")
            yield from self.inside()

    def inside(self) -> ComposeResult:
        raise NotImplementedError

    def room(self, widest: int) -> int:
        """Return the columns for text in a window up to `widest` wide, without frame, padding and scroll bar."""
        return min(widest, self.app.size.width * 95 // 100) - 5

    def finish(self, wrong: str, result: Result) -> None:
        """Close with `result`; if something is wrong, stay open and show that."""
        if wrong:
            self.query_one("#wrong", Static).update(Content(printable(wrong)))
        else:
            self.dismiss(result)

    def action_close(self) -> None:
        self.dismiss(None)

    def on_click(self, event: object) -> None:
        if getattr(event, "widget", None) is self:
            self.dismiss(None)


class TextWindow(Window[None]):
    def inside(self) -> ComposeResult:
        with VerticalScroll(can_focus=True):
            yield Static(self.text())

    def text(self) -> Content:
        """Return the text; never markup, because it may have names that others chose."""
        raise NotImplementedError


class Confirm(Window[bool]):
    """Answers True only to `y`."""

    BINDINGS = [
        Binding("y", "yes", "Yes", id="confirm.yes", show=False),
        Binding("n", "close", "No", id="confirm.no", show=False),
    ]

    def __init__(self, title: str, question: str, hint: str = "y run · n or Esc cancel") -> None:
        super().__init__(title, hint)
        self._question = question

    def inside(self) -> ComposeResult:
        yield Static(Content(self._question))  # never as markup

    def action_yes(self) -> None:
        self.dismiss(result=True)


One = TypeVar("One")
Value = TypeVar("Value")
TICKED, BARE = "[x] ", "[ ] "
WIDTH = 76
OURS = "vramtui-"
_WORDS = re.compile(r"[^a-z0-9.]+")
_PARTS = re.compile(r"[^a-z0-9.]+|(?<=[a-z])(?=\d)|(?<=\d)(?=[a-z])")  # `gpt2` has the parts gpt and 2


class ChoiceList(OptionList):
    """Textual's list, with a readable line at the cursor in sixteen colours."""

    def render_line(self, y: int) -> Strip:
        return _readable(self, super().render_line(y), y)


class CheckList(SelectionList[Value]):
    """Textual's list, with `[x]` or `[ ]` as boxes: its own differ only in colour. The line at the cursor stays
    readable, quiet words too.
    """

    def render_line(self, y: int) -> Strip:
        line = super().render_line(y)
        try:
            selection = self.get_option_at_index(self.scroll_offset.y + y)
        except OptionDoesNotExist:
            return line
        box, rest = list(line)[:4], list(line)[4:]
        # A click on the box finds its line by the metadata of its style.
        style = (box[3].style or Style()) + Style(meta=(box[1].style or Style()).meta)
        shown = Strip([Segment(TICKED if selection.value in self.selected else BARE, style), *rest])
        return _readable(self, shown, y)


def _readable(options: OptionList, line: Strip, y: int) -> Strip:
    """Return line `y`; white if the cursor is on it in a theme of sixteen colours."""
    at, lines = options.scroll_offset.y + y, options._lines  # noqa: SLF001 - Textual has no public way to a line's option
    if not options.app.current_theme.ansi or at >= len(lines) or lines[at][0] != options.highlighted:
        return line
    white = Style(color="bright_white")
    return Strip([Segment(piece.text, (piece.style or Style()) + white) for piece in line])


def rank(wanted: str, name: str, about: str = "") -> int | None:
    """Return how well `name` matches the words in `wanted`, the best 0; None if it does not.

    A name comes before the description `about`, a beginning before a middle, and letters that only follow each other
    come last.
    """
    words = wanted.lower().split()
    name, about = name.lower(), about.lower()
    if not words or name == wanted.lower().strip():
        return 0
    if _in_order(words, _WORDS.split(name)) or _in_order(words, _PARTS.split(name)):
        return 1 if name.startswith(words[0]) else 2
    if all(word in name for word in words):
        return 3 if name.startswith(words[0]) else 4
    if all(word in name or word in about for word in words):
        return 5 if any(word in name for word in words) else 6
    letters = iter(re.sub(r"[^a-z0-9]", "", name))
    # Every second name has the same two letters.
    return 7 if len("".join(words)) > 2 and all(letter in letters for letter in "".join(words)) else None


def ranked(
    wanted: str, items: Iterable[One], text: Callable[[One], tuple[str, str]], order: Callable[[One], object]
) -> list[One]:
    """Return the items that match the words in `wanted`, the best first; `text` gives an item's name and description,
    `order` the sort key of items with the same rank.
    """
    ranks = [(rank(wanted, *text(item)), item) for item in items]
    answers = [(place, item) for place, item in ranks if place is not None]
    # Letters that only follow each other count if nothing else matches.
    best = min((place for place, _ in answers), default=0)
    best_answers = [(place, item) for place, item in answers if place < 7 or best == 7]
    return [item for _, item in sorted(best_answers, key=lambda one: (one[0], order(one[1])))]


def _in_order(words: list[str], parts: list[str]) -> bool:
    """Return whether each word begins a part of a name, in order; `3` is only a 3, not the 32 of 32 billion."""

    def begins(part: str, word: str) -> bool:
        is_number = word.isdigit() and part.replace(".", "").isdigit()
        return part == word if is_number else part.startswith(word)

    rest = iter(parts)
    return all(any(begins(part, word) for part in rest) for word in words)


def fault_of(act: Callable[[], object]) -> str:
    """Do it; return the sentence of an error, or nothing."""
    try:
        act()
    except (UserError, OSError, RuntimeError) as error:
        return str(error)
    return ""


class Ask(Window[str]):
    """A line to type. `take` acts on it; an error that it raises is shown and keeps the window open. `choice` is ticked
    below it, and `is_ticked` until Space takes the mark away.
    """

    BINDINGS = [Binding("escape", "close", "Close", id="ask.close", show=False)]

    def __init__(self, title: str, prompt: str, text: str, take: Callable[[str], object], choice: str = "") -> None:
        super().__init__(title, f"Enter OK · {'Tab, Space toggle · ' if choice else ''}Esc cancel")
        self._prompt, self._text, self._take, self._choice = prompt, text, take, choice
        self.is_ticked = bool(choice)

    def inside(self) -> ComposeResult:
        yield Static(Content(printable(self._prompt)))
        yield Input(self._text)
        if self._choice:
            yield CheckList[int](Selection(Content(self._choice), 0, initial_state=True))
        yield Static(id="wrong")

    def on_mount(self) -> None:
        line = self.query_one(Input)
        line.cursor_blink = False
        line.focus()

    def on_selection_list_selected_changed(self, event: SelectionList.SelectedChanged[int]) -> None:
        self.is_ticked = bool(event.selection_list.selected)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        typed = event.value.strip()
        self.finish(fault_of(lambda: self._take(typed)), typed)


class Chooser(Window[str]):
    """Dismissed with the id of the chosen option, or None. Subclasses fill the list."""

    BINDINGS = [
        Binding("up", "move(-1)", "Up", id="chooser.up", show=False),
        Binding("down", "move(1)", "Down", id="chooser.down", show=False),
        Binding("enter", "choose", "Choose", id="chooser.choose", show=False, priority=True),
        Binding("escape", "close", "Close", id="chooser.close", show=False, priority=True),
    ]

    def __init__(self, title: str) -> None:
        super().__init__(title, "type to filter · Enter select · Esc close")

    def fill(self, wanted: str) -> None:
        """List the options that match the words in `wanted`."""
        raise NotImplementedError

    def list_options(self, options: Iterable[Option], none: str, at: str | None = None) -> None:
        """List these options, with the cursor on the one with the id `at`, or else on the first that can be chosen;
        without any, the sentence `none`.
        """
        shown = self.query_one(OptionList)
        shown.clear_options()
        shown.add_options(options)
        if not shown.option_count:
            shown.add_option(Option(Content(none), disabled=True))
        places = [place for place, option in enumerate(shown.options) if not option.disabled]
        wanted = (place for place in places if at is not None and shown.options[place].id == at)
        shown.highlighted = next(wanted, places[0] if places else 0)

    def inside(self) -> ComposeResult:
        filter_line = Input(placeholder="filter")
        filter_line.cursor_blink = False
        yield filter_line
        yield ChoiceList(markup=False)

    def on_mount(self) -> None:
        self.fill("")
        self.query_one(Input).focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self.fill(event.value)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.take(event.option.id)

    def action_move(self, direction: int) -> None:
        """Move in the list while the filter keeps the focus."""
        options = self.query_one(OptionList)
        (options.action_cursor_down if direction > 0 else options.action_cursor_up)()

    def action_choose(self) -> None:
        options = self.query_one(OptionList)
        if options.highlighted is not None:
            self.take(options.get_option_at_index(options.highlighted).id)

    def take(self, chosen: str | None) -> None:
        self.dismiss(chosen)


class ActionChooser(Chooser):
    """The command palette: every action by its title, its key at the right. Dismissed with the action's number."""

    def __init__(self, actions: Sequence[SystemCommand]) -> None:
        super().__init__("Actions")
        self._actions = dict(enumerate(actions))

    def fill(self, wanted: str) -> None:
        choices = ranked(wanted, self._actions.items(), lambda one: (one[1].title, one[1].help), lambda one: one[0])
        room, options = self.room(WIDTH), []
        for at, action in choices:
            pad = " " * max(1, room - cell_len(action.title) - cell_len(action.help))
            options.append(Option(Content.assemble(action.title, pad, (action.help, "bold $primary")), str(at)))
        self.list_options(options, "no action is called so")


class ThemeChooser(Chooser):
    """Dismissed with the name of the chosen theme, which is shown at once; or None for the present one."""

    def __init__(self, themes: Mapping[str, Theme], present: str) -> None:
        super().__init__("Theme")
        self._themes, self._present = themes, present

    def fill(self, wanted: str) -> None:
        """List our themes first, then dark ones, then light ones."""
        kinds = {
            name: "terminal" if theme.ansi else "dark" if theme.dark else "light"
            for name, theme in self._themes.items()
        }

        def order(name: str) -> tuple[bool, bool, str]:
            return (not name.startswith(OURS), not self._themes[name].dark, name)

        choices = ranked(wanted, kinds, lambda name: (name, kinds[name]), order)
        options = [Option(Content.assemble((f"{name:<28}", "bold"), (kinds[name], "$muted")), name) for name in choices]
        self.list_options(options, "no theme is called so", None if wanted else self._present)

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        if event.option.id is not None:
            self.app.theme = event.option.id

    def action_close(self) -> None:
        self.app.theme = self._present
        self.dismiss(None)


class FilterBar(Input):
    """Filters while it is typed; Enter keeps the filter, Escape clears it. `rows` selects the list to focus then."""

    BINDINGS = [
        Binding("escape", "give_up", "clear", id="filter.give_up", tooltip="Clear the filter"),
        Binding("enter", "keep", "keep", id="filter.keep", tooltip="Apply the filter and return to the list"),
    ]

    def __init__(self, text: str, *, placeholder: str, rows: str, typed: Callable[[str], None]) -> None:
        super().__init__(text, placeholder=placeholder)
        self.cursor_blink = False
        self._rows, self._typed = rows, typed

    def on_mount(self) -> None:
        self.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self._typed(self.value)

    def action_keep(self) -> None:
        self.screen.query_one(self._rows).focus()
        self.remove()

    def action_give_up(self) -> None:
        self._typed("")
        self.action_keep()
