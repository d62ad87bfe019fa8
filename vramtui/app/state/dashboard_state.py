"""What is shown of a session, and everything a person has chosen: what the next View is made of. While the source as a
whole does not answer it is the latest reading, every GPU of it with its own age.
"""

from collections.abc import Mapping, Sequence

import msgspec

from vramtui.app.state.grouped_rows import GroupChoice
from vramtui.app.state.memory_series import series
from vramtui.app.state.row import ProcessRows, last_answer, rare_columns
from vramtui.app.state.run_fields import changes_of, first_of, step
from vramtui.app.state.sorted_rows import RowPredictions, SortedRows, arranged
from vramtui.app.state.view import SORT_COLUMNS, Panel, ProcessRow, RowId, SortColumn, View
from vramtui.app.state.view_builder import bars, device_for, panel, row_for_panel
from vramtui.core.estimate.devices import Device
from vramtui.core.observation.history import History
from vramtui.core.observation.readings import Gpu, ProcessKey, Sample
from vramtui.core.observation.snapshot import Snapshot
from vramtui.core.schema.preset import PresetFile
from vramtui.core.schema.settings import ColumnSettings
from vramtui.core.schema.workload import Workload
from vramtui.monitor.job_reports import Jobs
from vramtui.monitor.predictor import Predictor
from vramtui.monitor.session import MonitorSession

SPANS = (120, 600, 3600, 0)


def as_stale(latest: Sample, now: float, reason: str) -> Sample:
    """A sample of `now` (seconds since the epoch) in which no GPU answers, for this reason.

    A GPU that was lost already stays so. The readings stay too: rows are matched and estimates made by them. Whoever
    shows them finds by the state that they are old, and by the time of the last answer how old.
    """
    gpus = tuple(_silent(gpu, reason) if gpu.state == "ok" else gpu for gpu in latest.gpus)
    return msgspec.structs.replace(latest, taken_at=max(now, latest.taken_at), gpus=gpus)


def _silent(gpu: Gpu, reason: str) -> Gpu:
    return msgspec.structs.replace(gpu, state="failed", reason=reason)


# Of more processes than that the largest come first: by GPU, a table of ten rows shows those of the first one alone.
MANY = 32


