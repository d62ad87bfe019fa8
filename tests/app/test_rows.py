"""The table's rows: every byte in one of them, any order, any filter."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.app import moments
from vramtui.app.rows import all_rows, filtered, in_order
from vramtui.app.state import SORT_COLUMNS, Row, SortColumn
from vramtui.core.history import History
from vramtui.core.readings import Memory, Sample


def rows_of(*samples: Sample) -> list[Row]:
    seen = History()
    for sample in samples:
        seen.add(sample)
    answered = {gpu.uuid: (sample.taken_at, gpu) for sample in samples for gpu in sample.gpus if gpu.state == "ok"}
    return all_rows(samples[-1], seen, answered)


@pytest.mark.parametrize("sample", [moments.usual(), moments.troubled(), moments.divided()])
def test_every_gpus_bytes_add_up(sample: Sample) -> None:
    rows = rows_of(sample)
    for gpu in sample.gpus:
        if gpu.memory.used is None:
            continue
        held = sum(row.now or 0 for row in rows if row.gpu.uuid == gpu.uuid)
        assert held == gpu.memory.used + (gpu.memory.reserved or 0)


def test_the_exited_stay_for_a_while_with_their_peak() -> None:
    before, after = moments.usual(0), moments.sample(moments.gpu(0), moments.gpu(1), at=5)
    gone = [row for row in rows_of(before, after) if row.kind == "exited"]
    assert {(row.process.pid, row.peak, row.now) for row in gone if row.process} == {
        (4213, 58 << 30, None),
        (977, 1 << 30, None),
        (5120, 20 << 30, None),
    }
    later = moments.sample(moments.gpu(0), moments.gpu(1), at=70)
    assert not [row for row in rows_of(before, after, later) if row.kind == "exited"]


def test_a_gpu_whose_processes_are_not_told_says_so() -> None:
    notes = [row.note for row in rows_of(moments.troubled()) if row.kind == "note"]
    assert notes == ["its processes are not told: no permission", "this driver scrambles its process list"]


@pytest.mark.parametrize(
    ("wanted", "pids"),
    [
        ("train", {4213}),
        ("anna LLAMA", {4213}),
        ("gpu:1", {5120}),
        ("97", {977}),
        ("nobody", set()),
        ("", {4213, 977, 5120}),
    ],
)
def test_a_filter_is_words_that_must_all_occur(wanted: str, pids: set[int]) -> None:
    found = filtered(rows_of(moments.usual()), wanted)
    assert {row.process.pid for row in found if row.process} == pids


@given(st.sampled_from(SORT_COLUMNS), st.booleans())
def test_sorting_loses_nothing_and_sorted_stays_sorted(column: SortColumn, reverse: bool) -> None:
    rows = rows_of(moments.usual(0), moments.troubled(1))
    once = in_order(rows, column, {}, reverse=reverse)
    assert sorted(map(id, once)) == sorted(map(id, rows))
    assert in_order(once, column, {}, reverse=reverse) == once


def test_the_unknown_comes_last_in_both_directions() -> None:
    rows = rows_of(moments.troubled())
    for reverse in (False, True):
        now = [row.now for row in in_order(rows, "now", {}, reverse=reverse)]
        known = [count for count in now if count is not None]
        assert now == [*known, *[None] * (len(now) - len(known))]
        assert known == sorted(known, reverse=not reverse)


def test_a_held_order_stays_and_newcomers_follow() -> None:
    rows = rows_of(moments.usual())
    order = {row.id: at for at, row in enumerate(reversed(rows[1:]))}
    held = in_order(rows, "now", order, reverse=False)
    assert held == [*reversed(rows[1:]), rows[0]]


def test_a_gpu_that_falls_silent_keeps_its_last_rows_with_their_age() -> None:
    """The totals of the last answer still add up, and another GPU's rows have no age."""
    before = moments.usual()
    silent = msgspec.structs.replace(
        before.gpus[1], state="lost", reason="fell off the bus", memory=Memory(), processes=(), utilization=None
    )
    after = msgspec.structs.replace(before, gpus=(before.gpus[0], silent), taken_at=before.taken_at + 12)
    rows = rows_of(before, after)
    kept = [row for row in rows if row.gpu.uuid == "GPU-1"]
    assert {row.age for row in kept} == {12.0}
    assert [row.process.pid for row in kept if row.process] == [5120]
    memory = before.gpus[1].memory
    assert sum(row.now or 0 for row in kept) + (memory.free or 0) == memory.total
    assert {row.age for row in rows if row.gpu.uuid == "GPU-0"} == {None}
    back = msgspec.structs.replace(before, taken_at=before.taken_at + 13)
    assert {row.age for row in rows_of(before, after, back)} == {None}
