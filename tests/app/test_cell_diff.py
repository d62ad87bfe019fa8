import asyncio
import gc
import os
import random
import selectors
import threading
import time
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from weakref import ref

import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.color import ColorSystem
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual._compositor import ChopsUpdate, CompositorUpdate, LayoutUpdate
from textual.app import App
from textual.cache import FIFOCache
from textual.geometry import Region, Size
from textual.message import Message
from textual.screen import Screen
from textual.strip import Strip
from textual.widgets import Input, OptionList

from tests.app import scenes
from tests.app.driver import Driver, climbing, dashboard, known, press, settle
from tests.app.replays import Tape, playing, replay_of
from tests.installed.terminal import seen
from tests.properties import examples
from vramtui.app import context
from vramtui.app.context import LEAST_BETWEEN_DRAWINGS, LEAST_DETACHED, LEAST_UNFOCUSED, RedrawThrottle, is_detached
from vramtui.app.terminal import terminal_driver, textual_private
from vramtui.app.terminal.cell_painter import MOST_MOVED, Frame, Pieces, codes_of, find_move, transition_of_codes
from vramtui.app.terminal.terminal_driver import InputEnding, InputSelector, TerminalParser
from vramtui.app.terminal.textual_private import call_after, forget_cut_strips

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


def sent(frame: Frame, update: CompositorUpdate, size: tuple[int, int] = (WIDTH, HEIGHT)) -> str:
    made = frame.update(update, size, CONSOLE)
    return "" if made is None else made.render_segments(CONSOLE)


def test_styles_are_changed_by_what_differs_and_are_not_all_remembered() -> None:
    red, red_on_blue = Style(color="red"), Style(color="red", bgcolor="blue")
    assert transition(red, red_on_blue, ColorSystem.STANDARD) == "\x1b[44m"
    assert transition(red_on_blue, red, ColorSystem.STANDARD) == "\x1b[49m"
    assert transition(red, Style(color="red", bold=True), ColorSystem.STANDARD) == "\x1b[1m"
    assert transition(red, None, ColorSystem.STANDARD) == "\x1b[m"

    # Textual gives a style to every place where a text begins: pairs of these were remembered by the thousand.
    def alive() -> int:
        gc.collect()
        return sum(type(one) is Style for one in gc.get_objects())

    before, plain = alive(), Style(color="#123456")
    for at in range(3000):
        style = Style(color="#123456", meta={"offset": (at, 0)})
        assert transition(None, style, ColorSystem.TRUECOLOR) == "\x1b[38;2;18;52;86m"
        assert transition(plain, style, ColorSystem.TRUECOLOR) == ""
    assert alive() - before < 600


@pytest.mark.parametrize(("before", "after", "expected"), [
    ("one", "one", ""),
    ("now 58.1 GiB", "now 58.2 GiB", "\x1b[1;8H2"),  # one move and one character
    ("12:00:03", "12:01:13", "\x1b[1;5H1:1"),  # changes close together are one run
    ("a..............b", "x..............y", "\x1b[1;1Hx\x1b[14Cy"),  # a jump within a line is relative
    ("a..............b", "a", "\x1b[1;2H\x1b[15X"),  # blanks are erased, where a terminal does so in colour
])  # fmt: skip
def test_only_what_changed_is_sent(before: str, after: str, expected: str) -> None:
    frame = Frame()
    assert sent(frame, lines_of(before))
    assert sent(frame, lines_of(after)) == expected


def test_pieces_are_cut_at_both_ends_and_what_a_terminal_would_obey_is_never_sent() -> None:
    """Textual would write the line from its beginning."""
    frame = Frame()
    sent(frame, lines_of("abcdefghij"))
    chops: list[dict[int, Strip | None]] = [{0: Strip([Segment("abcdeXghij".ljust(WIDTH))])}]
    assert sent(frame, ChopsUpdate(chops, [(0, 5, 6)], [[WIDTH]])) == "\x1b[1;6HX"
    # The terminal became narrower between layout and update.
    frame = Frame()
    assert frame.update(Pieces([(0, 100, [Segment("x" * 30)])]), (80, 24), CONSOLE) is None
    made = known(frame.update(Pieces([(0, 78, [Segment("ab漢")]), (1, 79, [Segment("漢")])]), (80, 24), CONSOLE))
    assert made.render_segments(CONSOLE) == "\x1b[m\x1b[1;79Hab\x1b[2;80H "
    before = sent(Frame(), lines_of("abc"))
    after = sent(Frame(), lines_of("a\x1b[2Jb\x07\x9b31mc\r\n\t\x7f"))
    assert after.count("\x1b") == before.count("\x1b")
    assert not set(after) & set("\x07\x9b\r\n\t\x7f")
    assert "a[2Jb31mc" in after
    frame = Frame()
    sent(frame, lines_of("one"))
    assert "one" in known(frame.update(lines_of("one"), (WIDTH, HEIGHT + 1), CONSOLE)).render_segments(CONSOLE)
    frame.forget()
    assert "one" in sent(frame, lines_of("one"))


