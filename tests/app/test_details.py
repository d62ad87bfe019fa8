import re
import xml.etree.ElementTree as ET
from pathlib import Path

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from textual.widgets import Input, Static

from tests.app import scenes
from tests.app.driver import climbing, dashboard, known, press, screen_text, settle
from vramtui.app.app import Dashboard
from vramtui.app.export.portable_svg import COLUMN, portable
from vramtui.app.watch import windows
from vramtui.core.base.errors import UserError
from vramtui.core.base.units import GIB
from vramtui.core.observation.history import Curve, History
from vramtui.core.observation.readings import Absence, Memory, PcieTraffic
from vramtui.core.schema.settings import FORMATS, SnapshotSettings


def test_unattributed_bytes_say_why_and_shared_memory_is_named() -> None:
    for unattributed, host, words in (
        (3 * GIB, scenes.HOST, "3.0 GiB: driver, managed memory, or left by exited processes"),
        (3 * GIB, msgspec.structs.replace(scenes.HOST, private_pids=True), "3.0 GiB: processes outside this container"),
        (-GIB, scenes.HOST, "-1.0 GiB: counted more than once: processes share it, or one grew"),
    ):
        card = scenes.gpu(0, scenes.process(5, 9 * GIB, "python x.py"), unattributed=unattributed)
        ((name, told),) = windows.unattributed_facts(card, host)
        assert name == "unattributed"
        assert words in told.replace("−", "-")
    card = scenes.gpu(0, scenes.process(5, 9 * GIB, "python x.py"), unattributed=-GIB)
    assert "a process grew between two readings" in windows.unattributed_facts(card, scenes.HOST, GIB)[0][1]
    assert windows.unattributed_facts(card, scenes.HOST, GIB - 1)[0][1].endswith(
        "counted more than once: processes share it"
    )
    assert windows.unattributed_facts(scenes.gpu(0), scenes.HOST) == []
    unknown = scenes.gpu(0, memory=Memory(), absent={"memory": Absence.NOT_SUPPORTED})
    assert windows.unattributed_facts(unknown, scenes.HOST) == []
    facts = dict(windows.gpu_facts(scenes.gpu(0, memory=Memory(used=GIB, free=9 * GIB, unified=True))))
    assert (facts["memory"], facts["unified"]) == ("used 1.0 GiB · free 9.0 GiB", "it shares the host's memory")
    assert windows.folded("python train.py --config", 15) == ["python train.py", "--config"]
    assert windows.folded("run /a/very/long/path/indeed x", 12) == ["run /a/very/", "long/path/in", "deed x"]


