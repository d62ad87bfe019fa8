"""How full a card gets, as colours and as a few characters."""

from functools import lru_cache

from rich.color import Color
from rich.style import Style
from textual.color import Color as Blendable

from vramtui.app.themes import Palette
from vramtui.core.base.units import GIB, TIB
from vramtui.estimators.planner.planner import FitResult

# Up to which share of the card, the theme's colour, and how much of it is mixed into the background.
BANDS = ((0.25, "success", 0.14), (0.5, "success", 0.26), (0.75, "success", 0.4), (0.9, "warning", 0.34))
FULL, OVER, FAR_OVER = ("warning", 0.55), ("error", 0.42), ("error", 0.2)
FAR = 2.0


def heat(palette: Palette, answer: FitResult | None, room: int) -> Style:
    """The style of a cell: the fuller, the stronger; what is over is another colour.

    In a theme of the terminal's own sixteen colours, which cannot be mixed, the figure is coloured instead.
    """
    if answer is None or answer.process is None:
        return palette.dim
    return _mixed(palette, *_band(answer, room))


@lru_cache(maxsize=64)
def _mixed(palette: Palette, name: str, share: float) -> Style:
    colour, ground = palette.ink(name).color, palette.text.bgcolor
    if colour is None or ground is None or colour.triplet is None or ground.triplet is None:
        return palette.ink(name)
    mixed = Blendable(*ground.triplet).blend(Blendable(*colour.triplet), share)
    return palette.text + Style(bgcolor=Color.from_rgb(*mixed.rgb))


def _band(answer: FitResult, room: int) -> tuple[str, float]:
    share = (answer.process or 0) / room
    if not answer.fits:
        return FAR_OVER if share >= FAR else OVER
    return next(((name, mixed) for most, name, mixed in BANDS if share <= most), FULL)


def figure(count: int, width: int) -> str:
    """A size in at most `width` characters (four are enough for any): GiB with a decimal where there is room, else
    without; TiB with a T.
    """
    gib = count / GIB
    for text in (f"{gib:.1f}", f"{gib:.0f}", f"{count / TIB:.1f}T", f"{count / TIB:.0f}T"):
        if len(text) <= width:
            return text
    return ">" * width