texts = st.text(alphabet="ab 1░█é漢字e\u0301", max_size=WIDTH)
segments = st.lists(st.tuples(texts, st.sampled_from(STYLES)), max_size=5)
frames = st.lists(st.lists(segments, min_size=HEIGHT, max_size=HEIGHT), min_size=1, max_size=6)


@given(frames)
@examples(60)
def test_the_terminal_shows_the_last_frame(moments: list[list[list[tuple[str, Style | None]]]]) -> None:
    frame, followed, fresh = Frame(), pyte.Screen(WIDTH, HEIGHT), pyte.Screen(WIDTH, HEIGHT)
    stream = pyte.Stream(followed)
    stream.feed(NO_WRAP)
    for moment in moments:
        stream.feed(sent(frame, _update_of("layout", [moment, WIDTH], (WIDTH, HEIGHT))))
    pyte.Stream(fresh).feed(NO_WRAP + sent(Frame(), _update_of("layout", [moments[-1], WIDTH], (WIDTH, HEIGHT))))
    assert _attributes(followed) == _attributes(fresh)


def _attributes(screen: "pyte.Screen", size: tuple[int, int] = (WIDTH, HEIGHT)) -> list[list[object]]:
    return [[seen(screen.buffer[y][x]) for x in range(size[0])] for y in range(size[1])]


LONG = 70
BLUE = Style(color="blue")


def row(picture: str, behind: str = "│ beside", size: int = LONG) -> LayoutUpdate:
    strip = Strip([Segment("GPU %│"), Segment(picture, BLUE), Segment(behind)]).adjust_cell_length(size)
    return LayoutUpdate([[strip]], Region(0, 0, size, 1))


sent_wide = partial(sent, size=(LONG, 1))


def test_a_picture_that_moves_is_moved_by_the_terminal_and_text_is_written_anew() -> None:
    frame, blocks = Frame(), "▂▄▆█▃▁▃▅" * 6
    sent_wide(frame, row(blocks))
    assert sent_wide(frame, row(blocks[4:] + "▁▂▁▂")) == "\x1b[1;7H\x1b[4P\x1b[51G\x1b[4@▁▂▁▂"
    # Moves come before all text: a piece of the same line that was laid before would be moved with the rest.
    frame, blocks = Frame(), "▂▄▆█▂▂▃▅" * 6
    sent_wide(frame, row(blocks))
    after = blocks[4:] + "▁▂▁▂"
    pieces = Pieces([(0, 20, [Segment("x", BLUE)]), (0, 6, [Segment(after, BLUE)])])
    followed = pyte.Screen(LONG, 1)
    pyte.Stream(followed).feed(NO_WRAP + sent_wide(Frame(), row(blocks)) + sent_wide(frame, pieces))
    assert followed.display[0].startswith(f"GPU %│{after}│")
    words, others = [(letter, "blue") for letter in "abcdefghij" * 8], [(letter, "blue") for letter in "bcdefghija" * 8]
    assert find_move(words, others, 1) is None
    line = picture_line(2, 60)
    assert find_move(line, line, 1) is None
    assert find_move(line, [*line[:50], *[("▟", "blue")] * 8, *line[58:]], 1) is None


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
def test_a_moved_picture_is_redrawn(picture: str, moves: list[tuple[int, str, int, str]], behind: str) -> None:
    frame, followed, fresh = Frame(), pyte.Screen(LONG, 1), pyte.Screen(LONG, 1)
    stream = pyte.Stream(followed)
    stream.feed(NO_WRAP + sent_wide(frame, row(picture, behind)))
    for by, new, at, other in moves:
        picture = (picture[by:] + new).ljust(50)[:50]
        if at < 49:
            picture = picture[:at] + other + picture[at + cell_len(other) :]
        stream.feed(sent_wide(frame, row(picture, behind)))
    pyte.Stream(fresh).feed(NO_WRAP + sent_wide(Frame(), row(picture, behind)))
    assert _attributes(followed, (LONG, 1)) == _attributes(fresh, (LONG, 1))