@given(st.text(alphabet="ab 漢é-", max_size=200), st.integers(2, 40))
def test_a_folded_line_holds_every_word_within_its_width(text: str, width: int) -> None:
    lines = windows.folded(text, width)
    assert all(cell_len(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


async def test_details_are_of_the_chosen_row_and_measure_the_traffic_that_no_sample_tells() -> None:
    """As after keys in one burst, of which not each is drawn."""
    async with dashboard([scenes.usual()], size=(100, 60)) as (app, pilot):
        other = next(row for row in app.state.view().rows if row.process is not None and row != app.state.view().chosen)
        app.state.choose(other.id)
        await press(app, pilot, "i")
        assert f"Process {known(other.process).pid}" in screen_text(app)
    asked: list[str] = []

    def measure(uuid: str) -> PcieTraffic:
        asked.append(uuid)
        return PcieTraffic(sent=3 << 20, received=5 << 20)

    async with dashboard([scenes.usual()], size=(100, 60)) as (app, pilot):
        view = app.state.view()
        app.push_screen(windows.Details(view, windows.RowFacts(measure_traffic=measure, environment={"RANK": "3"})))
        while "received" not in screen_text(app):
            await settle(app, pilot)
        assert "3.0 MiB/s sent, 5.0 MiB/s received" in screen_text(app)
        assert asked == [known(view.chosen).gpu.uuid]
        assert "variables: 1, below (End)" in screen_text(app)
        assert "RANK=3" in await press(app, pilot, "end")
        assert "only your own processes' is read" in str(windows.Details(view, windows.RowFacts(environment={})).text())


async def test_gpus_and_spans_of_the_details_are_chosen_by_keys() -> None:
    async with dashboard([scenes.usual()], size=(100, 60)) as (app, pilot):
        gpus = scenes.usual().gpus
        chosen = known(app.state.view().chosen)
        first = [gpu.uuid for gpu in gpus].index(chosen.gpu.uuid)
        await press(app, pilot, "i")
        for steps in range(1, len(gpus) + 1):
            await press(app, pilot, "right")
            gpu = gpus[(first + steps) % len(gpus)]
            assert gpu.uuid in screen_text(app)
            assert (f"Process {known(chosen.process).pid}" in screen_text(app)) == (steps == len(gpus))
            assert f"GPU {gpu.index}, the last hour" in screen_text(app)
        await press(app, pilot, "left")
        assert gpus[first - 1].uuid in screen_text(app)
    async with dashboard(climbing(), size=(100, 60)) as (app, pilot):
        await press(app, pilot, "i")
        spans = [_span(app)]
        for key in ("plus", "plus", "minus", "plus", "plus", "plus"):
            await press(app, pilot, key)
            spans.append(_span(app))
        whole, half, quarter, least = map(windows.span_words, reversed(windows.SPANS))
        assert spans == [whole, half, quarter, half, quarter, least, least]


HOUR = 3600


def _hour() -> History:
    history = History()
    for at in range(0, HOUR, 10):
        busy = at >= HOUR // 2
        card = msgspec.structs.replace(
            scenes.gpu(0, scenes.process(5, 60 * GIB if busy else GIB, "python x.py")),
            utilization=100 if busy else 0,
            power_watts=650.4 if busy else 70.0,
            power_limit_watts=700.0,
            temperature_celsius=None,
        )
        history.add(msgspec.structs.replace(scenes.sample(card), taken_at=float(at)))
    return history


def test_each_gauge_draws_the_hour_and_nothing_before_the_first_look() -> None:
    history = _hour()
    _, card = next(iter(history.answered.values()))
    rows = dict(windows.gauge_rows(history.gauges[card.uuid], card, HOUR, HOUR, 20))
    assert list(rows) == ["utilization", "memory", "power"]  # nobody told of a temperature
    words, top, bottom = rows["utilization"]
    assert words == "100 %, peak 100 %"
    assert (len(top), top.strip(), bottom[10:]) == (20, "⣿" * 10, "⣿" * 10)
    assert rows["power"][0] == "650 W, peak 650 W"
    curve = Curve()
    curve.add(100.0, (50,))
    ((_, (_, *drawn)),) = windows.gauge_rows({"utilization": curve}, scenes.gpu(0), 110.0, 1000, 20)
    assert all(not line[:15].strip() for line in drawn)
    assert any(line[-1:].strip() for line in drawn)


def _span(app: Dashboard) -> str:
    text = str(app.screen.query_one("#window Static", Static).render())
    return next(f"the last {line.split('the last ')[1]}" for line in text.split("\n") if "the last" in line)


class Choice:
    def __init__(self, problem: str = "") -> None:
        self.settings = SnapshotSettings(formats=FORMATS)
        self._problem = problem

    def choose(self, settings: SnapshotSettings) -> None:
        self.settings = settings
        if self._problem:
            raise UserError(self._problem)


async def test_formats_and_folder_are_kept_or_said_to_be_wrong(tmp_path: Path) -> None:
    async with dashboard([scenes.usual()], notifications=True) as (app, pilot):
        choice = app.parts.export.writer = Choice()
        assert "Markdown, to paste into a ticket" in await press(app, pilot, "S")
        await press(app, pilot, "space", "down", "space", "tab", *"out", "ctrl+s")
        assert choice.settings == SnapshotSettings(folder="out", formats=("md", "html"))
        assert "Saved: s uses these options" in screen_text(app)
    file = tmp_path / "file"
    file.touch()
    async with dashboard([scenes.usual()]) as (app, pilot):
        choice = app.parts.export.writer = Choice()
        assert "Select at least one format." in await press(app, pilot, "S", *(["space", "down"] * 4), "ctrl+s")
        await pilot.press("space", "tab")
        app.screen.query_one(Input).value = str(file)
        assert "That is a file, not a folder." in await press(app, pilot, "enter")
        await press(app, pilot, "escape")
        assert not isinstance(app.screen, windows.SaveOptions)
        assert choice.settings == SnapshotSettings(formats=FORMATS)
    async with dashboard([scenes.usual()], notifications=True) as (app, pilot):
        choice = app.parts.export.writer = Choice("config.toml cannot be written: No space left on device")
        await press(app, pilot, "S", "space", "ctrl+s")
        assert "json" not in choice.settings.formats
        assert "Applies until you quit." in screen_text(app)
    async with dashboard([scenes.usual()], notifications=True) as (app, pilot):
        assert "Saving is not available here." in await press(app, pilot, "S")


async def test_the_keys_stand_by_task_in_two_columns_where_there_is_room() -> None:
    async with dashboard(climbing(), (120, 60)) as (app, pilot):
        text = await press(app, pilot, "question_mark")
        for title in ("Rows", "Estimate", "Try a change", "Save, copy, signal", "Everywhere", "Mouse and palette"):
            assert title in text
        for size, columns in (((80, 24), 1), ((120, 35), 2), ((200, 50), 2)):
            await pilot.press("escape")
            await pilot.resize_terminal(*size)
            await press(app, pilot, "question_mark")
            lines = screen_text(app).splitlines()
            focused = next(at for at, line in enumerate(lines) if "Process table (focused)" in line)
            first = next(line for line in lines[focused:] if "Up" in line)
            assert ("Last row" in first or "Page" in first) == (columns == 2)


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


async def test_a_whole_screen_is_sound_and_asks_no_site_for_anything() -> None:
    async with dashboard(climbing(), (120, 35)) as (app, _):
        before = app.parts.export.picture()
    drawn = portable(before)
    root = ET.fromstring(drawn)  # noqa: S314 - our own
    assert root.get("viewBox")
    assert "textLength" not in drawn
    for svg in (before, drawn):
        assert set(re.findall(r"https?://[^\"'\s<)]+", svg)) <= {
            "http://www.w3.org/2000/svg",
            "https://www.textualize.io",
        }
        assert "@font-face" not in svg
    assert "Fira" not in drawn
    shown = " ".join(one.text or "" for one in root.iter() if one.tag.endswith("text"))
    assert "Processes" in shown
    assert "python train.py" in shown
