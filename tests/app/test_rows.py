"""The table's rows: every byte in one of them, any order, any filter."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.app import scenes
from tests.app.driver import dashboard, screen_text
from tests.app.fakes import PRESETS, RoundEstimator
from tests.fuzz.pictures import view_of
from vramtui.app.state.rows import REMAINDERS, ProcessRows, RowPredictions, SortedRows, arranged, as_shown
from vramtui.app.state.view import SORT_COLUMNS, ProcessRow, RowId, SortColumn
from vramtui.core.base.units import GIB, MIB
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.observation.history import History
from vramtui.core.observation.readings import Absence, Gpu, Memory, Process, ProcessKey, Sample, instance_names
from vramtui.core.schema.preset import PresetFile


def listing_of(*samples: Sample, whole: bool = True) -> ProcessRows:
    seen = History()
    for sample in samples:
        seen.add(sample)
    answered = {gpu.uuid: (sample.taken_at, gpu) for sample in samples for gpu in sample.gpus if gpu.state == "ok"}
    return ProcessRows(samples[-1], seen, answered, whole=whole)


def rows_of(*samples: Sample) -> list[ProcessRow]:
    return list(listing_of(*samples))


def places_of(rows: list[ProcessRow]) -> dict[RowId, int]:
    return {row.id: at for at, row in enumerate(rows)}


def round_estimate(found: PresetFile, device: Device) -> Estimate:
    return RoundEstimator().estimate(found.preset.workload, device)


def in_order(
    listing: ProcessRows, column: SortColumn, held: dict[RowId, int] | None = None, *, reverse: bool = False
) -> SortedRows:
    return arranged(RowPredictions(listing, {}, round_estimate), "", column, held, reverse=reverse)


@pytest.mark.parametrize("sample", [scenes.usual(), scenes.troubled(), scenes.divided()])
def test_every_gpus_bytes_add_up(sample: Sample) -> None:
    rows = rows_of(sample)
    for gpu in sample.gpus:
        if gpu.memory.used is None:
            continue
        held = sum(row.now or 0 for row in rows if row.gpu.uuid == gpu.uuid)
        assert held == gpu.memory.used + (gpu.memory.reserved or 0)


@pytest.mark.parametrize("sample", [scenes.usual(), scenes.troubled(), scenes.divided()])
def test_what_is_said_below_the_rows_is_all_that_cards_hold(sample: Sample) -> None:
    """Processes, drivers and what nobody accounts for, with rows or without; what MIG instances hold is in theirs."""
    totals, whole = listing_of(sample, whole=False).totals, list(listing_of(sample))
    every = sum(row.now or 0 for row in whole if row.kind != "instances")
    assert totals.of_processes + totals.driver + totals.unattributed == every


def test_instances_of_one_size_are_told_apart() -> None:
    sample = scenes.cut_alike()
    assert instance_names(sample.gpus) == {"MIG-0-0": "0:0", "MIG-0-2": "0:2"}
    assert {row.process.pid: row.gpus for row in listing_of(sample) if row.process} == {50: "0:0", 51: "", 52: "0:2"}
    assert instance_names(scenes.divided().gpus) == {}


def test_little_that_nobody_accounts_for_has_no_row_and_much_has() -> None:
    for size, kinds in ((300, []), (2000, ["unattributed"])):  # 2 % of the card are 1,638
        card = scenes.gpu(0, scenes.process(5, 9 * GIB, "python x.py"), unattributed=size * MIB)
        listing = listing_of(scenes.sample(card), whole=False)
        assert [row.kind for row in listing if row.kind != "process"] == kinds
        assert listing.totals.unattributed == size * MIB


def test_a_listing_that_is_held_stands_though_the_history_goes_on() -> None:
    seen, now, later = (History(), scenes.usual(), scenes.sample(scenes.gpu(0), scenes.gpu(1), at=5))
    seen.add(now)
    listing = ProcessRows(now, seen, {})
    keys = [row.id for row in ProcessRows(now, seen, {}) if isinstance(row.id, ProcessKey)]
    seen.add(later)
    assert [row.id for row in listing if isinstance(row.id, ProcessKey)] == keys


def test_a_process_of_a_list_that_is_not_complete_needs_no_track() -> None:
    seen, now = History(), scenes.usual()
    seen.add(now)
    half = msgspec.structs.replace(
        now.gpus[0],
        processes=tuple(msgspec.structs.replace(row, pid=row.pid + 1) for row in now.gpus[0].processes),
        absent={"processes": Absence.FAILED},
    )
    later = msgspec.structs.replace(now, gpus=(half, *now.gpus[1:]), taken_at=now.taken_at + 1)
    seen.add(later)
    assert not [row for row in ProcessRows(later, seen, {}) if row.kind == "process" and row.gpu.uuid == half.uuid]


def test_the_exited_stay_for_a_while_with_their_peak() -> None:
    before, after = (scenes.usual(0), scenes.sample(scenes.gpu(0), scenes.gpu(1), at=5))
    gone = [row for row in rows_of(before, after) if row.kind == "exited"]
    assert {(row.process.pid, row.peak, row.now) for row in gone if row.process} == {
        (4213, 58 << 30, None),
        (977, 1 << 30, None),
        (5120, 20 << 30, None),
    }
    later = scenes.sample(scenes.gpu(0), scenes.gpu(1), at=70)
    assert not [row for row in rows_of(before, after, later) if row.kind == "exited"]


def test_a_gpu_whose_processes_are_not_told_says_so() -> None:
    notes = [row.note for row in rows_of(scenes.troubled()) if row.kind == "note"]
    assert notes == ["process list unavailable: no permission", "process list unreliable with this driver"]


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
    found = arranged(RowPredictions(listing_of(scenes.usual()), {}, round_estimate), wanted, "gpu", None, reverse=False)
    assert {row.process.pid for row in found if row.process} == pids


def test_the_unknown_comes_last_in_both_directions() -> None:
    listing = listing_of(scenes.troubled())
    for reverse in (False, True):
        rows = in_order(listing, "now", reverse=reverse)
        now = [None if row.kind in REMAINDERS else row.now for row in rows]  # of no process: behind all that are
        known = [count for count in now if count is not None]
        assert now == [*known, *[None] * (len(now) - len(known))]
        assert known == sorted(known, reverse=not reverse)


def test_a_held_order_stays_and_newcomers_follow() -> None:
    listing = listing_of(scenes.usual())
    rows = list(listing)
    held = in_order(listing, "now", places_of([*reversed(rows[1:])]))
    assert list(held) == [*reversed(rows[1:]), rows[0]]


def test_a_gpu_that_falls_silent_keeps_its_last_rows_with_their_age() -> None:
    """The totals of the last answer still add up, and another GPU's rows have no age."""
    before = scenes.usual()
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


