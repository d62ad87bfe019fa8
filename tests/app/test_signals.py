"""Signals are asked about, sent to the process that was meant, and followed until it is clear what they did."""

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from syrupy.assertion import SnapshotAssertion
from textual.pilot import Pilot

from tests.app import scenes
from tests.app.driver import Clock, dashboard, give, screen_text, settle
from tests.app.fakes import Still
from tests.app.svg import SvgExtension
from vramtui.app.watch.signal_window import SignalWindow
from vramtui.app.watch.signals import pasteable
from vramtui.core.base.units import GIB
from vramtui.core.observation.readings import Sample
from vramtui.core.observation.signals import Outcome, Sent, SignalName
from vramtui.sources.host.host import PidNamespace
from vramtui.sources.host.processes import ProcessReader
from vramtui.sources.host.signals import Signals


class Obedient:
    """Notes what it is asked to send; the test says what comes of it."""

    own_pid = 1

    def __init__(self, outcome: Outcome = "sent", owner: str = "", detail: str = "") -> None:
        self.answer = Sent(outcome=outcome, owner=owner, detail=detail)
        self.sent: list[tuple[int, float | None, SignalName]] = []
        self.there = True

    def send(self, pid: int, started_at: float | None, name: SignalName) -> Sent:
        self.sent.append((pid, started_at, name))
        return self.answer

    def is_there(self, pid: int, started_at: float | None) -> bool:
        assert (pid, started_at) == self.sent[-1][:2]
        return self.there


