import threading
import time
from collections.abc import Callable

import pytest

from tests.examples import Clock
from tests.installed.terminal import until
from vramtui.core.base.errors import SourceFailed
from vramtui.core.observation.readings import Gpu, Host, Memory, Process, Sample
from vramtui.monitor.fleet import Fleet, RemoteHost, user_totals
from vramtui.monitor.poller import Poller
from vramtui.monitor.session import MonitorSession

PATIENCE = 10.0


class Far:
    def __init__(self, name: str, *, hangs: bool = False) -> None:
        self.name = name
        self.used = 5
        self.failure = ""
        self.closed = False
        self.reads = 0
        self._go = threading.Event()
        if not hangs:
            self._go.set()

    def read(self) -> Sample:
        self._go.wait()
        self.reads += 1
        if self.failure:
            raise SourceFailed(self.failure)
        process = Process(pid=7, type="C", used_memory=self.used, user=f"of {self.name}", started_at=1.0)
        memory = Memory(total=100, used=self.used, free=100 - self.used)
        gpu = Gpu(index=0, uuid="GPU-0", name="H100", memory=memory, processes=(process,), utilization=50)
        return Sample(taken_at=float(self.reads), source="x", host=Host(name=self.name), gpus=(gpu,))

    def close(self) -> None:
        self.closed = True
        self._go.set()


def fleet_of(*hosts: Far, clock: Callable[[], float] = time.monotonic) -> Fleet:
    return Fleet([RemoteHost(far.name, far) for far in hosts], 0.02, clock)


def session(host: RemoteHost) -> MonitorSession:
    del host
    return MonitorSession()


def test_silence_is_never_up_and_a_host_that_hangs_holds_up_nobody() -> None:
    clock = Clock()
    far = Far("one")
    other = Far("other")
    before = set(threading.enumerate())  # of other tests, which may poll on
    fleet = fleet_of(other, far, clock=clock)
    fleet.begin(session)
    until(lambda: fleet.summaries()[1].is_up)
    fleet.close()
    for thread in set(threading.enumerate()) - before:
        if isinstance(thread, Poller):
            thread.join(PATIENCE)
    clock.now += 60
    for host in fleet.summaries():
        assert (host.is_up, host.failure) == (False, "no answer")
        assert host.age == pytest.approx(60)
    one, hung = Far("one"), Far("hung", hangs=True)
    fleet = fleet_of(hung, one)
    fleet.begin(session)
    until(lambda: fleet.summaries()[1].is_up)
    first, second = fleet.summaries()
    assert (first.is_up, first.age, first.failure) == (False, None, "connecting")
    assert (second.gpus[0].used, second.gpus[0].utilization, second.gpus[0].users) == (5, 50, {"of one": 5})
    fleet.close()
    assert (one.closed, hung.closed) == (True, True)


def test_a_failure_is_said_at_once_and_ends_with_the_next_sample() -> None:
    one, far = Far("one"), Far("far")
    fleet = fleet_of(one, far)
    fleet.begin(session)
    until(lambda: fleet.summaries()[1].is_up)
    far.failure = "far: it refuses connections."
    until(lambda: not fleet.summaries()[1].is_up)
    assert fleet.summaries()[1].failure == "far: it refuses connections."
    assert user_totals(fleet.summaries()) == {}  # what was known of it is not counted as used now
    far.failure = ""
    until(lambda: fleet.summaries()[1].is_up)
    assert user_totals(fleet.summaries()) == {"of far": 5}
    fleet.close()


def test_another_host_is_watched_with_all_that_was_seen_of_it() -> None:
    one, far = Far("one"), Far("far")
    fleet = fleet_of(one, far)
    own = fleet.begin(session)
    sample = fleet.read()
    assert (sample.host.name, fleet.is_current(sample)) == ("one", True)
    own.ingest(sample)
    fleet.note_sample()
    far.used = 60
    until(lambda: fleet.summaries()[1].gpus and fleet.summaries()[1].gpus[0].used == 60)
    far.used = 40
    until(lambda: fleet.summaries()[1].gpus[0].used == 40)
    other = fleet.switch("far")
    assert not fleet.is_current(sample)  # on its way while another became the current one: it is nobody's
    (track,) = other.history.tracks.values()
    assert track.peak.bytes == 60
    count = far.reads
    assert fleet.read().host.name == "far"
    # From now on the one before is kept in its session beside the screen.
    seen = own.sample
    until(lambda: own.sample is not seen)
    assert far.reads >= count
    fleet.close()


def test_who_waits_for_one_host_learns_that_another_is_watched() -> None:
    hung, far = Far("hung", hangs=True), Far("far")
    fleet = fleet_of(hung, far)
    fleet.begin(session)
    answers: list[Sample] = []
    waiting = threading.Thread(target=lambda: answers.append(fleet.read()), daemon=True)
    waiting.start()
    until(lambda: fleet.summaries()[1].is_up)
    fleet.switch("far")
    waiting.join(PATIENCE)
    assert answers[0].host.name == "far"
    fleet.close()
