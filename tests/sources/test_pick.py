import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace

import pytest

from tests.examples import Clock
from vramtui.core.base.errors import SourceFailed
from vramtui.core.observation.readings import Problem, Source
from vramtui.sources.demo import DemoSource
from vramtui.sources.host.deadline_worker import DeadlineWorker, Stuck
from vramtui.sources.pick import SourceCandidate, pick_source


class Module(SimpleNamespace):
    def __init__(self, error: SourceFailed | None = None) -> None:
        super().__init__()
        self.error = error
        self.told: list[Problem | None] = []

    def open_here(self, because: Problem | None = None) -> Source:
        self.told.append(because)
        if self.error is not None:
            raise self.error
        return DemoSource()

    def open_beside(self) -> Source:
        return self.open_here()


def pick(monkeypatch: pytest.MonkeyPatch, modules: list[Module], programs: tuple[str, ...] = ()) -> Source:
    ways = []
    for at, module in enumerate(modules):
        monkeypatch.setitem(sys.modules, f"vramtui.sources.way_{at}", module)
        ways.append(SourceCandidate(f"Way {at}", f"way_{at}", programs[at] if at < len(programs) else ""))
    return pick_source(tuple(ways))


def test_the_first_that_answers_is_taken_and_later_ones_told_why(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = Module(), Module()
    assert (pick(monkeypatch, [first, second]).name, first.told, second.told) == ("demo", [None], [])
    for other, name in ((Module(), "demo+demo"), (Module(SourceFailed("")), "demo")):
        monkeypatch.setitem(sys.modules, "vramtui.sources.other", other)
        monkeypatch.setitem(sys.modules, "vramtui.sources.way_0", Module())
        ways = (SourceCandidate("Way 0", "way_0"), SourceCandidate("Other", "other", stands_beside=True))
        assert pick_source(ways).name == name
    modules = [Module(SourceFailed("A is out.", "Mend A.")), Module(SourceFailed("B is out.")), Module()]
    pick(monkeypatch, modules)
    assert modules[1].told == [Problem(where="Way 0", message="A is out. Way 1 is used instead.", hint="Mend A.")]
    assert modules[2].told == [
        Problem(where="Way 0", message="A is out. B is out. Way 2 is used instead.", hint="Mend A.")
    ]


@pytest.mark.parametrize(
    ("programs", "hints", "hint"),
    [
        ((), ("Mend A.", "Mend B."), "Mend A."), ((), ("", "Mend B."), "Mend B."),
        (("", sys.executable), ("Mend A.", "Mend B."), "Mend B."), (("", sys.executable), ("Mend A.", ""), "Mend A."),
        (("", "no-such-program"), ("Mend A.", "Mend B."), "Mend A."), ((), ("", ""), ""),
    ],
)  # fmt: skip
def test_where_none_answers_each_says_why(
    programs: tuple[str, ...], hints: tuple[str, str], hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What there is to do is told by a program that is there, else by the first that knows something."""
    modules = [Module(SourceFailed(f"{name} is out.", said)) for name, said in zip("AB", hints, strict=True)]
    with pytest.raises(SourceFailed) as caught:
        pick(monkeypatch, modules, programs)
    assert (caught.value.message, caught.value.hint) == ("A is out. B is out.", hint)


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def stuck_in(gate: threading.Event, clock: Clock) -> Callable[[], str]:
    def job() -> str:
        clock.now += 1.0
        gate.wait()
        return "late"

    return job


def give(text: str) -> Callable[[], str]:
    return lambda: text


def test_one_that_hangs_is_left_and_its_threads_are_few_and_end() -> None:
    worker: DeadlineWorker[str] = DeadlineWorker(20)
    order: list[int] = []

    def note(key: int) -> str:
        order.append(key)
        return str(key)

    assert worker.run({key: partial(note, key) for key in (3, 1, 2)}) == {3: "3", 1: "1", 2: "2"}
    assert (order, worker.run({})) == ([3, 1, 2], {})
    worker.close()
    before = set(threading.enumerate())
    worker = DeadlineWorker(20)
    for _ in range(50):
        worker.run({key: give("x") for key in range(8)})
    (thread,) = set(threading.enumerate()) - before
    assert thread.daemon
    worker.close()
    thread.join(20)
    assert not thread.is_alive()
    worker = DeadlineWorker(20)
    with pytest.raises(ZeroDivisionError):
        worker.run({0: lambda: str(1 // 0)})
    assert worker.run({0: give("1")}) == {0: "1"}
    worker.close()


def test_one_that_hangs_is_left_and_not_started_again(gate: threading.Event) -> None:
    clock = Clock()
    worker: DeadlineWorker[str] = DeadlineWorker(0.05, clock)
    first = worker.run({0: give("a"), 1: stuck_in(gate, clock), 2: give("c")})
    assert (first[0], first[2]) == ("a", "c")
    assert isinstance(first[1], Stuck)
    again: list[str] = []
    second = worker.run({0: give("A"), 1: lambda: f"{again.append('')}", 2: give("C")})  # type: ignore[func-returns-value]  # noted
    assert (second[0], second[2]) == ("A", "C")
    assert isinstance(second[1], Stuck)
    assert (second[1].since, again) == (first[1].since, [])
    all_at_once = DeadlineWorker[str](0.05, clock).run({key: stuck_in(gate, clock) for key in range(16)})
    assert [type(result) for result in all_at_once.values()] == [Stuck] * 16
    gate.set()
    while isinstance(worker.run({1: give("back")})[1], Stuck):
        pass
    assert worker.run({1: give("back")}) == {1: "back"}


def test_every_byte_is_accounted_for_and_the_same_moment_looks_the_same() -> None:
    clock = Clock()
    demo = DemoSource(clock=clock)
    for _ in range(300):
        clock.now += 21.9
        for gpu in demo.read().gpus:
            memory = gpu.memory
            assert memory.used is not None
            assert memory.free is not None
            assert memory.reserved is not None
            assert memory.used + memory.free + memory.reserved == memory.total
            assert gpu.unattributed is not None
            assert gpu.unattributed > 0
    first, second = DemoSource(clock=Clock()), DemoSource(clock=Clock())
    assert first.read() == second.read()
    assert first.read().gpus != DemoSource(clock=Clock(), seed=1).read().gpus


def test_training_goes_through_its_phases_and_comes_back_as_another_process() -> None:
    clock = Clock()
    demo = DemoSource(clock=clock)
    seen: dict[int, set[int]] = {}
    for _ in range(1700):
        clock.now += 3
        for process in demo.read().gpus[0].processes:
            seen.setdefault(process.pid, set()).add(process.used_memory or 0)
    assert len(seen) > 1
    assert all(len(levels) > 5 for levels in list(seen.values())[1:-1])
