import os
import threading
import venv
from collections.abc import Sequence
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion
from textual.widgets import Input

from tests.app.driver import Driver, choose_process, climbing, dashboard, known, press, screen_text
from vramtui.app.keys import NOTICE
from vramtui.app.plan.dialogs import NO_RUNNER, CardRun, EachCardWindow
from vramtui.app.plan.screen import PlanScreen
from vramtui.cli.dashboard.services import DashboardDryRuns
from vramtui.core.base.errors import UserError
from vramtui.core.base.units import GIB
from vramtui.core.estimate.devices import Device, card
from vramtui.dryrun.result import JobCommand

FITS = 40 * GIB  # what the job of these tests needs
JOB = JobCommand(
    words=("python", "train.py", "--name", "a b"),
    python="/srv/ada/.venv/bin/python",
    script="/srv/ada/train.py",
    folder="/srv/ada",
    environment={},
)


class HandRunner:
    """Answers when it is let; `problem` in place of an answer."""

    def __init__(self, problem: str = "") -> None:
        self.go_on = threading.Semaphore(0)
        self.asked: list[tuple[tuple[str, ...], str | None, str]] = []
        self.cancelled = threading.Event()
        self._problem = problem

    def command_of(self, pid: int, command: str) -> JobCommand:
        if "train.py" not in command:
            raise UserError(f"pid {pid} runs no Python script")
        return JOB

    def run(
        self, words: Sequence[str], job: JobCommand | None, device: Device, cancel: threading.Event
    ) -> CardRun | None:
        self.asked.append((tuple(words), None if job is None else job.folder, device.name))
        while not self.go_on.acquire(timeout=0.01):
            if cancel.is_set():
                self.cancelled.set()
                return None
        if self._problem:
            raise UserError(self._problem)
        memory = device.total_memory
        verdict = "fits" if memory > FITS else "does not fit"
        held = {"allocated": FITS - 2 * GIB, "reserved": FITS - GIB, "process": FITS}
        return CardRun(card=device.name, **held, memory=memory, verdict=verdict)


async def opened(driver: Driver) -> EachCardWindow:
    app, pilot = driver
    await press(app, pilot, "2", "o")
    assert isinstance(app.screen, EachCardWindow)
    return app.screen


async def told(driver: Driver, word: str) -> str:
    """The screen once it holds `word`."""
    for _ in range(500):
        if word in (text := screen_text(driver[0])):
            return text
        await driver[1].pause(0.01)
    raise AssertionError(f"{word} does not come:\n{text}")


async def test_the_table_fills_as_cards_end(picture: SnapshotAssertion) -> None:
    runner = HandRunner()
    async with dashboard(climbing(), card_runner=runner) as driver:
        await opened(driver)
        await driver[1].press("enter")
        runner.go_on.release()
        assert "runs …" in await told(driver, "does not fit")
        assert driver[0].parts.export.picture() == picture
        runner.go_on.release(3)
        await told(driver, "  fits")
        await press(*driver, "escape")
        assert isinstance(driver[0].screen, PlanScreen)


async def test_the_selected_jobs_command_runs_in_its_folder_where_anything_can_run() -> None:
    runner = HandRunner()
    async with dashboard(climbing(), card_runner=runner) as driver:
        await choose_process(driver, "train.py")
        window = await opened(driver)
        assert window.query_one("#command", Input).value == "python train.py --name 'a b'"
        window.query_one("#command", Input).value += " --batch 2"
        window.query_one("#cards", Input).value = "4090, 48GB, 4090"
        await driver[1].press("enter")
        runner.go_on.release(2)
        await told(driver, " fits")
    words = ("python", "train.py", "--name", "a b", "--batch", "2")
    assert runner.asked == [(words, "/srv/ada", "RTX4090"), (words, "/srv/ada", "a card of 48GB")]
    async with dashboard(climbing(), notifications=True) as driver:
        await driver[1].press("2", "o")
        await told(driver, NO_RUNNER)
    async with dashboard(climbing(), notifications=True, view_only=True, card_runner=HandRunner()) as driver:
        await driver[1].press("2", "o")
        await told(driver, NOTICE[:30])


async def test_closing_ends_what_runs_and_a_job_without_an_answer_is_one_sentence() -> None:
    runner = HandRunner()
    async with dashboard(climbing(), card_runner=runner) as driver:
        await opened(driver)
        await driver[1].press("enter")
        await told(driver, "runs …")
        await driver[1].press("escape")
        assert runner.cancelled.wait(5)
        assert len(runner.asked) == 1
    runner = HandRunner("the job never used CUDA through PyTorch")
    async with dashboard(climbing(), card_runner=runner) as driver:
        await opened(driver)
        for _ in range(2):
            await driver[1].press("enter")
            runner.go_on.release()
            await told(driver, "the job never used CUDA")
    assert len(runner.asked) == 2


@pytest.mark.parametrize(("field", "value", "sentence"), [
    ("#cards", "RTX4091", "no card called 'RTX4091' is known"),
    ("#cards", " , ", "a command and a card are needed"),
    ("#command", "python 'train.py", "No closing quotation"),
])  # fmt: skip
async def test_wrong_input_is_said_and_nothing_runs(field: str, value: str, sentence: str) -> None:
    runner = HandRunner()
    async with dashboard(climbing(), card_runner=runner) as driver:
        window = await opened(driver)
        window.query_one(field, Input).value = value
        await driver[1].press("enter")
        await told(driver, sentence)
    assert runner.asked == []


@pytest.mark.slow
def test_the_child_ends_with_the_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a job that uses no CUDA: its figures need PyTorch's CUDA build."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    script = tmp_path / "train.py"
    script.write_text("import os, sys, time; print(os.getcwd()); sys.exit(7 if len(sys.argv) == 1 else time.sleep(60))")
    venv.create(tmp_path / "environment", symlinks=True)
    python = str(tmp_path / "environment" / "bin" / "python")  # without torch
    words = (python, "train.py")
    job = JobCommand(words=words, python=python, script=str(script), folder=str(tmp_path), environment=dict(os.environ))
    ran = known(DashboardDryRuns().run(words, job, card("RTX4090"), threading.Event()))
    assert (ran.card, ran.process) == ("RTX4090", None)
    assert ran.verdict.startswith("failed: the job ended with 7 before it used CUDA")
    cancel = threading.Event()
    threading.Timer(1, cancel.set).start()
    assert DashboardDryRuns().run((*words, "wait"), job, card("RTX4090"), cancel) is None
