"""The Timeline screen: the panel's preset phase by phase, and its fine trace."""

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container
from textual.strip import Strip

from vramtui.app.context import AppContext, why_no_preset
from vramtui.app.keys import FIRST, TIMELINE_BINDINGS
from vramtui.app.state.run_fields import fields_of, value_of
from vramtui.app.state.view import View
from vramtui.app.themes import Palette
from vramtui.app.timeline.trace_jobs import TimelineView, TraceJobs
from vramtui.app.ui.graph import AXIS, DOTS, braille_rows, levels, ticks
from vramtui.app.ui.lines import Framed, Lines, Piece, Wheeled, fit, paragraph, right, strip, wrap
from vramtui.app.ui.parts import colour_of, legend, stack
from vramtui.app.ui.view_screen import Header, KeyBar, ViewScreen
from vramtui.core.base.text import printable
from vramtui.core.base.units import format_bytes, format_column, format_in, unit_of
from vramtui.core.estimate.estimate import PHASE_TITLES, TITLES, Estimate, Line, Moment, Part
from vramtui.core.schema.models import TorchModel
from vramtui.dryrun.result import TracePoint

# --- status ---

UNOBSERVED = "Nothing observed: a job started with `vramtui run` reports its phases."
NO_PRESET = "The selected process reports its phases and has no preset: press p to choose one and compare."
OFFER = "Press t for a dry run: PyTorch runs it on fake tensors in the background, without a GPU."


class TraceLines(Lines[TimelineView]):
    """Three lines under the header: the workload, the trace, the observation. The trace has two of them if nothing was
    observed.
    """

    def build(self, view: TimelineView, palette: Palette, width: int, height: int) -> list[Strip]:
        panel = view.panel
        if panel is None:
            return paragraph(NO_PRESET, palette, width)[:height] if view.observed else []
        fields = [field for field in fields_of(panel.workload) if not field.choices]
        facts = [f"{field.label} {value}" for field in fields if (value := value_of(panel.workload, field)) is not None]
        kind = type(panel.workload.run).__struct_config__.tag
        workload: list[Piece] = [
            (printable(panel.preset.key), palette.ink("primary", bold=True)),
            (f" on {printable(panel.device.name)} · {kind}", palette.text),
            ("".join(f" · {fact}" for fact in facts), palette.dim),
            ("  * changed, u undoes" if panel.changed else "", palette.ink("accent")),
        ]
        lines = [workload, *filter(None, [_trace(view, palette)])]
        if view.observed:
            lines.append([(f"observed: {len(view.observed)} phases that the job reported", palette.text)])
        elif view.unmatched:
            words = f"selected: {len(view.unmatched)} phases that a process without this preset reported"
            lines.append([(words, palette.text)])
        else:
            lines[1:] = [*(one for line in lines[1:] for one in _wrapped(line, width - 2)), [(UNOBSERVED, palette.dim)]]
        strips = []
        for line in lines[:height]:
            pieces, room = [(" ", palette.text)], width - 1
            for text, style in line:
                pieces.append((text if cell_len(text) <= room else fit(text, room), style))
                room = max(0, room - cell_len(text))
            strips.append(strip(pieces, width, palette.text))
        return strips


def _trace(view: TimelineView, palette: Palette) -> list[Piece]:
    def status(words: str, ink: str, rest: str) -> list[Piece]:
        return [(words, palette.ink(ink, bold=True)), (rest, palette.text)]

    if view.running:
        return [*status("dry run  ", "accent", view.running), (" · x cancels", palette.dim)]
    if view.problem:
        return status("dry run ended early: ", "error", printable(view.problem))
    result = view.result
    if result is not None and result.out_of_memory is not None:
        return status("dry run  ", "warning", printable(result.out_of_memory))
    if result is not None:
        peaks = (
            f"peaks: allocated {format_bytes(result.peak_allocated)} · reserved {format_bytes(result.peak_reserved)}"
        )
        return status("dry run  ", "success", f"{peaks} · process {format_bytes(result.process)}")
    if not view.refusal:
        return [(OFFER, palette.dim)]
    # A preset that describes a model has no code to run: a dry run is expected only of one that names code.
    names_code = view.panel is not None and isinstance(view.panel.workload.model, TorchModel)
    return [(f"no dry run: {printable(view.refusal)}", palette.dim)] if names_code else []


