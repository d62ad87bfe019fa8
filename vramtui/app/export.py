"""Snapshots: what is shown, written to files on a thread, in formats and a folder that are chosen once; the picture
among them so that every program draws it alike.
"""

import re
import threading
from collections.abc import Callable, Iterator
from html import unescape
from pathlib import Path
from typing import Protocol
from xml.sax.saxutils import escape

from textual.app import ComposeResult
from textual.binding import Binding
from textual.content import Content
from textual.widgets import Input, SelectionList, Static
from textual.widgets.selection_list import Selection

from vramtui.app.context import AppContext
from vramtui.app.ui.dialog import CheckList, Window
from vramtui.core.base.errors import UserError
from vramtui.core.base.text import paths_in_a_line
from vramtui.core.observation.snapshot import Snapshot
from vramtui.core.schema.settings import DRAWN, FORMATS, Format, SnapshotSettings
from vramtui.models.named_files import is_plain_file

TITLES: dict[Format, str] = {
    "json": "JSON, for programs",
    "csv": "CSV, a row for each process and part",
    "md": "Markdown, to paste into a ticket",
    "svg": "SVG, a picture of the screen",
    "png": "PNG, the picture by rsvg-convert, Inkscape or a browser",
    "html": "HTML, one page with graphs that needs no network",
}


class SaveOptions(Window[SnapshotSettings]):
    """Answers with what was chosen; None where nothing is to change."""

    DEFAULT_CSS = """
    SaveOptions CheckList { height: auto; }
    SaveOptions Input { margin: 0; }
    SaveOptions #wrong { color: $error; height: auto; }
    """
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
        """Formats, folder, and room for what is wrong with them."""
        chosen = self._settings.formats
        yield Static(Content("What `s` writes:"))
        yield CheckList[Format](
            *(Selection(Content(TITLES[name]), name, name in chosen, id=name) for name in (*FORMATS, DRAWN)),
            id="formats",
        )
        yield Static(Content("Folder (empty: where vramtui was started):"))
        yield Input(self._settings.folder or "", placeholder=str(Path.cwd()), id="folder")
        yield Static(id="wrong")

    def on_mount(self) -> None:
        self.query_one(Input).cursor_blink = False
        self.query_one(SelectionList).focus()

    def on_input_submitted(self) -> None:
        """Enter keeps it, too."""
        self.action_keep()

    def action_keep(self) -> None:
        """Answer, unless nothing is ticked or the folder is a file."""
        selected = set(self.query_one(SelectionList).selected)
        folder = self.query_one("#folder", Input).value.strip()
        wrong = ""
        if not selected:
            wrong = "Select at least one format."
        elif folder and is_plain_file(folder):
            wrong = "That is a file, not a folder."
        if wrong:
            self.query_one("#wrong", Static).update(Content(wrong))
            return
        formats = tuple(name for name in (*FORMATS, DRAWN) if name in selected)
        self.dismiss(SnapshotSettings(folder=folder or None, formats=formats))


COLUMN, LINE, ABOVE, TALL = 12.2, 24.4, 18.5, 24.65  # of Rich's SVG: a cell's size, its top over the baseline, and that
_TEXT = re.compile(
    r'<text class="(\S+)" x="([\d.]+)" y="([\d.]+)" textLength="[\d.]+" clip-path="[^"]*">(.*?)</text>', re.DOTALL
)
_FONT = re.compile(r"font-family: Fira Code, monospace;")
FONTS = "font-family: ui-monospace, 'DejaVu Sans Mono', 'Liberation Mono', Menlo, Consolas, monospace;"
_WORD = re.compile(r"\S+")
_LOWER, _LEFT = "▁▂▃▄▅▆▇█", "▏▎▍▌▋▊▉"
_SHADES = {"░": 0.25, "▒": 0.5, "▓": 0.75}
# Arms of a frame's characters from the middle of a cell: left, right, up, down, and how thick they are.
_ARMS = {
    "─": "lr", "━": "LR", "│": "ud", "┃": "UD", "┄": "lr", "┊": "ud", "┌": "rd", "┐": "ld", "└": "ru", "┘": "lu",
    "╭": "rd", "╮": "ld", "╰": "ru", "╯": "lu", "├": "rud", "┤": "lud", "┬": "lrd", "┴": "lru", "┼": "lrud",
}  # fmt: skip
_DASHED = {"┄": "3 3", "┊": "3 3"}
_DOTS = ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3))


def portable(svg: str) -> str:
    """`svg`, as Textual exports it, so that every program draws it alike: a browser, librsvg, Inkscape.

    Rich's SVG asks for `textLength`, which librsvg has no notion of, and sets bars and frames in a font that may not be
    there. Here words stand where they belong each by itself, and blocks, frames and braille are shapes.
    """
    return _FONT.sub(FONTS, _TEXT.sub(lambda found: "".join(_draw_words(*found.groups())), svg))


def _draw_words(style: str, left: str, baseline: str, told: str) -> Iterator[str]:
    text, x0, y0 = unescape(told).replace("\xa0", " "), float(left), float(baseline) - ABOVE
    plain = list(text)
    at = 0
    while at < len(text):
        letter, end = text[at], at + 1
        while end < len(text) and text[end] == letter and letter in "█░▒▓─━┄":
            end += 1
        shape = _shape(letter, x0 + at * COLUMN, y0, end - at, style)
        if shape:
            plain[at:end] = " " * (end - at)
            yield shape
        at = end
    for word in _WORD.finditer("".join(plain)):
        x = x0 + word.start() * COLUMN
        yield f'<text class="{style}" x="{x:g}" y="{baseline}">{escape(word[0])}</text>'


