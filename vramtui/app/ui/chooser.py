"""A list with a line above it in which words are typed that narrow it down, and how well names answer them."""

import re
from collections.abc import Callable, Iterable
from typing import TypeVar

from textual.app import ComposeResult
from textual.binding import Binding
from textual.content import Content
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from vramtui.app.ui.check_list import ChoiceList
from vramtui.app.ui.dialog import Window

One = TypeVar("One")
_WORDS = re.compile(r"[^a-z0-9.]+")
_PARTS = re.compile(r"[^a-z0-9.]+|(?<=[a-z])(?=\d)|(?<=\d)(?=[a-z])")  # of `gpt2`: gpt and 2


def rank(wanted: str, name: str, about: str = "") -> int | None:
    """How well `name` answers `wanted`, the best 0; None where it does not.

    A name comes before a description, a beginning before a middle, and letters that only follow each other come last.

    Args:
        wanted: words; every name answers none of them equally well.
        name: what a thing is called.
        about: what else is said of it; a word may stand there in place of the name.
    """
    words = wanted.lower().split()
    name, about = name.lower(), about.lower()
    if not words:
        return 0
    if name == wanted.lower().strip():
        return 0
    if _in_order(words, _WORDS.split(name)) or _in_order(words, _PARTS.split(name)):
        return 1 if name.startswith(words[0]) else 2
    if all(word in name for word in words):
        return 3 if name.startswith(words[0]) else 4
    if all(word in name or word in about for word in words):
        return 5 if any(word in name for word in words) else 6
    letters = iter(re.sub(r"[^a-z0-9]", "", name))
    # Of two letters every second name has both.
    return 7 if len("".join(words)) > 2 and all(letter in letters for letter in "".join(words)) else None


def ranked(
    wanted: str, items: Iterable[One], text: Callable[[One], tuple[str, str]], order: Callable[[One], object]
) -> list[One]:
    """The items that answer `wanted`, the best first.

    Args:
        wanted: words.
        items: what there is.
        text: of each, its name and what else is said of it.
        order: what those of one rank are sorted by.
    """
    ranks = [(rank(wanted, *text(item)), item) for item in items]
    answers = [(place, item) for place, item in ranks if place is not None]
    # Letters that merely follow each other are only asked for where nothing else was meant.
    best = min((place for place, _ in answers), default=0)
    best_answers = [(place, item) for place, item in answers if place < 7 or best == 7]
    return [item for _, item in sorted(best_answers, key=lambda one: (one[0], order(one[1])))]


def _in_order(words: list[str], parts: list[str]) -> bool:
    """Whether each word begins a part of a name, one after the other."""
    rest = iter(parts)
    return all(any(_begins(part, word) for part in rest) for word in words)


def _begins(part: str, word: str) -> bool:
    # `3` means a 3, not the 32 of 32 billion.
    return part == word if word.isdigit() and part.replace(".", "").isdigit() else part.startswith(word)


class Chooser(Window[str]):
    """Dismissed with the id of what was chosen; None when nothing was. Who derives from it fills the list."""

    DEFAULT_CSS = """
    Chooser Input { border: none; height: 1; padding: 0; background: $panel; margin: 0 0 1 0; }
    Chooser Input:focus { border: none; }
    Chooser OptionList { border: none; height: auto; max-height: 24; padding: 0; background: $surface;
        text-wrap: nowrap; text-overflow: ellipsis; overflow-x: hidden;
    }
    Chooser OptionList:focus { border: none; }
    """
    BINDINGS = [
        Binding("up", "move(-1)", "Up", id="chooser.up", show=False),
        Binding("down", "move(1)", "Down", id="chooser.down", show=False),
        Binding("enter", "choose", "Choose", id="chooser.choose", show=False, priority=True),
        Binding("escape", "close", "Close", id="chooser.close", show=False, priority=True),
    ]

    def __init__(self, title: str) -> None:
        super().__init__(title, "type to filter · Enter select · Esc close")

    def fill(self, wanted: str) -> None:
        """List what holds every word of `wanted`."""
        raise NotImplementedError

    def list_options(self, options: Iterable[Option], none: str, at: str | None = None) -> None:
        """List these, with the cursor on the one whose id is `at`, or else on the first that can be chosen; `none` says
        that there are none.
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
        """The list moves while the filter keeps the keys."""
        options = self.query_one(OptionList)
        (options.action_cursor_down if direction > 0 else options.action_cursor_up)()

    def action_choose(self) -> None:
        options = self.query_one(OptionList)
        if options.highlighted is not None:
            self.take(options.get_option_at_index(options.highlighted).id)

    def take(self, chosen: str | None) -> None:
        self.dismiss(chosen)