sizes = st.tuples(st.integers(3, WIDTH + 6), st.integers(1, HEIGHT + 2))
parts = st.tuples(st.integers(0, HEIGHT + 2), st.integers(-4, WIDTH + 8), segments)
kinds = st.one_of(
    st.tuples(st.just("resize"), sizes),
    st.tuples(st.just("layout"), st.lists(segments, min_size=1, max_size=HEIGHT + 2), st.integers(1, WIDTH + 8)),
    st.tuples(st.just("pieces"), st.lists(parts, max_size=4)),
    st.tuples(st.just("chops"), st.lists(parts, max_size=3)),
)


@given(st.lists(kinds, max_size=12), sizes, st.lists(segments, min_size=HEIGHT + 2, max_size=HEIGHT + 2))
@examples(60)
def test_any_updates_and_sizes_end_as_a_redraw_of_everything(
    moments: list[tuple[Any, ...]], last: tuple[int, int], end: list[list[tuple[str, Style | None]]]
) -> None:
    """Updates may be laid out for a size that the terminal no longer has: wider, narrower, taller, shorter."""
    frame, size, followed = Frame(), (WIDTH, HEIGHT), pyte.Screen(WIDTH, HEIGHT)
    (stream := pyte.Stream(followed)).feed(NO_WRAP)
    for kind, *what in [*moments, ("resize", last), ("whole", end)]:
        if kind == "resize":
            size = what[0]
            followed.resize(size[1], size[0])
            frame.forget()
        else:
            stream.feed(sent(frame, _update_of(kind, what, size), size))
    fresh = pyte.Screen(*last)
    pyte.Stream(fresh).feed(NO_WRAP + sent(Frame(), _update_of("whole", [end], last), last))
    assert _attributes(followed, last) == _attributes(fresh, last)


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


BLOCKS = " ▁▂▃▄▅▆▇█"


def picture_line(seed: int, width: int) -> list[tuple[str, str]]:
    chance = random.Random(seed)
    return [(chance.choice(BLOCKS), "blue") for _ in range(width)]


@pytest.mark.parametrize("by", [1, 2, 7, MOST_MOVED - 1])
@pytest.mark.parametrize("usual", [0, 1, 2, 7, MOST_MOVED - 1, 40])
def test_the_way_is_found_whatever_another_line_did(by: int, usual: int) -> None:
    whole = picture_line(1, 100 + by)
    assert known(find_move(whole[:100], whole[by:], usual))[2] == by


def test_a_line_is_cut_as_ever_and_nothing_waits_for_a_timer_that_may_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Strip([Segment("0123456789")])
    assert kept.crop(2, 5) is kept.crop(2, 5)
    monkeypatch.setattr("textual.strip.FIFOCache", FIFOCache)  # so that it is put back
    forget_cut_strips()
    line = Strip([Segment("0123456789")])
    assert line.crop(2, 5).text == kept.crop(2, 5).text == "234"
    assert line.crop(2, 5) is not line.crop(2, 5)
    assert [piece.text for piece in line.divide([3, 10])] == ["012", "3456789"]
    assert line.adjust_cell_length(12).text == "0123456789  "
    assert [path for path in PACKAGE.rglob("*.py") if "set_timer(" in path.read_text(encoding="utf-8")] == []


def test_a_key_and_the_end_wake_who_waits_without_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal_driver, "QUIET", 0.0)
    ending, (keys, typist) = InputEnding(), os.pipe()
    selector = InputSelector(ending)
    selector.register(keys, selectors.EVENT_READ)
    os.write(typist, b"q")
    assert [key.fd for key, _ in selector.select(0.1)] == [keys]
    os.read(keys, 1)
    waiter = threading.Thread(target=selector.select, args=(0.1,), daemon=True)
    waiter.start()
    ending.set()
    ending.set()
    waiter.join(60)
    assert not waiter.is_alive()
    assert selector.select(0.1) == []
    ending.clear()
    assert not ending.is_set()


