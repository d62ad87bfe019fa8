"""The TOML text of the draft: coloured, with what is wrong marked at its line and the reason beside it."""

import re
from collections.abc import Iterator, Sequence
from typing import Literal

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.strip import Strip
from textual.widgets import TextArea
from textual.widgets.text_area import TextAreaTheme

from vramtui.app.editor.editor_view import EditorView
from vramtui.app.state.view import View
from vramtui.app.themes import Palette
from vramtui.app.ui.lines import fit
from vramtui.core.base.text import printable

Sort = Literal["comment", "table", "key", "string", "number", "word"]
Stretch = tuple[int, int, Sort]
SORTS: dict[str, Sort] = {"comment": "comment", "string": "string", "number": "number", "word": "word"}

_TABLE = re.compile(r"\s*\[\[?[^\[\]#]*\]\]?\s*(?=#|$)")
_KEY = re.compile(
    r"""\s*(?P<key>(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'))*)\s*="""
)
_TOKEN = re.compile(
    r"""(?P<comment>\#.*)
    |(?P<fence>\"{3}|'{3})
    |(?P<string>"(?:\\.|[^"\\])*"?|'[^']*'?)
    |(?P<number>[+-]?(?<![\w.])(?:0x[0-9a-fA-F_]+|0o[0-7_]+|0b[01_]+|\d[\d_]*(?:\.[\d_]+)?(?:[eE][+-]?\d+)?))
    |(?P<word>\b(?:true|false|inf|nan)\b)""",
    re.VERBOSE,
)
INKS: dict[Sort, str] = {
    "comment": "muted",
    "table": "primary",
    "key": "foreground",
    "string": "secondary",
    "number": "accent",
    "word": "accent",
}
LEAST_REASON = 12


def open_fences(lines: list[str]) -> list[str]:
    """The quotes of the string that each line begins within; empty outside of one."""
    fence = ""
    begins = []
    for line in lines:
        begins.append(fence)
        if fence or '"""' in line or "'''" in line:
            fence = _after(line, fence)
    return begins


def stretches(line: str, fence: str = "") -> Iterator[Stretch]:
    """The stretches of `line` that have a colour, from left to right; what begins within `fence` is a string."""
    at = 0
    if fence:
        end = line.find(fence)
        if end < 0:
            yield 0, len(line), "string"
            return
        at = end + len(fence)
        yield 0, at, "string"
    elif table := _TABLE.match(line):
        yield 0, table.end(), "table"
        at = table.end()
    elif key := _KEY.match(line):
        yield key.start("key"), key.end("key"), "key"
        at = key.end()
    yield from _values(line, at)


def _values(line: str, at: int) -> Iterator[Stretch]:
    while match := _TOKEN.search(line, at):
        if match.lastgroup == "fence":
            end = line.find(match.group(), match.end())
            at = len(line) if end < 0 else end + 3
            yield match.start(), at, "string"
            continue
        at = match.end()
        yield match.start(), at, SORTS[match.lastgroup or ""]


def _after(line: str, fence: str) -> str:
    """The quotes that are open after `line`."""
    at = 0
    while True:
        if fence:
            end = line.find(fence, at)
            if end < 0:
                return fence
            at, fence = end + 3, ""
        match = _TOKEN.search(line, at)
        if match is None or match.lastgroup == "comment":
            return ""
        at = match.end()
        if match.lastgroup == "fence":
            fence = match.group()


