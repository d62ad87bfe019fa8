"""What stands in the columns of the process table."""

import msgspec
import pytest

from tests.app import moments
from vramtui.app.state.view import ProcessRow
from vramtui.app.themes import Palette
from vramtui.app.watch.process_columns import columns_for, row_strip
from vramtui.core.base.colours import DARK
from vramtui.core.base.units import GIB
from vramtui.core.observation.history import Peak
from vramtui.core.observation.readings import process_key

PALETTE = Palette(DARK | {"foreground": "#ffffff", "background": "#000000", "muted": "#888888"})


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize(("how", "shown"), [("accounting", "=12.0"), ("probe", "=12.0"), ("sampled", "12.0")])
def test_an_exact_peak_is_marked_and_no_column_moves(width: int, how: str, shown: str) -> None:
    process = moments.process(5, 9 * GIB, "python x.py")
    card = moments.gpu(0, process)
    row = ProcessRow("process", process_key("h", card, process), card, 9 * GIB, 12 * GIB, process)
    learnt = msgspec.structs.replace(row, learnt=Peak(bytes=12 * GIB, at=1.0, how=how))
    plain, marked = (row_strip(columns_for(width, width), each, PALETTE, width, None).text for each in (row, learnt))
    assert shown in marked.split()
    assert marked.replace("=", " ") == plain