async def test_what_a_closed_window_drew_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(textual_private, "PATIENCE", 3600.0)  # here it is done by hand
    async with dashboard(climbing(), size=(160, 50)) as (app, pilot):
        for key in ("p", "question_mark", "i", "exclamation_mark"):
            await pilot.press(key)
            await pilot.pause()
            drawn = [ref(widget) for widget in app.screen.query(OptionList)]
            await pilot.press("escape")
            await pilot.pause()
            assert app.closed_screens.due
            assert any(function.cache_info().currsize for function in textual_private.REMEMBERED)
            app.closed_screens.collect()
            assert not app.closed_screens.due
            assert len(drawn) == (key == "p")
            assert [one() for one in drawn] == [None] * len(drawn)
            assert not any(function.cache_info().currsize for function in textual_private.REMEMBERED)


async def test_a_filter_that_was_closed_is_gone_when_there_was_another() -> None:
    async with dashboard(climbing(), size=(160, 50)) as (app, pilot):
        typed = []
        for _ in range(3):
            await pilot.press("slash")
            await pilot.pause()
            typed.append(ref(app.screen.query_one(Input)))
            await pilot.press("escape", "escape")
            await pilot.pause()
        assert not app.screen.query(Input)
        app.closed_screens.collect()
        # Textual remembers the latest children of a screen in one more place.
        assert [one() for one in typed[:2]] == [None, None]


NAMES = {"/": "slash", ":": "colon", "\x10": "ctrl+p"}


async def at_once(driver: Driver, keys: str) -> None:
    """As one read gives them: all are in the app's queue before it has looked at the first."""
    app, pilot = driver
    for character in keys:
        name = NAMES.get(character, character)
        app.post_message(events.Key(name, character if character.isprintable() else None))
    for _ in range(40):
        await pilot.pause(0.01)
    await settle(app, pilot)


@pytest.mark.parametrize(
    ("place", "typed"),
    [("1", ("/qwen", "/user:root", "pqwen", "mqwen", "\x10quit")), ("2", ("gqsr", "aqsr", "bqsr")), ("4", ("/qsr",))],
)
@pytest.mark.slow
async def test_text_behind_an_opening_key_is_typed_into_what_it_opens(place: str, typed: tuple[str, ...]) -> None:
    async with dashboard([scenes.usual()], preset="llama-3.1-8b-lora") as (app, pilot):
        await press(app, pilot, place)
        for keys in typed:
            await at_once((app, pilot), keys)
            assert isinstance(app.focused, Input), keys
            assert app.focused.value == keys[1:]
            assert app.is_running
            await press(app, pilot, "escape")
            assert not isinstance(app.focused, Input), keys


async def test_keys_behind_one_that_closes_an_input_and_pasted_text_go_to_what_is_there_then() -> None:
    async with dashboard([scenes.usual()]) as (app, pilot):
        await press(app, pilot, "slash")
        app.post_message(events.Key("escape", None))
        await at_once((app, pilot), "/gpu")
        assert isinstance(app.focused, Input)
        assert app.focused.value == "gpu"
    async with dashboard([scenes.usual()]) as (app, pilot):
        app.post_message(events.Paste("qsrX"))
        await at_once((app, pilot), "/a")
        app.post_message(events.Paste("nna"))
        await at_once((app, pilot), "!")
        assert isinstance(app.focused, Input)
        assert app.focused.value == "anna!"


@pytest.mark.parametrize(("read", "keys"), [
    ("\x1bpq", ["escape", "p", "q"]),
    ("\x1b/user:a", ["escape", "slash", "u", "s", "e", "r", "colon", "a"]),
    ("\x1b[A\x1bx", ["up", "escape", "x"]),
    ("\x1b1M", ["escape", "1", "M"]),  # Textual takes Esc and a digit for a letter of a Mac's Option key
    ("\x1b[112;3u", ["alt+p"]),  # a terminal that tells Alt and Esc apart
])  # fmt: skip
def test_escape_and_a_key_in_one_read_are_two_keys(read: str, keys: list[str]) -> None:
    parser = TerminalParser()
    made = [*parser.feed(read), *parser.feed("")]
    assert [event.key for event in made if isinstance(event, events.Key)] == keys


PACKAGE = Path(__file__).parents[2] / "vramtui"
LATE = 0.02  # seconds that pass between any two looks at the clock


@pytest.fixture
def busy_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever a timer of Textual's looks at the clock, it is later than it expects."""
    looks = count()
    monkeypatch.setattr("textual.timer._time", SimpleNamespace(get_time=lambda: time.monotonic() + LATE * next(looks)))


