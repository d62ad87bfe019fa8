"""Only the cells that differ are sent, and what the terminal shows is what Textual drew."""

import gc
from typing import Any

import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.color import ColorSystem
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate, CompositorUpdate, LayoutUpdate
from textual.geometry import Region
from textual.strip import Strip

from tests.installed.terminal import seen
from tests.properties import examples
from vramtui.app.terminal.cell_painter import Frame, Pieces, codes_of, transition_of_codes

CONSOLE = Console(color_system="truecolor", force_terminal=True)
WIDTH, HEIGHT = 24, 4
NO_WRAP = "\x1b[?7l"  # as Textual sets it
STYLES = (
    None,
    Style(color="red"),
    Style(bold=True),
    Style(color="red", bgcolor="blue"),
    Style(bgcolor="#102030", reverse=True),
    Style(color="green", reverse=True),
    Style(color="red", bgcolor="blue", underline=True),
)


def transition(before: Style | None, after: Style | None, colours: ColorSystem) -> str:
    return transition_of_codes(codes_of(before, colours), codes_of(after, colours))


def lines_of(*texts: str) -> LayoutUpdate:
    strips = [[Strip([Segment(text.ljust(WIDTH)[:WIDTH])])] for text in texts]
    return LayoutUpdate([*strips], Region(0, 0, WIDTH, len(texts)))


def sent(frame: Frame, update: CompositorUpdate) -> str:
    made = frame.update(update, (WIDTH, HEIGHT), CONSOLE)
    return "" if made is None else made.render_segments(CONSOLE)


def test_styles_that_look_alike_are_not_all_remembered() -> None:
    """Textual gives a style to every place where a text begins: pairs of these were remembered by the thousand."""

    def alive() -> int:
        gc.collect()
        return sum(type(one) is Style for one in gc.get_objects())

    before, plain = alive(), Style(color="#123456")
    for at in range(3000):
        style = Style(color="#123456", meta={"offset": (at, 0)})
        assert transition(None, style, ColorSystem.TRUECOLOR) == "\x1b[38;2;18;52;86m"
        assert transition(plain, style, ColorSystem.TRUECOLOR) == ""
    assert alive() - before < 600


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("one", "one", ""),
        ("now 58.1 GiB", "now 58.2 GiB", "\x1b[1;8H2"),  # one move and one character
        ("12:00:03", "12:01:13", "\x1b[1;5H1:1"),  # changes close together are one run
        ("a..............b", "x..............y", "\x1b[1;1Hx\x1b[14Cy"),  # a jump within a line is relative
    ],
)
def test_only_what_changed_is_sent(before: str, after: str, expected: str) -> None:
    frame = Frame()
    assert sent(frame, lines_of(before))
    assert sent(frame, lines_of(after)) == expected


def test_a_piece_is_cut_at_both_ends() -> None:
    """Textual would write the line from its beginning."""
    frame = Frame()
    sent(frame, lines_of("abcdefghij"))
    chops: list[dict[int, Strip | None]] = [{0: Strip([Segment("abcdeXghij".ljust(WIDTH))])}]
    assert sent(frame, ChopsUpdate(chops, [(0, 5, 6)], [[WIDTH]])) == "\x1b[1;6HX"


def test_what_a_terminal_would_obey_is_never_sent() -> None:
    before = sent(Frame(), lines_of("abc"))
    after = sent(Frame(), lines_of("a\x1b[2Jb\x07\x9b31mc\r\n\t\x7f"))
    assert after.count("\x1b") == before.count("\x1b")
    assert not set(after) & set("\x07\x9b\r\n\t\x7f")
    assert "a[2Jb31mc" in after


def test_another_size_or_forgetting_sends_everything() -> None:
    frame = Frame()
    sent(frame, lines_of("one"))
    made = frame.update(lines_of("one"), (WIDTH, HEIGHT + 1), CONSOLE)
    assert made is not None
    assert "one" in made.render_segments(CONSOLE)
    frame.forget()
    assert "one" in sent(frame, lines_of("one"))


def test_a_style_is_changed_by_what_differs() -> None:
    red, red_on_blue = Style(color="red"), Style(color="red", bgcolor="blue")
    assert transition(red, red_on_blue, ColorSystem.STANDARD) == "\x1b[44m"
    assert transition(red_on_blue, red, ColorSystem.STANDARD) == "\x1b[49m"
    assert transition(red, Style(color="red", bold=True), ColorSystem.STANDARD) == "\x1b[1m"
    assert transition(red, None, ColorSystem.STANDARD) == "\x1b[m"


