"""What a terminal is sent for a style, and for the way from one style to another."""

from functools import lru_cache

from rich.color import ColorSystem
from rich.style import Style

Codes = tuple[str, str, str]  # attributes, foreground and background, as they are sent
PLAIN: Codes = ("", "", "")


# By what is seen of styles: Textual gives a style to each place that a text begins at, so that there are ten times as
# many styles as looks, and pairs of styles without an end.
@lru_cache(maxsize=1024)
def transition_of_codes(old: Codes, new: Codes) -> str:
    """The escape sequence that turns one look on the terminal into another."""
    if old == new:
        return ""
    if new == PLAIN:
        return "\x1b[m"
    changes = _attribute_changes(old[0], new[0])
    if old[1] != new[1]:
        changes.append(new[1] or "39")
    if old[2] != new[2]:
        changes.append(new[2] or "49")
    return f"\x1b[{';'.join(changes)}m"


def _attribute_changes(old: str, new: str) -> list[str]:
    """The codes that turn attributes on and off; bold and dim share the one that turns them off."""
    before, after = set(filter(None, old.split(";"))), set(filter(None, new.split(";")))
    off = {_OFF[code] for code in before - after}
    on = after - before | ({"1", "2"} & after if "22" in off else set())
    return [*sorted(off), *sorted(on)]


_OFF = {"1": "22", "2": "22", "3": "23", "4": "24", "5": "25", "7": "27", "9": "29"}
_ATTRIBUTES = (
    ("bold", "1"),
    ("dim", "2"),
    ("italic", "3"),
    ("underline", "4"),
    ("blink", "5"),
    ("reverse", "7"),
    ("strike", "9"),
)


@lru_cache(maxsize=512)
def codes_of(style: Style | None, color_system: ColorSystem) -> Codes:
    """Attributes, foreground and background of a style as SGR codes."""
    if style is None:
        return PLAIN
    attributes = ";".join(code for name, code in _ATTRIBUTES if getattr(style, name))
    foreground = background = ""
    if style.color is not None:
        foreground = ";".join(style.color.downgrade(color_system).get_ansi_codes())
    if style.bgcolor is not None:
        background = ";".join(style.bgcolor.downgrade(color_system).get_ansi_codes(foreground=False))
    return (attributes, "" if foreground == "39" else foreground, "" if background == "49" else background)
