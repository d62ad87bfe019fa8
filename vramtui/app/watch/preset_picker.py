"""The list of presets with a filter: to estimate one, or to say which of them a process runs."""

from time import thread_time

from rich.cells import cell_len
from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from vramtui.app.state.dashboard_state import DashboardState
from vramtui.app.terminal.delayed_calls import call_after
from vramtui.app.ui.chooser import Chooser
from vramtui.core.base.text import printable
from vramtui.core.base.units import format_bytes
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.fits import fits_in
from vramtui.core.schema.preset import PresetFile

# No preset's key: keys are stems of files.
NONE = "/none"
AUTOMATIC = "/automatic"
NAME_MOST = 31
# Seconds of work that estimates may take of one turn, and that keys and drawing have between two.
BUDGET, BETWEEN = 0.01, 0.01


class PresetChooser(Chooser):
    """Dismissed with a preset's key, NONE or AUTOMATIC; None when nothing was chosen.

    Args:
        desk: knows the presets and their estimates.
        title: what is asked.
        device: the card that the totals are for.
        matching: offer also no preset, and the automatic match.
    """

    DEFAULT_CSS = """
    PresetChooser > #window { width: 116; }
    """

    def __init__(self, desk: DashboardState, title: str, device: Device, *, matching: bool = False) -> None:
        super().__init__(title)
        self._desk = desk
        self._device = device
        self._matching = matching
        self._waiting: set[str] = set()

    def on_mount(self) -> None:
        """Fill in totals as their lines come into sight."""
        self.watch(self.query_one(OptionList), "scroll_y", self._fill, init=False)

    def fill(self, wanted: str) -> None:
        """List what holds every word; totals follow for the lines that are seen."""
        options = self.query_one(OptionList)
        options.clear_options()
        if self._matching and not wanted:
            options.add_option(Option(Content("automatic: matched by the presets' [match]"), AUTOMATIC))
            options.add_option(Option(Content("none: no preset"), NONE))
        words = wanted.lower().split()
        found = [preset for preset in self._desk.presets.values() if _holds(preset, words)]
        self._waiting = {preset.key for preset in found if not self._is_known(preset)}
        options.add_options(Option(self._line(preset), preset.key) for preset in sorted(found, key=lambda p: p.key))
        if not options.option_count:
            options.add_option(Option(Content("no preset matches"), disabled=True))
        options.highlighted = 0
        self.call_after_refresh(self._fill)

    def _is_known(self, found: PresetFile) -> bool:
        return self._desk.predictor.knows_total(self._desk.workload(found), self._device)

    def _fill(self) -> None:
        """Put totals into the lines that are seen, for a moment; then again, until all of them have theirs."""
        found = self.query(OptionList)
        if not found:
            return  # closed meanwhile
        options = found.first()
        first = options.scroll_offset.y
        seen = options.options[first : first + options.size.height]
        waiting = [option.id for option in seen if option.id is not None and option.id in self._waiting]
        over = thread_time() + BUDGET
        for at, key in enumerate(waiting):
            self._waiting.discard(key)
            options.replace_option_prompt(key, self._line(self._desk.presets[key]))
            if thread_time() > over and at < len(waiting) - 1:
                call_after(self, BETWEEN, self._fill)
                return

    def _line(self, found: PresetFile) -> Content:
        """The preset's line; with dots for its total where that is not known yet and somebody else has to ask."""
        workload, waits = self._desk.workload(found), found.key in self._waiting
        process = None if waits else self._desk.predictor.total(workload, self._device)
        total = "…" if waits else format_bytes(process) if process is not None else "no estimate"
        fits = process is None or fits_in(process, self._device.total_memory)
        key = printable(found.key)[:NAME_MOST]
        mine = "" if found.bundled else " (yours)"
        own = printable(
            f"{found.preset.name}{mine} · {found.preset.notes}" if found.preset.notes else found.preset.name + mine
        )
        pad = " " * (NAME_MOST - cell_len(key))
        return Content.assemble(
            (key, "bold"),
            pad,
            (f"{total:>12}", "$prediction" if fits else "$error"),
            "  " if fits else " ✗",
            f"  {own}",
        )


def _holds(found: PresetFile, words: list[str]) -> bool:
    text = f"{found.key} {found.preset.name} {found.preset.notes}".lower()
    return all(word in text for word in words)
