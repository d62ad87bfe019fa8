"""The window of details: bytes that are nobody's, and why."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tests.app import scenes
from tests.app.driver import dashboard, screen_text, settle
from vramtui.app.watch.windows import Details, RowFacts, folded, gpu_facts, nobodys_facts
from vramtui.core.base.units import GIB
from vramtui.core.observation.readings import Absence, Memory, PcieTraffic

INSIDE = msgspec.structs.replace(scenes.HOST, private_pids=True)


@pytest.mark.parametrize(
    ("unattributed", "host", "words"),
    [
        (3 * GIB, scenes.HOST, "3.0 GiB: driver, managed memory, or left by exited processes"),
        (3 * GIB, INSIDE, "3.0 GiB: processes outside this container"),
        (-GIB, scenes.HOST, "-1.0 GiB: counted more than once: processes share it, or one grew"),
    ],
)
def test_bytes_that_are_nobodys_say_why(unattributed: int, host: object, words: str) -> None:
    assert isinstance(host, type(scenes.HOST))
    card = scenes.gpu(0, scenes.process(5, 9 * GIB, "python x.py"), unattributed=unattributed)
    ((name, told),) = nobodys_facts(card, host)
    assert name == "unattributed"
    assert words in told.replace("−", "-")


def test_fewer_than_none_are_shared_or_late() -> None:
    card = scenes.gpu(0, scenes.process(5, 9 * GIB, "python x.py"), unattributed=-GIB)
    assert "a process grew between two readings" in nobodys_facts(card, scenes.HOST, GIB)[0][1]
    assert nobodys_facts(card, scenes.HOST, GIB - 1)[0][1].endswith("counted more than once: processes share it")


def test_where_every_byte_is_somebodys_nothing_is_said() -> None:
    assert nobodys_facts(scenes.gpu(0), scenes.HOST) == []
    unknown = scenes.gpu(0, memory=Memory(), absent={"memory": Absence.NOT_SUPPORTED})
    assert nobodys_facts(unknown, scenes.HOST) == []


def test_shared_memory_is_named_as_such() -> None:
    shared = scenes.gpu(0, memory=Memory(used=GIB, free=9 * GIB, unified=True))
    facts = dict(gpu_facts(shared))
    assert facts["memory"] == "used 1.0 GiB · free 9.0 GiB"
    assert facts["unified"] == "it shares the host's memory"


@given(st.text(st.sampled_from("ab 漢-"), max_size=80), st.integers(12, 40))
def test_folding_loses_nothing_and_keeps_within_the_width(text: str, width: int) -> None:
    lines = folded(text, width)
    assert all(cell_len(line) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")


def test_folding_breaks_at_spaces_and_through_words_that_are_too_long() -> None:
    assert folded("python train.py --config", 15) == ["python train.py", "--config"]
    assert folded("run /a/very/long/path/indeed x", 12) == ["run /a/very/", "long/path/in", "deed x"]


@given(st.text(alphabet="ab 漢é", max_size=200), st.integers(2, 30))
def test_a_folded_line_holds_every_word_within_its_width(text: str, width: int) -> None:
    lines = folded(text, width)
    assert all(cell_len(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


async def test_traffic_that_no_sample_tells_is_measured_beside_the_screen() -> None:
    asked: list[str] = []

    def measure(uuid: str) -> PcieTraffic:
        asked.append(uuid)
        return PcieTraffic(sent=3 << 20, received=5 << 20)

    async with dashboard([scenes.usual()], size=(100, 60)) as (app, pilot):
        view = app.state.view()
        assert view.chosen is not None
        app.push_screen(Details(view, RowFacts(measure_traffic=measure)))
        while "received" not in screen_text(app):
            await settle(app, pilot)
        assert "3.0 MiB/s sent, 5.0 MiB/s received" in screen_text(app)
        assert asked == [view.chosen.gpu.uuid]


async def test_details_are_of_the_row_that_is_chosen_now_drawn_or_not() -> None:
    """As after keys in one burst, of which not each is drawn."""
    async with dashboard([scenes.usual()], size=(100, 60)) as (app, pilot):
        other = next(row for row in app.state.view().rows if row.process is not None and row != app.state.view().chosen)
        app.state.select(other.id, freeze=True)
        await pilot.press("i")
        await settle(app, pilot)
        assert other.process is not None
        assert f"Process {other.process.pid}" in screen_text(app)


async def test_left_and_right_show_the_hosts_other_gpus_also_those_without_a_row() -> None:
    async with dashboard([scenes.usual()], size=(100, 60)) as (app, pilot):
        gpus = scenes.usual().gpus
        chosen = app.state.view().chosen
        assert chosen is not None
        assert chosen.process is not None
        first = [gpu.uuid for gpu in gpus].index(chosen.gpu.uuid)
        await pilot.press("i")
        await settle(app, pilot)
        for steps in range(1, len(gpus) + 1):
            await pilot.press("right")
            await settle(app, pilot)
            gpu = gpus[(first + steps) % len(gpus)]
            assert gpu.uuid in screen_text(app)
            assert (f"Process {chosen.process.pid}" in screen_text(app)) == (steps == len(gpus))
            assert f"GPU {gpu.index}, the last hour" in screen_text(app)
        await pilot.press("left")
        await settle(app, pilot)
        assert gpus[first - 1].uuid in screen_text(app)