def _wrapped(pieces: list[Piece], width: int) -> list[list[Piece]]:
    """The pieces on two lines if necessary; the first keeps its style."""
    words = "".join(text for text, _ in pieces)
    if cell_len(words) <= width or len(pieces) == 1:
        return [pieces]
    (mark, style), (_, plain) = pieces[:2]
    first, *rest = wrap(words, max(1, width))
    mark = mark.rstrip()
    return [[(mark, style), (first.removeprefix(mark), plain)], [(" ".join(rest), plain)]]


# --- phases ---

PHASE, BY, FIGURE = 17, 10, 8
RESERVED_FROM = 110
NOTHING = "No preset selected. Press p to choose one: what it should hold at the end of each phase appears here."
Lane = tuple[str, tuple[Moment, ...]]
PhaseLine = tuple[str, str, Moment, bool]


def lanes(view: TimelineView) -> list[Lane]:
    """Every side that has phases, by its name: predictions first, the observation last."""
    panel = view.panel
    if panel is None:
        return [("observed", view.observed)] if view.observed else []
    estimates = [one for one in (panel.estimate, panel.traced) if one is not None and one.timeline]
    rows: list[Lane] = list({one.method: one.timeline for one in estimates}.items())
    if view.observed:
        rows.append(("observed", view.observed))
    elif view.unmatched:
        rows.append(("selected", view.unmatched))
    return rows


def lines_of(sides: list[Lane]) -> list[PhaseLine]:
    """The lines to draw: label, side, moment, and whether that side peaks there. Only the first side has the label."""
    peaks = {side: max((moment.peak_allocated for moment in moments), default=0) for side, moments in sides}
    places: dict[tuple[int, str, int], list[tuple[str, Moment]]] = {}
    for side, moments in sides:
        seen: dict[tuple[int, str], int] = {}
        for moment in moments:
            at = (moment.step, moment.phase)
            seen[at] = seen.get(at, 0) + 1
            places.setdefault((*at, seen[at]), []).append((side, moment))
    lines: list[PhaseLine] = []
    marked: set[str] = set()
    for here in places.values():
        for nth, (side, moment) in enumerate(here):
            peaks_here = side not in marked and moment.peak_allocated == peaks[side] > 0
            if peaks_here:
                marked.add(side)
            label = PHASE_TITLES[moment.phase]
            if moment.phase not in {"build", "serve"}:
                label = f"{moment.step + 1} {label}"
            lines.append(("" if nth else label, side, moment, peaks_here))
    return lines


def _key(lines: list[PhaseLine], width: int, palette: Palette) -> list[list[Piece]]:
    """The meaning of the letters and shades of these bars."""
    moments = [moment for _, _, moment, _ in lines]
    present = {name for moment in moments for name, count in moment.categories.items() if count}
    undivided = any(moment.allocated > sum(moment.categories.values()) for moment in moments)
    return legend(present, width, palette, undivided=undivided)


