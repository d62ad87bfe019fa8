"""The estimate panel: what the preset's process should hold, part by part, beside what is seen of it."""

from collections.abc import Iterable
from typing import get_args

from rich.cells import cell_len
from textual import events
from textual.binding import Binding
from textual.strip import Strip

from vramtui.app.messages import FieldStepped
from vramtui.app.state.run_fields import RunField, fields_of, value_of
from vramtui.app.state.view import Panel, View
from vramtui.app.themes import FIT_COLOURS, Palette
from vramtui.app.ui.lines import Framed, Piece, fit, paragraph, right, strip, wrap
from vramtui.app.ui.parts_tree import size_of, tree
from vramtui.core.base.text import printable
from vramtui.core.base.units import UNKNOWN, format_column, unit_of
from vramtui.core.estimate.assumptions import Range, values_of
from vramtui.core.estimate.devices import emulation_note
from vramtui.core.estimate.estimate import BESIDE_TOTAL, PHASE_TITLES, Estimate, Part
from vramtui.core.estimate.fits import Fit
from vramtui.core.estimate.ledger import LINES, TITLES, TOTALS, Ledger, Line
from vramtui.core.observation.readings import NVIDIA
from vramtui.core.schema.preset import Origin
from vramtui.core.schema.workload import beyond_own_length
from vramtui.monitor.predictor import MOST_BATCH, verdict

NO_PRESET = (
    "No preset selected. Press p to choose one: its memory is predicted here and marked on the GPU's bar.",
    "A process whose command fits a preset's [match] is matched automatically; m assigns another preset.",
    "t traces the selected process's own command, whatever it runs: no preset is needed.",
)

OF_CUDA = (
    "context, library workspaces and attention kernels are estimated as CUDA's; on {vendor} they differ, by how much is"
    " not known"
)
GAP = 2  # columns between two fields
_FROM = {"command line": "the command line: "}
SETTLE = "t traces the job's own command and predicts by that; m assigns a preset"
ASSIGN = "This job has no preset: t traces its command, m assigns one; the prediction stands beside these figures then."


class EstimatePanel(Framed[View], can_focus=True):
    """Steppers, parts, totals and a verdict. With the focus: up and down choose a field, left and right step it."""

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
        if view.reported is not None and view.panel is None:
            return _reported(view.reported, palette, width)[:height]
        if view.panel is None:
            lines = [line for sentence in NO_PRESET for line in [*wrap(sentence, width - 2), ""]]
            return [strip([(f" {line}", palette.dim)], width, palette.text) for line in lines][:height]
        panel = view.panel
        strips = self._fields(panel, palette, width)
        if view.reported is not None and view.chosen is not None and view.chosen.process is not None:
            strips += paragraph(_in_a_line(view.chosen.process.pid, view.reported), palette, width, palette.text)
        other = _of_another(panel, view)
        if other:
            strips += paragraph(other, palette, width, palette.ink("warning"))
        if panel.guess is not None and panel.estimate is None:
            return [*strips, *_guess(panel, panel.guess, palette, width)][:height]
        if panel.estimate is None or panel.comparison is None:
            return [*strips, *_problem(panel, palette, width)][:height]
        closing = _closing(view, panel, panel.estimate, palette, width)
        strips += tree(panel, panel.comparison, palette, width, height - len(strips) - len(closing))
        strips += closing
        strips += _formulas(panel.estimate, palette, width, height - len(strips))
        return strips[:height]

    def titles(self, view: View) -> tuple[str, str]:
        """The preset and its GPU; the method, and whether something was changed."""
        panel = view.panel
        if panel is None and view.reported is not None and view.chosen is not None and view.chosen.process is not None:
            return f"Reported by pid {view.chosen.process.pid}", "as the job reports"
        if panel is None:
            return "Estimate", ""
        where = f"GPU {panel.gpu.index}" if panel.gpu is not None else panel.device.name
        method = panel.estimate.method if panel.estimate is not None else "no prediction" if panel.guess else ""
        if panel.traced is not None and method != "traced":
            method += " and traced"
        changed = " · * changed, u undoes" if panel.changed else ""
        return f"Estimate · {printable(panel.preset.key)} · {where}", method + changed

    # --- fields --------------------------------------------------------------------------------------------------

    def _fields(self, panel: Panel, palette: Palette, width: int) -> list[Strip]:
        """The fields with their steppers, as many on a line as fit; notes where the pointer can step them."""
        fields = fields_of(panel.workload)
        self._at = min(self._at, len(fields) - 1) if fields else 0
        lines: list[list[Piece]] = [[(" ", palette.text)]]
        x = 1
        for at, field in enumerate(fields):
            focused = self.has_focus and at == self._at
            pieces = _field(field, panel, palette, focused=focused)
            length = sum(cell_len(text) for text, _ in pieces)
            if x + length - GAP > width and x > 1:
                lines.append([(" ", palette.text)])
                x = 1
            lead = cell_len(pieces[0][0])
            middle = x + lead + 1 + cell_len(pieces[2][0]) // 2
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
        """Step the field under the cursor."""
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
    """Whether there is anything to show in it."""
    return not view.is_monitor and (view.panel is not None or view.reported is not None)


