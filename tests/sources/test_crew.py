"""Jobs that never come back hold up nobody."""

import threading
from collections.abc import Callable, Iterator

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
    crew: DeadlineWorker[str] = DeadlineWorker(20)
    order: list[int] = []

    def note(key: int) -> Callable[[], str]:
        def run() -> str:
            order.append(key)
            return str(key)

        return run

    assert crew.run({key: note(key) for key in (3, 1, 2)}) == {3: "3", 1: "1", 2: "2"}
    assert order == [3, 1, 2]
    assert crew.run({}) == {}
    crew.close()


def test_one_that_hangs_is_left_and_not_started_again(gate: threading.Event) -> None:
    clock = Clock()
    crew: DeadlineWorker[str] = DeadlineWorker(0.05, clock)
    first = crew.run({0: give("a"), 1: stuck_in(gate, clock), 2: give("c")})
    assert (first[0], first[2]) == ("a", "c")
    assert isinstance(first[1], Stuck)
    started = threading.Event()

    def again() -> str:
        started.set()
        return "again"

    second = crew.run({0: give("A"), 1: again, 2: give("C")})
    assert (second[0], second[2]) == ("A", "C")
    assert isinstance(second[1], Stuck)
    assert second[1].since == first[1].since
    assert not started.is_set()
    gate.set()
    while isinstance(crew.run({1: give("back")})[1], Stuck):
        pass
    assert crew.run({1: give("back")}) == {1: "back"}


def test_all_hang_at_once(gate: threading.Event) -> None:
    clock = Clock()
    crew: DeadlineWorker[str] = DeadlineWorker(0.05, clock)
    results = crew.run({key: stuck_in(gate, clock) for key in range(16)})
    assert all(isinstance(result, Stuck) for result in results.values())
    assert len(results) == 16


def test_threads_of_a_crew_are_few_and_end() -> None:
    before = set(threading.enumerate())
    crew: DeadlineWorker[str] = DeadlineWorker(20)
    for _ in range(50):
        crew.run({key: give("x") for key in range(8)})
    (worker,) = set(threading.enumerate()) - before
    assert worker.daemon
    crew.close()
    worker.join(20)
    assert not worker.is_alive()


def test_a_job_that_raises_is_our_own_mistake_and_is_seen() -> None:
    crew: DeadlineWorker[int] = DeadlineWorker(20)
    with pytest.raises(ZeroDivisionError):
        crew.run({0: lambda: 1 // 0})
    assert crew.run({0: lambda: 1}) == {0: 1}
    crew.close()
