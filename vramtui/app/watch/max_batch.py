"""The search for the panel's largest batch, carried on while there is nothing else to do."""

from vramtui.app.context import AppContext
from vramtui.app.feature import Feature
from vramtui.app.state.view import Panel
from vramtui.app.terminal.delayed_calls import call_after
from vramtui.monitor.predictor import MaxBatchSearch

# Seconds between two turns, which keys and drawing have for themselves.
BETWEEN = 0.01


class MaxBatchTurns(Feature):
    """Gives the search that the panel waits for its turns, and draws when it is over."""

    def __init__(self, shared: AppContext) -> None:
        self._shared = shared
        self._search: MaxBatchSearch | None = None

    @property
    def busy(self) -> bool:
        """While it searches."""
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
        if self._search.found is None:
            call_after(self._shared.app, BETWEEN, self._take_turn)
        else:
            self._search = None
            self._shared.redraw.now()
