"""Windows over Watch: details of a row and its GPU, columns, a signal, the arithmetic, and formats of snapshots."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from rich.cells import cell_len
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.content import Content
from textual.widgets import Input, OptionList, SelectionList, Static
from textual.widgets.option_list import Option
from textual.widgets.selection_list import Selection

from vramtui.app.context import AppContext
from vramtui.app.state.dashboard_state import row_ledger
from vramtui.app.state.rows import why
from vramtui.app.state.view import SORT_COLUMNS, Panel, ProcessRow, SortColumn, View
from vramtui.app.ui.chooser import CheckList, TextWindow, Window
from vramtui.app.ui.graph import braille_rows, fullest, levels
from vramtui.app.ui.parts import same_parts
from vramtui.app.watch.estimate_panel import ASSIGN, guess_sentences, read_from
from vramtui.core.base import toml
from vramtui.core.base.text import printable
from vramtui.core.base.units import GIB, format_bytes, format_column, format_duration, format_percent
from vramtui.core.estimate.assumptions import settings_of
from vramtui.core.estimate.estimate import Ledger
from vramtui.core.estimate.explanation import TREE, arithmetic, chapters, peak_sentence
from vramtui.core.observation import readings
from vramtui.core.observation.alerts import xid_sentence
from vramtui.core.observation.history import Curve, Peak
from vramtui.core.observation.signals import MEANINGS, SIGNALS, SignalName
from vramtui.core.schema.settings import FORMATS, Format, SnapshotSettings
from vramtui.models.named_files import is_plain_file

Facts = list[tuple[str, str]]
WIDEST, FRAME = 90, 5  # columns of the window; of its border, padding and scroll bar
INDENT, LEAST = 19, 12  # columns before a fact's text, and the fewest of the text
EXACT = {"accounting": "the driver's accounting", "probe": "reported by PyTorch (probe)"}


SPANS = (300, 900, 1800, 3600)  # seconds
ROWS = 2  # of braille for each gauge
LEAST_COLUMNS = 8
WATTS, CELSIUS = 100, 100  # least end of a scale without a known limit
GAUGES: Mapping[str, Callable[[int], str]] = {
    "utilization": lambda value: f"{value} %",
    "memory": format_bytes,
    "power": lambda value: f"{value} W",
    "temperature": lambda value: f"{value} °C",
}


def gauge_rows(
    gauges: Mapping[str, Curve], gpu: readings.Gpu, end: float, span: int, width: int
) -> list[tuple[str, list[str]]]:
    """Return the name and lines of each known gauge: its present and highest value, then its graph."""
    rows = []
    for name, form in GAUGES.items():
        if name not in gauges or not len(gauges[name].times):
            continue
        curve, values = gauges[name], gauges[name].values[0]
        least = CELSIUS
        if name == "memory":
            least = gpu.memory.total or 1
        elif name == "power":
            least = round(gpu.power_limit_watts or WATTS)
        places = fullest(curve.times, values, end - span, end, 2 * max(LEAST_COLUMNS, width))
        drawn = [None if place is None else values[place] for place in places]
        known = [value for value in drawn if value is not None]
        most = f", peak {form(max(known))}" if known else ""
        dots = levels(drawn, max(least, *values), ROWS)
        rows.append((name, [f"{form(values[-1])}{most}", *braille_rows(dots, ROWS)]))
    return rows


def span_words(span: int) -> str:
    return "the last hour" if span == SPANS[-1] else f"the last {span // 60} minutes"


class RowFacts(NamedTuple):
    """Facts about the chosen row that the view does not have.

    Attributes:
        reported: its process's memory as its own probe reports it.
        grown: by a GPU's uuid, bytes by which its processes grew since the last look.
        gauges: by a GPU's uuid, its gauges by name.
        measure_traffic: measures the PCIe traffic of a GPU; None if nothing can.
        environment: of its process, by name; empty if that is another user's, None if it was not read.
    """

    reported: Ledger | None = None
    grown: Mapping[str, int | None] = MappingProxyType({})
    gauges: Mapping[str, Mapping[str, Curve]] = MappingProxyType({})
    measure_traffic: Callable[[str], readings.PcieTraffic | readings.Absence] | None = None
    environment: Mapping[str, str] | None = None


class Details(TextWindow):
    """The facts of the moment when it was opened, and the hour before it, for the chosen row and its GPU, then for any
    other GPU.
    """

    BINDINGS = [
        Binding("plus,equals_sign", "zoom(-1)", "Zoom in", id="details.zoom_in", show=False),
        Binding("minus", "zoom(1)", "Zoom out", id="details.zoom_out", show=False),
        Binding("left", "gpu(-1)", "GPU before", id="details.gpu_before", show=False, priority=True),
        Binding("right", "gpu(1)", "Next GPU", id="details.next_gpu", show=False, priority=True),
    ]

    def __init__(self, view: View, known: RowFacts | None = None) -> None:
        self._gpus: Sequence[readings.Gpu] = view.sample.gpus if view.sample is not None else ()
        others = " · left right other GPUs" if len(self._gpus) > 1 else ""
        super().__init__("Details", f"up down scroll{others} · + - zoom · Esc close")
        self._view = view
        row = view.chosen
        # If the GPU does not answer, the row has its last answer.
        self._gpu = row.gpu if row is not None else next(iter(self._gpus), None)
        self._known = known or RowFacts()
        self._span = SPANS[-1]
        self._traffic: dict[str, readings.PcieTraffic | readings.Absence] = {}

    def on_mount(self) -> None:
        """Measure traffic that no sample has, on a thread."""
        gpu, measure = self._gpu, self._known.measure_traffic
        if gpu is None or measure is None or gpu.pcie_sent is not None or gpu.uuid in self._traffic:
            return

        def show(traffic: readings.PcieTraffic | readings.Absence) -> None:
            self._traffic[gpu.uuid] = traffic
            if self.is_mounted:
                self.on_resize()

        def run() -> None:
            self.app.call_later(show, measure(gpu.uuid))

        threading.Thread(target=run, name="measure traffic", daemon=True).start()

    def action_gpu(self, steps: int) -> None:
        if self._gpu is None or not self._gpus:
            return
        uuids = [gpu.uuid for gpu in self._gpus]
        at = (uuids.index(self._gpu.uuid) if self._gpu.uuid in uuids else 0) + steps
        self._gpu = self._gpus[at % len(self._gpus)]
        row = self._view.chosen
        if row is not None and row.gpu.uuid == self._gpu.uuid:
            self._gpu = row.gpu
        self.on_mount()
        self.on_resize()

    def action_zoom(self, steps: int) -> None:
        self._span = SPANS[min(max(SPANS.index(self._span) + steps, 0), len(SPANS) - 1)]
        self.on_resize()

    def on_resize(self) -> None:
        self.query_one("#window Static", Static).update(self.text(self.app.size.width * 95 // 100))

    def text(self, room: int = WIDEST) -> Content:
        """Return process, GPU and its past, in a window of up to `room` columns; a long fact continues below its
        beginning.
        """
        width = min(WIDEST, room) - FRAME
        row, sample, gpu = self._view.chosen, self._view.sample, self._gpu
        if sample is None or gpu is None:
            return Content("No GPU is listed.")
        sections: list[tuple[str, Facts]] = []
        if row is not None and row.process is not None and row.gpu.uuid == gpu.uuid:
            facts = process_facts(row, row.process, sample.taken_at)
            facts[5:5] = reported_facts(self._known.reported)
            if (known := self._known.environment) is not None:
                words = f"variables: {len(known)}, below (End)" if known else "only your own processes' is read"
                facts.append(("environment", words))
            if self._view.is_monitor:
                facts = [fact for fact in facts if fact[0] not in {"preset", "predicted"}]
            sections.append((f"Process {row.process.pid}" if row.process.pid >= 0 else "Pod", facts))
        unattributed = unattributed_facts(gpu, sample.host, self._known.grown.get(gpu.uuid))
        if gpu.uuid in self._traffic:
            gpu = readings.with_traffic(gpu, self._traffic[gpu.uuid])
        heading, room = f"GPU {readings.gpu_name(gpu, readings.instance_names(self._gpus))}", max(LEAST, width - INDENT)
        sections.append((heading, [*gpu_facts(gpu), *unattributed]))
        pieces: list[Content | tuple[str, str]] = []
        for title, facts in sections:
            pieces.append((f"{title}\n", "bold $primary"))
            for name, value in facts:
                first, *rest = folded(printable(value), room) or [""]
                lines = "\n".join((f" {first}", *(" " * INDENT + line for line in rest)))
                pieces.append(Content.assemble((f"  {name:<16}", "$muted"), f"{lines}\n"))
        rows = gauge_rows(self._known.gauges.get(gpu.uuid, {}), gpu, sample.taken_at, self._span, room)
        if rows:
            pieces.append((f"{heading}, {span_words(self._span)}\n", "bold $primary"))
        for name, (words, *drawn) in rows:
            pieces += [(f"  {name:<{INDENT - 2}}", "$muted"), (f"{words}\n", "")]
            pieces += [(f"{' ' * INDENT}{line}\n", "$primary") for line in drawn]
        if row is not None and row.gpu.uuid == gpu.uuid and self._known.environment:
            pieces.append(("Environment\n", "bold $primary"))
            for name, value in self._known.environment.items():
                first, *rest = folded(f"{name}={value}", width - 4)
                pieces.append(("\n".join((f"  {first}", *(f"    {line}" for line in rest), "")), ""))
        return Content.assemble(*pieces)


def details_of(shared: AppContext, view: View) -> Details:
    state, chosen, sample = shared.state, view.chosen, view.sample
    if sample is None:
        return Details(view)
    is_current = sample is state.sample
    host, gpus = sample.host.name, sample.gpus if is_current else ()
    process = chosen.process if chosen is not None and is_current else None
    facts = RowFacts(
        reported=None if chosen is None else row_ledger(state.session.jobs, chosen),
        grown={gpu.uuid: state.session.history.grown(host, gpu.uuid) for gpu in gpus},
        gauges=state.session.history.gauges,
        measure_traffic=shared.measure_traffic if is_current else None,
        environment=shared.environment(process.pid, process.started_at) if process and shared.environment else None,
    )
    return Details(view, facts)


def folded(text: str, width: int) -> list[str]:
    """Return `text` in lines of `width` cells or less, broken at spaces; a longer word is broken."""
    lines, line, taken = [], "", 0
    for word in text.split(" "):
        cells = cell_len(word)
        if line and taken + 1 + cells > width and cells <= width:
            lines.append(line)
            line, taken = word, cells
        elif taken + bool(line) + cells <= width:
            line, taken = f"{line} {word}" if line else word, taken + bool(line) + cells
        else:  # each character is measured once
            rest, begun, taken = f"{line} {word}" if line else word, 0, 0
            for place, character in enumerate(rest):
                size = cell_len(character)
                if taken + size > width:
                    lines.append(rest[begun:place])
                    begun, taken = place, 0
                taken += size
            line = rest[begun:]
    return [*lines, line] if line else lines


def process_facts(row: ProcessRow, process: readings.Process, taken_at: float) -> Facts:
    started, host_memory, now = process.started_at, process.host_memory, "none left"
    if row.now is not None:
        now = format_bytes(row.now, 2)
    elif row.kind != "exited":
        now = why(process, "used_memory")
    facts = [
        ("command", process.command_or_name or why(process, "command")),
        ("user", process.user or why(process, "user")),
        ("state", f"{process.state}, type {process.type}" if row.gone_at is None else "exited"),
        ("memory now", now),
        ("lifetime peak", peak_words(row.learned, row.fast_since, row.fast_interval)),
        ("preset", row.preset or "none (m assigns one)"),
    ]
    if process.rank is not None:
        place = process.rank
        facts.append(("rank", f"{place.rank} of {place.size} in {place.job}, by {place.launcher or 'its environment'}"))
    if row.predicted is not None:
        facts.append(("predicted", f"{format_bytes(row.predicted, 2)} ({format_percent(row.fraction)})"))
    if started is not None:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(started))
        facts.append(("started", f"{when}, {format_duration(taken_at - started)} ago"))
    if process.container is not None:
        facts.append(("runs in", process.container))
    above = process.ancestors
    if above is not None and above.pids:
        facts.append(("started by", f"pid {above.pids[-1]}: {above.command}"))
    if process.module_loading == "eager":
        facts.append(("kernels", "all loaded at the start (CUDA_MODULE_LOADING=EAGER)"))
    if process.torch is not None:
        settings = f", {process.alloc_conf}" if process.alloc_conf else ""
        facts.append(("PyTorch", f"{process.torch}{settings}"))
    if process.sm_percent is not None:
        facts.append(("GPU", f"busy {process.sm_percent} %"))
    facts.append(("CPU", _value(process, "cpu_percent", "{:.1f} % of a core")))
    ram = format_bytes(host_memory, 2) if host_memory is not None else why(process, "host_memory")
    return [*facts, ("host memory", ram)]


def peak_words(peak: Peak | None, fast_since: float | None, fast_interval: float | None) -> str:
    """Return a process's lifetime peak and how reliable it is."""
    if peak is None:
        return "not known"
    size = format_bytes(peak.bytes, 2)
    if peak.how != "sampled":
        return f"{size}, exact: {EXACT.get(peak.how, peak.how)}"
    every = f" every {peak.interval:g} s" if peak.interval else ""
    if fast_since is not None and fast_interval is not None:
        every = f" every {fast_interval:g} s since {_clock(fast_since)}"
    return f"{size} at {_clock(peak.at)}, sampled{every}: short spikes may be higher"


