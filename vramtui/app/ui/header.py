"""The first line: screens and host at the left, warnings and the time at the right."""

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
from vramtui.core.observation.source import DRIVER

NAME = " vramtui "
LONGEST_HOST = 20  # columns of a host's name that are kept free for it
BEAT = 10.0  # seconds for which the clock's colon is shown, and then hidden


class Header(Lines[View]):
    """The screens, host, driver and interval at the left; pause, staleness, problems and the time at the right."""

    def __init__(self, current: str = "Watch") -> None:
        super().__init__()
        self.current = current
        self._shown: list[tuple[ScreenEntry, str]] = []
        self._figures: list[object] = []
        self._stirred_at = 0.0

    def build(self, view: View, palette: Palette, width: int, height: int) -> list[Strip]:
        """Screens are shown by key and name; if the host's name would not fit, all but the current one by key. Host,
        driver and interval are shown as far as each fits whole.
        """
        del height
        end = _right(view, palette, width, beats=self._is_still(view))
        room = width - sum(cell_len(text) for text, _ in end) - 1
        sample, dim = view.sample, palette.ink("muted", "bar")
        # The host as the user named it, perhaps by an alias of ssh; this machine by its own name.
        own = "" if sample is None else sample.host.name
        host_name = printable(own if view.asked == DRIVER else view.asked)
        places = (*SCREENS, FLEET) if view.has_fleet else SCREENS
        self._shown = [(place, f" {place.key} {place.title} ") for place in places]
        reserved = 0 if sample is None else min(LONGEST_HOST, cell_len(host_name)) + 2
        if sum(len(title) for _, title in self._shown) + reserved > room - len(NAME):
            self._shown = [
                (place, title if place.title == self.current else f" {place.key} ") for place, title in self._shown
            ]
        pieces: list[Piece] = [(NAME, palette.ink("primary", "bar", bold=True))]
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
                f" · driver {printable(host.driver_version)}" if host.driver_version else "",
                f" · CUDA {printable(host.cuda_version)}" if host.cuda_version else "",
                f" · {view.interval:g} s",
            )
            for fact in filter(None, facts):
                if cell_len(fact) > room:
                    break
                pieces.append((fact, dim))
                room -= cell_len(fact)
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
        x = len(NAME)
        for place, title in self._shown:
            x += len(title)
            if event.x < x:
                if event.x >= len(NAME):
                    await self.app.run_action(f"app.show('{place.name}')")
                return
        await self.app.run_action("app.problems")


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
        text = f"  {problems} problem{'s' if problems > 1 else ''}"
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
