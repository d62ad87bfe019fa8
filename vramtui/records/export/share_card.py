"""A card to share: one job on one card, its verdict and what its memory is made of, as an SVG that asks for no font."""

from collections.abc import Iterator

from vramtui.core.base.colours import DARK
from vramtui.core.base.units import GIB, format_bytes, format_column
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.estimate.fits import Fit, FitVerdict
from vramtui.core.estimate.ledger import LEAVES, TITLES, Line
from vramtui.core.schema.preset import PresetFile
from vramtui.records.export.sanitize import tag, text

WIDE, HIGH, EDGE = 1200, 630, 70  # what social pages show of a link
INK, DIM, PAPER = "#d7deea", "#93a0b3", "#0f131a"
COLOURS: dict[FitVerdict, str] = {
    "fits": "#63d78b",
    "tight": "#f5b83d",
    "does not fit": "#ff6f6f",
    "unknown": "#f5b83d",
}
FONTS = "Inter, 'Segoe UI', 'DejaVu Sans', Arial, sans-serif"
BAR_TOP, BAR_HIGH = 340, 90
PER_ROW, COLUMN = 4, 272


def share_card(preset_file: PresetFile, device: Device, estimate: Estimate, fit: Fit, largest: str = "") -> str:
    """The whole SVG.

    Args:
        preset_file: the job.
        device: the card that it is asked about.
        estimate: what it needs there.
        fit: the verdict.
        largest: a phrase about the largest batch; may be empty.
    """
    return tag(
        "svg",
        tag("rect", width=WIDE, height=HIGH, fill=PAPER),
        *_head(preset_file, device),
        _words(EDGE, 255, f"{fit.sign} {fit.headline(device.name)}", 58, COLOURS[fit.verdict], bold=True),
        _words(EDGE, 305, f"{fit.sentence}{f' · {largest}' if largest else ''}", 26, INK),
        *_bar(estimate, device),
        *_legend(estimate),
        _words(EDGE, HIGH - 34, f"predicted by vramtui, method {estimate.method}", 20, DIM),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDE} {HIGH}",
        width=WIDE,
        height=HIGH,
        font_family=FONTS,
    )


def _head(preset_file: PresetFile, device: Device) -> Iterator[str]:
    run = preset_file.preset.run
    sizes = {"batch_size": "batch", "sequence_length": "sequence", "max_model_len": "context", "precision": ""}
    words = [
        f"{word} {getattr(run, name)}".strip() for name, word in sizes.items() if getattr(run, name, None) is not None
    ]
    yield _words(EDGE, 105, preset_file.preset.name, 46, INK, bold=True)
    yield _words(EDGE, 155, " · ".join((f"{device.name}, {format_bytes(device.total_memory)}", *words)), 28, DIM)


def _bar(estimate: Estimate, device: Device) -> Iterator[str]:
    """The parts at the peak, in the card's memory; what is beyond that ends in a red line."""
    room = WIDE - 2 * EDGE
    top = max(device.total_memory, estimate.process)
    yield tag("rect", x=EDGE, y=BAR_TOP, width=room, height=BAR_HIGH, fill=DARK["free"])
    x = float(EDGE)
    for line, size in _parts(estimate):
        wide = size * room / top
        yield tag(
            "rect", x=f"{x:.1f}", y=BAR_TOP, width=f"{wide:.1f}", height=BAR_HIGH, fill=DARK[line.replace("_", "-")]
        )
        x += wide
    end = EDGE + device.total_memory * room / top
    colour = COLOURS["does not fit"] if estimate.process > device.total_memory else DIM
    yield tag("rect", x=f"{end - 3:.1f}", y=BAR_TOP - 12, width=3, height=BAR_HIGH + 24, fill=colour)


def _legend(estimate: Estimate) -> Iterator[str]:
    shown = sorted(_parts(estimate), key=lambda part: -part[1])[: 2 * PER_ROW]
    for at, (line, size) in enumerate(shown):
        x, y = EDGE + at % PER_ROW * COLUMN, BAR_TOP + BAR_HIGH + 55 + at // PER_ROW * 46
        yield tag("rect", x=x, y=y - 18, width=20, height=20, fill=DARK[line.replace("_", "-")])
        yield _words(x + 30, y, f"{TITLES[line]} {format_column(size, GIB)} GiB", 20, INK)


def _parts(estimate: Estimate) -> list[tuple[Line, int]]:
    sizes = ((line, estimate.ledger.bytes_of(line) or 0) for line in LEAVES)
    return [(line, size) for line, size in sizes if size]


def _words(x: float, y: float, words: str, size: int, fill: str, *, bold: bool = False) -> str:
    weight = "700" if bold else None
    return tag("text", text(words), x=x, y=y, font_size=size, fill=fill, font_weight=weight)
