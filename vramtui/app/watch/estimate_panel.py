"""The estimate panel: a preset's predicted memory, part by part, and its process's observed memory."""

from typing import get_args

import msgspec
from rich.cells import cell_len
from rich.style import Style
from textual import events
from textual.binding import Binding
from textual.strip import Strip

from vramtui.app.context import AppContext, Feature, FieldStepped, ask, why_no_preset
from vramtui.app.state.run_fields import LENGTHS, SIZES, fields_of, first_of, value_of
from vramtui.app.state.view import Panel, View
from vramtui.app.terminal.textual_private import call_after
from vramtui.app.themes import FIT_COLOURS, Palette
from vramtui.app.ui.lines import Framed, Piece, delta_text, paragraph, strip
from vramtui.app.ui.parts import NAME, Figures, compared, part_lines, size_of, sizes
from vramtui.core.base.text import printable
from vramtui.core.base.units import QUICK, UNKNOWN, format_bytes, format_column, format_gib
from vramtui.core.estimate.assumptions import Range, spanned, values_of, words_of
from vramtui.core.estimate.devices import Device, emulation_note
from vramtui.core.estimate.estimate import LINES, PHASE_TITLES, TITLES, TOTALS, USUAL_ERROR, Estimate, Ledger
from vramtui.core.estimate.fits import Comparison, ComparisonRow, ShownRow, compare_ledgers, shown_rows
from vramtui.core.observation.readings import NVIDIA
from vramtui.core.schema.models import TransformerModel
from vramtui.core.schema.preset import Origin
from vramtui.core.schema.workload import Parallel, ServeRun, Workload, beyond_own_length
from vramtui.monitor.predictor import MOST_BATCH, MaxBatchSearch, verdict

NO_PRESET = "No preset selected. Press p to choose one: its memory is predicted here and marked on the GPU's bar."
OF_GROUP = "A group is selected. Enter opens it; select one of its processes to see its prediction."
OF_CUDA = (
    "context, library workspaces and attention kernels are estimated as CUDA's; on {vendor} they differ, by how much is"
    " not known"
)
GAP = 2  # columns between two fields
SIDE, DELTA, LEAST_NAME, LEAST_BAR = 9, 8, 11, 2  # columns of the parts' figures, of their names and bars
POOL_HELD = 0.8  # part of its prediction from which on a running server has taken its whole pool
BETWEEN = 0.01  # seconds between two turns of a search, for keys and drawing
FIELDS = {"batch size": SIZES, "sequence length": LENGTHS}
ASSIGN = "m assigns a preset · t dry-runs its command · p estimates another job"


