"""The demo's host adds up, and is the same for the same moment."""

from tests.sources.conftest import Clock
from vramtui.sources.demo import DemoSource


def test_every_byte_of_every_gpu_is_accounted_for_at_every_moment() -> None:
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


def test_the_same_moment_looks_the_same_and_another_seed_does_not() -> None:
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