def reported_facts(ledger: Ledger | None) -> Facts:
    """Return the peaks that PyTorch reports; the process's own is higher by its context and other libraries."""
    if ledger is None:
        return []
    pairs = (("allocated peak", ledger.allocated), ("reserved peak", ledger.reserved))
    return [(name, f"{format_bytes(size, 2)}, exact: {EXACT['probe']}") for name, size in pairs if size is not None]


def _clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at))


def gpu_facts(gpu: readings.Gpu) -> Facts:
    memory = gpu.memory
    parts = {"used": memory.used, "driver": memory.reserved, "free": memory.free, "total": memory.total}
    known = [f"{name} {format_bytes(count)}" for name, count in parts.items() if count is not None]
    repairs, throttle = why(gpu, "memory_repairs"), why(gpu, "throttle_reasons")
    if gpu.memory_repairs is not None:
        unit = "rows remapped" if (gpu.compute_capability or (8, 0)) >= (8, 0) else "pages retired"
        repairs = f"{gpu.memory_repairs} {unit}{', more when the GPU is reset' if gpu.repair_pending else ''}"
    if gpu.throttle_reasons is not None:
        throttle = ", ".join(gpu.throttle_reasons) or "nothing"
    xids: Facts = [("XID errors", why(gpu, "xid_errors"))]
    if gpu.xid_errors is not None:
        latest = {error.code: error.at for error in gpu.xid_errors}
        counts = Counter(error.code for error in gpu.xid_errors)
        xids = [
            (_clock(at), xid_sentence(code) + (f" ({counts[code]} times)" if counts[code] > 1 else ""))
            for code, at in sorted(latest.items(), key=lambda pair: -pair[1])
        ] or [("XID errors", "none since the start")]
    facts = [("name", gpu.name), ("uuid", gpu.uuid)]
    if gpu.state != "ok":
        facts.append(("state", f"{gpu.state}: {gpu.reason}"))
    facts += [
        ("memory", " · ".join(known) or why(gpu, "memory")),
        ("utilization", _value(gpu, "utilization", "{} %") + f", memory {_value(gpu, 'memory_utilization', '{} %')}"),
        ("power", _value(gpu, "power_watts", "{:.0f} W") + f", limit {_value(gpu, 'power_limit_watts', '{:.0f} W')}"),
        ("temperature", _value(gpu, "temperature_celsius", "{} °C")),
        ("clocks", f"SM {_value(gpu, 'sm_clock_mhz', '{} MHz')}, memory {_value(gpu, 'memory_clock_mhz', '{} MHz')}"),
        ("fan", _value(gpu, "fan_percent", "{} %")),
        ("encoder", _value(gpu, "encoder_utilization", "{} %")),
        ("decoder", _value(gpu, "decoder_utilization", "{} %")),
        ("PCIe", f"generation {_value(gpu, 'pcie_generation', '{}')}, width {_value(gpu, 'pcie_width', 'x{}')}"),
        ("over PCIe", _traffic(gpu, "pcie_sent", "pcie_received")),
        ("over NVLink", _traffic(gpu, "nvlink_sent", "nvlink_received")),
        ("ECC errors", _value(gpu, "ecc_errors", "{}")),
        ("memory repairs", repairs),
        ("throttled by", throttle),
        *xids,
    ]
    if gpu.compute_capability is not None:
        facts.append(("capability", ".".join(map(str, gpu.compute_capability))))
    if gpu.pci_bus_id:
        facts.append(("PCI bus", gpu.pci_bus_id))
    if gpu.mig_profile:
        facts.append(("MIG", f"{gpu.mig_profile} of {gpu.mig_parent}"))
    if memory.unified:
        facts.append(("unified", "it shares the host's memory"))
    return facts