def _reported(ledger: Ledger, palette: Palette, width: int) -> list[Strip]:
    """What a job without a preset tells of its peak, part by part."""
    figures = [(line, ledger.bytes_of(line)) for line in LINES if ledger.bytes_of(line) is not None]
    unit, name = unit_of(max((size or 0 for _, size in figures), default=0))
    strips = [
        strip(
            [(" " + fit(f"in {name}", width - 11), palette.dim), (right("peak", 10), palette.dim)], width, palette.text
        )
    ]
    for line, size in figures:
        style = palette.strong if line in TOTALS else palette.ink(line.replace("_", "-"))
        title = f"── {TITLES[line]}" if line in TOTALS else TITLES[line]
        figure = palette.strong if line in TOTALS else palette.text
        strips.append(
            strip(
                [(" " + fit(title, width - 11), style), (right(format_column(size, unit), 10), figure)],
                width,
                palette.text,
            )
        )
    return [*strips, strip([], width, palette.text), *paragraph(ASSIGN, palette, width)]


def _of_another(panel: Panel, view: View) -> str:
    """A sentence that the selected process has no preset, and whose estimate is shown; empty where it is its own."""
    chosen = view.chosen
    if chosen is None or chosen.kind != "process" or chosen.process is None or chosen.preset is not None:
        return ""
    whose = f"below: pid {panel.process.pid}" if panel.process is not None else f"below: {printable(panel.preset.key)}"
    return f"pid {chosen.process.pid} has no preset: t traces it, m assigns one; {whose}"


def _in_a_line(pid: int, ledger: Ledger) -> str:
    """The largest parts that a process reports, in one line, beside the estimate of another preset."""
    shown: tuple[Line, ...] = ("weights", "gradients", "optimizer", "activations", "allocated", "reserved")
    figures = [
        f"{TITLES[line]} {size_of(ledger.bytes_of(line))}" for line in shown if ledger.bytes_of(line) is not None
    ]
    return f"pid {pid} reports at its peak: {', '.join(figures)}"


def _field(field: RunField, panel: Panel, palette: Palette, *, focused: bool) -> list[Piece]:
    value = value_of(panel.workload, field)
    changed = field.name in panel.changed
    text = ("none" if field.choices else UNKNOWN) if value is None else str(value)
    if panel.guess is not None and f"run.{field.name}" in panel.guess.assumed and not changed:
        text = "?"
    style = palette.ink("accent" if changed else "foreground", "cursor" if focused else "background", bold=True)
    arrow = palette.ink("primary", "cursor" if focused else "background")
    return [
        (f"{field.label} ", palette.dim),
        ("‹", arrow),
        (f" {text}{'*' if changed else ''} ", style),
        ("›", arrow),
        (" " * GAP, palette.text),
    ]


def _problem(panel: Panel, palette: Palette, width: int) -> list[Strip]:
    style = palette.ink("warning")
    lines = wrap(printable(panel.problem), width - 2)
    return [strip([], width, palette.text), *(strip([(f" {line}", style)], width, style) for line in lines)]


def guess_sentences(panel: Panel, guess: Range) -> tuple[str, ...]:
    """What is known of a job of which too much is assumed: model, range, whether what is seen lies there."""
    weights = "" if guess.weights is None else f" · weights {size_of(guess.weights[0])} in {guess.weights[1]}"
    seen = (f"peak so far {size_of(panel.peak)}, {guess.place_of(panel.peak)}",) if panel.peak else ()
    return (f"{printable(panel.preset.preset.name)}{weights}", guess.sentence, *seen)


def _guess(panel: Panel, guess: Range, palette: Palette, width: int) -> list[Strip]:
    """The lines about a guessed range: why it is a guess, and what would settle it."""
    model, *others = guess_sentences(panel, guess)
    sentences = [
        (model, palette.strong),
        *((sentence, palette.text) for sentence in others),
        ("", palette.text),
        (SETTLE, palette.dim),
        (read_from(panel), palette.dim),
    ]
    return [line for text, style in sentences for line in paragraph(text, palette, width, style)]


def panel_fit(panel: Panel, estimate: Estimate) -> tuple[Fit, str]:
    """Whether it fits where the panel looks, and that place."""
    where = f"GPU {panel.gpu.index}" if panel.gpu is not None else panel.device.name
    return verdict(estimate, panel.workload, panel.device, panel.room, where), where


