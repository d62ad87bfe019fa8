"""The Lab screen: its pictures, its keys, and experiments in the background."""

import gzip
import threading
from pathlib import Path

import msgspec
import pytest
from syrupy.assertion import SnapshotAssertion

from tests.app.driving import Driver, climbing, dashboard, screen_text, settle
from tests.app.svg import SvgExtension
from vramtui.app.lab.blocks import FREE, cells, placed
from vramtui.app.lab.screen import LabScreen
from vramtui.app.state.dashboard_state import DashboardState
from vramtui.app.watch.screen import Watch
from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import Device, card
from vramtui.estimators.lab.catalogue import EXPERIMENTS, Experiment
from vramtui.estimators.lab.formulas import apart, predicted
from vramtui.estimators.lab.runner import HeldBlock, HeldSegment, Outcome

# The trace of `linear` for an A100 as the program itself made it.
KEPT = Path(__file__).parent / "lab.json.gz"
SIZES = [(80, 24), (120, 35), (200, 50)]


def kept() -> Outcome:
    return msgspec.json.decode(gzip.decompress(KEPT.read_bytes()), type=Outcome)


class HandLab:
    """Ends an experiment when it is told to."""

    def __init__(self, *, problem: str = "", at_once: bool = True) -> None:
        self.asked: list[tuple[str, str, bool]] = []
        self.go_on = threading.Event()
        self.cancelled = threading.Event()
        self._problem = problem
        if at_once:
            self.go_on.set()

    def __call__(
        self, experiment: Experiment, device: Device, measured: bool, cancel: threading.Event
    ) -> Outcome | None:
        self.asked.append((experiment.key, device.name, measured))
        while not self.go_on.wait(0.01):
            if cancel.is_set():
                self.cancelled.set()
                return None
        if self._problem:
            raise UserError(self._problem)
        return kept()


async def press(driver: Driver, *keys: str) -> str:
    await driver[1].press(*keys)
    await settle(*driver)
    return squeezed(screen_text(driver[0]))


def squeezed(text: str) -> str:
    """The words, one space between them, no frames."""
    return " ".join(text.replace("│", " ").split())


async def traced(driver: Driver) -> str:
    """Wait until no experiment runs any more."""
    app, pilot = driver
    while app.parts.lab.busy:
        await pilot.pause(0.01)
    await settle(app, pilot)
    return squeezed(screen_text(app))


@pytest.fixture
def picture(snapshot: SnapshotAssertion) -> SnapshotAssertion:
    return snapshot.use_extension(SvgExtension)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_traced(picture: SnapshotAssertion, size: tuple[int, int]) -> None:
    async with dashboard(climbing(1), size, experiment=HandLab()) as driver:
        await press(driver, "5", "t")
        await traced(driver)
        await press(driver, "down", "down")
        assert driver[0].parts.export.picture() == picture


async def test_steps_and_experiments() -> None:
    async with dashboard(climbing(1), experiment=HandLab()) as driver:
        text = await press(driver, "5")
        assert isinstance(driver[0].screen, LabScreen)
        assert "▸ model 257,024 257,024 – 0" in text
        assert "t traces it" in text
        assert "A trace draws the allocator's segments here" in text
        await press(driver, "t")
        text = await traced(driver)
        assert "257,024 257,024 257,024 0 2,097,152 257,024" in text
        assert "t traces it" not in text
        assert "after model" in text
        text = await press(driver, "down", "down")
        assert "▸ forward 8,778,752 8,778,752 8,778,752 0" in text
        assert "20.0 MiB large" in text
        assert "2 segments · 5 blocks held" in text
        assert "▸ workspaces cleared" in await press(driver, "end")
        assert "▸ model" in await press(driver, "home")
        text = await press(driver, "right")
        assert "6 of 12" in text
        assert "t traces it" in text  # another one, of which nothing is known yet
        assert "5 of 12" in await press(driver, "left")


async def test_the_selected_gpus_card_says_how_far_it_is_from_the_article(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "H200"
    monkeypatch.setattr(DashboardState, "device", lambda _self: card(name))
    lab = HandLab(at_once=False)
    async with dashboard(climbing(1), experiment=lab, notifications=True) as driver:
        text = await press(driver, "5", "g", "end", "up")
        assert f"{name}, capability 9.0" in text
        assert "+50,069,504" in text
        assert "+50,069,504 B against the article: 2 cuBLAS workspaces of 33,554,432 B on capability 9.0" in text
        assert f"tracing linear on {name}" in await press(driver, "t")
        assert "already running" in await press(driver, "t")
        await press(driver, "escape")
        lab.cancelled.wait(5)
        await traced(driver)
        assert isinstance(driver[0].screen, LabScreen)
        await press(driver, "escape")
        assert isinstance(driver[0].screen, Watch)
        assert lab.asked == [("linear", name, False)]


async def test_measuring_is_asked_for_and_a_problem_is_told() -> None:
    lab = HandLab(problem="PyTorch has no card of capability 8.0 here to measure on")
    async with dashboard(climbing(1), (80, 24), experiment=lab) as driver:
        await press(driver, "5", "m")
        assert "not traced: PyTorch has no card of capability 8.0" in await traced(driver)
        assert lab.asked == [("linear", "A100-80GB", True)]
    async with dashboard(climbing(1), notifications=True) as driver:
        assert "experiments cannot be traced here" in await press(driver, "5", "t")


async def test_a_click_selects() -> None:
    async with dashboard(climbing(1), experiment=HandLab()) as driver:
        await press(driver, "5")
        await driver[1].click("LabSteps", offset=(5, 6))
        assert "▸ forward" in await press(driver)
        await driver[1].click("ExperimentList", offset=(5, 1))
        assert "1 of 12" in await press(driver)


def test_a_small_block_in_a_large_segment_is_seen() -> None:
    blocks = (HeldBlock(512, held=True), HeldBlock(1 << 20, held=False), HeldBlock(1024, held=True))
    segment = HeldSegment(4096, 512 + (1 << 20) + 1024, "small", blocks)
    assert placed(segment) == [(0, 512, True), (512, 1 << 20, False), (512 + (1 << 20), 1024, True)]
    drawn = cells(segment, frozenset({(4096, 512)}), 20)
    assert [sign for sign, _ in drawn] == ["█", *[FREE] * 18, "█"]
    assert [new for _, new in drawn] == [False] * 19 + [True]


def test_every_formula_says_what_the_article_prints() -> None:
    a100 = card("A100-80GB")
    compared = 0
    for experiment in EXPERIMENTS.values():
        for run in experiment.runs:
            formula = predicted(experiment, run, a100)
            for label, printed in run.printed.items():
                if label in formula:
                    compared += 1
                    assert formula[label] == printed
                    assert not apart(printed, formula[label], a100)
    assert compared >= 20