def test_a_paused_listing_does_not_learn_later_peaks() -> None:
    seen, sample = History(), scenes.usual()
    seen.add(sample)
    listing = ProcessRows(sample, seen, {})
    seen.add(scenes.usual(1, trained=70 << 30))
    assert max(row.peak or 0 for row in listing) == 58 << 30


# --- what is made on demand is what would be made at once ---------------------------------------------------------

SIZES = st.one_of(st.none(), st.integers(0, 3).map(lambda size: size << 30))


@st.composite
def processes(draw: st.DrawFn) -> tuple[Process, ...]:
    pids = draw(st.lists(st.integers(1, 6), unique=True, max_size=4))
    return tuple(
        Process(
            pid=pid,
            type="C",
            used_memory=draw(SIZES),
            user=draw(st.sampled_from([None, "anna", "bo"])),
            command=draw(st.sampled_from([None, "train.py", "serve"])),
            started_at=draw(st.sampled_from([None, 1.0, 2.0])),
        )
        for pid in pids
    )


@st.composite
def gpus(draw: st.DrawFn, place: int) -> Gpu:
    return Gpu(
        index=draw(st.integers(0, 1)),
        uuid=f"GPU-{place}",
        name="H200",
        state=draw(st.sampled_from(["ok", "ok", "lost"])),
        memory=Memory(total=100 << 30, used=20 << 30, reserved=draw(st.sampled_from([None, 1 << 20, 1 << 30]))),
        processes=draw(processes()),
        mig_parent=draw(st.sampled_from([None, "GPU-0"])),
        mig_used=draw(st.sampled_from([None, 1 << 30])),
    )


