"""What is cut of a line is not kept."""

import pytest
from rich.segment import Segment
from textual.cache import FIFOCache
from textual.strip import Strip

from vramtui.app.terminal.textual_private import forget_cut_strips


def test_a_line_is_cut_as_ever_and_keeps_no_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Strip([Segment("0123456789")])
    assert kept.crop(2, 5) is kept.crop(2, 5)
    monkeypatch.setattr("textual.strip.FIFOCache", FIFOCache)  # so that it is put back
    forget_cut_strips()
    line = Strip([Segment("0123456789")])
    assert line.crop(2, 5).text == kept.crop(2, 5).text == "234"
    assert line.crop(2, 5) is not line.crop(2, 5)
    assert [piece.text for piece in line.divide([3, 10])] == ["012", "3456789"]
    assert line.adjust_cell_length(12).text == "0123456789  "
