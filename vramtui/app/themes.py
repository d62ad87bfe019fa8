"""Our themes, the styles that widgets draw with, and the theme on the terminal."""

import os
import sys
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

from rich.color import Color as RichColor
from rich.segment import Segment
from rich.style import Style
from textual.app import App
from textual.binding import Binding
from textual.color import Color
from textual.filter import LineFilter
from textual.theme import Theme

from vramtui.core.base import toml
from vramtui.core.base.colours import DARK, GROUND, LIGHT
from vramtui.core.base.text import ascii_wanted, plain_text
from vramtui.core.estimate.fits import FitVerdict

_SHARED = {"vramtui-dark": DARK, "vramtui-light": LIGHT}  # the colours of pictures are `core/base/colours.py`'s


def _theme(name: str, table: dict[str, Any]) -> Theme:
    foreground, background = GROUND.get(name) or (table.pop("foreground"), table.pop("background"))
    variables = table.pop("variables", None) or _SHARED[name]
    return Theme(name=name, foreground=foreground, background=background, variables=variables, **table)


_TABLES = toml.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
THEMES = tuple(_theme(name, table) for name, table in _TABLES.items())


FAINT = 0.6
READABLE = 3.0  # least contrast of text: WCAG 2.1's for large text and signs
# Colours of text besides the foreground. In Textual's light themes green and amber are too pale for text.
INKS = ("success", "warning", "error", "primary", "tab", "accent", "prediction", "muted")
FIT_COLOURS: dict[FitVerdict, str] = {
    "fits": "success",
    "tight": "warning",
    "does not fit": "error",
    "unknown": "warning",
}


class Palette:
    """The styles of one theme, from Textual's variables and ours: `is_true` if no colour is left to the terminal,
    `is_plain` if there are none, so that their meaning has to be shown otherwise.
    """

    def __init__(self, variables: dict[str, str], *, plain: bool = False) -> None:
        self._variables = variables
        self.is_plain = plain
        self.is_true = not any("ansi" in colour for colour in variables.values())
        self._styles: dict[tuple[str, str, bool], Style] = {}

    def ink(self, name: str, on: str = "background", *, bold: bool = False) -> Style:
        """Return the style of text in the theme's colour `name` over the colour `on`.

        Few of sixteen colours can be read on the cursor's: all text on it is plain there. The terminal's background
        cannot be a text's colour: on a patch it is black.
        """
        if on == "cursor" and not self.is_true:
            name = "foreground"
        if name == "background" != on and not self.is_true and not self.is_plain:
            name = "on-patch"
        wanted = (name, on, bold)
        if wanted not in self._styles:
            marks, colour = on == "cursor" and self.is_plain, self._colour(name)
            if on == "cursor" and self.is_true and name in INKS:  # nearer to the foreground on the cursor's colour
                ink, foreground, cursor = (Color.parse(self._variables[one]) for one in (name, "foreground", "cursor"))
                colour = _readable(ink, foreground, (cursor,)).rich_color
            self._styles[wanted] = Style(
                color=colour, bgcolor=self._colour(on), bold=bold or None, reverse=marks or None
            )
        return self._styles[wanted]

    def _colour(self, name: str) -> RichColor:
        return Color.parse(self._variables.get(name, self._variables["foreground"])).rich_color

    @cached_property
    def text(self) -> Style:
        return self.ink("foreground")

    @cached_property
    def strong(self) -> Style:
        return self.ink("foreground", bold=True)

    @cached_property
    def dim(self) -> Style:
        return self.ink("muted")