def unattributed_facts(gpu: readings.Gpu, host: readings.Host, grown: int | None = None) -> Facts:
    """Return the bytes that no process accounts for, and the known causes.

    `grown` is the bytes by which its processes grew since the last look, if known.
    """
    count = gpu.unattributed
    if not count:
        return []
    if count < 0:
        return [("unattributed", f"{format_bytes(count)}: {readings.overlap(gpu, grown)}")]
    known = ", ".join(readings.causes(gpu, host)) or (
        "driver, managed memory, or left by exited processes; nothing reports which"
    )
    return [("unattributed", f"{format_bytes(count)}: {known}")]


def _traffic(gpu: readings.Gpu, sent: str, received: str) -> str:
    """Return a link's traffic in both directions; both or neither are known."""
    out, into = getattr(gpu, sent), getattr(gpu, received)
    if out is None or into is None:
        return why(gpu, sent)
    return f"{format_bytes(out)}/s sent, {format_bytes(into)}/s received"


def _value(reading: readings.Reading, name: str, form: str) -> str:
    value = getattr(reading, name)
    return why(reading, name) if value is None else form.format(value)


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
        columns = toml.loads(Path(__file__).with_name("columns.toml").read_text(encoding="utf-8"))
        words = {name: ((f"{title:<9}", "bold"), (about, "$muted")) for name, (title, about) in columns.items()}
        choices = (
            Selection(Content.assemble(*words[name]), name, initial_state=name in self._shown) for name in SORT_COLUMNS
        )
        yield CheckList[SortColumn](*choices)

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