texts = st.text(alphabet="ab 1░█é漢字e\u0301", max_size=WIDTH)
segments = st.lists(st.tuples(texts, st.sampled_from(STYLES)), max_size=5)
frames = st.lists(st.lists(segments, min_size=HEIGHT, max_size=HEIGHT), min_size=1, max_size=6)


@given(frames)
@examples(60)
def test_the_terminal_shows_the_last_frame(moments: list[list[list[tuple[str, Style | None]]]]) -> None:
    """A terminal that was fed every difference shows what one shows that was sent the last frame whole."""
    frame, followed, fresh = Frame(), pyte.Screen(WIDTH, HEIGHT), pyte.Screen(WIDTH, HEIGHT)
    stream = pyte.Stream(followed)
    stream.feed(NO_WRAP)
    for moment in moments:
        update = _layout(moment)
        stream.feed(sent(frame, update))
    pyte.Stream(fresh).feed(NO_WRAP + sent(Frame(), _layout(moments[-1])))
    assert followed.display == fresh.display
    assert _attributes(followed) == _attributes(fresh)


def _layout(moment: list[list[tuple[str, Style | None]]]) -> LayoutUpdate:
    strips = [[Strip([Segment(*piece) for piece in line]).adjust_cell_length(WIDTH)] for line in moment]
    return LayoutUpdate([*strips], Region(0, 0, WIDTH, HEIGHT))


def _attributes(screen: "pyte.Screen", size: tuple[int, int] = (WIDTH, HEIGHT)) -> list[list[object]]:
    return [[seen(screen.buffer[y][x])._replace(data="") for x in range(size[0])] for y in range(size[1])]


# --- pictures that move ----------------------------------------------------------------------------------------------

LONG = 70
BLUE = Style(color="blue")


def row(picture: str, behind: str = "│ beside", size: int = LONG) -> LayoutUpdate:
    """A line with a picture in its middle, and what stands behind it."""
    strip = Strip([Segment("GPU %│"), Segment(picture, BLUE), Segment(behind)]).adjust_cell_length(size)
    return LayoutUpdate([[strip]], Region(0, 0, size, 1))


def sent_wide(frame: Frame, update: CompositorUpdate, size: int = LONG) -> str:
    made = frame.update(update, (size, 1), CONSOLE)
    return "" if made is None else made.render_segments(CONSOLE)


def test_a_picture_that_moves_is_moved_by_the_terminal() -> None:
    frame, blocks = Frame(), "▂▄▆█▃▁▃▅" * 6
    sent_wide(frame, row(blocks))
    assert sent_wide(frame, row(blocks[4:] + "▁▂▁▂")) == "\x1b[1;7H\x1b[4P\x1b[51G\x1b[4@\x1b[1;51H▁▂▁▂"


pictures = st.lists(
    st.tuples(
        st.integers(0, 20), st.text(alphabet="▁▂▃▄▅ a", max_size=20), st.integers(0, 60), st.sampled_from("x▇漢")
    ),
    min_size=1,
    max_size=5,
)
BEHIND = ("│ beside", "│漢字漢字", "漢│", "")


@given(st.text(alphabet="▁▂▃▄▅ a", min_size=50, max_size=50), pictures, st.sampled_from(BEHIND))
@examples(60)
def test_a_moved_picture_is_what_a_redraw_shows(
    picture: str, moves: list[tuple[int, str, int, str]], behind: str
) -> None:
    """However far, whatever is new in it and whatever stands behind."""
    frame, followed, fresh = Frame(), pyte.Screen(LONG, 1), pyte.Screen(LONG, 1)
    stream = pyte.Stream(followed)
    stream.feed(NO_WRAP + sent_wide(frame, row(picture, behind)))
    for by, new, at, other in moves:
        picture = (picture[by:] + new).ljust(50)[:50]
        if at < 49:
            picture = picture[:at] + other + picture[at + cell_len(other) :]
        stream.feed(sent_wide(frame, row(picture, behind)))
    pyte.Stream(fresh).feed(NO_WRAP + sent_wide(Frame(), row(picture, behind)))
    assert followed.display == fresh.display
    assert _attributes(followed, (LONG, 1)) == _attributes(fresh, (LONG, 1))


