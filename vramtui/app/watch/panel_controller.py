"""The preset of the estimate panel, which all screens share: chosen, stepped, and with the largest batch that fits."""

from vramtui.app.context import AppContext, Feature, why_no_preset
from vramtui.app.state.run_fields import LENGTHS, SIZES, first_of
from vramtui.app.state.view import Panel
from vramtui.app.terminal.delayed_calls import call_after
from vramtui.app.watch.estimate_panel import EstimatePanel, panel_fit
from vramtui.core.base.units import UNKNOWN, format_bytes
from vramtui.monitor.predictor import MaxBatchSearch

FIELDS = {"batch size": SIZES, "sequence length": LENGTHS}


class PanelController:
    """What the keys of several screens do to the panel."""

    __slots__ = ("_app", "_shared", "_state")

    def __init__(self, shared: AppContext) -> None:
        self._shared = shared
        self._app = shared.app
        self._state = shared.state

    def choose_preset(self) -> None:
        from vramtui.app.watch.preset_picker import PresetChooser  # loads the list widgets

        if self._state.is_monitor:
            self._app.notify(why_no_preset(self._state), markup=False)
            return

        def on_choice(key: str | None) -> None:
            if key is not None:
                self._state.panel_key = key
                self._shared.used(key)
                self._shared.redraw.now()

        recent = self._shared.recent_presets
        self._app.push_screen(PresetChooser(self._state, "Choose a preset", recent), on_choice)

    def step(self, what: str, direction: int) -> None:
        """Step the `batch size` or the `sequence length` up (1) or down (-1)."""
        if self._state.panel_key is None:
            self._app.notify(why_no_preset(self._state), markup=False)
            return
        if not self._state.step(FIELDS[what], direction):
            sentence = f"This preset's run has no {what} to step; Tab and arrows step its other fields."
            self._app.notify(sentence, markup=False)
        elif any(not shown.display for shown in self._app.screen.query(EstimatePanel)):
            self._say_what_if(what)
        self._shared.redraw.for_key()

    def _say_what_if(self, what: str) -> None:
        """Say in a line what the panel shows, which is another page in a narrow terminal."""
        panel = self._state.view().panel
        if panel is None or panel.estimate is None:
            return
        size = getattr(panel.workload.run, first_of(panel.workload, FIELDS[what]) or "", UNKNOWN)
        fit, where = panel_fit(panel, panel.estimate)
        # Not yet simulated, so no verdict.
        needs = f"about {format_bytes(fit.needs)} of {format_bytes(fit.has)} on {where}"
        self._app.notify(f"What if {what} {size}: {needs} (v shows the estimate)", markup=False)

    def undo(self) -> None:
        """What the preset's file says."""
        self._state.undo_steps()
        self._shared.redraw.now()


# Seconds between two turns, which keys and drawing have for themselves.
BETWEEN = 0.01


class MaxBatchTurns(Feature):
    """Gives the search that the panel waits for its turns, and draws when it is over."""

    __slots__ = ("_search", "_shared")

    def __init__(self, shared: AppContext) -> None:
        self._shared = shared
        self._search: MaxBatchSearch | None = None

    @property
    def busy(self) -> bool:
        return self._search is not None

    def follow(self, panel: Panel | None) -> None:
        """Begin where the panel's search is left open; one that no panel asks for any more is left as it is."""
        rests = self._search is None
        self._search = panel.search if panel is not None else None
        if rests and self._search is not None:
            call_after(self._shared.app, BETWEEN, self._take_turn)

    def _take_turn(self) -> None:
        if self._search is None:
            return
        self._search.go_on()
        if self._search.largest is None:
            call_after(self._shared.app, BETWEEN, self._take_turn)
        else:
            self._search = None
            self._shared.redraw.now()