class SignalWindow(Window[SignalName]):
    """Answers with a signal only to `y`, not to Enter, which may follow a wrong key. Texts are never markup."""

    BINDINGS = [
        Binding("y", "yes", "Yes", id="signal.yes", show=False, tooltip="Send the signal"),
        Binding("n", "close", "No", id="signal.no", show=False, tooltip="Cancel"),
        Binding("t", "pick(0)", "SIGTERM", id="signal.term", show=False, tooltip="Select SIGTERM"),
        Binding("i", "pick(1)", "SIGINT", id="signal.int", show=False, tooltip="Select SIGINT"),
        Binding("9", "pick(2)", "SIGKILL", id="signal.kill", show=False, tooltip="Select SIGKILL"),
    ]

    def __init__(self, title: str, question: str, warning: str = "") -> None:
        super().__init__(title, "y send · n or Esc cancel")
        self._question, self._warning = question, warning

    def inside(self) -> ComposeResult:
        yield Static(Content(self._question))
        if self._warning:
            yield Static(Content(self._warning), id="warning")
        keys = ("t", "i", "9")
        options = [
            Option(Content.assemble(f"{key}  ", (f"{name:<8}", "bold"), MEANINGS[name]), id=name)
            for key, name in zip(keys, SIGNALS, strict=True)
        ]
        yield OptionList(*options)
        yield Static(id="asked")

    def on_mount(self) -> None:
        self.query_one(OptionList).focus()
        self.action_pick(0)

    def action_pick(self, place: int) -> None:
        self.query_one(OptionList).highlighted = place

    def on_option_list_option_highlighted(self) -> None:
        self.query_one("#asked", Static).update(Content(f"Send {self._selected_name}?"))

    def action_yes(self) -> None:
        self.dismiss(self._selected_name)

    @property
    def _selected_name(self) -> SignalName:
        return SIGNALS[self.query_one(OptionList).highlighted or 0]


