"""The Watch screen: GPUs, processes, the memory of the chosen one, and the estimate of a preset."""

from collections.abc import Callable
from typing import NamedTuple

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container, Vertical

from vramtui.app.context import AppContext, FieldStepped, GpuChosen, ListScreen, ask, why_no_preset
from vramtui.app.keys import WATCH_BINDINGS
from vramtui.app.state.dashboard_state import SPANS
from vramtui.app.state.view import SortColumn, View
from vramtui.app.themes import Palette
from vramtui.app.ui.graph import MemoryGraph
from vramtui.app.ui.view_screen import Banner, Header, KeyBar
from vramtui.app.watch.estimate_panel import EstimatePanel, has_panel
from vramtui.app.watch.gpu_panel import GpuPanel
from vramtui.app.watch.process_table import ProcessTable, Rows
from vramtui.app.watch.signals import SignalController
from vramtui.core.base.units import format_duration
from vramtui.core.observation.readings import ProcessKey

WIDE, VERY_WIDE = 112, 170
MEDIUM, TALL = 28, 42
MEDIUM_GRAPH = 10
# Rows of header, keys, two frames, a heading and a foot; least rows of the processes, and of the GPUs.
AROUND_LISTS, LEAST_ROWS, LEAST_GPUS = 8, 8, 5
LOW_GRAPH = 8  # least rows of the graph in a low terminal
BESIDE = {VERY_WIDE: 68, WIDE: 44, 0: 0}


class WatchQuestions(NamedTuple):
    """Windows of other features that keys of this screen open: formats of snapshots, and tracing the chosen process."""

    snapshot_options: Callable[[], None]
    trace_process: Callable[[], None]


