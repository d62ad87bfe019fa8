"""The last line: the keys that matter most, each of which can also be clicked, or the newest of what the program has to
say: never over what somebody is looking at.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rich.cells import cell_len
from textual import events
from textual.app import App
from textual.binding import Binding
from textual.notifications import Notification
from textual.strip import Strip

from vramtui.app.keys import PREDICTING, is_refused
from vramtui.app.state.view import View
from vramtui.app.terminal.colours import key_shown
from vramtui.app.terminal.delayed_calls import call_after
from vramtui.app.themes import Palette
from vramtui.app.ui.lines import Lines, Piece, fit, strip
from vramtui.core.base.text import printable

GAP = 2
SEVERITIES = {"information": "success", "warning": "warning", "error": "error"}


class Hint(NamedTuple):
    """What a key does, in a word; where several keys do the same in two directions the word stands between them.

    Attributes:
        word: what is done.
        keys: each key as it is shown, and its action.
    """

    word: str
    keys: list[tuple[str, str]]

    @property
    def width(self) -> int:
        """How many columns it takes; one stands between its parts."""
        return cell_len(self.word) + sum(1 + cell_len(key) for key, _ in self.keys)


class KeyBar(Lines[View]):
    """Draws the bindings that ask to be shown, as many as fit; the last two always.

    Args:
        only: ids of the bindings to show, in their order; every one that asks for it where it is None.
        id: Textual's.
    """

    def __init__(self, only: Sequence[str] | None = None, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._only = only
        self._spots: list[tuple[int, int, str]] = []
        self._notice: tuple[str, str] | None = None

    def say(self, notice: tuple[str, str] | None) -> None:
        """Show a notice's severity and words in place of the keys; None: the keys again."""
        if notice != self._notice:
            self._notice = notice
            self.redraw()

    def bindings_shown(self) -> list[Binding]:
        """The screen's and the app's bindings with `show`, in the order they are declared; in a dashboard that is only
        looked at, none that is refused there, and in the monitor alone none of predictions.
        """
        view_only = self.view is not None and self.view.view_only
        silent = PREDICTING if self.view is not None and self.view.is_monitor else ()
        bindings = [active.binding for active in self.screen.active_bindings.values() if active.binding.show]
        shown = [
            one for one in bindings if not (one.system or one.id in silent or (view_only and is_refused(one.action)))
        ]
        if self._only is None:
            return shown
        order = {identity: at for at, identity in enumerate(self._only)}
        return sorted((one for one in shown if one.id in order), key=lambda one: order[one.id or ""])

    def build(self, view: View, palette: Palette, width: int, height: int) -> list[Strip]:
        del view, height
        if self._notice is not None:
            self._spots = []
            severity, words = self._notice
            ink = palette.ink(SEVERITIES.get(severity, "foreground"), "bar", bold=True)
            return [strip([(f" {fit(printable(words), width - 2)} ", ink)], width, ink)]
        key_style = palette.ink("primary", "bar", bold=True)
        word_style = palette.ink("muted", "bar")
        pieces: list[Piece] = [(" ", word_style)]
        self._spots = []
        x = 1
        for hint in fitting(self._hints(), width - x):
            for at, (key, action) in enumerate(hint.keys):
                text = key if at else f"{key} {hint.word}"
                gap = GAP if at == len(hint.keys) - 1 else 1
                self._spots.append((x, x + cell_len(text), action))
                pieces += [(key, key_style), (text[len(key) :] + " " * gap, word_style)]
                x += cell_len(text) + gap
        return [strip(pieces, width, word_style)]

    def _hints(self) -> list[Hint]:
        """What there is to show; bindings with one description are one hint, where the first of them stands."""
        hints: dict[str, Hint] = {}
        for binding in self.bindings_shown():
            hint = hints.setdefault(binding.description, Hint(binding.description, []))
            hint.keys.append((key_shown(self.app, binding), binding.action))
        return list(hints.values())

    async def on_click(self, event: events.Click) -> None:
        """Do what the key under the pointer does."""
        for start, stop, action in self._spots:
            if start <= event.x < stop:
                await self.screen.run_action(action)


def fitting(hints: list[Hint], width: int) -> list[Hint]:
    """The hints for which there is room in `width` columns, each of them whole: of two that do not both fit the earlier
    one. The last two, help and the way out, come before all others.
    """
    last = hints[-2:]
    room = width - sum(hint.width for hint in last) - GAP * (len(last) - 1)
    fitting_bindings = []
    for hint in hints[:-2]:
        if hint.width + GAP <= room:
            room -= hint.width + GAP
            fitting_bindings.append(hint)
    return [*fitting_bindings, *last]


KEPT = 30


def one_line(note: Notification) -> str:
    """Title and message of a notification, without line breaks."""
    title = note.title.rstrip(".:")
    message = " · ".join(note.message.split("\n"))
    return f"{title}: {message}" if title else message


class NoticeLine:
    """Follows an app's notifications.

    Textual shows them as toasts, which lie over the table and the graph for as long as they last. Here the newest
    stands in the last line until its time is over, and all of them among the alerts and errors (`!`).

    Args:
        app: whose they are.
        clock: seconds since the epoch.

    Attributes:
        said: the latest, the newest last: seconds since the epoch, and what was said.
    """

    __slots__ = ("_app", "_clock", "_newest", "earlier")

    def __init__(self, app: App[None], clock: Callable[[], float]) -> None:
        self._app = app
        self._clock = clock
        self._newest: Notification | None = None
        self.earlier: deque[tuple[float, str]] = deque(maxlen=KEPT)

    def refresh(self) -> None:
        """Show the newest that is not over, in every key bar there is; the keys again where there is none."""
        if self._app._disable_notifications:  # noqa: SLF001 - as below
            return
        # Textual has no public list of them; asked for their number it lets go of one that has just run out.
        notes = iter(self._app._notifications)  # noqa: SLF001 - as above
        newest = max(notes, key=lambda note: note.raised_at, default=None)
        if newest is not None and newest is not self._newest:
            self.earlier.append((self._clock(), one_line(newest)))
            call_after(self._app, newest.time_left + 0.1, self.refresh)
        self._newest = newest
        for screen in self._app.screen_stack:
            for bar in screen.query(KeyBar):
                bar.say(None if newest is None else (newest.severity, one_line(newest)))
