"""The picture of the screen in a form that every program draws alike: a browser, librsvg, Inkscape.

Rich's SVG uses `textLength`, which librsvg ignores, and draws bars and frames with a font that may be missing. Here
each word has its own position, and blocks, frames and braille are shapes.
"""

import re
from collections.abc import Iterator
from html import unescape
from xml.sax.saxutils import escape

COLUMN, LINE, ABOVE, TALL = 12.2, 24.4, 18.5, 24.65  # of Rich's SVG: a cell's width and height, baseline and shapes
_TEXT = re.compile(
    r'<text class="(\S+)" x="([\d.]+)" y="([\d.]+)" textLength="[\d.]+" clip-path="[^"]*">(.*?)</text>', re.DOTALL
)
FONTS = "font-family: ui-monospace, 'DejaVu Sans Mono', 'Liberation Mono', Menlo, Consolas, monospace;"
_WORD = re.compile(r"\S+")
_LOWER, _LEFT = "▁▂▃▄▅▆▇█", "▏▎▍▌▋▊▉"
_SHADES = {"░": 0.25, "▒": 0.5, "▓": 0.75}
# Arms of a frame's characters from the middle of a cell: left, right, up, down, and how thick they are.
_ARMS = {
    "─": "lr", "━": "LR", "│": "ud", "┃": "UD", "┄": "lr", "┊": "ud", "┌": "rd", "┐": "ld", "└": "ru", "┘": "lu",
    "╭": "rd", "╮": "ld", "╰": "ru", "╯": "lu", "├": "rud", "┤": "lud", "┬": "lrd", "┴": "lru", "┼": "lrud",
}  # fmt: skip
_DOTS = ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3))


def portable(svg: str) -> str:
    """Textual's `svg` with shapes for blocks and frames, and a position for each word."""
    drawn = _TEXT.sub(lambda text: "".join(_draw_words(*text.groups())), svg)
    return drawn.replace("font-family: Fira Code, monospace;", FONTS)


def _draw_words(style: str, left: str, baseline: str, words: str) -> Iterator[str]:
    text, x0, y0 = unescape(words).replace("\xa0", " "), float(left), float(baseline) - ABOVE
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
    """The shape of `cells` times `letter`; empty for a letter."""
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
    rects = []
    if "l" in arms or "r" in arms:
        begin = x if "l" in arms else middle - thick / 2
        end = x + wide if "r" in arms else middle + thick / 2
        dashes = [(begin, end - begin)]
        if letter == "┄":
            dashes = [(begin + n * 6.1 + 1.5, 3.0) for n in range(max(1, round((end - begin) / 6.1)))]
        rects += [_rect(at, half - thick / 2, length, thick, style) for at, length in dashes]
    if "u" in arms or "d" in arms:
        begin = y if "u" in arms else half - thick / 2
        end = y + TALL if "d" in arms else half + thick / 2
        dashes = [(y + 1.5 + n * 6.1, 3.0) for n in range(4)] if letter == "┊" else [(begin, end - begin)]
        rects += [_rect(middle - thick / 2, at, thick, length, style) for at, length in dashes]
    return "".join(rects)