class TomlText(TextArea):
    """Textual's text area with our colours, and no syntax library behind them."""

    DEFAULT_CSS = """
    TomlText {
        border: round $line; border-title-color: $muted; border-subtitle-color: $error; padding: 0;
        background: $background; scrollbar-size-vertical: 1; scrollbar-size-horizontal: 0;
        scrollbar-color: $line; scrollbar-background: $background;
        scrollbar-color-hover: $primary; scrollbar-color-active: $primary;
        scrollbar-background-hover: $background; scrollbar-background-active: $background;
    }
    TomlText:focus { border: round $primary; border-title-color: $primary; background: $background; }
    """

    def __init__(self) -> None:
        super().__init__(
            "", id="text", soft_wrap=False, show_line_numbers=True, tab_behavior="focus", compact=False, theme="css"
        )
        self.cursor_blink = False
        self.palette: Palette | None = None
        self._fences: list[str] = []
        self._wrong: dict[int, str] = {}

    def take(self, view: View, palette: Palette) -> None:
        del view
        if palette is not self.palette:
            self.palette = palette
            theme = _theme(palette, f"vramtui-{id(palette)}")
            self.register_theme(theme)
            self.theme = theme.name

    def read(self, look: EditorView) -> None:
        """Mark what is wrong in this draft."""
        wrong: dict[int, str] = {}
        for problem in look.problems:
            if problem.line is not None:
                wrong.setdefault(problem.line - 1, problem.sentence)
        if wrong != self._wrong:
            self._wrong = wrong
            self.notify_style_update()
            self.refresh()

    def show_text(self, text: str) -> None:
        """Show `text`; lines that stay are not touched, so that the view does not jump."""
        before, after = self.document.lines, text.splitlines() + ([""] if text.endswith("\n") or not text else [])
        if list(before) == after:
            return
        top, below = same_ends(before, after)
        old, new = len(before) - below, len(after) - below
        # Whole lines, with the line end before or after them: one of the two is there unless all lines differ.
        if below:
            self.replace("".join(f"{line}\n" for line in after[top:new]), (top, 0), (old, 0))
        elif top:
            insert = "".join(f"\n{line}" for line in after[top:])
            self.replace(insert, (top - 1, len(before[top - 1])), (old - 1, len(before[-1])))
        else:
            self.load_text(text)

    def _build_highlight_map(self) -> None:
        """After every change of the text: which lines begin within a string."""
        super()._build_highlight_map()
        self._fences = open_fences(list(self.document.lines))

    def get_line(self, line_index: int) -> Text:
        """A line in its colours; what is no character to be shown is a dot."""
        line = self.document.get_line(line_index)
        shown = line if line.isprintable() else "".join(c if c.isprintable() or c == "\t" else "·" for c in line)
        text = Text(shown, end="", no_wrap=True)
        if self.palette is None:
            return text
        fence = self._fences[line_index] if line_index < len(self._fences) else ""
        for start, stop, sort in stretches(line, fence):
            text.stylize(Style(color=self.palette.ink(INKS[sort]).color, bold=sort == "table" or None), start, stop)
        if line_index in self._wrong:
            text.stylize(Style(color=self.palette.ink("error").color, underline=True))
        return text

    def render_line(self, y: int) -> Strip:
        """The line as the text area draws it, and behind a wrong line what is wrong with it, where there is room."""
        strip = super().render_line(y)
        at = y + self.scroll_offset.y
        if at not in self._wrong or self.palette is None or at >= self.document.line_count:
            return strip
        line = self.document.get_line(at).expandtabs(self.indent_width)
        x = self.gutter_width + cell_len(line) + 2 - self.scroll_offset.x
        room = self.scrollable_content_region.width - x
        if room < LEAST_REASON or x < self.gutter_width:
            return strip
        reason = Segment(fit(f"✗ {printable(self._wrong[at])}", room), self.palette.ink("error"))
        return Strip.join([strip.crop(0, x), Strip([reason], room)])


def _theme(palette: Palette, name: str) -> TextAreaTheme:
    """The text area's own parts in our colours; the cursor's line keeps those of its words."""
    return TextAreaTheme(
        name=name,
        base_style=palette.text,
        gutter_style=palette.dim,
        cursor_style=palette.ink("background", "accent"),
        cursor_line_style=Style(bgcolor=palette.ink("foreground", "bar").bgcolor),
        cursor_line_gutter_style=palette.ink("primary", "bar", bold=True),
        bracket_matching_style=Style(bold=True, underline=True),
        selection_style=Style(bgcolor=palette.ink("foreground", "cursor").bgcolor),
    )


def same_ends(before: Sequence[str], after: Sequence[str]) -> tuple[int, int]:
    """How many lines are the same at the top, and how many of the others at the bottom."""
    most = min(len(before), len(after))
    top = next((i for i in range(most) if before[i] != after[i]), most)
    below = next((i for i in range(most - top) if before[-1 - i] != after[-1 - i]), most - top)
    return top, below
