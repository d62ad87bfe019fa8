import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from syrupy.assertion import SnapshotAssertion

from tests.app import scenes
from tests.app.driver import dashboard, give, known, press, screen_text, settle
from tests.app.fakes import Still
from tests.app.svg import SvgExtension
from tests.examples import Clock
from vramtui.app.watch.signals import pasteable
from vramtui.app.watch.windows import SignalWindow
from vramtui.core.base.units import GIB
from vramtui.core.observation.readings import Process, Sample
from vramtui.core.observation.signals import Outcome, Sent, SignalName
from vramtui.sources.host.host import PidNamespace
from vramtui.sources.host.processes import ProcessReader
from vramtui.sources.host.signals import Signals


class Obedient:
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
    said: list[str] = []
    monkeypatch.setattr(app, "notify", lambda message, **_: said.append(message))
    return said


def text_of(app: Still) -> str:
    return " ".join(screen_text(app).replace("│", " ").split())


CHOSEN: dict[str, SignalName] = {
    "y": "SIGTERM", "t y": "SIGTERM", "i y": "SIGINT", "9 y": "SIGKILL", "down y": "SIGINT", "down down y": "SIGKILL",
    "9 up y": "SIGINT", "down enter y": "SIGINT",
}  # fmt: skip


async def test_the_chosen_signal_goes_to_the_chosen_process_with_a_yes_only() -> None:
    async with dashboard([scenes.usual()]) as (app, pilot):
        app.parts.signals.signaller = actor = Obedient()
        for keys in ("n", "escape", "q", "enter n", "9 escape", "X n"):
            await press(app, pilot, "X")
            assert isinstance(app.screen, SignalWindow), keys
            await press(app, pilot, *keys.split())
            assert actor.sent == [], keys
            assert not isinstance(app.screen, SignalWindow), keys
        for number, (keys, name) in enumerate(CHOSEN.items(), 1):
            await press(app, pilot, "X")
            shown = text_of(app)
            for part in ("pid 4213 of anna", "python train.py", "Would free 58.0 GiB on GPU 0.", "Send SIGTERM?"):
                assert part in shown, keys
            await press(app, pilot, *keys.split())
            assert len(actor.sent) == number, keys
            assert actor.sent[-1] == (4213, scenes.START - 600, name), keys
            assert not isinstance(app.screen, SignalWindow), keys
            assert [one.name for one in app.parts.signals.outcomes] == [name]  # the last signal takes over
        titles = {command.title for command in app.get_system_commands(app.screen)}
        assert titles > {
            "Send a signal to the selected process (asks first)",
            "Copy the selected process's pid",
            "Copy the selected process's command",
        }


@pytest.mark.parametrize(("processes", "words"), [
    (
        [scenes.process(70, 3 * GIB, "python wide.py"), scenes.process(70, 2 * GIB, "python wide.py")],
        ["Would free 3.0 GiB on GPU 0, 2.0 GiB on GPU 1, 5.0 GiB together."],
    ),
    ([scenes.process(301, 9 * GIB, scenes.HOSTILE, user="mallory[b]")], ["mallory[b]", "[red]x[/] ␛[2J␛]0;pwn␇"]),
    ([scenes.process(1, 5 * GIB, "vramtui")], ["This is vramtui itself: it would end this dashboard."]),
])  # fmt: skip
async def test_the_question_names_gpus_and_ourselves(processes: list[Process], words: list[str]) -> None:
    sample = scenes.sample(*(scenes.gpu(at, process) for at, process in enumerate(processes)))
    async with dashboard([sample]) as (app, pilot):
        app.parts.signals.signaller = Obedient()
        await press(app, pilot, "X")
        assert all(word in text_of(app) for word in words)


