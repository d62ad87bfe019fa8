import re
from html.parser import HTMLParser

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.records.moments import GIB, moment
from vramtui.core.estimate.estimate import Moment
from vramtui.core.observation.snapshot import Snapshot
from vramtui.records.export.html import HEIGHT, WIDTH, BarDrawing, BarPiece, html_page, over_time, stacked

VOID = {"meta"}


class Page(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.words = ""
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


def test_what_it_shows_and_that_it_needs_nothing_from_anywhere() -> None:
    page = html_page(moment())
    read = Page(page)
    assert read.tags.isdisjoint({"script", "link", "img", "iframe", "object", "embed", "a", "form"})
    assert read.attributes.isdisjoint({"src", "href", "onload", "onclick", "style", "action"})
    assert "http" not in page
    assert "url(" not in page
    words = Page(html_page(moment())).words
    for expected in (
        "Pid 4213 against llama-3.1-8b-lora",
        "predicted peak",
        "weights = n × 2",
        "hidden_size * 2 [GiB]",
    ):
        assert expected in words
    taken = moment()
    first = taken.holdings[0]
    assert first.estimate is not None
    phases = (Moment(phase="build", step=-1, allocated=GIB, peak_allocated=GIB, categories={"weights": GIB}),)
    estimate = msgspec.structs.replace(first.estimate, timeline=phases)
    whole = (msgspec.structs.replace(first, estimate=estimate), *taken.holdings[1:])
    assert "Phase by phase, as predicted" in html_page(msgspec.structs.replace(taken, holdings=whole))
    taken = moment()
    empty = Snapshot(sample=msgspec.structs.replace(taken.sample, gpus=(), problems=()), holdings=(), versions={})
    assert "None seen." in Page(html_page(empty)).words


@given(st.text(min_size=1))
def test_no_name_becomes_markup(name: str) -> None:
    taken = moment(f"host <b>{name}</b>\"'&amp;")
    known = Page(html_page(moment())).tags
    assert Page(html_page(taken)).tags == known


@given(st.lists(st.integers(0, 1 << 50), min_size=1, max_size=5), st.none() | st.integers(0, 1 << 50))
def test_drawings_stay_in_their_frames(sizes: list[int], mark: int | None) -> None:
    bars = [BarDrawing("a", tuple(BarPiece("p", "weights", size) for size in sizes))]
    assert_inside(stacked(bars, sum(sizes), mark))
    assert_inside(over_time([float(at) for at in range(len(sizes))], sizes, mark))
    assert_inside(over_time([1.0] * len(sizes), sizes, mark))


def assert_inside(drawing: str) -> None:
    assert "svg" in Page(drawing).tags
    for x, width in re.findall(r'<rect [^>]*?\bx="([^"]+)"[^>]*? width="([^"]+)"', drawing):
        assert 0 <= float(x) <= float(x) + float(width) <= WIDTH + 0.2
    ends = re.findall(r'\b([xy])[12]="([^"]+)"', drawing)
    corners = [corner for points in re.findall(r'points="([^"]+)"', drawing) for corner in points.split()]
    ends += [pair for corner in corners for pair in zip("xy", corner.split(","), strict=True)]
    for axis, place in ends:
        assert 0 <= float(place) <= (WIDTH if axis == "x" else HEIGHT)