def listen(app: Still, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the dashboard says from now on."""
    said: list[str] = []
    monkeypatch.setattr(app, "notify", lambda message, **_: said.append(message))
    return said


def text_of(app: Still) -> str:
    return " ".join(screen_text(app).replace("│", " ").split())


async def press(app: Still, pilot: Pilot[None], *keys: str) -> None:
    await pilot.press(*keys)
    await settle(app, pilot)


CHOSEN: dict[str, SignalName] = {
    "y": "SIGTERM",
    "t y": "SIGTERM",
    "i y": "SIGINT",
    "9 y": "SIGKILL",
    "down y": "SIGINT",
    "down down y": "SIGKILL",
    "9 up y": "SIGINT",
    "down enter y": "SIGINT",
}


async def test_the_chosen_signal_goes_to_the_chosen_process() -> None:
    async with dashboard([scenes.usual()]) as (app, pilot):
        app.parts.signals.signaller = actor = Obedient()
        for number, (keys, name) in enumerate(CHOSEN.items(), 1):
            await press(app, pilot, "X")
            shown = text_of(app)
            for part in ("pid 4213 of anna", "python train.py", "Would free 58.0 GiB on GPU 0.", "Send SIGTERM?"):
                assert part in shown, keys
            await press(app, pilot, *keys.split())
            assert len(actor.sent) == number, keys
            assert actor.sent[-1] == (4213, scenes.START - 600, name), keys
            assert not isinstance(app.screen, SignalWindow), keys


async def test_nothing_is_sent_without_a_yes() -> None:
    async with dashboard([scenes.usual()]) as (app, pilot):
        app.parts.signals.signaller = actor = Obedient()
        for keys in ("n", "escape", "q", "enter n", "9 escape", "X n"):
            await press(app, pilot, "X")
            assert isinstance(app.screen, SignalWindow), keys
            await press(app, pilot, *keys.split())
            assert actor.sent == [], keys
            assert not isinstance(app.screen, SignalWindow), keys


async def test_every_gpu_of_the_process_is_named() -> None:
    gpus = [scenes.gpu(at, scenes.process(70, (3 - at) * GIB, "python wide.py")) for at in (0, 1)]
    sample = scenes.sample(*gpus)
    async with dashboard([sample]) as (app, pilot):
        app.parts.signals.signaller = Obedient()
        await press(app, pilot, "X")
        assert "Would free 3.0 GiB on GPU 0, 2.0 GiB on GPU 1, 5.0 GiB together." in text_of(app)


async def test_hostile_names_are_shown_and_not_obeyed() -> None:
    hostile = scenes.process(301, 9 * GIB, scenes.HOSTILE, user="mallory[b]")
    async with dashboard([scenes.sample(scenes.gpu(0, hostile))]) as (app, pilot):
        app.parts.signals.signaller = Obedient()
        await press(app, pilot, "X")
        assert "mallory[b]" in text_of(app)
        assert "[red]x[/] ␛[2J␛]0;pwn␇" in text_of(app)


ANSWERS = (
    (Obedient("gone"), "No signal sent: pid 4213 has already ended."),
    (Obedient("reused"), "No signal sent: another process has pid 4213 now."),
    (Obedient("refused", owner="bo"), "Not permitted: pid 4213 is bo's process."),
    (Obedient("refused"), "Not permitted: pid 4213 is another user's process."),
    (Obedient("failed", detail="No buffer space"), "No signal sent to pid 4213: No buffer space."),
    (Obedient("elsewhere"), "No signal sent: in this container it is not known which process is pid 4213 is."),
    (Obedient(), "SIGTERM sent to pid 4213."),
)


async def test_what_came_of_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    async with dashboard([scenes.usual()]) as (app, pilot):
        said = listen(app, monkeypatch)
        for answer, words in ANSWERS:
            app.parts.signals.signaller = answer
            said.clear()
            await press(app, pilot, "X", "y")
            assert said == [words]
            assert bool(app.parts.signals.outcomes) is (answer.answer.outcome == "sent")


async def test_the_end_is_followed_and_what_it_freed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    async with dashboard([scenes.usual()], clock=clock) as (app, pilot):
        app.parts.signals.signaller, said = Obedient(), listen(app, monkeypatch)
        await press(app, pilot, "X", "y")
        said.clear()
        clock.at += 1.0
        app.parts.signals.look()
        app.parts.signals.signaller.there = False
        clock.at += 0.2
        app.parts.signals.look()
        assert said == []  # no sample yet from after its end
        clock.at += 0.3
        await give(app, pilot, scenes.sample(scenes.gpu(0), scenes.gpu(1), at=1.4))
        app.parts.signals.look()
        assert said == ["pid 4213 ended 1.2 s later, 58.0 GiB freed."]
        app.parts.signals.look()
        assert len(said) == 1
        assert app.parts.signals.timer is None


async def test_an_ended_process_that_the_driver_goes_on_listing(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    async with dashboard([scenes.usual()], clock=clock) as (app, pilot):
        app.parts.signals.signaller, said = Obedient(), listen(app, monkeypatch)
        await press(app, pilot, "X", "y")
        said.clear()
        app.parts.signals.signaller.there = False
        clock.at += 0.2
        for at in range(1, 5):
            app.parts.signals.look()
            await give(app, pilot, scenes.usual(at))
            clock.at += 1
        app.parts.signals.look()
        assert said == ["pid 4213 ended 0.2 s later, but the driver still lists 58.0 GiB for it."]


async def test_a_driver_that_says_nothing_more_leaves_the_end_at_that(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    async with dashboard([scenes.usual()], clock=clock) as (app, pilot):
        app.parts.signals.signaller, said = Obedient(), listen(app, monkeypatch)
        await press(app, pilot, "X", "y")
        said.clear()
        app.parts.signals.signaller.there = False
        for _ in range(5):
            clock.at += 1
            app.parts.signals.look()
        assert said == ["pid 4213 ended 1.0 s later."]


@pytest.mark.parametrize(
    ("key", "next_step"),
    [
        ("t", "SIGKILL is next"),
        ("i", "SIGTERM is next"),
        ("9", "it is blocked in the kernel, most likely in the driver"),
    ],
)
async def test_one_that_stays_is_told_once(key: str, next_step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    async with dashboard([scenes.usual()], clock=clock) as (app, pilot):
        app.parts.signals.signaller, said = Obedient(), listen(app, monkeypatch)
        await press(app, pilot, "X", key, "y")
        said.clear()
        for _ in range(70):
            clock.at += 1
            app.parts.signals.look()
        assert said == [f"pid 4213 is still running after 10 s; {next_step}."]
        assert app.parts.signals.outcomes == ()


async def test_a_second_signal_takes_over_from_the_first() -> None:
    async with dashboard([scenes.usual()]) as (app, pilot):
        app.parts.signals.signaller = Obedient()
        await press(app, pilot, "X", "y", "X", "9", "y")
        assert [one.name for one in app.parts.signals.outcomes] == ["SIGKILL"]


def lone(**more: object) -> Sample:
    return scenes.sample(scenes.gpu(0, scenes.process(303, 5 * GIB, "python", **more)))


@pytest.mark.parametrize(
    ("sample", "words"),
    [
        (lone(state="unseen"), "outside this container"),
        (lone(state="exited"), "has already ended"),
        (lone(state="zombie"), "has already ended"),
        (lone(started_at=None), "could be another process"),
        (scenes.sample(scenes.gpu(0)), "Select a process first"),
        (scenes.sample(), "Select a process first"),
    ],
)
async def test_some_are_not_asked_about(sample: Sample, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with dashboard([sample]) as (app, pilot):
        app.parts.signals.signaller, said = Obedient(), listen(app, monkeypatch)
        await press(app, pilot, "X")
        assert len(said) == 1
        assert words in said[0]
        assert not isinstance(app.screen, SignalWindow)


async def test_without_an_actor_it_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    async with dashboard([scenes.usual()]) as (app, pilot):
        app.parts.signals.refusal = "Signals are off: started with --no-signals."
        said = listen(app, monkeypatch)
        await press(app, pilot, "X")
        assert said == ["Signals are off: started with --no-signals."]


async def test_our_own_pid_is_named_as_such() -> None:
    own = scenes.sample(scenes.gpu(0, scenes.process(1, 5 * GIB, "vramtui")))
    async with dashboard([own]) as (app, pilot):
        app.parts.signals.signaller = Obedient()
        await press(app, pilot, "X")
        assert "This is vramtui itself: it would end this dashboard." in text_of(app)


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    code = "import time; print(flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        started.stdout.readline()
        yield started
        started.kill()


async def test_a_real_process_really_ends(child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    reader = ProcessReader()
    reader.update({child.pid})
    started = reader.row(child.pid, "GPU-0", "C", 1, None).started_at
    sample = scenes.sample(scenes.gpu(0, scenes.process(child.pid, GIB, "python", started_at=started)))
    namespace = PidNamespace()
    namespace.private = False
    async with dashboard([sample]) as (app, pilot):
        app.parts.signals.signaller, said = Signals(namespace), listen(app, monkeypatch)
        await press(app, pilot, "X", "y")
        assert said[0] == f"SIGTERM sent to pid {child.pid}."
        assert child.wait() == -signal.SIGTERM
        assert not app.parts.signals.signaller.is_there(child.pid, started)


# --- the clipboard -----------------------------------------------------------------------------------------------


async def copied(sample: Sample, key: str, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], list[str]]:
    """What a key put into the clipboard, and what was said."""
    async with dashboard([sample]) as (app, pilot):
        taken: list[str] = []
        said = listen(app, monkeypatch)
        monkeypatch.setattr(app, "copy_to_clipboard", taken.append)
        await press(app, pilot, key)
        return taken, said


@pytest.mark.parametrize(
    ("key", "text", "word"),
    [("c", "4213", "Copied pid 4213"), ("C", scenes.TRAIN, "Copied the command of pid 4213")],
)
async def test_pid_and_command_go_to_the_clipboard(
    key: str, text: str, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, said = await copied(scenes.usual(), key, monkeypatch)
    assert taken == [text]
    assert said[0].startswith(word)


@pytest.mark.parametrize(
    ("sample", "key", "word"),
    [
        (scenes.sample(scenes.gpu(0)), "c", "Select a process first."),
        (lone(command=None, name=None), "C", "The command of pid 303 is not known."),
    ],
)
async def test_what_cannot_be_copied(sample: Sample, key: str, word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await copied(sample, key, monkeypatch) == ([], [word])


def test_what_is_pasted_obeys_nobody() -> None:
    assert pasteable("rm -rf /\nx\r\x1b[2J\x00\u202e\ufeff é 漢") == "rm -rf /x[2J é 漢"


async def test_all_three_are_in_the_palette() -> None:
    async with dashboard([scenes.usual()]) as (app, _):
        titles = [command.title for command in app.get_system_commands(app.screen)]
    assert {
        "Send a signal to the selected process (asks first)",
        "Copy the selected process's pid",
        "Copy the selected process's command",
    } <= set(titles)


# --- pictures ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(80, 24), (120, 35)], ids=lambda size: f"{size[0]}x{size[1]}")
async def test_picture_of_the_window(size: tuple[int, int], snapshot: SnapshotAssertion) -> None:
    async with dashboard([scenes.usual()], size) as (app, pilot):
        app.parts.signals.signaller = Obedient()
        await press(app, pilot, "X")
        assert app.export_screenshot(title="vramtui") == snapshot(extension_class=SvgExtension)
