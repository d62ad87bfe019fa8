"""Features without a screen: reading the presets, recording, and alerts on the screen, by bell, desktop notification or
a command.
"""

import os
import subprocess
import threading
from collections.abc import Iterable
from functools import partial

import msgspec

from vramtui.app.context import AppContext, Feature, PresetsRead
from vramtui.app.state.view import RecordingStatus
from vramtui.core.base.text import printable
from vramtui.core.observation.alerts import PREDICTED, Alert
from vramtui.core.observation.readings import Sample
from vramtui.core.schema.settings import AlertRules, Kind
from vramtui.monitor.jobs import Presets
from vramtui.monitor.writers import RecorderThread, RecordingFactory


class PresetReader(Feature):
    """Lists the presets on a thread once the first sample or failure is on the screen, then posts PresetsRead."""

    __slots__ = ("_app", "_begun", "_presets", "_state")

    def __init__(self, shared: AppContext, presets: Presets) -> None:
        self._app, self._state, self._presets, self._begun = shared.app, shared.state, presets, False

    def on_sample(self, sample: Sample | None = None) -> None:
        """Begin the first time, unless predictions are off."""
        del sample
        if not self._begun and not self._state.is_monitor:
            self._begun = True
            thread = threading.Thread(target=self._read, name="read presets", daemon=True)
            self._app.call_after_refresh(thread.start)

    def _read(self) -> None:
        self._app.post_message(PresetsRead(self._presets, self._presets.problems))


LEAVING = 1.0  # seconds for ending the file while the dashboard ends


class RecordingFeature(Feature):
    """Records between two presses of the key; `last_words` are printed after the dashboard has left the terminal."""

    __slots__ = ("_shared", "_thread", "factory", "last_words")

    def __init__(self, shared: AppContext, factory: RecordingFactory | None) -> None:
        self._shared = shared
        self.factory = factory
        self._thread: RecorderThread | None = None
        self.last_words = ""

    def toggle(self) -> None:
        if self.factory is None:
            self._shared.app.notify("Only live data can be recorded.")
        elif self._shared.state.sample is None:
            self._shared.app.notify("Nothing to record yet.")
        elif self._thread is not None:
            self._thread.finish()
            self._thread = None
        else:
            ended = partial(self._shared.app.call_later, self._ended)
            self._thread = RecorderThread(self.factory, self._shared.interval, ended)
            self._thread.start()
            self.on_sample(self._shared.state.sample)
        self._shared.redraw.now()

    def on_sample(self, sample: Sample) -> None:
        if self._thread is not None:
            self._thread.put(self._shared.state.session.recorded_tick())

    def status(self) -> RecordingStatus | None:
        """Return the length of the recording; None without one."""
        thread, sample = self._thread, self._shared.state.sample
        if thread is None or sample is None:
            return None
        passed = max(0.0, sample.taken_at - (sample.taken_at if thread.began is None else thread.began))
        return RecordingStatus(passed, thread.dropped)

    def close(self) -> None:
        """End the file, if that does not take long."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.finish()
            thread.join(LEAVING)
            if thread.where:
                cut = " (not ended: the disk does not answer)" if thread.is_alive() else ""
                self.last_words = f"vramtui: recorded in {thread.where}{cut}\n"

    def _ended(self, thread: RecorderThread) -> None:
        if self._thread is thread:
            self._thread = None
        notify = self._shared.app.notify
        if thread.problem:
            written = f" What was written so far is in {thread.where}." if thread.written else ""
            notify(f"{thread.problem}.{written}", title="Recording ended", severity="error")
        elif thread.written:
            lost = f" · {thread.dropped} dropped: the disk was too slow" if thread.dropped else ""
            words = f"{thread.where}\n{thread.written} samples{lost}"
            notify(words, title="Recording written", timeout=8)
        self._shared.redraw.now()


LIMIT = 30.0  # seconds that a command may take


TITLES: dict[Kind, str] = {
    "will_not_fit": "It will not fit",
    "growth": "Memory grows",
    "over": "Above the prediction",
    "held_by_exited": "Memory not freed",
    "lost": "GPU lost",
    "xid": "Error of the driver",
    "out_of_memory": "Out of memory",
}


def without_predicted(alerts: Iterable[Alert], *, is_monitor: bool) -> tuple[Alert, ...]:
    return tuple(alert for alert in alerts if not (is_monitor and alert.kind in PREDICTED))


class AlertFeature(Feature):
    """Reports new alerts in the ways that `rules` name."""

    __slots__ = ("_rules", "_shared")

    def __init__(self, shared: AppContext, rules: AlertRules) -> None:
        self._shared, self._rules = shared, rules

    def mute(self) -> None:
        """Report alerts only on the screen, as for a recording."""
        self._rules = msgspec.structs.replace(self._rules, bell=False, notification=False, command=None)

    def on_sample(self, sample: Sample) -> None:
        state = self._shared.state
        self.say(without_predicted(state.session.new_alerts, is_monitor=state.is_monitor))

    def say(self, alerts: Iterable[Alert]) -> None:
        """Report new alerts; those of one kind are one notice on the screen."""
        app, rules = self._shared.app, self._rules
        kinds: dict[Kind, list[Alert]] = {}
        for alert in alerts:
            kinds.setdefault(alert.kind, []).append(alert)
            if rules.command:
                threading.Thread(target=_run, args=(rules.command, alert), name="alert", daemon=True).start()
        for kind, same in kinds.items():
            sentence = same[0].sentence
            if len(same) > 1:
                indices = ", ".join(map(str, sorted({alert.gpu_index for alert in same})))
                sentence = f"{len(same)} at once, on GPU {indices}. The first: {sentence} (! lists all)"
            app.notify(sentence, title=TITLES[kind], severity="warning", timeout=10)
            driver = app._driver  # noqa: SLF001 - Textual has no public way to write to the terminal
            if rules.notification and driver is not None and not app.is_headless:
                driver.write(f"\x1b]9;vramtui: {printable(sentence)}\x07")
        if kinds and rules.bell:
            app.bell()


def _run(command: str, alert: Alert) -> None:
    """Run the user's command, without output: the screen belongs to the dashboard."""
    environment = {**os.environ, "VRAMTUI_ALERT": printable(alert.sentence), "VRAMTUI_ALERT_KIND": alert.kind}
    try:
        subprocess.run(  # noqa: S602 - a line of the user's own settings file
            command,
            shell=True,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=LIMIT,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return