def palette_variables(variables: dict[str, str], *, dark: bool, plain: bool = False) -> dict[str, str]:
    """Return `variables` of any of Textual's themes with ours added; `plain` if the terminal gets no colours."""
    whole = dict(DARK if dark else LIGHT) | variables
    foreground, background = Color.parse(whole["foreground"]), Color.parse(whole["background"])
    if foreground.ansi is None and background.ansi is None:
        # If a theme's text is faint itself, as in the light Solarized, dimmed text has to be nearer to it.
        faint = abs(foreground.brightness - background.brightness) < FAINT
        whole["muted"] = background.blend(foreground, 0.8 if faint else 0.62).hex
        whole["line"] = background.blend(foreground, 0.25).hex
        whole["cursor"] = background.blend(Color.parse(whole["primary"]), 0.28).hex
        whole["bar"] = background.blend(foreground, 0.08).hex
        grounds = tuple(Color.parse(whole[name]) for name in ("background", "bar"))
        whole["tab"] = whole["primary"]
        given = [name for name in INKS if name in whole]  # a drawing may need only some of them
        whole |= {name: _readable(Color.parse(whole[name]), foreground, grounds).hex for name in given}
    else:
        whole |= {
            "muted": "ansi_bright_black",
            "line": "ansi_bright_black",
            "cursor": "ansi_blue",
            "tab": "ansi_bright_white",
            "bar": "ansi_default",
            "on-patch": "ansi_black",
            # The cursor of Textual's lists, which would be invisible while a filter has the focus.
            **dict.fromkeys(("block-cursor-foreground", "block-cursor-blurred-foreground"), "ansi_bright_white"),
            **dict.fromkeys(("block-cursor-background", "block-cursor-blurred-background"), "ansi_blue"),
            "block-cursor-blurred-text-style": "underline" if plain else "none",
        }
    return whole


def _readable(ink: Color, foreground: Color, grounds: tuple[Color, ...]) -> Color:
    """Return `ink`, blended with the foreground until it can be read on each of the grounds."""
    nearer = (ink.blend(foreground, tenths / 10) for tenths in range(10))
    return next((one for one in nearer if min(contrast(one, on) for on in grounds) >= READABLE), foreground)


def contrast(one: Color, other: Color) -> float:
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: Color) -> float:
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour.normalized
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


_KEY_NAMES = str.maketrans({"↑": "up", "↓": "down", "←": "left", "→": "right", "⏎": "enter"})


def is_ascii() -> bool:
    return ascii_wanted(os.environ, getattr(sys.__stdout__, "encoding", None))


def key_shown(app: App[Any], binding: Binding) -> str:
    """Return a key as it is written; in ASCII arrows by name, because ^, v, < and > are other keys."""
    key = app.get_key_display(binding)
    return key.translate(_KEY_NAMES) if is_ascii() else key


class AsciiFilter(LineFilter):
    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [Segment(plain_text(text), style, control) for text, style, control in segments]


class Colours:
    """Our themes in an app, in ASCII where the terminal has no Unicode; `wanted` is the theme of the settings. The
    `palette` is None until the app runs.
    """

    __slots__ = ("_app", "_draw", "_variables", "_wanted", "palette", "plain")

    def __init__(self, app: App[None], wanted: str | None, draw: Callable[[], None]) -> None:
        self._app, self._wanted, self._draw = app, wanted, draw
        self.plain = "NO_COLOR" in os.environ
        self._variables: dict[str, str] = {}
        self.palette: Palette | None = None

    def register(self) -> None:
        for theme in THEMES:
            self._app.register_theme(theme)
        if is_ascii():
            self._app._filters.append(AsciiFilter())  # noqa: SLF001 - Textual has no public list of them
        self._app.theme = "vramtui-dark"

    def suit_terminal(self) -> None:
        """Begin with the theme of the settings, or one that this terminal can show."""
        suits = "vramtui-ansi" if self.plain or self._app.console.color_system == "standard" else "vramtui-dark"
        self._app.theme = suits if self.plain else self._wanted or suits

    def variables(self, theme: dict[str, str]) -> dict[str, str]:
        self._variables = palette_variables(theme, dark=self._app.current_theme.dark, plain=self.plain)
        return self._variables

    def follow_theme(self) -> None:
        """Take the theme's colours, now and whenever it changes."""

        def change(_: Theme) -> None:
            self.palette = Palette(self._variables, plain=self.plain)
            self._draw()

        self._app.theme_changed_signal.subscribe(self._app, change)
        self.palette = Palette(self._variables, plain=self.plain)