class PhaseBars(Wheeled[TimelineView], can_focus=True):
    """A bar for each phase and side: every method's prediction, and what the job reports; it scrolls."""

    BINDINGS = [
        Binding(keys, f"move({lines})", name, id=f"phases.{identity}", show=False, tooltip=tooltip)
        for keys, lines, name, identity, tooltip in (
            ("up,k", -1, "Up", "up", "Scroll the phases up"),
            ("down,j", 1, "Down", "down", "Scroll the phases down"),
            ("pageup", -8, "Page up", "page_up", "Eight phases up"),
            ("pagedown", 8, "Page down", "page_down", "Eight phases down"),
        )
    ]

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._top = 0

    def build(self, view: TimelineView, palette: Palette, width: int, height: int) -> list[Strip]:
        """A heading, the bars that fit, and the key."""
        sides = lanes(view)
        if not sides:
            words = NOTHING if view.panel is None else view.panel.problem or "This method does not report phases."
            return paragraph(words, palette, width)[:height]
        lines = lines_of(sides)
        key = _key(lines, width, palette)
        room = max(1, height - 1 - len(key))
        self._top = max(0, min(self._top, len(lines) - room))
        shown = lines[self._top : self._top + room]
        scroll = f"{self._top + 1}–{self._top + len(shown)} of {len(lines)}, arrows scroll"
        self.border_subtitle = scroll if len(lines) > room else ""
        largest = max(max(moment.peak_allocated, moment.allocated) for _, _, moment, _ in lines)
        unit, unit_name = unit_of(largest)
        by, with_reserved = BY if len(sides) > 1 else 0, width >= RESERVED_FROM
        names = ("held", "peak", "reserved")[: 3 if with_reserved else 2]
        bar = max(4, width - 1 - PHASE - by - len(names) * (FIGURE + 1) - 2)
        heading = " " + fit("step, phase", PHASE) + fit("", by) + fit(right(unit_name, bar), bar)
        heading += "".join(right(name, FIGURE + 1) for name in names)
        strips = [strip([(heading, palette.dim)], width, palette.dim)]
        for label, side, moment, peaks in shown:
            filled = stack(moment.categories, moment.allocated, moment.peak_allocated, largest, bar, palette=palette)
            side_style = palette.strong if side in {"observed", "selected"} else palette.dim
            peak = palette.ink("prediction", bold=True) if peaks else palette.dim
            figures = ((moment.allocated, palette.text), (moment.peak_allocated, peak), (moment.reserved, palette.dim))
            pieces: list[Piece] = [
                (" " + fit(label, PHASE), palette.text),
                (fit(side, by), side_style),
                *filled,
                (" " * (bar - sum(len(text) for text, _ in filled)), palette.text),
                *((right(format_in(count, unit), FIGURE + 1), style) for count, style in figures[: len(names)]),
                (" ◂" if peaks else "", peak),
            ]
            strips.append(strip(pieces, width, palette.text))
        return [*strips, *(strip(pieces, width, palette.text) for pieces in key)][:height]

    def rows(self, view: TimelineView, width: int) -> int:
        """Rows to show everything, with the frame; 0 if there is nothing to draw."""
        lines = lines_of(lanes(view))
        if not lines or self.palette is None:
            return 0
        return len(lines) + len(_key(lines, width - 2, self.palette)) + 3

    def titles(self, view: TimelineView) -> tuple[str, str]:
        """The subtitle is `build`'s."""
        sides = " and ".join(side for side, _ in lanes(view))
        return f"Phases{f' · {sides}' if sides else ''} · allocated at the end of each phase", ""

    def action_move(self, lines: int) -> None:
        self._top = max(0, self._top + lines)
        self.redraw()

    def wheel(self, direction: int) -> None:
        self.action_move(2 * direction)


# --- the largest allocations ---

NOT_TRACED = "A dry run lists the ten largest allocations at the peak here, with the module and line that made them."
SIZE, WHAT = 10, 13
NAME, NAME_MOST = 22, 36
# The usual call that copies a tensor to another device or type.
MOVED = {"aten._to_copy.default": ".to()", "aten._to_copy": ".to()"}


