"""The state of the dashboard: a session, and everything the user chose. Each View is made from it.

While the source does not answer, it shows the latest reading, every GPU with its own age.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from vramtui.app.state import rows as state_rows
from vramtui.app.state.run_fields import changes_of, first_of, step
from vramtui.app.state.view import SORT_COLUMNS, GpuBar, Layers, Panel, ProcessRow, RowId, Series, SortColumn, View
from vramtui.core.base.text import printable_line
from vramtui.core.base.units import GIB, MIB, QUICK, format_duration
from vramtui.core.estimate.devices import CARDS, DEFAULT_CARD, Device
from vramtui.core.estimate.estimate import Estimate, Ledger, Line
from vramtui.core.estimate.fits import compare
from vramtui.core.observation.history import Curve, Track
from vramtui.core.observation.probe_messages import FIRST_STEPS
from vramtui.core.observation.readings import Gpu, Memory, ProcessKey, Sample
from vramtui.core.observation.snapshot import Snapshot, device_of, observed_ledger
from vramtui.core.schema.preset import PresetFile
from vramtui.core.schema.settings import ColumnSettings
from vramtui.core.schema.workload import Workload
from vramtui.monitor.jobs import PARTS, Jobs, Presets, find_job, observed_beside
from vramtui.monitor.predictor import MaxBatchSearch
from vramtui.monitor.session import MonitorSession

HEADROOM = 1.08
_CEILINGS = tuple(size * MIB for size in (64, 128, 256, 512, 768)) + tuple(
    size * GIB for size in (1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 80, 96, 128, 160, 192, 256, 384, 512)
)
# The parts that a process holds from its first step to its end.
LASTING: tuple[Line, ...] = ("weights", "optimizer", "master_weights", "kv_cache")


def series(
    session: MonitorSession, sample: Sample, chosen: ProcessRow | None, shown: Panel | None, span: int
) -> Series | None:
    """Return the chosen process's memory over the last `span` seconds (0: since it was first seen), with its predicted
    peak and that of the changes in the panel `shown`.
    """
    track = session.history.tracks.get(chosen.id) if chosen is not None and isinstance(chosen.id, ProcessKey) else None
    if chosen is None or track is None:
        return None
    age, what_if, estimate = chosen.age or 0.0, None, None
    end = sample.taken_at - age if track.gone_at is None else min(sample.taken_at, track.gone_at)
    start = end - span if span else track.first_seen
    times, values = track.times, track.values
    seen = _between(times, start, end)
    if shown is not None and chosen.preset == shown.preset.key:
        estimate = shown.matched or shown.traced or shown.estimate
        if shown.matched is not None and shown.estimate is not None:
            what_if = shown.estimate.process
    busy = session.history.gauges.get(chosen.gpu.uuid, {}).get("utilization")
    who = "pod" if track.process.pid < 0 else f"pid {track.process.pid}"
    return Series(
        title=" · ".join(filter(None, (who, printable_line(track.process.command_or_name or "")))),
        times=times[seen],
        values=values[seen],
        start=start,
        end=max(end, start + 1),
        predicted=chosen.predicted,
        ceiling=ceiling(max(chosen.peak or 0, chosen.predicted or 0, what_if or 0), chosen.gpu.memory.total),
        what_if=what_if,
        mark=QUICK if shown is not None and shown.is_rough else "",
        ends=(f"{format_duration(end - start + age)} ago", f"{format_duration(age)} ago") if age else None,
        layers=_layers(session.job_memory.of(track.process, chosen.gpu), estimate, track, start, end),
        expected=_expected(session, track, chosen, estimate),
        busy=None if busy is None else _within(busy, start, end),
    )


def ceiling(highest: int, total: int | None) -> int:
    """Return the top of the graph's scale in bytes: a round size above `highest`, or the card's total if that is near;
    never more than twice the card.

    It depends only on the peak and the prediction, so the scale does not move while the memory goes up and down.
    """
    wanted = highest * HEADROOM
    least = next((int(size) for size in _CEILINGS if size >= wanted), int(wanted))
    return least if total is None else total if highest <= total < least else min(least, 2 * total)


def _between(times: Sequence[float], start: float, end: float) -> slice:
    """Return the changes from `start` to `end`, and the one before them, which still held at `start`."""
    return slice(max(0, bisect_right(times, start) - 1), bisect_right(times, end))


def _within(curve: Curve, start: float, end: float) -> tuple[Sequence[float], tuple[Sequence[int], ...]]:
    there = _between(curve.times, start, end)
    return curve.times[there], tuple(values[there] for values in curve.values)


def _layers(curve: Curve | None, estimate: Estimate | None, track: Track, start: float, end: float) -> Layers | None:
    """Return the parts that the job reported while it was this process (pids are used again), or else the lasting parts
    of an estimate.
    """
    if curve is not None:
        times, values = _within(curve, max(start, track.first_seen), end)
        if len(times):
            return Layers(PARTS, times, values, "context", "as the job reports")
    if estimate is None:
        return None
    lasting = [(line, size) for line in LASTING if (size := estimate.ledger.bytes_of(line) or 0)]
    if not lasting:
        return None
    names, sizes = tuple(line for line, _ in lasting), tuple((size,) for _, size in lasting)
    by = "dry run" if estimate.method == "traced" else "estimated"
    return Layers(names, (track.first_seen,), sizes, "used", f"as {by}")


def _expected(
    session: MonitorSession, track: Track, chosen: ProcessRow, estimate: Estimate | None
) -> tuple[tuple[float, int], ...]:
    """Return the predicted bytes with the time from which they hold, for each phase of the first steps that the job
    reported; what the allocator reserved does not go back to the driver.
    """
    owner = find_job(session.jobs, track.process.pid, chosen.gpu.uuid)
    if owner is None or estimate is None or not estimate.timeline or not estimate.allocated:
        return ()
    (job, device), reserved = owner, estimate.reserved or estimate.allocated
    outside = estimate.process - reserved
    by_phase: dict[tuple[int, str], int] = {}
    for moment in estimate.timeline:
        peak = moment.peak_reserved
        if peak is None:
            peak = moment.peak_allocated * reserved // estimate.allocated
        key = moment.step, moment.phase
        by_phase[key] = max(by_phase.get(key, 0), peak + outside)
    began, most, steps = track.first_seen, 0, []
    for end in job.moments:
        if end.device != device or end.step >= FIRST_STEPS:
            continue
        most = max(most, by_phase.get((end.step, end.phase), 0))
        steps.append((began, most))
        began = end.at
    return (*steps, (began, estimate.process)) if steps else ()


SPANS = (120, 600, 3600, 0)


class DashboardState:
    """Takes samples and the user's choices, and returns the View to draw. It knows no widget and no clock."""

    __slots__ = (
        "_chosen", "_followed", "_frozen_order", "_listing", "_paused_matches", "_rare", "_settings", "_shown",
        "_visible", "columns", "filter", "groups", "hint", "is_monitor", "panel_key", "paused", "planned", "reverse",
        "session", "sort", "span",
    )  # fmt: skip

    def __init__(self, session: MonitorSession, hint: str = "", columns: ColumnSettings | None = None) -> None:
        self.session = session
        self.paused, self.is_monitor, self.hint = False, False, hint
        self.panel_key: str | None = None
        self.planned: Device | None = None  # the card chosen in Plan
        self.span, self.reverse, self.filter = SPANS[0], False, ""
        self.sort: SortColumn = "now"
        self._settings = columns or ColumnSettings()
        self.columns: tuple[SortColumn, ...] = self._settings.processes or ()
        self._rare: frozenset[SortColumn] = frozenset()
        self.groups = state_rows.GroupChoice(self._settings.group)
        self._frozen_order: dict[RowId, int] | None = None  # the order that rows keep while the user looks at one
        self._shown: Sample | None = None
        self._listing: state_rows.ProcessRows | None = None
        self._paused_matches: Mapping[ProcessKey, PresetFile] = {}  # of the shown sample, if it is not the latest
        # The row chosen by hand, and the preset of the last row with the cursor.
        self._chosen: RowId | None = None
        self._followed: str | None = None
        self._visible: state_rows.SortedRows | None = None

    @property
    def sample(self) -> Sample | None:
        return self.session.sample

    def watch(self, session: MonitorSession) -> None:
        """Show another host. Choices for the table stay; rows belonged to the former host."""
        self.session, self.paused = session, False
        self._frozen_order = self._chosen = self._followed = None
        self._visible = self._shown = self._listing = None
        if session.sample is not None:
            self._show(session.sample)

    def take(self, sample: Sample) -> None:
        """Take a sample. While paused it goes only into the session."""
        if self.paused and self._shown is self.sample:
            self._paused_matches = self.session.matched
        self.session.ingest(sample)
        if not self.paused or self._shown is None:
            self._show(self.sample or sample)  # the session's own has more problems: models that were not derived

    def mark_stale(self, now: float, reason: str) -> None:
        """Show the latest sample as one of `now` (seconds since the epoch) in which no GPU answers.

        The readings stay, so that rows are matched and estimated; the state of each GPU says that they are old. The
        history takes no sample.
        """
        latest = self.sample
        if latest is not None and not self.paused:
            gpus = tuple(
                replace(gpu, state="failed", reason=reason) if gpu.state == "ok" else gpu for gpu in latest.gpus
            )
            self._show(replace(latest, taken_at=max(now, latest.taken_at), gpus=gpus))

    def _show(self, sample: Sample) -> None:
        self._shown = sample
        self._match_shown()
        whole = self._settings.bookkeeping
        self._listing = state_rows.ProcessRows(sample, self.session.history, self.session.history.answered, whole=whole)

    def take_presets(self, presets: tuple[PresetFile, ...], library: Presets | None = None) -> None:
        """Add these presets and those of `library`; a preset chosen by its path stays."""
        self.session.take_presets(presets, library)
        self._match_shown()

    def add_preset(self, preset_file: PresetFile) -> None:
        self.session.add_preset(preset_file)
        self._match_shown()

    def show_preset(self, preset_file: PresetFile) -> None:
        self.add_preset(preset_file)
        self.panel_key = preset_file.key

    def choose(self, row: RowId) -> None:
        """Choose a row; the rows keep their present order until `unfreeze_order`."""
        self._chosen = row
        if self._frozen_order is None:
            ids = () if self._visible is None else self._visible.ids()
            self._frozen_order = {identity: at for at, identity in enumerate(ids)}
        preset_file = self._matches.get(row) if isinstance(row, ProcessKey) else None
        if isinstance(row, ProcessKey):
            self.panel_key = None if preset_file is None else preset_file.key
            self._followed = self.panel_key

    def unfreeze_order(self) -> bool:
        """Sort again; the cursor stays with its row. False if the order was not frozen."""
        was_frozen, self._frozen_order = self._frozen_order is not None, None
        return was_frozen

    def sort_by(self, column: SortColumn) -> None:
        """Sort by `column`; by the same one again, reverse the order."""
        self.reverse = not self.reverse if column == self.sort else False
        self.sort, self._frozen_order = column, None

    def sort_next(self, direction: int, columns: Sequence[SortColumn] = SORT_COLUMNS) -> None:
        """Sort by the column to the right (1) or left (-1), among the `columns` shown."""
        self.sort_by(columns[((columns.index(self.sort) if self.sort in columns else -1) + direction) % len(columns)])

    def set_filter(self, text: str) -> None:
        self.filter, self._frozen_order = text, None

    def toggle_pause(self) -> bool:
        """Pause the display, or show the latest sample again; return whether it is paused now."""
        self.paused = not self.paused
        if self.paused and self._listing is not None:
            self._listing.hold()
        elif self.sample is not None:
            self._show(self.sample)
        return self.paused

    def dismiss_hint(self) -> bool:
        """Remove the line for new users; False if there was none."""
        had, self.hint = bool(self.hint), ""
        return had

    def assign(self, key: ProcessKey, preset: str | None, *, automatic: bool = False, whole: bool = False) -> None:
        """Assign a preset to a process (None: none), or leave it to the presets' own `[match]` again."""
        self.session.assign(key, preset, automatic=automatic, whole=whole)
        self._match_shown()
        self.panel_key = preset_file.key if (preset_file := self._matches.get(key)) is not None else self.panel_key

    def step(self, fields: tuple[str, ...], direction: int) -> bool:
        """Step the first of these fields that the panel's preset has; False if it has none of them."""
        preset_file = self.panel_preset()
        name = first_of(self.workload(preset_file), fields) if preset_file is not None else None
        if preset_file is None or name is None:
            return False
        self.session.variants[preset_file.key] = step(self.workload(preset_file), name, direction)
        return True

    def put(self, workload: Workload) -> None:
        """Make `workload` the variant of the panel's preset, until `undo_steps`."""
        preset_file = self.known_preset(self.panel_key or "")
        if preset_file is not None:
            self.session.variants[preset_file.key] = workload

    def undo_steps(self) -> bool:
        """Return to the panel's preset as saved; False if nothing was changed."""
        return self.session.variants.pop(self.panel_key or "", None) is not None

    def workload(self, preset_file: PresetFile) -> Workload:
        return self.session.workload(preset_file)

    @property
    def selected_process(self) -> ProcessKey | None:
        """The process of the row chosen by hand; None without a running one."""
        row = self._chosen_row()[1] if self._chosen is not None else None
        return row.id if row is not None and row.kind == "process" and isinstance(row.id, ProcessKey) else None

    def device(self) -> Device:
        return device_for(self._chosen_row()[1], self._shown)

    def snapshot(self) -> Snapshot | None:
        """Return everything about the moment shown; None before the first sample."""
        return None if self._shown is None else self.session.snapshot_of(self._shown, self._matches)

    def view(self) -> View:
        """Return the View of now, without what only the dashboard knows (staleness, banner)."""
        sample, listing, known = self._shown, self._listing, {} if self.is_monitor else self._matches
        if sample is None or listing is None:
            return View(panel=self._panel(None), hint=self.hint)
        answered = self.session.history.answered
        predicted = state_rows.RowPredictions(listing, known, self.session.estimate, self.session.is_quick)
        by = (self.sort, self.reverse)
        rows = self._visible = state_rows.arranged(predicted, self.filter, by, self._frozen_order, self._visible)
        largest_first = self.sort == "now" and not self.reverse and self._frozen_order is None
        grouped = self.groups.take(rows, largest_first=largest_first)
        (at, chosen), matched = self._chosen_row(), predicted.matched
        # When the cursor or its row's preset changes, that preset is the panel's: none without one.
        if chosen is not None:
            if self.panel_key == self._followed:
                self.panel_key = chosen.preset
            self._followed = chosen.preset
        self._rare = state_rows.rare_columns(sample, matched, self._rare)
        shown = self._panel(chosen)
        is_unknown = shown is None and not self.is_monitor and chosen is not None and chosen.kind == "process"
        return View(
            sample=sample, rows=rows if grouped is None else grouped,
            total=sum(len(state_rows.last_answer(sample, gpu, answered)[0].processes) for gpu in sample.gpus),
            totals=listing.totals, columns=self.columns, group=self.groups.by,
            predicts="predicted" in self._rare and not self.is_monitor, is_monitor=self.is_monitor, rare=self._rare,
            bars=bars(sample, matched, chosen.gpu if chosen else None, shown, answered), chosen=chosen, chosen_at=at,
            series=series(self.session, sample, chosen, shown, self.span), panel=shown,
            reason=self.session.why_unmatched(chosen.process) if is_unknown and chosen and chosen.process else "",
            sort=self.sort, reverse=self.reverse, by_hand=self._chosen is not None,
            is_frozen=self._frozen_order is not None, filter=self.filter, paused=self.paused, hint=self.hint,
        )  # fmt: skip

    def _chosen_row(self) -> tuple[int, ProcessRow | None]:
        """Return the place and row of the chosen one among the visible rows; (0, None) without rows."""
        if not self._visible:
            return 0, None
        at = self._visible.selected_index(self._chosen)
        row = self.groups.find(self._chosen, self._visible[at].id)
        return (at, self._visible[at]) if row is None else row

    @property
    def _matches(self) -> Mapping[ProcessKey, PresetFile]:
        """The preset of each process in the sample shown that has one."""
        return self.session.matched if self._shown is self.sample else self._paused_matches

    def _match_shown(self) -> None:
        if self._shown is not None and self._shown is not self.sample:
            self._paused_matches = self.session.match(self._shown)

    def known_preset(self, key: str) -> PresetFile | None:
        """Return the preset with that key: from a file, or derived from a process that is shown."""
        return self.session.presets.get(key) or next((one for one in self._matches.values() if one.key == key), None)

    def panel_preset(self) -> PresetFile | None:
        """Return the panel's preset: with the values of the chosen process if that runs it."""
        chosen = self._chosen_row()[1]
        own = self._matches.get(chosen.id) if chosen is not None and isinstance(chosen.id, ProcessKey) else None
        return own if own is not None and own.key == self.panel_key else self.known_preset(self.panel_key or "")

    def _panel(self, chosen: ProcessRow | None) -> Panel | None:
        preset_file = self.panel_preset()
        if preset_file is None or self.is_monitor:
            return None
        workload = self.workload(preset_file)
        changed = changes_of(workload, preset_file.preset.workload)
        return panel(preset_file, workload, row=chosen, sample=self._shown, session=self.session, changed=changed)