def _closing(view: View, panel: Panel, estimate: Estimate, palette: Palette, width: int) -> list[Strip]:
    """Whether it fits, the largest batch, and when the peak falls."""
    is_total_known = panel.gpu is None or panel.gpu.memory.total is not None
    found_fit, where = panel_fit(panel, estimate)
    colour = palette.ink(FIT_COLOURS[found_fit.verdict] if is_total_known else "muted", bold=True)
    is_tried = panel.matched is not None or panel.guess is not None
    told_fit = f"{'≈ ' if panel.is_rough else ''}{'what if: ' if is_tried else ''}{found_fit.line(where)}"
    lines = paragraph(told_fit if is_total_known else f"{where} does not report its size", palette, width, colour)
    if (panel.batch is not None or panel.search is not None) and is_total_known:
        batch = "…" if panel.search is not None else panel.batch
        more = " or more" if batch == MOST_BATCH else ""
        about = "about " if panel.is_quick else ""
        most = f"largest batch on an empty card: {about}{batch}{more}" if batch else "no batch fits even an empty card"
        lines.append(strip([(f" {most}", palette.dim)], width, palette.text))
    lines += paragraph(_when(panel, estimate, view), palette, width)
    for note in (beyond_own_length(panel.workload), emulation_note(panel.workload, panel.device)):
        lines += paragraph(note, palette, width, palette.ink("warning")) if note else []
    if panel.gpu is not None and panel.gpu.vendor != NVIDIA:
        lines += paragraph(OF_CUDA.format(vendor=printable(panel.gpu.vendor)), palette, width, palette.ink("warning"))
    if panel.process is not None and (panel.preset.known or panel.preset.assumed or panel.preset.derived):
        lines += paragraph(read_from(panel), palette, width)
    return lines


def read_from(panel: Panel) -> str:
    """Where a derived preset is from, which values are the job's own, and what is only assumed."""
    preset_file = panel.preset
    origins = [f"derived from {preset_file.derived} (Enter makes it a preset)"] if preset_file.derived else []
    for origin in get_args(Origin):
        words = [known.words for known in preset_file.known if known.origin == origin]
        if words:
            origins.append(f"from {_FROM.get(origin, '')}{_sources(dict.fromkeys(words))}")
    if preset_file.assumed and panel.guess is None:
        origins.append(
            f"{', '.join(values_of(preset_file))} assumed{'' if preset_file.derived else ' from the preset'}"
        )
    return "; ".join(origins)


def _sources(flags: Iterable[str]) -> str:
    """Where values are from, a file's name once: `lora.yml: lora_r = 16, lora_alpha = 32; --seed 1`."""
    words, before = "", ""
    for flag in flags:
        file, colon, setting = printable(flag).partition(": ")
        file = file if colon else ""
        same = bool(words) and file == before
        words += (", " if same else "; " if words else "") + (setting if same and file else printable(flag))
        before = file
    return words


def _formulas(estimate: Estimate, palette: Palette, width: int, height: int) -> list[Strip]:
    """How the largest parts come about, as many as there is room for."""
    lines = [
        strip([], width, palette.text),
        strip([(" calculation", palette.ink("muted", bold=True))], width, palette.text),
    ]
    for part in sorted(estimate.parts, key=lambda part: -part.at_peak):
        text = f"{size_of(part.bytes)} = {printable(part.formula)}{_alive(part)}"
        strips = [strip([(f"   {line}", palette.dim)], width, palette.text) for line in wrap(text, width - 4)]
        if len(lines) + 1 + len(strips) > height:
            break
        ink = palette.ink(part.line.replace("_", "-"))
        lines += [strip([(f" {printable(part.name)}", ink)], width, palette.text), *strips]
    return lines if len(lines) > 2 else []


def _alive(part: Part) -> str:
    """How much of a part is alive at the peak, where that is not all of it."""
    if part.at_peak == part.bytes:
        return ""
    if part.at_peak:
        return f"; {size_of(part.at_peak)} at the peak"
    return "; beside the total" if part.lifetime == BESIDE_TOTAL else "; none of it at the peak"


def _when(panel: Panel, estimate: Estimate, view: View) -> str:
    """When it peaks and beside which process; of a job on several GPUs the figures are those of one rank."""
    parallel = panel.workload.parallel
    if parallel is not None and parallel.ranks > 1:
        return f"for the fullest of {parallel.ranks} ranks, one GPU each; {_peak_sentence(panel, estimate, view)}"
    return _peak_sentence(panel, estimate, view)


def _peak_sentence(panel: Panel, estimate: Estimate, view: View) -> str:
    phase = PHASE_TITLES[estimate.peak_phase]
    step = f", step {estimate.peak_step + 1}" if estimate.peak_step is not None else ""
    peak = f"peak: {phase}{step}"
    if panel.process is not None and panel.comparison is not None:
        return f"pid {panel.process.pid}: {panel.comparison.sentence}"
    if _of_another(panel, view):
        return peak  # the first line says that it is not the selected process's
    return f"{peak}; no running process uses this preset; m assigns the selected one"
