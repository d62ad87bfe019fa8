"""The allocator of a simulated job with its defaults, beside the whole one."""

from hypothesis import given
from hypothesis import strategies as st

from tests.properties import examples
from vramtui.estimators.allocator.config import AllocatorConfig
from vramtui.estimators.analytic.tape.heaps import ConfiguredHeap, DefaultHeap, JobHeap

# Units of 512 bytes: of the small pool, of one segment, and of a segment of their own.
UNITS = st.one_of(st.integers(1, 2048), st.integers(2049, 20_480), st.integers(20_481, 200_000))
STEPS = st.lists(st.tuples(st.sampled_from(("take", "free", "borrow")), UNITS), max_size=120)


def _play(heap: JobHeap, steps: list[tuple[str, int]]) -> tuple[int, int]:
    blocks: list[int] = []
    for step, units in steps:
        if step == "take":
            blocks.append(heap.malloc(units))
        elif step == "borrow":
            heap.borrow(units)
        elif blocks:
            heap.free(blocks.pop(units % len(blocks)))
    return heap.peak_allocated, heap.peak_reserved


@examples(200)
@given(STEPS)
def test_any_requests_take_what_they_take_of_the_whole_allocator(steps: list[tuple[str, int]]) -> None:
    assert _play(DefaultHeap(), steps) == _play(ConfiguredHeap(AllocatorConfig()), steps)


def test_a_block_that_is_borrowed_counts_at_the_peak_and_leaves_nothing_cut() -> None:
    heap = DefaultHeap()
    heap.free(heap.malloc(4096))
    heap.borrow(3000)
    assert heap.peak_allocated == 4096 * 512
    heap.malloc(4096)
    assert heap.peak_reserved == 20 << 20