def _shape(letter: str, x: float, y: float, cells: int, style: str) -> str:
    """What stands for `cells` times `letter`; empty where that is a letter."""
    wide = cells * COLUMN
    if letter in _LOWER:
        tall = TALL * (_LOWER.index(letter) + 1) / 8
        return _rect(x, y + TALL - tall, wide, tall, style)
    if letter in _LEFT or letter == "▐":
        share = (_LEFT.index(letter) + 1) / 8 if letter in _LEFT else 0.5
        return _rect(x + COLUMN * (1 - share) * (letter == "▐"), y, COLUMN * share, TALL, style)
    if letter in _SHADES:
        return _rect(x, y, wide, TALL, f'{style}" fill-opacity="{_SHADES[letter]}')
    if letter in _ARMS:
        return _arms(letter, x, y, wide, style)
    code = ord(letter) - 0x2800
    if 0 < code < 0x100:
        dots = (_DOTS[bit] for bit in range(8) if code >> bit & 1)
        return "".join(_rect(x + 2 + 5 * dx, y + 1.5 + 6.1 * dy, 3, 3, style) for dx, dy in dots)
    return ""


def _rect(x: float, y: float, wide: float, tall: float, style: str) -> str:
    edges = ' shape-rendering="crispEdges"'
    return f'<rect class="{style}" x="{x:.2f}" y="{y:.2f}" width="{wide:.2f}" height="{tall:.2f}"{edges}/>'


def _arms(letter: str, x: float, y: float, wide: float, style: str) -> str:
    """Lines from the middle of the cell to its edges, as thin rectangles; dashes have gaps."""
    arms, thick = _ARMS[letter].lower(), 3.0 if _ARMS[letter].isupper() else 1.4
    middle, half = x + COLUMN / 2, y + LINE / 2
    made = []
    if "l" in arms or "r" in arms:
        begin = x if "l" in arms else middle - thick / 2
        end = x + wide if "r" in arms else middle + thick / 2
        if letter in _DASHED:
            count = max(1, round((end - begin) / 6.1))
            made += [_rect(begin + n * 6.1 + 1.5, half - thick / 2, 3, thick, style) for n in range(count)]
        else:
            made.append(_rect(begin, half - thick / 2, end - begin, thick, style))
    if "u" in arms or "d" in arms:
        begin = y if "u" in arms else half - thick / 2
        end = y + TALL if "d" in arms else half + thick / 2
        if letter in _DASHED:
            made += [_rect(middle - thick / 2, y + 1.5 + n * 6.1, thick, 3, style) for n in range(4)]
        else:
            made.append(_rect(middle - thick / 2, begin, thick, end - begin, style))
    return "".join(made)


Save = Callable[[Snapshot, str], list[str]]

_FONT_FACE = re.compile(r"@font-face\s*\{[^}]*\}\s*")


class SnapshotWriter(Protocol):
    """Formats and folder of snapshots, kept from start to start."""

    settings: SnapshotSettings

    def choose(self, settings: SnapshotSettings) -> None:
        """Save like this from now on.

        Raises:
            UserError: the choice holds now, but cannot be kept for later.
        """
        ...


class ExportController:
    """Writes snapshots.

    Args:
        shared: the dashboard's own parts.
        save: writes a snapshot and its picture (SVG) to files and returns their paths; raises UserError.
        writer: the choice of formats and folder; None where nothing can be chosen.
    """

    def __init__(self, shared: AppContext, save: Save | None, writer: SnapshotWriter | None) -> None:
        self._shared = shared
        self._app = shared.app
        self._save = save
        self.writer = writer

    def picture(self) -> str:
        sample = self._shared.state.sample
        host = sample.host.name if sample is not None else ""
        drawn = self._app.export_screenshot(title=f"vramtui · {host}" if host else "vramtui")
        # Textual's template loads a font from a site, which would learn who looks at the picture, and when.
        return _FONT_FACE.sub("", drawn)

    def save(self) -> None:
        snapshot, save = self._shared.state.snapshot(), self._save
        if save is None or snapshot is None:
            self._app.notify("Nothing to save yet." if save else "Saving is not available here.", markup=False)
            return
        picture = self.picture()

        def write() -> None:

            try:
                paths, problem = save(snapshot, portable(picture)), ""
            except (UserError, OSError) as error:
                paths, problem = [], str(error)
            self._app.call_later(self._saved, paths, problem)

        threading.Thread(target=write, name="save snapshot", daemon=True).start()

    def _saved(self, paths: list[str], problem: str) -> None:
        if problem:
            self._app.notify(problem, title="Snapshot", severity="error", markup=False)
        else:
            self._app.notify(paths_in_a_line(paths), title="Snapshot written", markup=False)

    def choose(self) -> None:
        writer = self.writer
        if writer is None:
            self._app.notify("Saving is not available here.", markup=False)
            return

        def on_choice(settings: SnapshotSettings | None) -> None:
            if settings is None:
                return
            try:
                writer.choose(settings)
            except UserError as error:
                self._app.notify(f"Applies until you quit. {error}", severity="error", markup=False)
            else:
                self._app.notify("Saved: s uses these options from now on.", markup=False)

        self._app.push_screen(SaveOptions(writer.settings), on_choice)