class EstimatePanel(Framed[View], can_focus=True):
    """The answer, then parts and totals. With the focus, or once changed, also the run's fields: up and down choose
    one, left and right step it.
    """

    BINDINGS = [
        Binding("up,k", "field(-1)", "Previous field", id="estimate.field_before", show=False),
        Binding("down,j", "field(1)", "Next field", id="estimate.field_after", show=False),
        Binding("left,minus,h", "step(-1)", "Lower or previous value", id="estimate.less", show=False),
        Binding("right,plus,equals_sign,l", "step(1)", "Higher or next value", id="estimate.more", show=False),
    ]

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._at = 0
        self._spots: list[tuple[int, int, int, str, int]] = []

    def build(self, view: View, palette: Palette, width: int, height: int) -> list[Strip]:
        self._spots = []
        panel = view.panel
        if panel is None:
            return _unpredicted(view, palette, width)[:height]
        strips = self._fields(panel, palette, width) if self.has_focus or panel.changed else []
        if view.reported is not None and view.chosen is not None and view.chosen.process is not None:
            sizes = ((TITLES[line], view.reported.bytes_of(line)) for line in LINES)
            words = ", ".join(f"{title} {size_of(size)}" for title, size in sizes if size is not None)
            sentence = f"pid {view.chosen.process.pid} reports at its peak: {words}"
            strips += paragraph(sentence, palette, width, palette.text)
        if panel.guess is not None and panel.estimate is None:
            first, *others = guess_sentences(panel, panel.guess)
            sentences = [(first, palette.strong), *((sentence, palette.text) for sentence in others)]
            sentences += [(ASSIGN, palette.dim), (read_from(panel), palette.dim)]
            strips += [line for text, style in sentences for line in paragraph(text, palette, width, style)]
        elif panel.estimate is None or panel.comparison is None:
            strips += paragraph(printable(panel.problem), palette, width, palette.ink("warning"))
        else:
            strips += _answer(panel, panel.estimate, panel.comparison, palette, width)
            closing = _closing(panel, panel.estimate, palette, width)
            strips += _tree(panel, panel.comparison, palette, width, height - len(strips) - len(closing))
            strips += closing
            origin = paragraph(read_from(panel), palette, width) if panel.process is not None else []
            strips += origin if len(strips) + len(origin) <= height else []  # `x` has it too
        return strips[:height]

    def titles(self, view: View) -> tuple[str, str]:
        """Return the preset and its GPU; the method, and whether something was changed."""
        panel = view.panel
        if panel is None and view.reported is not None and view.chosen is not None and view.chosen.process is not None:
            return f"Reported by pid {view.chosen.process.pid}", "as the job reports"
        if panel is None:
            return "Estimate", ""
        where = f"GPU {panel.gpu.index}" if panel.gpu is not None else panel.device.name
        method = panel.estimate.method if panel.estimate is not None else "no prediction" if panel.guess else ""
        if panel.traced is not None and method != "traced":
            method += " and dry run"
        method += " · * changed, u undoes" if panel.changed else ""
        title = f"Estimate · {printable(panel.preset.key.removeprefix('derived:'))} · {where}"
        return title.removeprefix("Estimate · " if len(title) > self.size.width - GAP else ""), method

    def _fields(self, panel: Panel, palette: Palette, width: int) -> list[Strip]:
        """Return the fields with their steppers, as many on a line as fit; note the places to click."""
        fields = fields_of(panel.workload)
        self._at = min(self._at, len(fields) - 1) if fields else 0
        lines: list[list[Piece]] = [[(" ", palette.text)]]
        x = 1
        for at, field in enumerate(fields):
            on = "cursor" if self.has_focus and at == self._at else "background"
            value, changed = value_of(panel.workload, field), field.name in panel.changed
            text = ("none" if field.choices else UNKNOWN) if value is None else str(value)
            if panel.guess is not None and f"run.{field.name}" in panel.guess.assumed and not changed:
                text = "?"
            arrow = palette.ink("primary", on)
            pieces: list[Piece] = [
                (f"{field.label} ", palette.dim),
                ("‹", arrow),
                (
                    f" {text}{'*' if changed else ''} ",
                    palette.ink("accent" if changed else "foreground", on, bold=True),
                ),
                ("›", arrow),
                (" " * GAP, palette.text),
            ]
            length = sum(cell_len(text) for text, _ in pieces)
            if x + length - GAP > width and x > 1:
                lines.append([(" ", palette.text)])
                x = 1
            middle = x + cell_len(pieces[0][0]) + 1 + cell_len(pieces[2][0]) // 2
            self._spots.append((len(lines) - 1, x, middle, field.name, -1))
            self._spots.append((len(lines) - 1, middle, x + length - 2, field.name, 1))
            lines[-1] += pieces
            x += length
        return [strip(pieces, width, palette.text) for pieces in lines]

    def action_field(self, direction: int) -> None:
        if self.view is not None and self.view.panel is not None:
            self._at = (self._at + direction) % max(1, len(fields_of(self.view.panel.workload)))
            self.redraw()

    def action_step(self, direction: int) -> None:
        if self.view is not None and self.view.panel is not None:
            fields = fields_of(self.view.panel.workload)
            if fields:
                self.post_message(FieldStepped(fields[self._at].name, direction))

    def on_focus(self) -> None:
        self.redraw()

    def on_blur(self) -> None:
        self.redraw()

    def on_click(self, event: events.Click) -> None:
        """Step the field whose arrow, or half of whose value, is under the pointer."""
        at = event.get_content_offset(self)
        if at is None:
            return
        for line, start, stop, name, direction in self._spots:
            if at.y == line and start <= at.x < stop:
                self.post_message(FieldStepped(name, direction))


