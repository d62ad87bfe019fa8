"""Lines of a picture that moved to the left, whichever way is tried first."""

import random

import pytest

from vramtui.app.terminal.cell_painter import MOST_MOVED, find_move

BLOCKS = " ▁▂▃▄▅▆▇█"


def picture_line(seed: int, width: int) -> list[tuple[str, str]]:
    chance = random.Random(seed)
    return [(chance.choice(BLOCKS), "blue") for _ in range(width)]


@pytest.mark.parametrize("by", [1, 2, 7, MOST_MOVED - 1])
@pytest.mark.parametrize("usual", [0, 1, 2, 7, MOST_MOVED - 1, 40])
def test_the_way_is_found_whatever_another_line_did(by: int, usual: int) -> None:
    whole = picture_line(1, 100 + by)
    move = find_move(whole[:100], whole[by:], usual)
    assert move is not None
    assert move.by == by


def test_text_and_a_few_cells_are_written_anew() -> None:
    words, others = [(letter, "blue") for letter in "abcdefghij" * 8], [(letter, "blue") for letter in "bcdefghija" * 8]
    assert find_move(words, others, 1) is None
    line = picture_line(2, 60)
    assert find_move(line, line, 1) is None
    assert find_move(line, [*line[:50], *[("▟", "blue")] * 8, *line[58:]], 1) is None
