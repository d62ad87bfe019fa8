"""The GPU panel: one bar for each GPU with used, reserved and free memory, and a mark at the prediction."""

import re

from rich.cells import cell_len
from rich.style import Style
from textual import events
from textual.strip import Strip

from vramtui.app.context import GpuChosen
from vramtui.app.state.rows import why
from vramtui.app.state.view import GpuBar, View
from vramtui.app.themes import Palette
from vramtui.app.ui.lines import Piece, Wheeled, fit, right, scrolled, short_name, strip, wrap
from vramtui.core.base.text import printable
from vramtui.core.base.units import format_duration, format_gib
from vramtui.core.observation.readings import EMULATED, Gpu, instance_names

_CALL, _IN_CALL = re.compile(r"^nvml\w+: "), re.compile(r" \(in nvml\w+\)$")
USED, DRIVER, FREE, MARK, OVER = "█", "▒", "░", "┊", "▶"
ONE_LINE = 66
# Seconds, less than two reads, for which power and temperature stay: the driver gives means of a second itself.
CALM = 1.5
HOT = 85  # °C
# Least columns of a bar, those of a line without name and memory, before the name is cut, and of the name.
BAR_LEAST, BESIDE_NAME, LEAST_NAME = 22, 35, 16
# More GPUs are shown in two columns, if each is so wide: otherwise the processes would have too few lines.
ONE_COLUMN, COLUMN_LEAST = 8, 56
EMPTY = (
    "No GPUs are listed.",
    "`vramtui doctor` shows why the driver does not answer; `vramtui --demo` shows a host with GPUs.",
)


