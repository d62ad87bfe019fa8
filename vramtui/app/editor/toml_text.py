"""The TOML text of the draft, with colours, and errors at their lines."""

import re
from collections.abc import Iterator

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.strip import Strip
from textual.widgets import TextArea
from textual.widgets.text_area import TextAreaTheme

from vramtui.app.editor.open_draft import EditorView
from vramtui.app.state.view import View
from vramtui.app.themes import Palette
from vramtui.app.ui.lines import fit
from vramtui.core.base.text import printable
from vramtui.presets.toml_text import same_ends

_TOKEN = re.compile(
    r"""(?P<comment>\#.*)
    |^\s*(?P<table>\[\[?[^\[\]#]*\]\]?)(?=\s*(?:\#|$))
    |^\s*(?P<key>(?:[\w.-]|"[^"]*"|'[^']*')+)(?=\s*=)
    |(?P<string>"{3}.*?(?:"{3}|$)|'{3}.*?(?:'{3}|$)|"(?:\\.|[^"\\])*"?|'[^']*'?)
    |(?P<number>[+-]?(?<![\w.])\d[\w.]*(?:[eE][+-]\d+)?)
    |(?P<word>\b(?:true|false|inf|nan)\b)""",
    re.VERBOSE,
)
INKS = {
    "comment": "muted", "table": "primary", "key": "foreground", "string": "secondary", "number": "accent",
    "word": "accent",
}  # fmt: skip
LEAST_REASON = 12


def token_spans(line: str) -> Iterator[tuple[int, int, str]]:
    """Return start, end and kind of each part of a line that has a colour."""
    for match in _TOKEN.finditer(line):
        kind = match.lastgroup or ""
        yield *match.span(kind), kind


class TomlText(TextArea):
    """Textual's text area with our colours. Its own undo history is not used: the draft has one for form and text."""

    def __init__(self) -> None:
        super().__init__(
            "", id="text", soft_wrap=False, show_line_numbers=True, tab_behavior="focus", compact=False, theme="css",
            max_checkpoints=0,
        )  # fmt: skip
        self.cursor_blink = False
        self.palette: Palette | None = None
        self._wrong: dict[int, str] = {}

    def take(self, view: View, palette: Palette) -> None:
        del view
        if palette is not self.palette:
            self.palette = palette
            theme = TextAreaTheme(
                name=f"vramtui-{id(palette)}",
                base_style=palette.text,
                gutter_style=palette.dim,
                cursor_style=palette.ink("background", "accent"),
                # The cursor's line keeps the colours of its words.
                cursor_line_style=Style(bgcolor=palette.ink("foreground", "bar").bgcolor),
                cursor_line_gutter_style=palette.ink("primary", "bar", bold=True),
                bracket_matching_style=Style(bold=True, underline=True),
                selection_style=Style(bgcolor=palette.ink("foreground", "cursor").bgcolor),
            )
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

    def get_line(self, line_index: int) -> Text:
        """A line in its colours; a dot replaces each character that cannot be shown."""
        line = self.document.get_line(line_index)
        shown = line if line.isprintable() else "".join(c if c.isprintable() or c == "\t" else "·" for c in line)
        text = Text(shown, end="", no_wrap=True)
        if self.palette is None:
            return text
        for start, stop, kind in token_spans(line):
            style = Style(color=self.palette.ink(INKS[kind]).color, bold=kind == "table" or None)
            text.stylize(style, start, stop)
        if line_index in self._wrong:
            text.stylize(Style(color=self.palette.ink("error").color, underline=True))
        return text

    def render_line(self, y: int) -> Strip:
        """The line as the text area draws it; a wrong line with its error, if there is room."""
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