@pytest.mark.usefixtures("busy_host")
async def test_delayed_calls_and_what_comes_often_are_in_time_on_a_busy_host() -> None:
    app: App[None] = App()
    called: list[str] = []
    async with app.run_test():
        app.set_timer(0.001, lambda: called.append("timer"))
        call_after(app, 0.001, lambda: called.append("call"))
        await asyncio.sleep(0.2)
    assert called == ["call"]
    app = App()
    drawn: list[float] = []
    async with app.run_test():
        redraw = RedrawThrottle(app, lambda: drawn.append(time.monotonic()), time.monotonic)
        redraw.is_drawn()
        redraw.soon()
        await asyncio.sleep(LEAST_BETWEEN_DRAWINGS + 0.2)
    assert len(drawn) == 1


@pytest.mark.usefixtures("busy_host")
async def test_a_long_way_through_a_recording_is_gone_on_a_busy_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vramtui.monitor.replay.SLICE", 0.0)
    async with playing(Tape(climbing(30, to=60))) as (player, pilot, _):
        assert replay_of(player).seek("100%") == ""
        over = time.monotonic() + 20
        while not replay_of(player).feed.is_there and time.monotonic() < over:
            await pilot.pause(0.002)
        assert replay_of(player).feed.is_there


def waited(monkeypatch: pytest.MonkeyPatch, *, has_focus: bool) -> float:
    waits: list[float] = []
    monkeypatch.setattr(context, "call_after", lambda _app, seconds, _call: waits.append(seconds))
    throttle = RedrawThrottle(cast("App[Any]", SimpleNamespace(app_focus=has_focus)), lambda: None, lambda: 100.0)
    throttle.is_drawn()
    throttle.soon()
    return waits[0]


def test_less_is_drawn_without_the_focus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    socket = tmp_path / "default"
    socket.touch()
    monkeypatch.setenv("TMUX", f"{socket},4213,0")
    socket.chmod(0o770)
    assert waited(monkeypatch, has_focus=True) == LEAST_BETWEEN_DRAWINGS
    assert waited(monkeypatch, has_focus=False) == LEAST_UNFOCUSED
    socket.chmod(0o660)
    assert waited(monkeypatch, has_focus=True) == LEAST_DETACHED
    assert not any(is_detached(told) for told in ("", ",,", "/no/such/socket,1,0", "nonsense"))


class Between(Message):
    """Something that stands between two sizes in a screen's queue, so that they are not taken for one."""


@pytest.mark.parametrize("key", ["", "?", "ctrl+p", "2", "p"])
async def test_two_sizes_on_their_way_end_in_one_layout(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one before the last is no longer the terminal's; each layout would send the other size off again."""
    async with dashboard([scenes.usual()]) as (app, pilot):
        if key:
            await pilot.press(key)
        await pilot.pause()
        layouts: list[Size | None] = []
        refresh = Screen._refresh_layout

        def counted(self: Screen[object], size: Size | None = None, scroll: bool = False) -> None:
            layouts.append(size)
            refresh(self, size, scroll)

        monkeypatch.setattr(Screen, "_refresh_layout", counted)
        now, before = app.size, Size(100, 30)
        for _ in range(4):
            app.screen.post_message(events.Resize(before, before))
            app.screen.post_message(Between())
            app.screen.post_message(events.Resize(now, now))
            app.screen.post_message(Between())
        for _ in range(30):
            await pilot.pause()
        assert len(layouts) < 30
        assert before not in layouts
        assert app.screen.size == now


@pytest.mark.usefixtures("painted")
async def test_the_same_size_again_sends_everything_again() -> None:
    """In between it may have been another one, at which the terminal cut what it showed."""
    async with dashboard([scenes.usual()]) as (app, pilot):
        app.painter.frame.size = (1, 1)
        drawn = 0
        whole = app.screen._compositor.render_full_update

        def counted(simplify: bool = False) -> object:
            nonlocal drawn
            drawn += 1
            return whole(simplify)

        app.screen._compositor.render_full_update = counted  # type: ignore[assignment, method-assign]  # counts only
        app.post_message(events.Resize(app.size, app.size))
        await pilot.pause()
        await pilot.pause()
        assert drawn == 1
        assert app.painter.frame.size == (0, 0)