ANSWERS = (
    (Obedient("gone"), "No signal sent: pid 4213 has already ended."),
    (Obedient("reused"), "No signal sent: another process has pid 4213 now."),
    (Obedient("refused", owner="bo"), "Not permitted: pid 4213 is bo's process."),
    (Obedient("refused"), "Not permitted: pid 4213 is another user's process."),
    (Obedient("failed", detail="No buffer space"), "No signal sent to pid 4213: No buffer space."),
    (Obedient("elsewhere"), "No signal sent: in this container it is not known which process pid 4213 is."),
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
    clock = Clock(scenes.START)
    async with dashboard([scenes.usual()], clock=clock) as (app, pilot):
        said, signals = listen(app, monkeypatch), app.parts.signals

        async def send() -> Obedient:
            signals.signaller = actor = Obedient()
            await press(app, pilot, "X", "y")
            said.clear()
            return actor

        actor = await send()  # a driver that gives no more samples
        actor.there = False
        for _ in range(5):
            clock.now += 1
            signals.look()
        assert said == ["pid 4213 ended 1.0 s later."]
        actor = await send()  # one that goes on listing it
        actor.there = False
        clock.now += 0.2
        for at in range(1, 5):
            signals.look()
            await give(app, pilot, scenes.usual(5 + at))
            clock.now += 1
        signals.look()
        assert said == ["pid 4213 ended 0.2 s later, but the driver still lists 58.0 GiB for it."]
        begun = clock.now
        actor = await send()
        clock.now += 1.0
        signals.look()
        actor.there = False
        clock.now += 0.2
        signals.look()
        assert said == []  # no sample yet from after its end
        clock.now += 0.3
        await give(app, pilot, scenes.sample(scenes.gpu(0), scenes.gpu(1), at=begun - scenes.START + 1.4))
        signals.look()
        assert said == ["pid 4213 ended 1.2 s later, 58.0 GiB freed."]
        signals.look()
        assert len(said) == 1
        assert signals.timer is None


@pytest.mark.parametrize(("key", "next_step"), [
    ("t", "SIGKILL is next"),
    ("i", "SIGTERM is next"),
    ("9", "it is blocked in the kernel, most likely in the driver"),
])  # fmt: skip
async def test_one_that_stays_is_told_once(key: str, next_step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(scenes.START)
    async with dashboard([scenes.usual()], clock=clock) as (app, pilot):
        app.parts.signals.signaller, said = Obedient(), listen(app, monkeypatch)
        await press(app, pilot, "X", key, "y")
        said.clear()
        for _ in range(70):
            clock.now += 1
            app.parts.signals.look()
        assert said == [f"pid 4213 is still running after 10 s; {next_step}."]
        assert app.parts.signals.outcomes == ()


def lone(**more: object) -> Sample:
    return scenes.sample(scenes.gpu(0, scenes.process(303, 5 * GIB, "python", **more)))


@pytest.mark.parametrize(("sample", "words"), [
    (lone(state="unseen"), "outside this container"),
    (lone(state="exited"), "has already ended"),
    (lone(state="zombie"), "has already ended"),
    (lone(started_at=None), "could be another process"),
    (scenes.sample(scenes.gpu(0)), "Select a process first"),
    (scenes.sample(), "Select a process first"),
])  # fmt: skip
async def test_some_are_not_asked_about(sample: Sample, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with dashboard([sample]) as (app, pilot):
        app.parts.signals.signaller, said = Obedient(), listen(app, monkeypatch)
        await press(app, pilot, "X")
        assert len(said) == 1
        assert words in said[0]
        assert not isinstance(app.screen, SignalWindow)


@pytest.mark.parametrize(("sample", "key", "copied", "word"), [
    (scenes.usual(), "c", ["4213"], "Copied pid 4213"),
    (scenes.usual(), "C", [scenes.TRAIN], "Copied the command of pid 4213"),
    (scenes.sample(scenes.gpu(0)), "c", [], "Select a process first."),
    (lone(command=None, name=None), "C", [], "The command of pid 303 is not known."),
    (scenes.usual(), "X", [], "Signals are off: started with --no-signals."),
])  # fmt: skip
async def test_pid_and_command_go_to_the_clipboard_and_a_refusal_says_why(
    sample: Sample, key: str, copied: list[str], word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with dashboard([sample]) as (app, pilot):
        app.parts.signals.refusal = "Signals are off: started with --no-signals."
        taken: list[str] = []
        said = listen(app, monkeypatch)
        monkeypatch.setattr(app, "copy_to_clipboard", taken.append)
        await press(app, pilot, key)
    assert taken == copied
    assert len(said) == 1
    assert said[0].startswith(word)


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    code = "import time; print(flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as started:
        known(started.stdout).readline()
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


def test_what_is_pasted_obeys_nobody() -> None:
    assert pasteable("rm -rf /\nx\r\x1b[2J\x00\u202e\ufeff é 漢") == "rm -rf /x[2J é 漢"


@pytest.mark.parametrize("size", [(80, 24), (120, 35)], ids=lambda size: f"{size[0]}x{size[1]}")
async def test_picture_of_the_window(size: tuple[int, int], snapshot: SnapshotAssertion) -> None:
    async with dashboard([scenes.usual()], size) as (app, pilot):
        app.parts.signals.signaller = Obedient()
        await pilot.press("X")
        await settle(app, pilot)
        assert app.export_screenshot(title="vramtui") == snapshot(extension_class=SvgExtension)