@st.composite
def hosts(draw: st.DrawFn) -> list[Sample]:
    """A few moments of one host, on which processes come and go and GPUs fall silent."""
    count = draw(st.integers(1, 3))
    return [
        scenes.sample(*(draw(gpus(place)) for place in range(count)), at=5 * moment)
        for moment in range(draw(st.integers(1, 3)))
    ]


def _tenths(count: int) -> int:
    """Of a GiB, as sizes are shown: rows that show the same keep their places."""
    return round(10 * count / GIB)


def plainly(
    rows: list[ProcessRow], words: list[str], column: SortColumn, order: list[ProcessRow], *, reverse: bool
) -> list[ProcessRow]:
    """The rows filtered, sorted and held with every row made and no thought for the time it takes."""
    kinds = ("process", "instances", "note", "unattributed", "reserved", "exited")
    keys: dict[SortColumn, Callable[[ProcessRow], Any]] = {
        "pid": lambda row: row.process and row.process.pid,
        "gpu": lambda row: (row.gpu.index, row.gpu.mig_parent or "", kinds.index(row.kind), -_tenths(row.now or 0)),
        "user": lambda row: row.process and row.process.user,
        "now": lambda row: None if row.now is None or row.kind in REMAINDERS else _tenths(row.now),
        "peak": lambda row: None if row.peak is None else _tenths(row.peak),
        "predicted": lambda row: None if row.predicted is None else _tenths(row.predicted),
        "delta": lambda row: row.fraction,
        "type": lambda row: row.process and row.process.type,
        "cpu": lambda row: row.process and row.process.cpu_percent,
        "sm": lambda row: row.process and row.process.sm_percent,
        "job": lambda row: row.process and row.process.container,
        "host": lambda row: row.process and row.process.host_memory,
        "time": lambda row: row.minutes,
        "command": lambda row: row.process and row.process.command,
    }
    found = [row for row in rows if all(word in _text(row) for word in words)]
    known = [row for row in found if keys[column](row) is not None]
    known.sort(key=keys[column], reverse=reverse != (column not in ("pid", "gpu", "user", "type", "command")))
    found = known + [row for row in found if keys[column](row) is None]
    places = {row.id: at for at, row in enumerate(order)}
    return sorted(found, key=lambda row: places.get(row.id, len(places)))


def _text(row: ProcessRow) -> str:
    process = row.process
    told = f"{process.pid} {process.user or ''} {process.command or ''}" if process is not None else ""
    return f"gpu:{row.gpu.index} {row.gpu.name} {row.kind} {row.preset or ''} {told}".lower()


@given(hosts(), st.data())
def test_what_is_made_on_demand_is_what_would_be_made_at_once(samples: list[Sample], data: st.DataObject) -> None:
    listing = listing_of(*samples)
    keys = [row.id for row in listing if isinstance(row.id, ProcessKey)]
    matched = {key: PRESETS[0] for key in data.draw(st.lists(st.sampled_from([None, *keys]), unique=True)) if key}
    every = RowPredictions(listing, matched, round_estimate)
    rows = list(every.rows)
    wanted = data.draw(st.sampled_from(["", "", "anna", "gpu:1 train", "nobody"]))
    column, reverse = data.draw(st.sampled_from(SORT_COLUMNS)), data.draw(st.booleans())
    order = data.draw(st.one_of(st.none(), st.lists(st.sampled_from(rows), unique_by=id) if rows else st.none()))
    held = places_of(order) if order is not None else None
    found = arranged(every, wanted, column, held, reverse=reverse)
    expected = plainly(rows, wanted.split(), column, order or [], reverse=reverse)
    assert list(found) == expected
    assert [found[at] for at in range(len(found))] == expected
    if expected:
        chosen = data.draw(st.sampled_from([*rows]))
        first = next((row for row in expected if row.kind == "process"), expected[0])
        assert found[found.selected_index(None)] is first
        assert found[found.selected_index(chosen.id)] is (chosen if chosen in expected else first)
    assert every.matched == [row for row in rows if row.preset]