def bars(
    sample: Sample,
    rows: Iterable[ProcessRow],
    chosen: Gpu | None,
    panel: Panel | None,
    answered: Mapping[str, tuple[float, Gpu]],
) -> tuple[GpuBar, ...]:
    """Return a bar for every GPU and MIG instance."""
    growth: dict[str, int] = {}
    running: set[tuple[str | None, str]] = set()
    for row in rows:
        if row.predicted is not None and row.kind == "process":
            growth[row.gpu.uuid] = growth.get(row.gpu.uuid, 0) + max(0, row.predicted - (row.now or 0))
            running.add((row.preset, row.gpu.uuid))
    if panel is not None and panel.estimate is not None and panel.process is None and panel.gpu is not None:
        uuid = panel.gpu.uuid
        if (panel.preset.key, uuid) not in running:
            growth[uuid] = growth.get(uuid, 0) + panel.estimate.process
    shown = []
    for gpu in sample.gpus:
        is_chosen = chosen is not None and chosen.uuid == gpu.uuid
        if gpu.state != "ok" and gpu.uuid in answered:
            at, last = answered[gpu.uuid]
            shown.append(GpuBar(gpu, None, is_chosen, last, sample.taken_at - at))
        else:
            used, grows = gpu.memory.used, growth.get(gpu.uuid)
            shown.append(GpuBar(gpu, None if used is None or grows is None else used + grows, is_chosen))
    return tuple(shown)


