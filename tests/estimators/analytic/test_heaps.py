"""The allocator of a simulated job with its defaults, beside the whole one."""

from hypothesis import given
from hypothesis import strategies as st

from tests.properties import examples
from vramtui.estimators.allocator.config import AllocatorConfig
from vramtui.estimators.analytic.tape.simulated_job import (
    Allocate,
    ConfiguredHeap,
    DefaultHeap,
    Held,
    JobHeap,
    MatrixProduct,
    Move,
    Release,
    Transient,
)

# Units of 512 bytes: of the small pool, of one segment, and of a segment of their own.
UNITS = st.one_of(st.integers(1, 2048), st.integers(2049, 20_480), st.integers(20_481, 200_000))
STEPS = st.lists(st.tuples(st.sampled_from(("take", "free", "borrow")), UNITS), max_size=120)


def _play(heap: JobHeap, steps: list[tuple[str, int]]) -> tuple[int, int]:
    blocks: list[Held] = []
    for step, units in steps:
        if step == "take":
            heap.play([Allocate(blocks, units, object())])
        elif step == "borrow":
            heap.play([Transient(units)])
        elif blocks:
            heap.play([Release(blocks, blocks[units % len(blocks)][2])])
    return heap.peak_allocated, heap.peak_reserved


@examples(200)
@given(STEPS)
def test_any_requests_take_what_they_take_of_the_whole_allocator(steps: list[tuple[str, int]]) -> None:
    assert _play(DefaultHeap(), steps) == _play(ConfiguredHeap(AllocatorConfig()), steps)


def test_a_block_that_is_borrowed_counts_at_the_peak_and_leaves_nothing_cut() -> None:
    heap, blocks = DefaultHeap(), list[Held]()
    heap.play([Allocate(blocks, 4096, None), Release(blocks, None), Transient(3000)])
    assert heap.peak_allocated == 4096 * 512
    heap.play([Allocate(blocks, 4096, None)])
    assert heap.peak_reserved == 20 << 20


def test_a_product_takes_the_workspace_that_its_thread_has_not() -> None:
    for heap in (DefaultHeap(), ConfiguredHeap(AllocatorConfig())):
        blocks: list[Held] = []
        heap.play([MatrixProduct(blocks, 4096)] * 3)
        assert (len(blocks), heap.peak_allocated) == (1, 4096 * 512)


def test_a_block_that_moves_is_the_same_under_another_owner() -> None:
    for heap in (DefaultHeap(), ConfiguredHeap(AllocatorConfig())):
        old, new = list[Held](), list[Held]()
        heap.play([Allocate(old, 8, "a"), Allocate(old, 8, "b"), Move(old, "a", new, "c"), Release(new, "c")])
        assert ([held[2] for held in old], new) == (["b"], [])
        heap.play([Allocate(old, 8, "d")])
        assert heap.peak_allocated == 16 * 512
