"""The base of every whole screen: header, banner, key bar, and panels that each draw their part of one View."""

import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

from rich.cells import cell_len
from textual import events
from textual.app import App
from textual.binding import Binding
from textual.notifications import Notification
from textual.reactive import reactive
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget

from vramtui.app.keys import FLEET, NEEDS_GPUS, PREDICTING, SCREENS, STEPPING, ScreenEntry, is_refused
from vramtui.app.state.view import View
from vramtui.app.terminal.textual_private import CurrentSize, call_after
from vramtui.app.themes import Palette, key_shown
from vramtui.app.ui.lines import Lines, Piece, between, fit, strip, wrap
from vramtui.core.base.text import printable
from vramtui.core.base.units import GIB, format_duration
from vramtui.core.observation.readings import DRIVER, Host

MOST_LINES = 3  # of the sentences above a screen
NAME = " vramtui "
LONGEST_HOST = 20  # columns of a host's name that are kept free for it
BEAT = 10.0  # seconds for which the clock's colon is shown, and then hidden
HOST_EVERY = 20.0  # seconds between two looks at the host's CPU and memory, which would change each second


class Header(Lines[View]):
    """The screens and the host at the left; pause, staleness, problems and the time at the right."""

    def __init__(self, current: str = "Watch") -> None:
        super().__init__()
        self.current = current
        self._shown: list[tuple[ScreenEntry, str]] = []
        self._figures: list[object] = []
        self._host, self._asked_at, self._host_facts = "", 0.0, tuple[str, ...]()
        self._program, self._stirred_at = NAME, 0.0

    def build(self, view: View, palette: Palette, width: int, height: int) -> list[Strip]:
        """Screens are shown by key and name; if the host's name would not fit, all but the current one by key. The
        program's name gives way to the facts of the host, which are shown as far as each fits, whole or in brief.
        """
        end = _right(view, palette, width, beats=self._is_still(view))
        room = width - sum(cell_len(text) for text, _ in end) - 1
        sample, dim = view.sample, palette.ink("muted", "bar")
        # The host as the user named it, perhaps by an alias of ssh; this machine by its own name.
        own = "" if sample is None else sample.host.name
        host_name = printable(own if view.asked == DRIVER else view.asked)
        places = (*SCREENS, FLEET) if view.has_fleet else SCREENS
        self._shown = [(place, f" {place.key} {place.title} ") for place in places]
        if sample is not None and (
            own != self._host
            or (sample.host.cpu_percent is not None and not self._host_facts[0])  # known from the second sample on
            or not 0 <= sample.taken_at - self._asked_at < HOST_EVERY
        ):
            self._host, self._asked_at, self._host_facts = own, sample.taken_at, host_facts(sample.host)
        reserved = 0 if sample is None else min(LONGEST_HOST, cell_len(host_name)) + 2
        if sum(len(title) for _, title in self._shown) + reserved > room:
            self._shown = [
                (place, title if place.title == self.current else f" {place.key} ") for place, title in self._shown
            ]
        reserved += sum(len(_brief(fact)) + 3 for fact in self._host_facts if fact)
        self._program = NAME if sum(len(title) for _, title in self._shown) + reserved <= room - len(NAME) else ""
        pieces: list[Piece] = [(self._program, palette.ink("primary", "bar", bold=True))]
        for place, title in self._shown:
            is_current = place.title == self.current
            pieces.append((title, palette.ink("tab", "cursor", bold=True) if is_current else dim))
        if sample is not None:
            room -= sum(cell_len(text) for text, _ in pieces)
            text = fit(f"  {host_name}", min(room, 2 + cell_len(host_name)))
            pieces.append((text, palette.ink("foreground", "bar", bold=True)))
            room -= cell_len(text)
            host = sample.host
            facts = (
                *self._host_facts,
                f"driver {printable(host.driver_version)}" if host.driver_version else "",
                f"CUDA {printable(host.cuda_version)}" if host.cuda_version else "",
                f"{view.interval:g} s",
            )
            for fact in filter(None, facts):
                shown = next((text for text in (fact, _brief(fact)) if cell_len(text) + 3 <= room), "")
                pieces.append((f" · {shown}" if shown else "", dim))
                room -= cell_len(pieces[-1][0])
        return [between(pieces, end, width, palette.ink("foreground", "bar"))]

    def _is_still(self, view: View) -> bool:
        """Return whether nothing else on the screen has shown for a while that the program runs."""
        if self.current != "Watch" or view.sample is None:
            return True
        at = view.late or view.sample.taken_at
        figures: list[object] = [  # as a GPU's bar shows them
            (gpu.utilization, None if gpu.power_watts is None else round(gpu.power_watts), gpu.temperature_celsius)
            for gpu in view.sample.gpus
        ]
        if figures != self._figures:
            self._figures, self._stirred_at = figures, at
        return not 0 <= at - self._stirred_at < BEAT

    async def on_click(self, event: events.Click) -> None:
        x = len(self._program)
        for place, title in self._shown:
            x += len(title)
            if event.x < x:
                if event.x >= len(self._program):
                    await self.app.run_action(f"app.show('{place.name}')")
                return
        await self.app.run_action("app.problems")