def panel(
    preset_file: PresetFile,
    workload: Workload,
    *,
    row: ProcessRow | None,
    sample: Sample | None,
    session: MonitorSession,
    changed: frozenset[str],
) -> Panel:
    """Return the estimate panel for a preset on the GPU of `row`, with the process of `row` if that runs the preset."""
    gpu, device = row.gpu if row is not None else _first_gpu(sample), device_for(row, sample)
    own = row if row is not None and row.preset == preset_file.key else None
    process = own.process if own is not None else None
    predictor = session.predictor
    guess = None if process is None else session.guesses.range_of(preset_file, device)
    if guess is not None and not changed:
        return Panel(preset_file, workload, gpu, device, process=process, guess=guess, peak=row.peak if row else None)
    traced, answer = predictor.traced(workload, device), predictor.ask(workload, device)
    estimate = answer.estimate or traced
    search: MaxBatchSearch | None = predictor.largest_batch(workload, device)
    batch, is_quick = None, False
    if search is not None and search.largest is not None:
        batch, is_quick = predictor.nearer_batch(workload, device, search.largest)
        search = None
    now = own.now if own is not None else None
    comparison = matched = room = None
    if changed and guess is None:
        saved = preset_file.preset.workload
        matched = predictor.ask(saved, device).estimate or predictor.traced(saved, device)
    if estimate is not None:
        observed = row_ledger(session.jobs, own) if own is not None else Ledger()
        comparison = compare(preset_file.key, matched or estimate, observed, now)
    memory = gpu.memory if gpu is not None else Memory()
    if memory.unified and memory.free is not None:
        room = memory.free + (now or 0)
    elif memory.total is not None and memory.used is not None:
        room = memory.total - (memory.reserved or 0) - memory.used + (now or 0)
    return Panel(
        preset=preset_file,
        workload=workload,
        gpu=gpu,
        device=device,
        estimate=estimate,
        comparison=comparison,
        process=process,
        changed=changed,
        room=room,
        batch=batch,
        search=search,
        is_quick=is_quick,
        problem=answer.problem,
        traced=traced,
        rules=predictor.rules(workload, device),
        matched=matched,
        guess=guess,
        is_rough=estimate is not None and predictor.is_quick(workload, device),
        is_known_rough=predictor.is_quick(workload if matched is None else preset_file.preset.workload, device),
    )


def row_ledger(jobs: Jobs, row: ProcessRow) -> Ledger:
    """Return the observed memory of a row's process: its peak from the driver, and the job's own report."""
    return observed_ledger(row.peak) if row.process is None else observed_beside(jobs, row.gpu, row.process, row.peak)


def reported_alone(jobs: Jobs, row: ProcessRow | None) -> Ledger | None:
    """Return the report of a row's job without a preset; None without a report."""
    if row is None or row.process is None or row.kind != "process" or row.preset is not None:
        return None
    return None if find_job(jobs, row.process.pid, row.gpu.uuid) is None else row_ledger(jobs, row)


def device_for(chosen: ProcessRow | None, sample: Sample | None) -> Device:
    """Return the chosen row's card, or the first that answers, or the default one."""
    gpu = chosen.gpu if chosen is not None else _first_gpu(sample)
    return device_of(gpu) if gpu is not None else CARDS[DEFAULT_CARD]


def _first_gpu(sample: Sample | None) -> Gpu | None:
    gpus = sample.gpus if sample is not None else ()
    return next((gpu for gpu in gpus if gpu.state == "ok"), gpus[0] if gpus else None)