def test_what_is_written_first_on_a_line_is_not_moved() -> None:
    """Moves come before all text: a piece of the same line that was laid before would be moved with the rest."""
    frame, blocks = Frame(), "▂▄▆█▂▂▃▅" * 6
    sent_wide(frame, row(blocks))
    after = blocks[4:] + "▁▂▁▂"
    pieces = Pieces([(0, 20, [Segment("x", BLUE)]), (0, 6, [Segment(after, BLUE)])])
    followed = pyte.Screen(LONG, 1)
    pyte.Stream(followed).feed(NO_WRAP + sent_wide(Frame(), row(blocks)) + sent_wide(frame, pieces))
    assert followed.display[0].startswith(f"GPU %│{after}│")


# --- sizes that change -----------------------------------------------------------------------------------------------

sizes = st.tuples(st.integers(3, WIDTH + 6), st.integers(1, HEIGHT + 2))
parts = st.tuples(st.integers(0, HEIGHT + 2), st.integers(-4, WIDTH + 8), segments)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("resize"), sizes),
        st.tuples(st.just("layout"), st.lists(segments, min_size=1, max_size=HEIGHT + 2), st.integers(1, WIDTH + 8)),
        st.tuples(st.just("pieces"), st.lists(parts, max_size=4)),
        st.tuples(st.just("chops"), st.lists(parts, max_size=3)),
    ),
    max_size=12,
)


@given(steps, sizes, st.lists(segments, min_size=HEIGHT + 2, max_size=HEIGHT + 2))
@examples(60)
def test_any_updates_and_sizes_end_as_a_redraw_of_everything(
    moments: list[tuple[Any, ...]], last: tuple[int, int], end: list[list[tuple[str, Style | None]]]
) -> None:
    """Updates may be laid out for a size that the terminal no longer has: wider, narrower, taller, shorter."""
    frame, size, followed = Frame(), (WIDTH, HEIGHT), pyte.Screen(WIDTH, HEIGHT)
    stream = pyte.Stream(followed)
    stream.feed(NO_WRAP)
    for kind, *what in [*moments, ("resize", last), ("whole", end)]:
        if kind == "resize":
            size = what[0]
            followed.resize(size[1], size[0])
            frame.forget()
        else:
            made = frame.update(_update_of(kind, what, size), size, CONSOLE)
            stream.feed("" if made is None else made.render_segments(CONSOLE))
    fresh = pyte.Screen(*last)
    made = Frame().update(_update_of("whole", [end], last), last, CONSOLE)
    assert made is not None
    pyte.Stream(fresh).feed(NO_WRAP + made.render_segments(CONSOLE))
    assert followed.display == fresh.display
    assert _attributes(followed, last) == _attributes(fresh, last)


def test_a_piece_right_of_the_edge_is_left_out() -> None:
    """The terminal became narrower between layout and update."""
    frame = Frame()
    assert frame.update(Pieces([(0, 100, [Segment("x" * 30)])]), (80, 24), CONSOLE) is None
    made = frame.update(Pieces([(0, 78, [Segment("ab漢")]), (1, 79, [Segment("漢")])]), (80, 24), CONSOLE)
    assert made is not None
    assert made.render_segments(CONSOLE) == "\x1b[m\x1b[1;79Hab\x1b[2;80H "


def _update_of(kind: str, what: list[Any], size: tuple[int, int]) -> CompositorUpdate:
    if kind == "whole":
        strips = [[Strip([Segment(*piece) for piece in line]).adjust_cell_length(size[0])] for line in what[0]]
        return LayoutUpdate([*strips[: size[1]]], Region(0, 0, size[0], size[1]))
    if kind == "layout":
        lines, width = what
        strips = [[Strip([Segment(*piece) for piece in line]).adjust_cell_length(width)] for line in lines]
        return LayoutUpdate([*strips], Region(0, 0, width, len(lines)))
    if kind == "pieces":
        return Pieces([(y, x, [Segment(*piece) for piece in line]) for y, x, line in what[0]])
    chops: list[dict[int, Strip | None]] = []
    spans, ends = [], []
    for y, (_, x, line) in enumerate(what[0]):
        strip = Strip([Segment(*piece) for piece in line])
        chops.append({x: strip})
        ends.append([x + strip.cell_length])
        spans.append((y, x, x + strip.cell_length))
    return ChopsUpdate(chops, spans, ends)