def has_panel(view: View) -> bool:
    return not view.is_monitor and (view.panel is not None or view.reported is not None or view.predicts)


def _unpredicted(view: View, palette: Palette, width: int) -> list[Strip]:
    """Return the panel of a row without a preset: the reason, and what its job reports."""
    process = view.chosen.process if view.chosen is not None else None
    if process is None:
        return paragraph(NO_PRESET if view.chosen is None or view.chosen.kind != "group" else OF_GROUP, palette, width)
    lines = paragraph(f"– no prediction for pid {process.pid}", palette, width, palette.strong)
    lines += paragraph(view.reason.replace(" · m assigns", "", 1), palette, width)
    if view.reported is not None:
        rows = shown_rows(compare_ledgers(view.reported, Ledger()))
        lines += part_lines(rows, [sizes("peak", SIDE, lambda row: row.predicted)], palette, width)
    return [*lines, strip([], width, palette.text), *paragraph(ASSIGN, palette, width)]


def guess_sentences(panel: Panel, guess: Range) -> tuple[str, ...]:
    """Return the known facts of a job with too many assumptions: its range or why it has none, model and peak."""
    weights = spanned(*map(size_of, guess.weights)) if guess.weights is not None else ""
    seen = (f"peak {size_of(panel.peak)}: {guess.place_of(panel.peak)}",) if panel.peak and guess.is_answer else ()
    return (f"– {guess.sentence}", f"{printable(panel.preset.preset.name)}{weights and f' · weights {weights}'}", *seen)


def pool_share(workload: Workload, run: ServeRun, device: Device) -> float:
    """Return the share of the GPU that vLLM or SGLang takes: the run's own, else the release's default."""
    from vramtui.estimators.analytic.serving import sglang, vllm  # only with such a server

    if run.engine == "sglang" and isinstance(workload.model, TransformerModel):
        return sglang.settings_of(workload.model, run, device, workload.parallel or Parallel()).fraction
    return run.gpu_memory_utilization or vllm.release_of(run)[1].share


def _answer(panel: Panel, estimate: Estimate, comparison: Comparison, palette: Palette, width: int) -> list[Strip]:
    """Return the first lines: predicted, observed and their difference; the verdict, or what has to be calculated."""
    where = f"GPU {panel.gpu.index}" if panel.gpu is not None else panel.device.name
    fit_now = verdict(estimate, panel.workload, panel.device, panel.room, where)
    is_over = panel.matched is None and (comparison.fraction or 0) > USUAL_ERROR
    if is_over and comparison.peak is not None:  # a job that holds more than predicted needs at least that
        fit_now = msgspec.structs.replace(fit_now, needs=max(fit_now.needs, comparison.peak))
    colour = palette.ink("warning" if is_over and fit_now.sign == "✓" else FIT_COLOURS[fit_now.verdict], bold=True)
    is_total_known = panel.gpu is None or panel.gpu.memory.total is not None or panel.room is not None
    run, now, peak = panel.workload.run, comparison.now, comparison.peak
    is_changed, waits = panel.matched is not None or panel.guess is not None, panel.is_rough
    known = panel.matched or estimate
    words = [f"{'≈' if panel.is_known_rough else ''}{format_bytes(known.process)} predicted"]
    if panel.process is not None and peak is not None:
        words.append(f"{format_gib(peak)} {'now' if now == peak else 'at its peak'}")
        words.append("calculating" if panel.is_known_rough else delta_text(comparison.fraction))
    sign, ink, sentence = "!" if is_over and fit_now.sign == "✓" else fit_now.sign, colour, fit_now.line(where)[2:]
    if waits:
        sign, ink, sentence = "…", palette.strong, "calculating" if panel.process is None else ""
    elif not is_total_known:
        sign, ink, sentence = "?", palette.strong, f"{where} does not report its size"
    elif isinstance(run, ServeRun) and not run.is_llama_cpp and now and now > POOL_HELD * estimate.process:
        sentence = f"holds its pool of {100 * pool_share(panel.workload, run, panel.device):.0f} %"
        sign, ink = "✓", palette.ink("success", bold=True)
    if is_changed:
        lines = paragraph(" · ".join(words), palette, width, palette.strong) if panel.guess is None else []
        more = delta_text(estimate.process / known.process - 1)
        size = f"what if: {'≈' if waits else ''}{format_bytes(estimate.process)}"
        size += f" ({more})" if panel.matched is not None and not waits else ""
        return [*lines, *paragraph(f"{sign} {size} · {sentence or 'calculating'}", palette, width, ink)]
    lines = paragraph(f"{sign} {' · '.join(words)}", palette, width, ink)
    return [*lines, *paragraph(sentence, palette, width, palette.dim if sign == "✓" else ink)]


