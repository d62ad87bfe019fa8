"""The last line: the main keys, which can also be clicked, or the newest notice."""

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
from vramtui.app.terminal.textual_private import call_after
from vramtui.app.themes import Palette
from vramtui.app.ui.lines import Lines, Piece, fit, strip
from vramtui.core.base.text import printable

GAP = 2
SEVERITIES = {"information": "success", "warning": "warning", "error": "error"}


class Hint(NamedTuple):
    """One word for one key, or for two keys around it; `keys` has each key as shown, and its action."""

    word: str
    keys: list[tuple[str, str]]

    @property
    def width(self) -> int:
        """Number of columns, with one between its parts."""
        return cell_len(self.word) + sum(1 + cell_len(key) for key, _ in self.keys)


class KeyBar(Lines[View]):
    """Shows the bindings with `show`, as many as fit, the last two always; with `only`, those ids in that order."""

    def __init__(self, only: Sequence[str] | None = None, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._only = only
        self._spots: list[tuple[int, int, str]] = []
        self._notice: tuple[str, str] | None = None

    def say(self, notice: tuple[str, str] | None) -> None:
        """Show a notice (severity and words) instead of the keys; None for the keys."""
        if notice != self._notice:
            self._notice = notice
            self.redraw()

    def bindings_shown(self) -> list[Binding]:
        """Return the screen's and the app's bindings with `show`, in order, without those refused in a view-only
        dashboard, or those of predictions in a pure monitor.
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
        hints: dict[str, Hint] = {}  # bindings with one description are one hint, at the place of the first
        for binding in self.bindings_shown():
            hint = hints.setdefault(binding.description, Hint(binding.description, []))
            hint.keys.append((key_shown(self.app, binding), binding.action))
        for hint in fitting(list(hints.values()), width - x):
            for at, (key, action) in enumerate(hint.keys):
                text = key if at else f"{key} {hint.word}"
                gap = GAP if at == len(hint.keys) - 1 else 1
                self._spots.append((x, x + cell_len(text), action))
                pieces += [(key, key_style), (text[len(key) :] + " " * gap, word_style)]
                x += cell_len(text) + gap
        return [strip(pieces, width, word_style)]

    async def on_click(self, event: events.Click) -> None:
        for start, stop, action in self._spots:
            if start <= event.x < stop:
                await self.screen.run_action(action)


def fitting(hints: list[Hint], width: int) -> list[Hint]:
    """Return the hints that fit whole in `width` columns, earlier ones first; the last two, help and quit, always."""
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
    title = note.title.rstrip(".:")
    message = " · ".join(note.message.split("\n"))
    return f"{title}: {message}" if title else message


class NoticeLine:
    """Shows the app's newest notification in the last line until its time is over, and all of them among alerts and
    errors (`!`); Textual's toasts would cover the table and the graph.

    Attributes:
        earlier: the latest notices, the newest last, with their times in seconds since the epoch.
    """

    __slots__ = ("_app", "_clock", "_newest", "earlier")

    def __init__(self, app: App[None], clock: Callable[[], float]) -> None:
        self._app, self._clock = app, clock
        self._newest: Notification | None = None
        self.earlier: deque[tuple[float, str]] = deque(maxlen=KEPT)

    def refresh(self) -> None:
        """Show the newest notification that is not over in every key bar, or else the keys."""
        if self._app._disable_notifications:  # noqa: SLF001 - as below
            return
        # Textual has no public list; `len` would remove one that has just run out.
        notes = iter(self._app._notifications)  # noqa: SLF001 - as above
        newest = max(notes, key=lambda note: note.raised_at, default=None)
        if newest is not None and newest is not self._newest:
            self.earlier.append((self._clock(), one_line(newest)))
            call_after(self._app, newest.time_left + 0.1, self.refresh)
        self._newest = newest
        for screen in self._app.screen_stack:
            for bar in screen.query(KeyBar):
                bar.say(None if newest is None else (newest.severity, one_line(newest)))