NAME = 30


class Explain(TextWindow):
    """The estimate of the moment in which it was opened."""

    def __init__(self, panel: Panel) -> None:
        super().__init__(f"How {printable(panel.preset.key)} is estimated", "arrows scroll · Esc close")
        self._panel = panel

    def text(self) -> Content:
        """Return peak and totals, chapter by chapter, and the published rules; without an estimate the reason."""
        panel, estimate = self._panel, self._panel.estimate
        if estimate is None:
            lines = [printable(panel.problem)]
            if panel.guess is not None:
                assumed = printable(", ".join(settings_of(panel.preset)))
                lines = [
                    *guess_sentences(panel, panel.guess),
                    "",
                    "No prediction: what is assumed could move the total by more than a fifth, or the job holds more.",
                    f"With {assumed} it would be {format_bytes(panel.guess.estimate)}.",
                    "",
                    ASSIGN,
                    read_from(panel),
                ]
            return Content("\n".join(lines))
        pieces: list[Content | tuple[str, str]] = [(f"{peak_sentence(estimate)}\n", "bold")]
        origin = read_from(panel) if panel.process is not None else ""
        pieces += [(f"  {sentence}\n", "$muted") for sentence in (*TREE, origin) if sentence]
        for chapter in chapters(estimate):
            pieces += [
                (f"\n{chapter.title}", f"bold ${chapter.line.replace('_', '-')}"),
                (f"  {format_bytes(chapter.at_peak, 2)} at the peak\n", "bold"),
                Content(f"{chapter.words.what}\n"),
                Content.assemble(("What moves it: ", "$muted"), f"{chapter.words.changed_by}\n"),
                Content.assemble(("How sure: ", "$muted"), f"{chapter.words.sure}\n"),
            ]
            for part in chapter.parts:
                pieces.append(Content(f"• {printable(arithmetic(part))}\n"))
                pieces.append((f"  held {printable(part.lifetime)}; after {printable(part.source)}\n", "$muted"))
        if estimate.assumptions:
            pieces.append(("\nAssumptions\n", "bold $primary"))
            pieces += [Content(f"  {printable(sentence)}\n") for sentence in estimate.assumptions]
        if panel.rules:
            pieces += [
                ("\nRules of thumb\n", "bold $primary"),
                ("  Published rules for the same job, and this estimate of the parts that each counts.\n", "$muted"),
                (f"  {'in GiB':<{NAME}}{'rule':>9}{'estimate':>10}{'Δ':>10}\n", "$muted"),
            ]
        for rule in panel.rules:
            same, name = same_parts(rule, estimate), printable(rule.method.removeprefix("rules:")).replace("-", " ")
            apart = format_percent(rule.process / same - 1) if same else ""
            figures = f"{format_column(rule.process, GIB):>9}{format_column(same, GIB):>10}{apart:>10}"
            pieces.append(Content(f"  {name[: NAME - 1]:<{NAME}}{figures}\n"))
        return Content.assemble(*pieces)


