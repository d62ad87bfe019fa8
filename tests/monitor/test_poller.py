import queue
import threading

import pytest

from tests.app import scenes
from tests.examples import Clock, Never
from vramtui.core.base.errors import SourceFailed
from vramtui.core.observation.readings import Sample
from vramtui.monitor.poller import Poller, ReadOverdue, ReadQueue, ReadResult, read_deadline

WAIT = 60.0


class Scripted(Never):
    name = "scripted"

    def __init__(self, *script: Sample | Exception) -> None:
        self._script = list(script)
        self.hangs = threading.Event()
        self.release = threading.Event()

    def read(self) -> Sample:
        if self._script:
            step = self._script.pop(0)
            if isinstance(step, Exception):
                raise step
            return step
        self.hangs.set()
        self.release.wait()
        return scenes.usual()


def start(source: Scripted, clock: Clock | None = None) -> tuple[Poller, "queue.Queue[ReadResult]"]:
    posted: queue.Queue[ReadResult] = queue.Queue()
    poller = Poller(source, 0.001, posted.put, clock=clock or Clock())
    poller.start()
    return poller, posted


def test_samples_and_failures_in_their_order() -> None:
    source = Scripted(scenes.usual(1), SourceFailed("no driver", "load it"), RuntimeError("a bug"), scenes.usual(2))
    poller, posted = start(source)
    got = [posted.get(timeout=WAIT) for _ in range(4)]
    poller.stop()
    source.release.set()
    assert (got[0], got[3]) == (scenes.usual(1), scenes.usual(2))
    failures = [(one.message, one.hint) for one in got[1:3] if isinstance(one, SourceFailed)]
    assert failures == [("no driver", "load it"), ("the scripted source broke: RuntimeError: a bug", "")]


def test_what_is_read_before_somebody_listens_waits_for_him() -> None:
    source = Scripted(scenes.usual(1), scenes.usual(2))
    poller = Poller(source, 0.001, clock=Clock())
    poller.start()
    assert poller.first_answer(WAIT) == scenes.usual(1)
    assert source.hangs.wait(WAIT)
    posted: queue.Queue[ReadResult] = queue.Queue()
    poller.deliver_to(posted.put)
    assert [posted.get_nowait() for _ in range(2)] == [scenes.usual(1), scenes.usual(2)]
    source.release.set()
    assert posted.get(timeout=WAIT) == scenes.usual()
    poller.stop()


def test_a_read_past_its_deadline_is_told_and_waited_for() -> None:
    clock = Clock()
    source = Scripted()
    poller, posted = start(source, clock)
    assert source.hangs.wait(WAIT)
    poller.check()
    assert posted.empty()
    clock.now += 60
    poller.check()
    assert posted.get(timeout=WAIT) == ReadOverdue(1000.0)
    source.release.set()
    assert posted.get(timeout=WAIT) == scenes.usual()
    poller.stop()


def test_stopping_waits_for_nothing_but_the_read_that_is_wanted() -> None:
    source = Scripted()
    poller, posted = start(source)
    assert source.hangs.wait(WAIT)
    poller.stop()
    assert poller.is_alive()
    assert poller.daemon
    source.release.set()
    poller.join(WAIT)
    assert not poller.is_alive()
    assert posted.empty()
    source = Scripted()
    poller, delivered = start(source)
    assert source.hangs.wait(WAIT)
    poller.stop(deliver_last=True)
    source.release.set()
    assert delivered.get(timeout=WAIT) == scenes.usual()
    poller.join(WAIT)
    assert not poller.is_alive()
    assert (read_deadline(0.1), read_deadline(1.0), read_deadline(60.0)) == (3.0, 3.0, 120.0)


def test_a_client_that_waits_gets_samples_and_failures_and_can_be_woken() -> None:
    source = Scripted(scenes.usual(1))
    reads = ReadQueue(source, 0.001)
    assert reads.sample(lambda: None) == scenes.usual(1)
    assert source.hangs.wait(WAIT)
    said = threading.Event()

    def release() -> None:
        said.set()
        source.release.set()

    assert reads.sample(release) == scenes.usual()
    assert said.is_set()
    reads.close()
    source = Scripted(SourceFailed("no driver"), SourceFailed("no driver"))
    reads = ReadQueue(source, 0.001)
    with pytest.raises(SourceFailed, match="no driver"):
        reads.sample(lambda: None)
    assert isinstance(reads.next(), SourceFailed)
    assert source.hangs.wait(WAIT)
    reads.wake()
    assert reads.next(WAIT) is None
    reads.close()
    source.release.set()