class DashboardState:
    """Takes samples and choices, and answers with the View to draw. Knows no widget and no clock.

    Args:
        session: what is known of the host.
        hint: a line for somebody who is here for the first time.
        columns: the person's settings of the process table.
    """

    __slots__ = (
        "_auto_selected", "_chosen", "_frozen_order", "_is_sorted_by_hand", "_listing", "_paused_matches",
        "_previous_selected", "_rare", "_settings", "_shown", "_visible", "columns", "filter", "groups", "hint",
        "is_monitor", "panel_key", "paused", "planned", "reverse", "session", "sort", "span",
    )  # fmt: skip

    def __init__(self, session: MonitorSession, hint: str = "", columns: ColumnSettings | None = None) -> None:
        self.session = session
        self.paused, self.is_monitor, self.hint = False, False, hint
        self.panel_key: str | None = None
        self.planned: Device | None = None  # the card that Plan is about, where one was chosen
        self.span, self.reverse, self.filter = SPANS[0], False, ""
        self.sort: SortColumn = "gpu"
        self._is_sorted_by_hand = False
        self._settings = columns or ColumnSettings()
        self.columns: tuple[SortColumn, ...] = self._settings.processes or ()
        self._rare: frozenset[SortColumn] = frozenset()
        self.groups = GroupChoice(self._settings.group)
        # The order that rows keep while somebody looks at one of them.
        self._frozen_order: dict[RowId, int] | None = None
        self._shown: Sample | None = None
        self._listing: ProcessRows | None = None
        # The presets of the processes in what is shown, where that is not the latest sample.
        self._paused_matches: Mapping[ProcessKey, PresetFile] = {}
        # The row chosen by hand, the one with the cursor until one is, and (a filter may hide it) the last that had it.
        self._chosen: RowId | None = None
        self._auto_selected: RowId | None = None
        self._previous_selected: tuple[RowId, str | None] | None = None
        self._visible: SortedRows | None = None

    # --- what the session knows ----------------------------------------------------------------------------------

    @property
    def sample(self) -> Sample | None:
        return self.session.sample

    @property
    def history(self) -> History:
        return self.session.history

    @property
    def presets(self) -> dict[str, PresetFile]:
        """Those that are known, by key."""
        return self.session.presets

    @property
    def predictor(self) -> Predictor:
        return self.session.predictor

    @property
    def jobs(self) -> Jobs:
        return self.session.jobs

    # --- what comes in -------------------------------------------------------------------------------------------

    def watch(self, session: MonitorSession) -> None:
        """Show another host from now on. What a person chose of the table stays; rows were of the host before."""
        self.session, self.paused = session, False
        self._frozen_order = self._chosen = self._auto_selected = self._previous_selected = None
        self._visible = self._shown = self._listing = None
        if session.sample is not None:
            self._show(session.sample)

    def take(self, sample: Sample) -> None:
        """Note a sample. While paused it goes into the session only."""
        if self.paused and self._shown is self.sample:
            self._paused_matches = self.session.matched
        self.session.ingest(sample)
        if not self.paused or self._shown is None:
            self._show(self.sample or sample)  # the session's own says more: what could not be derived

    def mark_stale(self, now: float, reason: str) -> None:
        """Mark what is shown as old by `now` (seconds since the epoch); the history takes no sample."""
        if self.sample is not None and not self.paused:
            self._show(as_stale(self.sample, now, reason))

    def _show(self, sample: Sample) -> None:
        self._shown = sample
        if self.sort == "gpu" and not self._is_sorted_by_hand and sum(len(gpu.processes) for gpu in sample.gpus) > MANY:
            self.sort = "now"
        self._match_shown()
        whole = self._settings.bookkeeping
        before = self._listing.orders if self._listing is not None else None
        self._listing = ProcessRows(sample, self.history, self.history.answered, before, whole=whole)

    def take_presets(self, presets: tuple[PresetFile, ...]) -> None:
        """Know these presets from now on, beside one that was chosen by its path."""
        self.session.take_presets(presets)
        self._match_shown()

    def add_preset(self, preset_file: PresetFile) -> None:
        """Know one more preset; it stands in for another of the same key."""
        self.session.add_preset(preset_file)
        self._match_shown()

    def show_preset(self, preset_file: PresetFile) -> None:
        """Know a preset, and have it in the panel."""
        self.add_preset(preset_file)
        self.panel_key = preset_file.key

    # --- what a person chooses -----------------------------------------------------------------------------------

    def select(self, row: RowId, *, freeze: bool) -> None:
        """Choose a row; with `freeze` the rows keep their present order until `unfreeze_order`."""
        self._chosen = row
        if freeze and self._frozen_order is None:
            self._frozen_order = {one.id: at for at, one in enumerate(self._visible or ())}
        preset_file = self._matches.get(row) if isinstance(row, ProcessKey) else None
        if preset_file is not None:
            self.panel_key = preset_file.key

    def unfreeze_order(self) -> bool:
        """Sort again; the cursor stays with its row. False when it was not frozen."""
        was_frozen, self._frozen_order = self._frozen_order is not None, None
        return was_frozen

    def sort_by(self, column: SortColumn) -> None:
        """Sort by `column`; by the same one again: the other way round."""
        self.reverse = not self.reverse if column == self.sort else False
        self.sort, self._frozen_order, self._is_sorted_by_hand = column, None, True

    def sort_next(self, direction: int, columns: Sequence[SortColumn] = SORT_COLUMNS) -> None:
        """Sort by the column to the right (1) or left (-1) of the present one, among `columns` that are shown."""
        self.sort_by(columns[((columns.index(self.sort) if self.sort in columns else -1) + direction) % len(columns)])

    def set_filter(self, text: str) -> None:
        """Show only rows that hold every word of `text`."""
        self.filter, self._frozen_order = text, None

    def toggle_pause(self) -> bool:
        """Pause the display, or show the latest again; True when it is paused now."""
        self.paused = not self.paused
        if not self.paused and self.sample is not None:
            self._show(self.sample)
        return self.paused

    def toggle_monitor(self) -> bool:
        """Show only what is seen, the largest first, or predictions as well; True when it is only that now."""
        if not self.is_monitor and self.sort == "gpu":
            self.sort_by("now")
        self.is_monitor = not self.is_monitor
        return self.is_monitor

    def dismiss_hint(self) -> bool:
        """Take the line for newcomers away; False when there was none."""
        had, self.hint = bool(self.hint), ""
        return had

    def next_span(self) -> int:
        """The graph's next span in seconds; 0 is the time since the process started."""
        self.span = SPANS[(SPANS.index(self.span) + 1) % len(SPANS)]
        return self.span

    def assign(self, key: ProcessKey, preset: str | None, *, automatic: bool = False) -> None:
        """Say which preset a process runs (None: none), or leave it to the presets' own `[match]` again."""
        self.session.assign(key, preset, automatic=automatic)
        self._match_shown()
        self.panel_key = preset_file.key if (preset_file := self._matches.get(key)) is not None else self.panel_key

    def step(self, fields: tuple[str, ...], direction: int) -> bool:
        """Step the first of these fields that the panel's preset has; False where it has none of them."""
        preset_file = self.panel_preset()
        name = first_of(self.workload(preset_file), fields) if preset_file is not None else None
        if preset_file is None or name is None:
            return False
        self.session.variants[preset_file.key] = step(self.workload(preset_file), name, direction)
        return True

    def put(self, workload: Workload) -> None:
        """Make `workload` the panel's, as changes to its preset that `undo_steps` reverts."""
        preset_file = self.known_preset(self.panel_key or "")
        if preset_file is not None:
            self.session.variants[preset_file.key] = workload

    def undo_steps(self) -> bool:
        """Back to what the panel's preset file says; False when nothing had been changed."""
        return self.session.variants.pop(self.panel_key or "", None) is not None

    # --- what goes out -------------------------------------------------------------------------------------------

    def workload(self, preset_file: PresetFile) -> Workload:
        """The preset's workload with the changes made in the panel."""
        return self.session.workload(preset_file)

    @property
    def selected_process(self) -> ProcessKey | None:
        """The process of the row that somebody chose; None where it has none or has exited, or nobody chose one."""
        row = self._chosen_row()[1] if self._chosen is not None else None
        return row.id if row is not None and row.kind == "process" and isinstance(row.id, ProcessKey) else None

    def device(self) -> Device:
        """The card of the chosen row, for which estimates are made."""
        return device_for(self._chosen_row()[1], self._shown)

    def snapshot(self) -> Snapshot | None:
        """Everything about the moment that is shown; None before the first sample."""
        return None if self._shown is None else self.session.snapshot_of(self._shown, self._matches)

    def view(self) -> View:
        """The View of now, without what only the dashboard knows (staleness, banner)."""
        sample, listing, known = self._shown, self._listing, {} if self.is_monitor else self._matches
        if sample is None or listing is None:
            return View(panel=self._panel(None, []), hint=self.hint)
        predicted = RowPredictions(listing, known, self.session.estimate, self.session.is_quick)
        rows = self._visible = arranged(predicted, self.filter, self.sort, self._frozen_order, reverse=self.reverse)
        grouped = self.groups.take(
            rows, largest_first=self.sort == "now" and not self.reverse and self._frozen_order is None
        )
        (at, chosen), matched = self._follow(), predicted.matched
        self._rare = rare_columns(sample, matched, self._rare)
        shown = self._panel(chosen, matched)
        return View(
            sample=sample,
            rows=rows if grouped is None else grouped,
            total=sum(len(last_answer(sample, gpu, self.history.answered)[0].processes) for gpu in sample.gpus),
            totals=listing.totals,
            columns=self.columns,
            group=self.groups.by,
            predicts="predicted" in self._rare and not self.is_monitor,
            is_monitor=self.is_monitor,
            rare=self._rare,
            bars=bars(sample, matched, chosen.gpu if chosen else None, shown, self.history.answered),
            chosen=chosen,
            chosen_at=at,
            series=series(self.session, sample, chosen, shown, self.span),
            panel=shown,
            sort=self.sort,
            reverse=self.reverse,
            by_hand=self._chosen is not None,
            is_frozen=self._frozen_order is not None,
            filter=self.filter,
            paused=self.paused,
            hint=self.hint,
        )

    def _follow(self) -> tuple[int, ProcessRow | None]:
        """The row that the cursor is on. When that becomes another one, its preset is the panel's."""
        at, chosen = self._chosen_row()
        if chosen is None:
            return at, chosen
        row, preset = self._previous_selected or (chosen.id, chosen.preset)
        moved = chosen.id != row or self.panel_key == preset != chosen.preset  # more is known of the job by now
        if chosen.preset is not None and (moved or self.known_preset(self.panel_key or "") is None):
            self.panel_key = chosen.preset
        # Until presets are read, no row is the one to look at.
        if chosen.preset is not None or self._chosen is not None:
            self._previous_selected = chosen.id, chosen.preset
            is_there = self._listing and self._auto_selected and self._listing.has(self._auto_selected)
            if not is_there or self._chosen is not None:
                self._auto_selected = chosen.id
        return at, chosen

    def _chosen_row(self) -> tuple[int, ProcessRow | None]:
        """Which of the visible rows is the chosen one, and the row; (0, None) where there is none."""
        if not self._visible:
            return 0, None
        wanted = self._chosen if self._chosen is not None else self._auto_selected
        at = self._visible.selected_index(wanted, self.jobs)
        row = self.groups.find(wanted, self._visible[at].id)
        return (at, self._visible[at]) if row is None else row

    @property
    def _matches(self) -> Mapping[ProcessKey, PresetFile]:
        """The preset of each process in what is shown that has one."""
        return self.session.matched if self._shown is self.sample else self._paused_matches

    def _match_shown(self) -> None:
        if self._shown is not None and self._shown is not self.sample:
            self._paused_matches = self.session.match(self._shown)

    def known_preset(self, key: str) -> PresetFile | None:
        """The preset called so: of a file, or derived from a process that is shown."""
        return self.presets.get(key) or next((one for one in self._matches.values() if one.key == key), None)

    def panel_preset(self) -> PresetFile | None:
        """The panel's preset, with the values of the process that it is set beside."""
        matched = self._visible.predicted.matched if self._visible is not None else []
        return self._panel_row(self._chosen_row()[1], matched)[0]

    def _panel_row(
        self, chosen: ProcessRow | None, matched: list[ProcessRow]
    ) -> tuple[PresetFile | None, ProcessRow | None]:
        preset_file = self.known_preset(self.panel_key or "")
        if preset_file is None:
            return None, chosen
        row = row_for_panel(preset_file.key, chosen, matched)
        own = self._matches.get(row.id) if row is not None and isinstance(row.id, ProcessKey) else None
        return (own if own is not None and own.key == preset_file.key else preset_file), row

    def _panel(self, chosen: ProcessRow | None, matched: list[ProcessRow]) -> Panel | None:
        chosen_panel, row = self._panel_row(chosen, matched)
        if chosen_panel is None or self.is_monitor:
            return None
        workload = self.workload(chosen_panel)
        changed = changes_of(workload, chosen_panel.preset.workload)
        return panel(chosen_panel, workload, row=row, sample=self._shown, session=self.session, changed=changed)
