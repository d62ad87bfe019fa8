"""Presets, read once there is something to see."""

import threading

from vramtui.app.context import AppContext
from vramtui.app.feature import Feature
from vramtui.app.messages import PresetsRead
from vramtui.core.observation.readings import Sample
from vramtui.monitor.session import Presets


class PresetReader(Feature):
    """Reads every preset on a thread, once the first sample is on the screen; then posts PresetsRead."""

    def __init__(self, shared: AppContext, presets: Presets) -> None:
        self._app = shared.app
        self._state = shared.state
        self._presets = presets
        self._begun = False

    def on_sample(self, sample: Sample) -> None:
        """Begin at the first, unless nothing is to be predicted."""
        del sample
        if not self._begun and not self._state.is_monitor:
            self._begun = True
            self._app.call_after_refresh(self._read)

    def _read(self) -> None:
        def read() -> None:
            self._app.post_message(PresetsRead(self._presets.all(), self._presets.problems))

        threading.Thread(target=read, name="read presets", daemon=True).start()
