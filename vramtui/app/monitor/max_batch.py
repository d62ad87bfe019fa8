"""The search for the panel's largest batch, carried on while there is nothing else to do."""

from vramtui.app.monitor.dashboard_base import DashboardBase
from vramtui.app.state import View
from vramtui.monitor.predictor import MaxBatchSearch

# Seconds between two turns, which keys and drawing have for themselves.
BETWEEN = 0.01


class MaxBatch(DashboardBase):
    """Gives a search that the panel waits for its turns, and draws when it is over."""

    _search: MaxBatchSearch | None = None

    @property
    def is_busy(self) -> bool:
        """While it searches."""
        return self._search is not None or super().is_busy

    def complete(self, view: View, place: str) -> View:
        """Begin where a search is left open."""
        view = super().complete(view, place)
        rests = self._search is None
        self._search = view.panel.search if view.panel is not None else None
        if rests and self._search is not None:
            self.set_timer(BETWEEN, self._search_on)
        return view

    def _search_on(self) -> None:
        """One turn. What no view asks for any more is left as it is."""
        if self._search is None:
            return
        self._search.go_on()
        if self._search.found is None:
            self.set_timer(BETWEEN, self._search_on)
        else:
            self._search = None
            self.draw()