def _tree(panel: Panel, comparison: Comparison, palette: Palette, width: int, height: int) -> list[Strip]:
    """Return prediction, observed memory and their difference; then a variant, and a trace if there is room."""
    more: list[tuple[str, Estimate]] = []
    if panel.matched is not None and panel.estimate is not None:
        more.append((f"{QUICK * panel.is_rough}what if", panel.estimate))
    if panel.traced is not None and panel.traced is not panel.estimate:
        more.append(("dry run", panel.traced))
    more = more[: max(1, (width - 2 - LEAST_NAME - DELTA) // SIDE - 2)]
    rows = {row.line: row for row in comparison.rows}
    for line in LINES if panel.matched is not None and panel.estimate is not None else ():  # only the variant has it
        if line not in rows and panel.estimate is not None and panel.estimate.ledger.bytes_of(line):
            rows[line] = ComparisonRow(line=line, predicted=0)

    def column(title: str, estimate: Estimate) -> Figures:
        def of(row: ShownRow, unit: int) -> tuple[str, Style | None]:
            ink = palette.ink("accent", bold=row.line in TOTALS) if "what if" in title else None
            return "" if row.is_subtotal else format_column(estimate.ledger.bytes_of(row.line), unit), ink

        return Figures(title, len(title) + 1, of, palette.ink("accent") if "what if" in title else None)

    is_rough = panel.is_rough if panel.matched is None else panel.is_known_rough
    first = QUICK * is_rough + ("analytic" if [title for title, _ in more] == ["dry run"] else "predicted")
    figures = [sizes(first, SIDE + is_rough, lambda row: row.predicted), *compared(palette, SIDE, DELTA)]
    figures += [column(*one) for one in more]
    if sum(figure.width for figure in figures) > width - LEAST_NAME - LEAST_BAR:
        del figures[2]  # the first line has the difference of the whole process
    name = max(LEAST_NAME, min(NAME, width - LEAST_BAR - 2 - sum(figure.width for figure in figures)))
    shown = shown_rows([rows[line] for line in LINES if line in rows], panel.gpu.vendor if panel.gpu else NVIDIA)
    return part_lines(shown, figures, palette, width, height, name=name)


def _closing(panel: Panel, estimate: Estimate, palette: Palette, width: int) -> list[Strip]:
    """Return the lines below the parts: largest batch, phase of the peak, warnings. A job on several GPUs has the
    figures of one rank.
    """
    lines: list[Strip] = []
    if panel.search is not None or panel.batch is not None:
        more = " or more" if panel.batch == MOST_BATCH else ""
        size = "…" if panel.search is not None else f"{'about ' if panel.is_quick else ''}{panel.batch}{more}"
        most = "no batch fits even an empty card" if panel.batch == 0 else f"largest batch on an empty card: {size}"
        lines.append(strip([(f" {most}", palette.dim)], width, palette.text))
    step = f", step {estimate.peak_step + 1}" if estimate.peak_step is not None else ""
    when, parallel = f"peak: {PHASE_TITLES[estimate.peak_phase]}{step}", panel.workload.parallel
    if panel.process is not None and panel.comparison is not None:
        when = f"pid {panel.process.pid}: {panel.comparison.sentence}"
    elif panel.gpu is not None:
        when = f"{when}; no running process uses this preset; m assigns the selected one"
    if parallel is not None and parallel.ranks > 1:
        when = f"{printable(panel.preset.preset.name)}, worst of {parallel.ranks} ranks; {when}"
    lines += paragraph(when, palette, width)
    notes = [beyond_own_length(panel.workload), emulation_note(panel.workload, panel.device)]
    if panel.gpu is not None and panel.gpu.vendor != NVIDIA:
        notes.append(OF_CUDA.format(vendor=printable(panel.gpu.vendor)))
    for note in filter(None, notes):
        lines += paragraph(note, palette, width, palette.ink("warning"))
    return lines


def read_from(panel: Panel) -> str:
    """Return the origin of a derived preset, the values of the job itself, and the assumed ones."""
    preset_file = panel.preset
    origins = [f"derived from {preset_file.derived} (Enter makes it a preset)"] if preset_file.derived else []
    for origin in get_args(Origin):
        # A file's name once: `lora.yml: lora_r = 16, lora_alpha = 32; --seed 1`.
        words, before, settings = "", "", dict[str, list[str]]()
        for known in preset_file.known:
            if known.origin == origin:
                settings.setdefault(known.words, []).append(known.key)
        if origin == "launcher's default":
            origins += (f"{words_of(keys)} by {flag}" for flag, keys in settings.items())
            continue
        for flag in settings:
            file, colon, setting = printable(flag).partition(": ")
            file = file if colon else ""
            same = bool(words) and file == before
            words += (", " if same else "; " if words else "") + (setting if same and file else printable(flag))
            before = file
        if words:
            origins.append(f"from {'the command line: ' * (origin == 'command line')}{words}")
    if preset_file.assumed and panel.guess is None:
        from_preset = "" if preset_file.derived else " from the preset"
        origins.append(f"{', '.join(values_of(preset_file))} assumed{from_preset}")
    return "; ".join(origins)


class PanelController:
    """The actions of several screens' keys on the panel's preset."""

    __slots__ = ("_app", "_shared", "_state")

    def __init__(self, shared: AppContext) -> None:
        self._shared, self._app, self._state = shared, shared.app, shared.state

    def choose_preset(self) -> None:
        from vramtui.app.watch.preset_picker import PresetChooser  # loads the list widgets

        if self._state.is_monitor:
            self._app.notify(why_no_preset(self._state))
            return

        def take(key: str) -> None:
            self._state.panel_key = key
            self._shared.used(key)
            self._shared.redraw.now()

        ask(self._app, PresetChooser(self._state, "Choose a preset", self._shared.recent_presets), take)

    def step(self, what: str, direction: int) -> None:
        """Step the `batch size` or the `sequence length` up (1) or down (-1)."""
        if self._state.panel_key is None:
            self._app.notify(why_no_preset(self._state))
            return
        if not self._state.step(FIELDS[what], direction):
            sentence = f"This preset's run has no {what} to step; Tab and arrows step its other fields."
            self._app.notify(sentence)
        elif any(not shown.display for shown in self._app.screen.query(EstimatePanel)):
            # In a narrow terminal the panel is another page.
            panel = self._state.view().panel
            if panel is not None and panel.estimate is not None:
                size = getattr(panel.workload.run, first_of(panel.workload, FIELDS[what]) or "", UNKNOWN)
                needs = f"{QUICK * panel.is_rough}{format_bytes(panel.estimate.process)}"
                self._app.notify(f"What if {what} {size}: {needs} (v shows the estimate)")
        self._shared.redraw.for_key()

    def undo(self) -> None:
        self._state.undo_steps()
        self._shared.redraw.now()


class MaxBatchTurns(Feature):
    """Gives the panel's search for the largest batch its turns, and draws when it ends."""

    __slots__ = ("_search", "_shared")

    def __init__(self, shared: AppContext) -> None:
        self._shared = shared
        self._search: MaxBatchSearch | None = None

    @property
    def busy(self) -> bool:
        return self._search is not None

    def follow(self, panel: Panel | None) -> None:
        """Continue the panel's search; a search that no panel waits for is left."""
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