async def test_what_hides_the_owner_of_bytes_stands_in_their_row() -> None:
    """A usual list of suspects where nothing is known; what is known where something is."""
    lone = scenes.process(5, GIB, "python x.py")
    plain = scenes.sample(scenes.gpu(0, lone, unattributed=3 * GIB))
    inside = msgspec.structs.replace(plain, host=msgspec.structs.replace(plain.host, private_pids=True))
    for sample, words in ((plain, "unattributed: driver, exited"), (inside, "unattributed: processes outside this")):
        async with dashboard([sample], (160, 35)) as (app, _):
            assert words in screen_text(app)


async def test_shared_memory_has_no_total_and_says_what_the_host_can_give() -> None:
    memory = Memory(used=3 * GIB, free=99 * GIB, unified=True)
    card = scenes.gpu(0, scenes.process(5, 3 * GIB, "python x.py"), name="NVIDIA GB10", memory=memory)
    async with dashboard([scenes.sample(card)]) as (app, _):
        assert "3.0 GiB unified, 99.0 free" in screen_text(app)


def test_rows_that_show_the_same_size_keep_their_places() -> None:
    def rows(*used: int) -> list[int]:
        cards = scenes.gpu(0, *(scenes.process(pid, size * MIB, "x") for pid, size in enumerate(used, 1)))
        found = arranged(
            RowPredictions(listing_of(scenes.sample(cards)), {}, round_estimate), "", "gpu", None, reverse=False
        )
        return [row.process.pid for row in found if row.process is not None]

    assert rows(100, 98, 103) == rows(98, 103, 100) == [1, 2, 3]
    assert rows(100, 98, 3000) == [3, 1, 2]


@given(st.lists(st.integers(16, 4000), min_size=1, max_size=30))
def test_a_place_follows_its_size_with_some_play(sizes: list[int]) -> None:
    """It is left once another size is shown, three quarters of a digit away; what it goes by was shown once."""
    seen, order, shown = History(), None, set()
    for at, size in enumerate(sizes):
        sample = scenes.sample(scenes.gpu(0, scenes.process(1, size * MIB, "x")), at=at)
        seen.add(sample)
        (row,) = ProcessRows(sample, seen, {}, {} if order is None else order)
        assert row.order is not None
        order = {row.id: row.order}
        shown.add(as_shown(size * MIB))
        assert row.order in shown
        assert abs(size * MIB / GIB - row.order) < 0.075


def test_sizes_that_go_to_and_fro_move_no_rows() -> None:
    """0.15 GiB are shown as 0.1 or as 0.2; a process there stays where it is until it holds clearly less."""
    seen, orders = History(), None

    def pids(at: int, *used: int) -> list[int]:
        nonlocal orders
        cards = scenes.gpu(0, *(scenes.process(pid, size * MIB, "x") for pid, size in enumerate(used, 1)))
        sample = scenes.sample(cards, at=at)
        seen.add(sample)
        listing = ProcessRows(sample, seen, {}, orders)
        orders = listing.orders
        return [row.process.pid for row in in_order(listing, "now") if row.process is not None]

    assert pids(0, 120, 155, 160) == [2, 3, 1]
    assert pids(1, 155, 152, 160) == [2, 3, 1]
    assert pids(2, 152, 155, 152) == [2, 3, 1]
    assert pids(3, 185, 120, 190) == [1, 3, 2]
    assert pids(4, 185, 100, 90) == [1, 2, 3]


def test_cards_of_one_uuid_are_each_shown() -> None:
    """A damaged recording has them, and so may a broken driver; it ended the dashboard."""
    sample = scenes.usual()
    card = msgspec.structs.replace(sample.gpus[0], processes=sample.gpus[0].processes[:1])
    other = msgspec.structs.replace(card, processes=(msgspec.structs.replace(card.processes[0], pid=7),))
    last = msgspec.structs.replace(other, processes=())
    for cards in ((card, other), (other, card), (card, other, last), (last, card, other)):
        view = view_of([msgspec.structs.replace(sample, gpus=cards)])
        assert len(view.bars) == len(cards)
        assert list(view.rows)