FORMAT_TITLES: dict[Format, str] = {
    "json": "JSON, for programs",
    "csv": "CSV, a row for each process and part",
    "md": "Markdown, to paste into a ticket",
    "html": "HTML, one page with graphs and the screen that needs no network",
}


class SaveOptions(Window[SnapshotSettings]):
    """Dismissed with the choice, or None."""

    BINDINGS = [
        Binding(
            "ctrl+s", "keep", "Keep", id="saving.keep", show=False, priority=True, tooltip="Save formats and folder"
        ),
        Binding("escape", "close", "Close", id="saving.close", show=False),
    ]

    def __init__(self, settings: SnapshotSettings) -> None:
        super().__init__("Snapshots", "Space toggle · Tab next · Ctrl+S save · Esc cancel")
        self._settings = settings

    def inside(self) -> ComposeResult:
        chosen = self._settings.formats
        yield Static(Content("What `s` writes:"))
        yield CheckList[Format](
            *(Selection(Content(FORMAT_TITLES[name]), name, name in chosen, id=name) for name in FORMATS), id="formats"
        )
        yield Static(Content("Folder (empty: where vramtui was started):"))
        yield Input(self._settings.folder or "", placeholder=str(Path.cwd()), id="folder")
        yield Static(id="wrong")

    def on_mount(self) -> None:
        self.query_one(Input).cursor_blink = False
        self.query_one(SelectionList).focus()

    def on_input_submitted(self) -> None:
        self.action_keep()

    def action_keep(self) -> None:
        """Take the choice, unless nothing is selected or the folder is a file."""
        selected = set(self.query_one(SelectionList).selected)
        folder = self.query_one("#folder", Input).value.strip()
        wrong = ""
        if not selected:
            wrong = "Select at least one format."
        elif folder and is_plain_file(folder):
            wrong = "That is a file, not a folder."
        formats = tuple(name for name in FORMATS if name in selected)
        self.finish(wrong, SnapshotSettings(folder=folder or None, formats=formats))
