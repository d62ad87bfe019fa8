"""The dashboard: what the keys, the mouse and the command palette can ask for."""

from collections.abc import Iterable, Mapping
from typing import Any

from textual.app import SystemCommand
from textual.screen import Screen

from vramtui.app import messages
from vramtui.app.editor.controller import EditorController
from vramtui.app.export.controller import ExportController
from vramtui.app.help.bindings import commands
from vramtui.app.history.calibration import CalibrationControl
from vramtui.app.keys import APP_BINDINGS
from vramtui.app.monitor.fast_sampling import FastSampling
from vramtui.app.monitor.max_batch import MaxBatch
from vramtui.app.monitor.recorder import RecordingControl
from vramtui.app.monitor.run_writer import RunWriting
from vramtui.app.plan.controller import PlanController
from vramtui.app.replay.controller import ReplayController
from vramtui.app.signals.controller import SignalController
from vramtui.app.terminal.closed_screens import ClosedScreens
from vramtui.app.themes import THEMES
from vramtui.app.timeline.controller import TraceController
from vramtui.app.watch.run_fields import LENGTHS, SIZES
from vramtui.app.windows import InfoDialogs
from vramtui.core.base.units import format_duration
from vramtui.core.observation.readings import ProcessKey

INTERRUPTED = 130


class Dashboard(
    EditorController,
    ReplayController,
    RecordingControl,
    RunWriting,
    CalibrationControl,
    ExportController,
    TraceController,
    PlanController,
    SignalController,
    FastSampling,
    MaxBatch,
    ClosedScreens,
    InfoDialogs,
):
    """The terminal dashboard: see `Watching` for what it takes. Each action changes the desk and draws."""

    BINDINGS = APP_BINDINGS

    @staticmethod
    def check_keys(keys: Mapping[str, str]) -> None:
        """See that the settings' keys are of this program.

        Raises:
            UserError: one of the names is no binding's.
        """
        if keys:
            from vramtui.app.help.sections import check_keys  # noqa: PLC0415 - not needed for the first paint

            check_keys(keys)

    # --- leaving -------------------------------------------------------------------------------------------------

    async def action_quit(self) -> None:
        """Leave with exit code 0."""
        if not self.asks_first(0):
            self.go(0)

    def action_interrupt(self) -> None:
        """Ctrl-C: leave with the code that shells give to an interrupted program."""
        if not self.asks_first(INTERRUPTED):
            self.go(INTERRUPTED)

    def go(self, code: int) -> None:
        """End the process where this is a process of its own; else (in tests) only the app."""
        if self.leave is not None:
            self.leave(code)
        self.stop_reading()
        self.exit(return_code=code)

    # --- the table -----------------------------------------------------------------------------------------------

    def on_row_chosen(self, message: messages.RowChosen) -> None:
        """A row was chosen by hand."""
        self.desk.choose(message.row, hold=True)
        self.draw_for_key()

    def on_gpu_chosen(self, message: messages.GpuChosen) -> None:
        """Choose the first row of a GPU."""
        view = self.desk.view()
        row = next((row for row in view.rows if row.gpu.uuid == message.uuid), None)
        if row is not None:
            self.desk.choose(row.id, hold=True)
            self.draw()

    def on_sort_chosen(self, message: messages.SortChosen) -> None:
        """A heading was clicked."""
        self.desk.sort_by(message.column)
        self.draw()

    def action_sort(self, direction: int) -> None:
        """Sort by the next column."""
        self.desk.sort_next(direction)
        self.draw()

    def action_reverse(self) -> None:
        """The other way round."""
        self.desk.sort_by(self.desk.sort)
        self.draw()

    def action_filter(self) -> None:
        """Ask for the text that rows must hold."""
        from vramtui.app.ui.filter_bar import FilterBar  # noqa: PLC0415 - loads Input, not needed for the first paint

        screen = self.watch_screen
        if screen is not None and not screen.query(FilterBar):
            screen.mount(FilterBar(self.desk.filter), before="KeyBar")

    def on_filter_typed(self, message: messages.FilterTyped) -> None:
        """Show the rows that hold the text."""
        self.desk.set_filter(message.text)
        self.draw()

    def action_let_go(self) -> None:
        """Give up the hint; then the held order; then the filter."""
        if not self.dismiss_hint() and not self.desk.let_go() and self.desk.filter:
            self.desk.set_filter("")
        self.draw()

    def action_pause(self) -> None:
        """Pause the display; of a recording, the playback."""
        if self.playback is not None:
            self.action_replay_toggle()
            return
        self.desk.toggle_pause()
        self.draw()

    # --- estimate ------------------------------------------------------------------------------------------------

    def on_field_stepped(self, message: messages.FieldStepped) -> None:
        """A stepper was used."""
        self.desk.step((message.field,), message.direction)
        self.draw_for_key()

    def action_step_size(self, direction: int) -> None:
        """One sequence or sample less or more at once."""
        self._step(SIZES, direction)

    def action_step_length(self, direction: int) -> None:
        """Shorter or longer sequences."""
        self._step(LENGTHS, direction)

    def _step(self, fields: tuple[str, ...], direction: int) -> None:
        if self.desk.panel_key is None:
            self.notify("Choose a preset first: p", markup=False)
            return
        if not self.desk.step(fields, direction):
            what = "batch size" if fields is SIZES else "sequence length"
            self.notify(f"This preset's run has no {what} to step; Tab and arrows step its other fields.", markup=False)
        self.draw_for_key()

    def action_undo(self) -> None:
        """What the preset's file says."""
        self.desk.undo_steps()
        self.draw()

    def action_presets(self) -> None:
        """Choose the preset in the panel."""
        from vramtui.app.watch.preset_picker import PresetChooser  # noqa: PLC0415 - loads the list widgets

        def chosen(key: str | None) -> None:
            if key is not None:
                self.desk.panel_key = key
                self.draw()

        self.push_screen(PresetChooser(self.desk, "Choose a preset", self.desk.device()), chosen)

    def action_match(self) -> None:
        """Assign a preset to the selected process."""
        from vramtui.app.watch.preset_picker import AUTOMATIC, NONE, PresetChooser  # noqa: PLC0415 - as above

        row = self.desk.view().chosen
        if row is None or not isinstance(row.id, ProcessKey) or row.process is None:
            self.notify("Select a process first: only processes can run a preset.", markup=False)
            return
        process: ProcessKey = row.id

        def chosen(key: str | None) -> None:
            if key is None:
                return
            self.desk.assign(process, None if key == NONE else key, automatic=key == AUTOMATIC)
            self.draw()

        title = f"Which preset does pid {row.process.pid} run?"
        self.push_screen(PresetChooser(self.desk, title, self.desk.device(), matching=True), chosen)

    def action_span(self) -> None:
        """The graph's next time span."""
        span = self.desk.next_span()
        self.notify(f"Graph: {format_duration(span) if span else 'since start'}", timeout=2, markup=False)
        self.draw()

    def action_next_theme(self) -> None:
        """Dark, light, the terminal's own."""
        names = [theme.name for theme in THEMES]
        at = names.index(self.theme) if self.theme in names else -1
        self.theme = names[(at + 1) % len(names)]

    def action_redraw(self) -> None:
        """Something else wrote on the terminal."""
        self.forget_frame()
        self.screen.refresh()

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """Every action with a name, for the command palette."""
        yield from commands(self)
        yield from (
            command for command in super().get_system_commands(screen) if command.title in ("Theme", "Screenshot")
        )