class Watch(ListScreen):
    """Everything observed now. Wide terminals show all panels, and `v` folds the estimate away; narrow and low ones
    show some of them, and `v` turns pages.
    """

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide"), (VERY_WIDE, "-very-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-low"), (MEDIUM, "-medium"), (TALL, "-tall")]
    BINDINGS = [*WATCH_BINDINGS, Binding("up,k", "row(-1)", show=False), Binding("down,j", "row(1)", show=False)]
    PLACE = "watch"
    PAGES = ("processes", "estimate", "memory")
    FIRST_FOCUS = "Rows"
    FILTER = "words in any column, or user:anna gpu:0 pid:123 preset:llama cmd:train"

    def __init__(self, shared: AppContext, signals: SignalController, questions: WatchQuestions) -> None:
        super().__init__(shared, shared.state)
        self._state = shared.state
        self.action_snapshot_options, self.action_trace_process = questions  # two keys' actions
        self.action_signal, self.action_copy_pid = signals.ask, signals.copy_pid
        self.action_copy_command = signals.copy_command

    def compose(self) -> ComposeResult:
        yield Header()
        yield Banner()
        with Container(id="body"):
            with Vertical(id="left"):
                yield GpuPanel(id="gpus")
                yield ProcessTable(id="table")
                yield MemoryGraph(id="graph")
            yield EstimatePanel(id="estimate")
        yield KeyBar()

    def show(self, view: View, palette: Palette) -> None:
        """Give banner and GPUs the lines they need, with a layout only if that changed, then draw."""
        self.set_class(not has_panel(view), "-no-panel")
        banner, gpus = self.query_one(Banner), self.query_one(GpuPanel)
        width, height = self.app.size
        above = len(banner.lines(view, width))
        _set_height(banner, above, border=0)
        is_beside = has_panel(view) and not self.has_class("-folded")
        panel_width = next(taken for least, taken in BESIDE.items() if width >= least) if is_beside else 0
        most = max(2, (height - 4) * 2 // 5)
        if height >= MEDIUM:  # the processes keep their rows
            graph = MEDIUM_GRAPH if height < TALL else height * 3 // 10
            most = min(most, max(LEAST_GPUS, height - AROUND_LISTS - graph - LEAST_ROWS))
        if self.has_class("-narrow") and self.has_class("page-estimate"):
            most = min(most, LEAST_GPUS)
        lines = gpus.lines_for(view, width - panel_width - 2, most)
        _set_height(gpus, lines, border=2)
        used = lines + above + len(view.rows) + AROUND_LISTS
        self.set_class(used + LOW_GRAPH <= height, "-roomy")
        if view.is_monitor and self.has_class("page-estimate"):
            self.remove_class("page-estimate").add_class("page-processes")
        super().show(view, palette)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer `v` in a wide terminal only with an estimate."""
        folds = action == "page" and not self.has_class("-narrow")
        return not self.has_class("-no-panel") if folds else super().check_action(action, parameters)

    def action_page(self) -> None:
        """Turn the page; in a wide terminal fold or show the estimate."""
        if self.has_class("-narrow"):
            super().action_page()
            if self._state.is_monitor and self.has_class("page-estimate"):
                super().action_page()
        else:
            self.toggle_class("-folded")
            self.call_after_refresh(self.show_page)

    def action_row(self, step: int) -> None:
        self.query_one(Rows).action_move(step)

    def on_gpu_chosen(self, message: GpuChosen) -> None:
        row = next((row for row in self._state.view().rows if row.gpu.uuid == message.uuid), None)
        if row is not None:
            self._state.choose(row.id)
            self._shared.redraw.now()

    def action_sort(self, direction: int) -> None:
        self._state.sort_next(direction, self.query_one(ProcessTable).column_names())
        self._shared.redraw.now()

    def action_let_go(self) -> None:
        """Remove the hint; then unfreeze the order; then clear the filter."""
        state = self._state
        if not state.dismiss_hint() and not state.unfreeze_order() and state.filter:
            state.set_filter("")
        self._shared.redraw.now()

    def on_field_stepped(self, message: FieldStepped) -> None:
        self._state.step((message.field,), message.direction)
        self._shared.redraw.for_key()

    def action_span(self) -> None:
        span = self._state.span = SPANS[(SPANS.index(self._state.span) + 1) % len(SPANS)]
        self.notify(f"Graph: {format_duration(span) if span else 'since start'}", timeout=2)
        self._shared.redraw.now()

    def action_match(self) -> None:
        from vramtui.app.watch.preset_picker import AUTOMATIC, NONE, PresetChooser

        state, row = self._state, self._state.view().chosen
        if state.is_monitor:
            self.notify(why_no_preset(state))
            return
        if row is None or not isinstance(row.id, ProcessKey) or row.process is None:
            self.notify("Select a process first: only processes can run a preset.")
            return
        process: ProcessKey = row.id

        def take(key: str) -> None:
            state.assign(process, None if key == NONE else key, automatic=key == AUTOMATIC)
            self._shared.redraw.now()

        title = f"Which preset does pid {row.process.pid} run? Sizes are as its job runs it"
        ask(self.app, PresetChooser(state, title, self._shared.recent_presets, row), take)

    def action_what_fits(self) -> None:
        from vramtui.app.watch.preset_picker import ModelsChooser
        from vramtui.monitor.what_fits import preset_that_fits, room_on

        state = self._state
        row, gpus = state.view().chosen, state.sample.gpus if state.sample is not None else ()
        gpu = row.gpu if row is not None else next(iter(gpus), None)
        room = None if gpu is None or state.is_monitor else room_on(gpu)
        if room is None:
            self.notify(why_no_preset(state) if state.is_monitor else "Its free memory is unknown.")
            return
        chooser = ModelsChooser(room)

        def take(name: str) -> None:
            state.show_preset(preset_that_fits(chooser.question, chooser.fits[name]))
            self._shared.redraw.now()

        ask(self.app, chooser, take)

    def action_group(self) -> None:
        self._state.groups.next()
        self._shared.redraw.now()

    def action_tree(self) -> None:
        self._state.groups.by = "none" if self._state.groups.by == "tree" else "tree"
        self._shared.redraw.now()

    def action_monitor(self) -> None:
        self._state.is_monitor = not self._state.is_monitor
        self._shared.redraw.now()

    def action_columns(self) -> None:
        from vramtui.app.watch.windows import ColumnsDialog  # loads the list widgets

        def show(columns: tuple[SortColumn, ...]) -> None:
            self._state.columns = columns
            self._shared.redraw.now()

        def keep(columns: tuple[SortColumn, ...]) -> None:
            show(columns)
            self._shared.keep({"columns.processes": columns or None})

        ask(self.app, ColumnsDialog(self.query_one(ProcessTable).column_names(), self._state.columns, show), keep)

    def action_fold(self, opened: bool) -> None:
        chosen = self._state.view().chosen
        if chosen is not None and self._state.groups.toggle(chosen.id, opened=opened):
            self._shared.redraw.now()

    def action_details(self) -> None:
        from vramtui.app.watch.windows import details_of

        self.app.push_screen(details_of(self._shared, self._state.view()))

    async def action_enter_row(self) -> None:
        """Open or close the selected group; save a preset derived for a process; else show details."""
        state = self._state
        chosen = state.view().chosen
        if chosen is not None and state.groups.toggle(chosen.id):
            self._shared.redraw.now()
            return
        preset_file = state.known_preset(chosen.preset) if chosen is not None and chosen.preset is not None else None
        if preset_file is None or not preset_file.derived:
            self.action_details()
            return
        state.panel_key = preset_file.key
        await self.run_action("app.edit")

    def action_explain(self) -> None:
        from vramtui.app.watch.windows import Explain

        panel = self._state.view().panel
        if panel is None:
            self.notify(why_no_preset(self._state))
        else:
            self.app.push_screen(Explain(panel))


def _set_height(widget: Banner | GpuPanel, lines: int, *, border: int) -> None:
    wanted = lines + border if lines else 0
    current = widget.styles.height
    if current is None or current.value != wanted or not current.is_cells:
        widget.styles.height = wanted
    if widget.display != bool(wanted):
        widget.display = bool(wanted)