def host_facts(host: Host) -> tuple[str, ...]:
    """Return the host's CPU, memory, load of the last minute and swap, as far as they are known."""

    def used(name: str, total: int | None, left: int | None) -> str:
        if not total or left is None:
            return ""
        return f"{name} {100 - 100 * left // total:2} % of {total / GIB:.0f} GiB"

    return (
        "" if host.cpu_percent is None else f"CPU {host.cpu_percent:2.0f} %",
        used("RAM", host.memory_total, host.memory_available),
        "" if host.load is None else f"load {host.load[0]:.1f}",
        used("swap", host.swap_total, host.swap_free) if host.swap_total != host.swap_free else "",
    )


def _brief(fact: str) -> str:
    return fact.partition(" of ")[0]


def name_those_down(hosts: Sequence[str], room: int) -> str:
    """Return the hosts that do not answer: as many names as fit, and the number of the others."""
    text = f" down: {printable(hosts[0])}"
    for at, host in enumerate(hosts[1:], 1):
        more = f", {printable(host)}"
        if cell_len(text) + cell_len(more) > room:
            return f"{text} and {len(hosts) - at} more "
        text += more
    return f"{text} "


def _right(view: View, palette: Palette, width: int, *, beats: bool) -> list[Piece]:
    pieces: list[Piece] = []
    if view.down:
        pieces.append((name_those_down(view.down, width // 4), palette.ink("error", "bar", bold=True)))
    if view.recording is not None:
        minutes, seconds = divmod(int(view.recording.seconds), 60)
        lost = f" ({view.recording.dropped} lost)" if view.recording.dropped else ""
        pieces.append((f" ● REC {minutes:02}:{seconds:02}{lost} ", palette.ink("error", "bar", bold=True)))
    if view.paused:
        pieces.append((" ‖ PAUSED ", palette.ink("background", "accent", bold=True)))
    if view.stale is not None:
        pieces.append((f" no answer for {format_duration(view.stale)} ", palette.ink("background", "error", bold=True)))
    if view.alerts:
        text = f" {len(view.alerts)} alert{'s' if len(view.alerts) > 1 else ''} "
        pieces.append((text, palette.ink("background", "warning", bold=True)))
    problems = problem_count(view)
    if problems:
        text = f"  {problems} problem{'s' if problems > 1 else ''}{'' if view.sample else ' '}"
        pieces.append((text, palette.ink("warning", "bar", bold=True)))
    if view.sample is not None:
        # Without seconds, which would be a tenth of the output. On an idle host the colon shows that the program runs.
        at = view.late or view.sample.taken_at
        colon = " " if beats and at // max(BEAT, view.interval) % 2 else ":"
        clock = time.strftime(f"%H{colon}%M", time.localtime(at))
        pieces.append((f"   {clock} ", palette.ink("foreground", "bar")))
    return pieces


def problem_count(view: View) -> int:
    """Return the number of paragraphs in the list of problems: a problem of several GPUs is one."""
    sample = view.sample
    lost = len({gpu.reason or gpu.state for gpu in sample.gpus if gpu.state != "ok"}) if sample is not None else 0
    count = len({(problem.message, problem.hint) for problem in sample.problems}) if sample is not None else 0
    return count + lost + len(view.notes) + bool(view.failure) + bool(view.history_error)


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
        """Return the screen's and the app's bindings with `show`, in order, without those that can do nothing now:
        refused in a view-only dashboard, of predictions in a pure monitor, of a preset or GPUs that are not there.
        """
        view, silent = self.view, frozenset[str | None]()
        view_only = view is not None and view.view_only
        if view is not None and (view.is_monitor or view.panel is None):
            silent = PREDICTING if view.is_monitor else STEPPING
        if view is not None and view.failure and view.sample is None:
            silent |= NEEDS_GPUS
        bindings = [active.binding for active in self.screen.active_bindings.values() if active.binding.show]
        shown = [
            one for one in bindings if not (one.system or one.id in silent or (view_only and is_refused(one.action)))
        ]
        if self._only is None:
            return shown
        order = {identity: at for at, identity in enumerate(self._only)}
        return sorted((one for one in shown if one.id in order), key=lambda one: order[one.id or ""])

    def part(self, view: View) -> object:
        """Return what decides the bindings, which take longest of all to find."""
        offered = [self.screen.check_action(name, ()) for name in ("page", "changes")]
        unread, facts = self.app.check_action("open_demo", ()), (view.view_only, view.is_monitor, view.panel is None)
        return self._notice, self.screen.focused, offered, unread, facts, bool(view.failure), view.sample is None

    def build(self, view: View, palette: Palette, width: int, height: int) -> list[Strip]:
        if self._notice is not None:
            self._spots = []
            severity, words = self._notice
            ink = palette.ink(SEVERITIES.get(severity, "foreground"), "bar", bold=True)
            if cell_len(words) > width - 2:
                words = re.sub(r"(?<![\w:/.])[~.]{0,2}/[^\s:;,()]+/([^\s:;,()/]+)", r"…/\1", words)
            return [strip([(f" {fit(words, width - 2)} ", ink)], width, ink)]
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
    return printable(f"{title}: {message}" if title else message)


class NoticeLine:
    """Shows the app's newest notification in the last line until its time is over, and all of them among alerts and
    errors (`!`); Textual's toasts would cover the table and the graph. Times are seconds since the epoch.
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


_wrapped = lru_cache(8)(lambda sentence, width: wrap(printable(sentence), width))  # the same at each sample


class Banner(Lines[View]):
    """Sentences above a screen: the demo, a driver that does not answer, a source that failed."""

    def build(self, view: View, palette: Palette, width: int, height: int) -> list[Strip]:
        inks = ((f" {line}", palette.ink(colour, "bar")) for line, colour in self.lines(view, width))
        return [strip([(line, style)], width, style) for line, style in inks][:height]

    def lines(self, view: View, width: int) -> list[tuple[str, str]]:
        """Return the lines of the sentences that fit whole, each with its colour; of the first as many as fit."""
        age = "" if view.stale is None else format_duration(view.stale)
        stale = age and f"no answer from {view.asked} for {age}; showing its last answer"
        lines: list[tuple[str, str]] = []
        for sentence, colour in ((view.failure or stale, "error"), (view.banner, "accent"), (view.hint, "primary")):
            more = [(line, colour) for line in _wrapped(sentence, width - 2)]
            lines += more if not lines or len(lines) + len(more) <= MOST_LINES else ()
        return lines[:MOST_LINES]


FRAME = (Header, Banner, KeyBar)  # around the panels of every screen, drawn from the shared View


class ViewScreen(CurrentSize, Screen[None]):
    """A screen whose `view` is set once a tick. Its frame draws that; its panels draw the result of `panels_view`.

    Attributes:
        PLACE: its name among the screens.
        PAGES: parts that a narrow terminal shows one at a time; the class `page-NAME` is that of the present one.
        FIRST_FOCUS: selector of the first focus.
        TYPES: letters and digits are typed there, whatever has the focus.
    """

    PLACE: ClassVar[str]
    PAGES: ClassVar[tuple[str, ...]] = ()
    FIRST_FOCUS: ClassVar[str] = ""
    TYPES: ClassVar[bool] = False

    view: reactive[View] = reactive(View(), init=False, repaint=False, always_update=True)

    def __init__(self) -> None:
        super().__init__(id=self.PLACE)
        if self.PAGES:
            self.add_class(f"page-{self.PAGES[0]}")
        self.palette: Palette | None = None
        self.frame: list[Any] = []
        self._panels: list[Any] = []  # each draws its part of a view

    def on_mount(self) -> None:
        """Show the present data, and focus the first panel."""
        widgets: list[Widget] = list(self.children)
        while widgets:  # the parts of a panel are its own
            widget = widgets.pop(0)
            if isinstance(widget, FRAME):
                self.frame.append(widget)
            elif hasattr(widget, "take"):
                self._panels.append(widget)
            else:
                widgets[:0] = widget.children
        self.watch_view(self.view)
        if self.FIRST_FOCUS:
            self.query(self.FIRST_FOCUS).first().focus()

    def take(self, view: View, palette: Palette) -> None:
        self.palette, self.view = palette, view  # in this order: a new view is drawn at once

    def watch_view(self, view: View) -> None:
        """Draw the view once the panels are mounted, and as long as they are."""
        if self.palette is not None and self.frame and self.is_attached:
            self.show(view, self.palette)

    def panels_view(self, view: View) -> object:
        return view

    def show(self, view: View, palette: Palette) -> None:
        own = self.panels_view(view)
        for part in self.frame:
            part.take(view, palette)
        for part in self._panels:
            part.take(own, palette)

    def put_away(self) -> None:
        """Prepare for another whole screen to be shown."""

    def on_resize(self) -> None:
        self.call_after_refresh(self.watch_view, self.view)

    def action_page(self) -> None:
        at = next(i for i, page in enumerate(self.PAGES) if self.has_class(f"page-{page}"))
        self.remove_class(f"page-{self.PAGES[at]}")
        self.add_class(f"page-{self.PAGES[(at + 1) % len(self.PAGES)]}")
        self.call_after_refresh(self.show_page)

    def show_page(self) -> None:
        """Draw the page, and focus the first panel again if the one with the focus is hidden."""
        self.watch_view(self.view)
        first = self.query(self.FIRST_FOCUS).first()
        if first.region and (self.focused is None or not self.focused.region):
            first.focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer the keys for pages only if not everything fits."""
        return action != "page" or (bool(self.PAGES) and self.has_class("-narrow"))
