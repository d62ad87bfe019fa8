"""The theme on the terminal, and its colours."""

import os
import sys
from collections.abc import Callable
from typing import Any

from rich.segment import Segment
from textual.app import App
from textual.binding import Binding
from textual.color import Color
from textual.filter import LineFilter
from textual.theme import Theme

from vramtui.app.themes import THEMES, Palette, palette_variables, theme_for
from vramtui.core.base.ascii import ascii_wanted, plain_text

_KEY_NAMES = str.maketrans({"↑": "up", "↓": "down", "←": "left", "→": "right", "⏎": "enter"})


def is_ascii() -> bool:
    return ascii_wanted(os.environ, getattr(sys.__stdout__, "encoding", None))


def key_shown(app: App[Any], binding: Binding) -> str:
    """Return a key as it is written; in ASCII arrows by name, because ^, v, < and > are other keys."""
    key = app.get_key_display(binding)
    return key.translate(_KEY_NAMES) if is_ascii() else key


class AsciiFilter(LineFilter):
    """Replaces characters that are not ASCII."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        del background
        return [Segment(plain_text(text), style, control) for text, style, control in segments]


class Colours:
    """Our themes in an app, in ASCII where the terminal has no Unicode.

    Args:
        app: the app.
        wanted: the theme of the settings; None for one that the terminal can show.
        draw: draws everything again.

    Attributes:
        plain: use no colours.
        palette: the styles that widgets draw with; None until the app runs.
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
        suits = theme_for(self._app.console.color_system, plain=self.plain)
        self._app.theme = suits if self.plain else self._wanted or suits

    def variables(self, theme: dict[str, str]) -> dict[str, str]:
        """Return the variables of a theme, with those that it lacks."""
        self._variables = palette_variables(theme, dark=self._app.current_theme.dark, plain=self.plain)
        return self._variables

    def follow_theme(self) -> None:
        """Take the theme's colours, now and whenever it changes."""

        def change(_: Theme) -> None:
            self.palette = Palette(self._variables, plain=self.plain)
            self._draw()

        self._app.theme_changed_signal.subscribe(self._app, change)
        self.palette = Palette(self._variables, plain=self.plain)
