"""Jobs that never come back hold up nobody."""

import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from vramtui.sources.host.deadline_worker import DeadlineWorker, Stuck


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


class Clock:
    """Seconds that pass only in jobs that hang: on a slow machine no other job is late."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def stuck_in(gate: threading.Event, clock: Clock) -> Callable[[], str]:
    def job() -> str:
        clock.now += 1.0
        gate.wait()
        return "late"

    return job


def give(text: str) -> Callable[[], str]:
    return lambda: text


def test_all_jobs_in_their_order() -> None:
    worker: DeadlineWorker[str] = DeadlineWorker(20)
    order: list[int] = []

    def note(key: int) -> str:
        order.append(key)
        return str(key)

    assert worker.run({key: partial(note, key) for key in (3, 1, 2)}) == {3: "3", 1: "1", 2: "2"}
    assert order == [3, 1, 2]
    assert worker.run({}) == {}
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
    assert second[1].since == first[1].since
    assert again == []
    all_at_once = DeadlineWorker[str](0.05, clock).run({key: stuck_in(gate, clock) for key in range(16)})
    assert [type(result) for result in all_at_once.values()] == [Stuck] * 16
    gate.set()
    while isinstance(worker.run({1: give("back")})[1], Stuck):
        pass
    assert worker.run({1: give("back")}) == {1: "back"}


def test_its_threads_are_few_and_end() -> None:
    before = set(threading.enumerate())
    worker: DeadlineWorker[str] = DeadlineWorker(20)
    for _ in range(50):
        worker.run({key: give("x") for key in range(8)})
    (thread,) = set(threading.enumerate()) - before
    assert thread.daemon
    worker.close()
    thread.join(20)
    assert not thread.is_alive()


def test_a_job_that_raises_is_our_own_mistake_and_is_seen() -> None:
    worker: DeadlineWorker[int] = DeadlineWorker(20)
    with pytest.raises(ZeroDivisionError):
        worker.run({0: lambda: 1 // 0})
    assert worker.run({0: lambda: 1}) == {0: 1}
    worker.close()