class Largest(Framed[TimelineView]):
    """The ten largest allocations at the peak, with the module and line that made them; without a trace, the parts of
    the estimate.
    """

    def build(self, view: TimelineView, palette: Palette, width: int, height: int) -> list[Strip]:
        result, estimate = view.result, None if view.panel is None else view.panel.estimate
        if result is None and estimate is None:
            return paragraph(NOT_TRACED, palette, width)[:height]
        if result is None:
            assert estimate is not None
            return _parts(estimate, palette, width)[:height]
        rest = width - SIZE - WHAT - 3
        lined = any(allocation.line for allocation in result.largest)
        module = max(8, rest // 2) if lined else rest
        unit, name = unit_of(max((allocation.bytes for allocation in result.largest), default=0))
        heading = right(name, SIZE) + "  " + fit("what", WHAT) + fit("made by", module) + ("made at" if lined else "")
        strips = [strip([(heading, palette.dim)], width, palette.text)]
        for one in result.largest:
            category: Line | None = one.category if one.category in TITLES else None
            operator = one.operator.removeprefix("aten.").removesuffix(".default")
            made_by = printable(one.module or MOVED.get(one.operator, operator))
            what = TITLES[category] if category else printable(one.category)
            place = "/".join(one.line.split("/")[-2:])  # only the last folder has room
            pieces: list[Piece] = [
                (right(format_column(one.bytes, unit), SIZE), palette.text),
                ("  " + fit(what, WHAT), palette.ink(colour_of(one.category))),
                (fit(made_by, module - 1) + " ", palette.text),
                (printable(place), palette.dim),
            ]
            strips.append(strip(pieces, width, palette.text))
        for warning in result.warnings:
            strips += paragraph(printable(warning), palette, width)
        return strips[:height]

    def titles(self, view: TimelineView) -> tuple[str, str]:
        result, estimate = view.result, None if view.panel is None else view.panel.estimate
        if result is None and estimate is not None:
            return f"Largest at the peak · {estimate.method}", f"in {PHASE_TITLES[estimate.peak_phase]}"
        return "Largest at the peak", "" if result is None else f"torch {printable(result.torch)}"


def at_peak(estimate: Estimate) -> list[Part]:
    return sorted((part for part in estimate.parts if part.at_peak > 0), key=lambda part: -part.at_peak)


def _parts(estimate: Estimate, palette: Palette, width: int) -> list[Strip]:
    """A line for each part, and the assumptions of the estimate."""
    parts = at_peak(estimate)
    unit, name = unit_of(max((part.at_peak for part in parts), default=0))
    named = max(NAME, min(NAME_MOST, width // 5))
    heading = right(name, SIZE) + "  " + fit("what", WHAT) + fit("part", named) + "arithmetic"
    strips = [strip([(heading, palette.dim)], width, palette.text)]
    for part in parts:
        pieces: list[Piece] = [
            (right(format_column(part.at_peak, unit), SIZE), palette.text),
            ("  " + fit(TITLES[part.line], WHAT), palette.ink(colour_of(part.line))),
            (fit(printable(part.name), named - 1) + " ", palette.text),
            (fit(printable(part.formula), max(0, width - SIZE - WHAT - named - 3)), palette.dim),
        ]
        strips.append(strip(pieces, width, palette.text))
    for sentence in estimate.assumptions:
        strips += paragraph(printable(sentence), palette, width)
    return strips


# --- the fine trace ---

NOT_DRAWN = "A dry run draws allocated and reserved memory here, after every allocation and release."
_LEFT, _RIGHT = (0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08)


def sampled(series: tuple[TracePoint, ...], count: int) -> list[tuple[int, int]]:
    """The largest (allocated, reserved) in each of `count` equal stretches of events; the last value is repeated."""
    first, last = series[0].event, series[-1].event
    length = max(1, last - first + 1)
    highest: list[tuple[int, int] | None] = [None] * count
    for point in series:
        at = min(count - 1, (point.event - first) * count // length)
        before = highest[at] or (0, 0)
        highest[at] = (max(before[0], point.allocated), max(before[1], point.reserved))
    samples: list[tuple[int, int]] = []
    for here in highest:
        samples.append(here if here is not None else samples[-1])
    return samples


def outline(dots: list[int], height: int) -> list[str]:
    """A line of braille dots at the levels `dots` (two per column), as rows from the top."""
    rows = []
    for row in range(height - 1, -1, -1):
        cells = []
        for x in range(0, len(dots) - 1, 2):
            left, after = dots[x] - row * DOTS, dots[x + 1] - row * DOTS
            code = (_LEFT[left - 1] if 0 < left <= DOTS else 0) + (_RIGHT[after - 1] if 0 < after <= DOTS else 0)
            cells.append(chr(0x2800 + code) if code else " ")
        rows.append("".join(cells))
    return rows


class FineTrace(Framed[TimelineView]):
    """Memory after every allocation and release: filled braille for allocated, a dotted line for reserved."""

    def build(self, view: TimelineView, palette: Palette, width: int, height: int) -> list[Strip]:
        """The peak's mark, the plot, and the axis of events."""
        result = view.result
        if result is None or not result.series:
            words = view.running or NOT_DRAWN + ("" if view.refusal else " Press t to start one.")
            return paragraph(words, palette, width)[:height]
        plot_width, plot_height = max(2, width - AXIS - 1), max(1, height - 2)
        points = sampled(result.series, plot_width * 2)
        ceiling = max(1, *(reserved for _, reserved in points), result.peak_allocated)
        fill = braille_rows(levels([point[0] for point in points], ceiling, plot_height), plot_height)
        line = outline(levels([point[1] for point in points], ceiling, plot_height), plot_height)
        # The peak's figure is on the side of its mark that has room.
        at = AXIS + max(range(len(points)), key=lambda at: points[at][0]) // 2
        step = f" {result.peak_step + 1}" if result.peak_step >= 0 else ""
        when = f" in {result.peak_phase}{step}" if result.peak_phase else ""
        text = f"peak {format_bytes(result.peak_allocated)}{when}"
        mark = (" " * at, f"▾ {text}") if at + 2 + len(text) <= width else (right(f"{text} ", max(0, at)), "▾")
        strips = [strip(((part, palette.ink("prediction", bold=True)) for part in mark), width, palette.text)]
        labels, used, quiet = ticks(ceiling, plot_height), palette.ink("used"), palette.ink("prediction")
        for y in range(plot_height):
            label = labels.get(y, "")
            pieces: list[Piece] = [(right(label, AXIS - 1) + ("┤" if label else "│"), palette.dim)]
            for filled, dotted in zip(fill[y], line[y], strict=True):
                cell, style = (filled, used) if filled != " " else (dotted, quiet)
                if pieces[-1][1] is style:
                    pieces[-1] = (pieces[-1][0] + cell, style)
                else:
                    pieces.append((cell, style))
            strips.append(strip(pieces, width, palette.text))
        events = fit(f"─ {result.events:,} allocations and releases", plot_width)
        strips.append(
            strip(((part, palette.dim) for part in (right("0", AXIS - 1) + "┴", events)), width, palette.text)
        )
        return strips[:height]

    def titles(self, view: TimelineView) -> tuple[str, str]:
        return "Every allocation", "filled: allocated · dots: reserved"


WIDE = 112
FRAME_ROWS = 5  # header, three lines of status, keys
# Rows that the panels keep if there is not enough room.
LEAST_PHASES, LEAST_PARTS, LEAST_TRACE, LEAST_TRACE_TALL = 6, 9, 14, 18


class TimelineScreen(ViewScreen):
    """Bars above, the fine trace and the largest allocations below; in narrow terminals `v` turns pages."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-low"), (42, "-tall")]
    CSS_PATH = "timeline.tcss"
    BINDINGS = TIMELINE_BINDINGS
    PLACE = "timeline"
    PAGES = ("phases", "trace", "largest")
    FIRST_FOCUS = "PhaseBars"

    def __init__(self, shared: AppContext, traces: TraceJobs) -> None:
        super().__init__()
        self._shared, self._traces = shared, traces

    def compose(self) -> ComposeResult:
        yield Header("Timeline")
        yield TraceLines()
        yield PhaseBars(id="phases")
        with Container(id="lower"):
            yield FineTrace(id="fine")
            yield Largest(id="largest")
        yield KeyBar()

    def panels_view(self, view: View) -> TimelineView:
        """The view of now. In a wide terminal the phases take the rows that they need, and the panels below the rest;
        without a trace, its panels are small.
        """
        shown = self._traces.view(view.panel, self._shared.state.session.jobs, view.chosen)
        untraced = shown.result is None and not shown.running
        self.set_class(untraced, "-untraced")
        self.set_class(untraced and (view.panel is None or view.panel.estimate is None), "-unpredicted")
        phases = self.query_one("#phases", PhaseBars)
        wanted = phases.rows(shown, self.size.width) if self.has_class("-wide") else 0
        if not wanted or self.has_class("-unpredicted"):
            phases.styles.height = "1fr"
            return shown
        if untraced:
            estimate = None if shown.panel is None else shown.panel.estimate
            least = min(LEAST_PARTS, len(at_peak(estimate)) + 3) if estimate is not None else 0
        else:
            least = LEAST_TRACE if self.has_class("-low") else LEAST_TRACE_TALL
        phases.styles.height = max(LEAST_PHASES, min(wanted, self.size.height - FRAME_ROWS - least))
        return shown

    def action_trace(self) -> None:
        """Trace the panel's workload. Code that a preset names runs only here, and only after a yes."""
        panel = self._shared.state.view().panel
        if panel is None:
            self.notify(why_no_preset(self._shared.state))
            return
        job = (panel.workload, panel.device)

        def start(yes: bool | None = True) -> None:
            if yes:
                self._traces.start(job)
                self._shared.redraw.now()

        if self._traces.busy:
            self.notify("A dry run is already running (x cancels it).")
            return
        refusal = self._traces.refusal(job)
        if refusal:
            self.notify(refusal, severity="warning")
            return
        model = job[0].model
        if not isinstance(model, TorchModel):
            start()
            return
        from vramtui.app.ui.chooser import Confirm

        part = f", its function {model.function}" if model.function else ""
        question = (
            f"The preset names Python code: {printable(model.file)}{printable(part)}. A dry run"
            " executes it on this machine, as you. Run it?"
        )
        self.app.push_screen(Confirm("Run this file?", question), start)

    def action_cancel_trace(self) -> None:
        if not self._traces.cancel():
            self.notify("No dry run is running.", timeout=2)
        self._shared.redraw.now()

    def action_leave_timeline(self) -> None:
        """Cancel the trace, else leave the screen."""
        if self._traces.cancel():
            self._shared.redraw.now()
        else:
            self._shared.screens.show(FIRST)
