"""What the Timeline is of, how far a trace is, and what will bring the observed bars."""

from rich.cells import cell_len
from textual.strip import Strip

from vramtui.app.state.run_fields import fields_of, value_of
from vramtui.app.state.view import Panel
from vramtui.app.themes import Palette
from vramtui.app.timeline.view import TimelineView
from vramtui.app.ui.lines import Lines, Piece, fit, paragraph, strip
from vramtui.core.base.text import printable
from vramtui.core.base.units import format_bytes
from vramtui.core.schema.decoder_models import RuleModel
from vramtui.core.schema.workload import Workload

UNOBSERVED = "Nothing observed: a job started with `vramtui run` reports its phases."
NO_PRESET = "The selected process reports its phases and has no preset: p chooses one to stand beside them."
OFFER = "Press t to trace it: PyTorch runs it on fake tensors in the background, no GPU needed."


class TraceLines(Lines[TimelineView]):
    """Three lines under the header."""

    DEFAULT_CSS = "TraceLines { height: 3; }"

    def build(self, view: TimelineView, palette: Palette, width: int, height: int) -> list[Strip]:
        """The workload, the trace, the observation."""
        panel = view.panel
        if panel is None:
            return paragraph(NO_PRESET, palette, width)[:height] if view.observed else []
        pieces = [_workload(panel, palette), _trace(view, palette), _observed(view, palette)]
        return [strip([(" ", palette.text), *_cut(line, width - 1)], width, palette.text) for line in pieces][:height]


def _cut(pieces: list[Piece], width: int) -> list[Piece]:
    """The pieces in at most `width` columns, with an ellipsis where the last of them is cut."""
    made: list[Piece] = []
    for text, style in pieces:
        made.append((text if cell_len(text) <= width else fit(text, width), style))
        width = max(0, width - cell_len(text))
    return made


def _workload(panel: Panel, palette: Palette) -> list[Piece]:
    fields = [field for field in fields_of(panel.workload) if not field.choices]
    facts = [f"{field.label} {value}" for field in fields if (value := value_of(panel.workload, field)) is not None]
    changed = "  * changed, u undoes" if panel.changed else ""
    return [
        (printable(panel.preset.key), palette.ink("primary", bold=True)),
        (f" on {printable(panel.device.name)} · {_kind(panel.workload)}", palette.text),
        ("".join(f" · {fact}" for fact in facts), palette.dim),
        (changed, palette.ink("accent")),
    ]


def _kind(workload: Workload) -> str:
    """What is done: `train`, `infer`, `serve`; `rule` where a published rule is all there is."""
    table = workload.model if isinstance(workload.model, RuleModel) else workload.run
    return str(type(table).__struct_config__.tag)


def _trace(view: TimelineView, palette: Palette) -> list[Piece]:
    state = view
    if state.running:
        return [
            ("tracing  ", palette.ink("accent", bold=True)),
            (state.running, palette.text),
            (" · x cancels", palette.dim),
        ]
    if state.problem:
        return [("trace ended early: ", palette.ink("error", bold=True)), (printable(state.problem), palette.text)]
    if state.result is not None:
        stopped = state.result.out_of_memory
        if stopped is not None:
            return [("traced  ", palette.ink("warning", bold=True)), (printable(stopped), palette.text)]
        peaks = (
            f"peaks: allocated {format_bytes(state.result.peak_allocated)} · reserved"
            f" {format_bytes(state.result.peak_reserved)} · process {format_bytes(state.result.process)}"
        )
        return [("traced  ", palette.ink("success", bold=True)), (peaks, palette.text)]
    if state.refusal:
        return [("no trace: ", palette.ink("warning", bold=True)), (printable(state.refusal), palette.text)]
    return [(OFFER, palette.dim)]


def _observed(view: TimelineView, palette: Palette) -> list[Piece]:
    if view.observed:
        return [(f"observed: {len(view.observed)} phases that the job reported", palette.text)]
    if view.alone:
        return [(f"selected: {len(view.alone)} phases that a process without this preset reported", palette.text)]
    return [(UNOBSERVED, palette.dim)]
