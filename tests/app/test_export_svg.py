"""The picture of the screen is drawn alike by every program: no lengths of text, no fonts, blocks as shapes."""

import re
import xml.etree.ElementTree as ET

from tests.app.driver import climbing, dashboard
from vramtui.app.export.portable_svg import COLUMN, portable

LINE = '<text class="r1" x="12.2" y="20" textLength="85.4" clip-path="url(#line-0)">{}</text>'


def test_words_stand_at_their_own_places_and_blocks_frames_and_braille_are_shapes() -> None:
    drawn = portable(LINE.format("ab&#160;&amp;c"))
    assert drawn == '<text class="r1" x="12.2" y="20">ab</text><text class="r1" x="48.8" y="20">&amp;c</text>'
    drawn = portable(LINE.format("██▌x"))
    widths = [float(width) for width in re.findall(r'width="([\d.]+)"', drawn)]
    assert widths == [round(2 * COLUMN, 2), round(COLUMN / 2, 2)]
    assert drawn.endswith('x="48.8" y="20">x</text>')
    for letter in "─│╭╮╰╯┤┴┄░▒▐▄⣿⢀":
        drawn = portable(LINE.format(letter))
        assert "<text" not in drawn, letter
        assert "<rect" in drawn, letter


async def test_a_whole_screen_is_sound() -> None:
    async with dashboard(climbing(), (120, 35)) as (app, _):
        before = app.parts.export.picture()
    drawn = portable(before)
    root = ET.fromstring(drawn)  # noqa: S314 - our own
    assert root.get("viewBox")
    assert "textLength" not in drawn
    assert "url(http" not in drawn
    assert "Fira" not in drawn
    shown = " ".join(one.text or "" for one in root.iter() if one.tag.endswith("text"))
    assert "Processes" in shown
    assert "python train.py" in shown