class GpuPanel(Wheeled[View]):
    """One line for each GPU if its figures fit next to the bar, else two."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._titles = ("GPUs", "")
        self.border_title = "GPUs"
        self._first, self._seen = 0, (0, 0)  # which GPU was chosen, and the height
        self._owners: list[tuple[str, ...]] = []
        self._calm_at, self._calm = 0.0, dict[str, Gpu]()  # the GPUs whose power and temperature are shown

    def lines_for(self, view: View, width: int, most: int) -> int:
        """Return the number of lines that the panel needs in `width` columns, up to `most`."""
        if view.sample is None:
            return 2
        if not view.bars:
            return sum(len(wrap(sentence, width - 2)) for sentence in EMPTY)
        count = -(-len(view.bars) // _abreast(len(view.bars), width))
        return min(most, count * _lines_each(count, width, most))

    def part(self, view: View) -> object:
        return view.sample is None, bool(view.failure), view.bars, self._first

    def build(self, view: View, palette: Palette, width: int, height: int) -> list[Strip]:
        if view.sample is None:
            state = "no GPU can be read; trying again · d opens the demo" if view.failure else "asking the driver …"
            return [strip([(f" {state}", palette.dim)], width, palette.text)]
        if not view.bars:
            words = [line for sentence in EMPTY for line in wrap(sentence, width - 2)]
            return [strip([(f" {line}", palette.dim)], width, palette.text) for line in words][:height]
        columns = _abreast(len(view.bars), width)
        room = width // columns
        each = _lines_each(-(-len(view.bars) // columns), width, height)
        chosen = next((at for at, bar in enumerate(view.bars) if bar.chosen), self._seen[0])
        if (chosen, height) != self._seen:  # it is in sight then, and the wheel decides from then on
            self._first = scrolled(self._first, chosen, (height - 1) // each * columns, len(view.bars))
            self._seen = chosen, height
        self._first = max(0, min(self._first, len(view.bars) - height // each * columns))
        if view.paused or not 0 <= view.sample.taken_at - self._calm_at < CALM:
            self._calm_at, self._calm = view.sample.taken_at, {bar.gpu.uuid: bar.gpu for bar in view.bars}
        simulated = " (simulated)" if view.sample.source == EMULATED else ""
        # As the driver gives them, or shorter if these do not fit; a MIG instance by its profile.
        instances = instance_names([bar.gpu for bar in view.bars])
        names = [
            printable(" ".join(filter(None, ("└", instances.get(gpu.uuid, ""), f"MIG {gpu.mig_profile}"))))
            if gpu.mig_profile
            else printable(gpu.name)
            for gpu in (bar.gpu for bar in view.bars)
        ]
        if all(name.startswith(("NVIDIA ", "└")) for name in names):
            names = [name.removeprefix("NVIDIA ") for name in names]
        sized = (gpu for gpu in (bar.gpu for bar in view.bars) if gpu.memory.total or gpu.memory.unified)
        figures = max((len(_memory_text(gpu)) for gpu in sized), default=0)
        most = max(room - BESIDE_NAME - figures - len(simulated), LEAST_NAME)
        if max(map(cell_len, names)) > most:
            names = list(map(short_name, names))
        name_width = min(max(map(cell_len, names)), most)
        names = [fit(name, name_width) + simulated for name in names]
        calm = [self._calm.get(bar.gpu.uuid, bar.gpu) for bar in view.bars]
        shown = list(zip(view.bars, calm, names, strict=True))[self._first :]
        down = -(-len(shown) // columns)
        is_cut = down * each > height
        down = (height - 1) // each if is_cut else down
        lines: list[Strip] = []
        self._owners = []
        for at in range(down):
            row = shown[at : down * columns : down]
            bars = [_bar_lines(*one, palette, (room, figures), each) for one in row]
            lines += [Strip.join(parts).adjust_cell_length(width, palette.text) for parts in zip(*bars, strict=True)]
            self._owners += [tuple(bar.gpu.uuid for bar, *_ in row)] * each
        if is_cut:
            lines.append(strip([(f"  ↓ {len(shown) - down * columns} more: scroll", palette.dim)], width, palette.text))
        return lines

    def wheel(self, direction: int) -> None:
        self._first = max(0, self._first + direction)
        self.redraw()

    def on_click(self, event: events.Click) -> None:
        at = event.get_content_offset(self)
        if at is not None and at.y < len(self._owners):
            owners = self._owners[at.y]
            columns = _abreast(len(self.view.bars), self.size.width) if self.view is not None else 1
            place = min(at.x * columns // max(1, self.size.width), len(owners) - 1)
            self.post_message(GpuChosen(owners[place]))


def _abreast(count: int, width: int) -> int:
    return 2 if count > ONE_COLUMN and width // 2 >= COLUMN_LEAST else 1


def _lines_each(count: int, width: int, most: int) -> int:
    return 1 if width >= ONE_LINE or count * 2 > most else 2


def _bar_lines(bar: GpuBar, calm: Gpu, name: str, palette: Palette, room: tuple[int, int], each: int) -> list[Strip]:
    """Return the line or two of one GPU; `room` is the columns of the line, and of the longest memory, so that all bars
    end in one column. Power and temperature are those of `calm`.
    """
    gpu, (width, longest) = bar.gpu, room
    mark = palette.ink("primary", bold=True) if bar.chosen else palette.dim
    head: list[Piece] = [
        ("▸" if bar.chosen else " ", mark),
        (right(str(gpu.index), 2), palette.strong),
        (f" {name} ", palette.text),
    ]
    if gpu.state != "ok":  # the state, the last known memory and its age, and the reason on the second line if possible
        word = " LOST " if gpu.state == "lost" else " FAILED "
        first: list[Piece] = [*head, (word, palette.ink("background", "error", bold=True))]
        if bar.last is not None:
            first.append((f" {format_duration(bar.age)} ago: {_memory_text(bar.last).strip()} ", palette.dim))
        second: list[Piece] = [("    ", palette.text)]
        last = first if each == 1 else second
        if gpu.reason:
            last.append((f" {_short(printable(gpu.reason), width - _width(last) - 1)}", palette.ink("error")))
        return [strip(pieces, width, palette.text) for pieces in (first, second)[:each]]
    used, text = 4 + cell_len(name) + 1, _memory_text(gpu)
    memory = right(text, max(longest, len(text)))
    percent, power, heat = _figures(gpu, calm, palette)
    figures, left = [*percent, *power, *heat], width - used - len(memory) - 2
    if each == 1:
        without_limit = [*percent, *power[:1], (" W", palette.dim), *heat]
        fewer = ([*percent, *power, *heat], without_limit, [*percent, *heat], percent)
        figures = next((some for some in fewer if left - _width(some) >= BAR_LEAST), percent)
        left -= _width(figures)
    line = [*head, *_track(bar, palette, left), (f" {memory}", palette.text)]
    if each == 1:
        return [strip([*line, *figures], width, palette.text)]
    return [strip(line, width, palette.text), strip([(" " * (used + 1), palette.text), *figures], width, palette.text)]


def _width(pieces: list[Piece]) -> int:
    return sum(cell_len(text) for text, _ in pieces)


def _short(reason: str, room: int) -> str:
    """Return the reason, or as much of its sense as fits, without the failed call and then without the explanation; the
    problems have all of it.
    """
    without_call = _IN_CALL.sub("", _CALL.sub("", reason))
    for text in (reason, without_call, without_call.partition(": ")[0]):
        if cell_len(text) <= room and text.count("(") == text.count(")"):
            return text
    return fit(without_call, max(0, room))


def _memory_text(gpu: Gpu) -> str:
    if gpu.memory.unified and gpu.memory.total is None and gpu.memory.used is not None:
        return f"{format_gib(gpu.memory.used)} GiB unified, {format_gib(gpu.memory.free)} free"
    if gpu.memory.total is None or gpu.memory.used is None:
        return f"memory {why(gpu, 'memory')}"
    total = format_gib(gpu.memory.total)
    text = f"{right(format_gib(gpu.memory.used), len(total))}/{total} GiB"
    return f"{text} unified" if gpu.memory.unified else text


def _figures(gpu: Gpu, calm: Gpu, palette: Palette) -> list[list[Piece]]:
    """Return utilisation, and power and temperature as of `calm`; a dash for an unknown one (details say why), and
    nothing for a MIG instance without any. The figures have one colour: to begin another takes as many bytes as four.
    """
    hot = (gpu.temperature_celsius or 0) >= HOT
    if hot or (calm.temperature_celsius or 0) >= HOT:
        calm = gpu
    percent = "–" if gpu.utilization is None else f"{gpu.utilization}"
    power = "–" if calm.power_watts is None else f"{calm.power_watts:.0f}"
    limit = "" if gpu.power_limit_watts is None else f"/{gpu.power_limit_watts:.0f}"
    heat = "–" if calm.temperature_celsius is None else f"{calm.temperature_celsius}"
    if gpu.mig_parent is not None and (gpu.utilization, gpu.power_watts, gpu.temperature_celsius) == (None, None, None):
        return [[(" " * width, palette.text)] for width in (6, 10, 7)]
    return [
        [(f" {percent:>3}", palette.text), (" %", palette.dim)],
        [(f" {power:>{7 - len(limit)}}", palette.text), (f"{limit} W", palette.dim)],
        [(f" {heat:>3}", palette.ink("error", bold=True) if hot else palette.text), (" °C", palette.dim)],
    ]


def _track(bar: GpuBar, palette: Palette, width: int) -> list[Piece]:
    """Return the bar in `width` columns, edges included: one column or more for any memory."""
    gpu, inner, edge = bar.gpu, max(1, width - 2), palette.ink("line")
    total, used = gpu.memory.total, gpu.memory.used
    if total is None and gpu.memory.unified and used is not None and gpu.memory.free is not None:
        total = used + gpu.memory.free  # other programs hold the rest of the host's memory
    if not total or used is None:
        return [(" " * width, palette.text)]
    filled, driver = (
        min(inner, max(1 if part > total // 1000 else 0, round(part * inner / total)))
        for part in (used, gpu.memory.reserved or 0)
    )
    driver = min(inner - filled, driver)
    cells = [USED] * filled + [FREE] * (inner - filled - driver) + [DRIVER] * driver
    colours = {USED: palette.ink("used"), FREE: palette.ink("free"), DRIVER: palette.ink("driver")}
    styles: list[Style] = [colours[cell] for cell in cells]
    if bar.predicted is not None:
        over = bar.predicted > total - (gpu.memory.reserved or 0)
        at = inner - 1 if bar.predicted >= total else min(inner - 1, bar.predicted * inner // total)
        cells[at] = OVER if over else MARK
        under = "used" if at < filled else "background"
        styles[at] = palette.ink("error" if over else "prediction", under, bold=True)
    pieces: list[Piece] = [("▐", edge)]
    for cell, style in zip(cells, styles, strict=True):
        if len(pieces) > 1 and pieces[-1][1] is style:
            pieces[-1] = (pieces[-1][0] + cell, style)
        else:
            pieces.append((cell, style))
    return [*pieces, ("▌", edge)]
