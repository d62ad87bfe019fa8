"""The first line: which host, and how fresh what is shown is."""

import time
from collections.abc import Sequence

from rich.cells import cell_len
from textual import events
from textual.strip import Strip

from vramtui.app.keys import FLEET, SCREENS, ScreenEntry
from vramtui.app.state.view import View
from vramtui.app.themes import Palette
from vramtui.app.ui.lines import Lines, Piece, between, fit
from vramtui.core.base.text import printable
from vramtui.core.base.units import format_duration
from vramtui.core.observation.readings import Gpu
from vramtui.core.observation.source import DRIVER

NAME = " vramtui "
LONGEST_HOST = 20  # of a name for which the screens give way
BEAT = 10.0  # seconds for which the clock's colon stands, and then does not


class Header(Lines[View]):
    """The screens, host, driver and interval at the left; pause, staleness, problems and the time at the right."""

    def __init__(self, current: str = "Watch") -> None:
        super().__init__()
        self.current = current
        self._shown: list[tuple[ScreenEntry, str]] = []
        self._figures: list[object] = []
        self._stirred_at = 0.0

    def build(self, view: View, palette: Palette, width: int, height: int) -> list[Strip]:
        del height
        bar = palette.ink("foreground", "bar")
        end = _right(view, palette, width, beats=self._is_still(view))
        room = width - sum(cell_len(text) for text, _ in end) - 1
        self._shown = _titled(view, self.current, room - len(NAME))
        return [between(_left(view, palette, self.current, self._shown, room), end, width, bar)]

    def _is_still(self, view: View) -> bool:
        """Whether nothing else on the screen has told for a while that the program goes on."""
        if self.current != "Watch" or view.sample is None:
            return True
        at, figures = view.late or view.sample.taken_at, [_figures(gpu) for gpu in view.sample.gpus]
        if figures != self._figures:
            self._figures, self._stirred_at = figures, at
        return not 0 <= at - self._stirred_at < BEAT

    async def on_click(self, event: events.Click) -> None:
        """A click on a screen's name shows it; elsewhere it shows the problems."""
        x = len(NAME)
        for place, title in self._shown:
            x += len(title)
            if event.x < x:
                if event.x >= len(NAME):
                    await self.app.run_action(f"app.show('{place.name}')")
                return
        await self.app.run_action("app.problems")


def _figures(gpu: Gpu) -> object:
    """What changes most in a GPU's bar, as it is shown there."""
    watts = None if gpu.power_watts is None else round(gpu.power_watts)
    return gpu.utilization, watts, gpu.temperature_celsius


def _host_name(view: View) -> str:
    """The host as it was asked for, by an alias of ssh's perhaps; this machine by its own name."""
    own = "" if view.sample is None else view.sample.host.name
    return printable(own if view.asked == DRIVER else view.asked)


def _screens(view: View) -> tuple[ScreenEntry, ...]:
    return (*SCREENS, FLEET) if view.has_fleet else SCREENS


def _titled(view: View, current: str, room: int) -> list[tuple[ScreenEntry, str]]:
    """The screens as they are shown in `room` columns: by key and name or, where the host's name would find no room
    beside them, all but the current one by their keys.
    """
    places = _screens(view)
    whole = [(place, f" {place.key} {place.title} ") for place in places]
    host = 0 if view.sample is None else min(LONGEST_HOST, cell_len(_host_name(view))) + 2
    if sum(len(title) for _, title in whole) + host <= room:
        return whole
    return [(place, title if place.title == current else f" {place.key} ") for place, title in whole]


def _left(
    view: View, palette: Palette, current: str, shown: Sequence[tuple[ScreenEntry, str]], room: int
) -> list[Piece]:
    """Name and screens, then the host and what else is known of it, as far as each fits whole."""
    name: Piece = (NAME, palette.ink("primary", "bar", bold=True))
    dim = palette.ink("muted", "bar")
    screens = [name]
    for place, title in shown:
        style = palette.ink("tab", "cursor", bold=True) if place.title == current else dim
        screens.append((title, style))
    if view.sample is None:
        return screens
    host = view.sample.host
    facts = [
        f"driver {printable(host.driver_version)}" if host.driver_version else "",
        f"CUDA {printable(host.cuda_version)}" if host.cuda_version else "",
        f"{view.interval:g} s",
    ]
    room -= sum(cell_len(text) for text, _ in screens)
    name_shown = _host_name(view)
    host_name = fit(f"  {name_shown}", min(room, 2 + cell_len(name_shown)))
    screens.append((host_name, palette.ink("foreground", "bar", bold=True)))
    room -= cell_len(host_name)
    for fact in filter(None, facts):
        text = f" · {fact}"
        if cell_len(text) > room:
            break
        screens.append((text, dim))
        room -= cell_len(text)
    return screens


def name_those_down(hosts: Sequence[str], room: int) -> str:
    """The hosts that do not answer: as many by name as there is room for, and how many more."""
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
        text = f"  {problems} problem{'s' if problems > 1 else ''}"
        pieces.append((text, palette.ink("warning", "bar", bold=True)))
    if view.sample is not None:
        # Without seconds: they would be a tenth of what is sent, and what is late says so itself. On a host where
        # nothing happens the colon tells a program that goes on from one that was stopped.
        at = view.late or view.sample.taken_at
        colon = " " if beats and at // max(BEAT, view.interval) % 2 else ":"
        clock = time.strftime(f"%H{colon}%M", time.localtime(at))
        pieces.append((f"   {clock} ", palette.ink("foreground", "bar")))
    return pieces


def problem_count(view: View) -> int:
    """How many paragraphs the problems list has to show: what several GPUs have in common is one."""
    sample = view.sample
    lost = len({gpu.reason or gpu.state for gpu in sample.gpus if gpu.state != "ok"}) if sample is not None else 0
    count = len({(problem.message, problem.hint) for problem in sample.problems}) if sample is not None else 0
    return count + lost + len(view.notes) + bool(view.failure) + bool(view.history_error)
