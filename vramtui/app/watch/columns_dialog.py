"""The window for the columns of the process table, which shows each choice at once."""

from collections.abc import Callable, Collection

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.content import Content
from textual.widgets import SelectionList
from textual.widgets.selection_list import Selection

from vramtui.app.context import AppContext
from vramtui.app.state.view import SORT_COLUMNS, SortColumn
from vramtui.app.ui.chooser import CheckList
from vramtui.app.ui.dialog import Window

TITLES: dict[SortColumn, tuple[str, str]] = {
    "pid": ("PID", "process id"),
    "gpu": ("GPU", "its index, and the size of a MIG instance"),
    "user": ("USER", "whose it is"),
    "type": ("TYPE", "C compute, G graphics"),
    "now": ("NOW", "GPU memory, as the driver reports it"),
    "peak": ("PEAK", "the most seen of it"),
    "predicted": ("PREDICT", "what its preset or derived estimate says"),
    "delta": ("Δ", "peak against prediction"),
    "sm": ("SM %", "GPU busy: time with kernels on it"),
    "cpu": ("CPU %", "of a core"),
    "host": ("RAM", "host memory"),
    "time": ("TIME", "how long it runs"),
    "job": ("JOB", "job of several ranks, Slurm job, or container"),
    "command": ("COMMAND", "the whole command line"),
}


class ColumnsDialog(Window[tuple[SortColumn, ...]]):
    """Dismissed with the columns to keep, empty for as many as the width allows; or None for no change."""

    BINDINGS = [
        Binding("ctrl+s,enter", "keep", "Keep", id="columns.keep", show=False, priority=True),
        Binding("a", "automatic", "As the width allows", id="columns.automatic", show=False),
    ]

    def __init__(
        self,
        shown: Collection[SortColumn],
        asked: tuple[SortColumn, ...],
        show: Callable[[tuple[SortColumn, ...]], None],
    ) -> None:
        super().__init__("Columns", "Space toggle · a automatic · Enter keep · Esc cancel")
        self._shown, self._asked, self._show = shown, asked, show
        self._automatic = not asked

    def inside(self) -> ComposeResult:
        yield CheckList[SortColumn](
            *(
                Selection(
                    Content.assemble((f"{TITLES[name][0]:<9}", "bold"), (TITLES[name][1], "$muted")),
                    name,
                    initial_state=name in self._shown,
                )
                for name in SORT_COLUMNS
            )
        )

    def on_mount(self) -> None:
        self.query_one(SelectionList).focus()

    def on_selection_list_selection_toggled(self, event: events.Event) -> None:
        event.stop()
        self._automatic = False
        self._show(self._chosen_columns())

    def _chosen_columns(self) -> tuple[SortColumn, ...]:
        """Return the chosen columns in the order asked for, then in the table's; at least one."""
        chosen = set(self.query_one(SelectionList).selected)
        before = tuple(name for name in self._asked if name in chosen)
        return before + tuple(name for name in SORT_COLUMNS if name in chosen and name not in before) or ("command",)

    def action_automatic(self) -> None:
        self._show(())
        self.dismiss(())

    def action_keep(self) -> None:
        self.dismiss(() if self._automatic else self._chosen_columns())

    def action_close(self) -> None:
        self._show(self._asked)
        self.dismiss(None)


def choose_columns(shared: AppContext, shown: Collection[SortColumn]) -> None:
    """Ask for the columns of the process table, now `shown`, and keep the answer in the settings."""
    state = shared.state

    def show(columns: tuple[SortColumn, ...]) -> None:
        state.columns = columns
        shared.redraw.now()

    def on_choice(columns: tuple[SortColumn, ...] | None) -> None:
        if columns is not None:
            show(columns)
            shared.keep({"columns.processes": columns or None})

    shared.app.push_screen(ColumnsDialog(shown, state.columns, show), on_choice)
