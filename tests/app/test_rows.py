import re
from collections.abc import Callable
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple

from tests.app import scenes
from tests.app.driver import dashboard, press, screen_text, settle
from tests.app.fakes import MODEL, PRESETS, RoundEstimator
from tests.examples import followed
from tests.fuzz.pictures import view_of
from vramtui.app.state.rows import (
    FORMS,
    REMAINDERS,
    ProcessRows,
    RowGroups,
    RowPredictions,
    SortedRows,
    arranged,
    as_shown,
    conditions,
    doubt,
    holds,
    in_ranges,
    pick_rows,
)
from vramtui.app.state.run_fields import FIELDS, LENGTHS, SIZES, changes_of, fields_of, first_of, step, value_of
from vramtui.app.state.view import SORT_COLUMNS, ProcessRow, RowId, SortColumn
from vramtui.core.base.units import GIB, MIB
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.observation.history import History
from vramtui.core.observation.readings import (
    Absence,
    Ancestors,
    Gpu,
    JobRank,
    Memory,
    Process,
    ProcessKey,
    Sample,
    instance_names,
)
from vramtui.core.runs.ranked_jobs import job_of
from vramtui.core.schema.preset import PresetFile
from vramtui.core.schema.settings import ColumnSettings, Grouping, Settings
from vramtui.core.schema.workload import InferRun, Optimizer, ServeRun, TrainRun, Workload


def listing_of(*samples: Sample, whole: bool = True) -> ProcessRows:
    answered = {gpu.uuid: (sample.taken_at, gpu) for sample in samples for gpu in sample.gpus if gpu.state == "ok"}
    return ProcessRows(samples[-1], followed(*samples), answered, whole=whole)


def rows_of(*samples: Sample) -> list[ProcessRow]:
    return list(listing_of(*samples))


def places_of(rows: list[ProcessRow]) -> dict[RowId, int]:
    return {row.id: at for at, row in enumerate(rows)}


def round_estimate(found: PresetFile, device: Device) -> Estimate:
    return RoundEstimator().estimate(found.preset.workload, device)


def in_order(
    listing: ProcessRows, column: SortColumn, held: dict[RowId, int] | None = None, *, reverse: bool = False
) -> SortedRows:
    return arranged(RowPredictions(listing, {}, round_estimate), "", (column, reverse), held)


@pytest.mark.parametrize("sample", [scenes.usual(), scenes.troubled(), scenes.divided()])
def test_every_gpus_bytes_add_up(sample: Sample) -> None:
    rows = rows_of(sample)
    for gpu in sample.gpus:
        if gpu.memory.used is None:
            continue
        held = sum(row.now or 0 for row in rows if row.gpu.uuid == gpu.uuid)
        assert held == gpu.memory.used + (gpu.memory.reserved or 0)
    # Below the rows: processes, drivers and the rest, with rows or without; what MIG instances hold is in theirs.
    totals, whole = listing_of(sample, whole=False).totals, list(listing_of(sample))
    every = sum(row.now or 0 for row in whole if row.kind != "instances")
    assert totals.of_processes + totals.driver + totals.unattributed == every


def test_a_listing_stands_and_few_unattributed_bytes_have_no_row() -> None:
    sample = scenes.cut_alike()
    assert instance_names(sample.gpus) == {"MIG-0-0": "0:0", "MIG-0-2": "0:2"}
    assert {row.process.pid: row.gpus for row in listing_of(sample) if row.process} == {50: "0:0", 51: "", 52: "0:2"}
    assert instance_names(scenes.divided().gpus) == {}
    for size, kinds in ((300, []), (2000, ["unattributed"])):  # 2 % of the card are 1,638
        card = scenes.gpu(0, scenes.process(5, 9 * GIB, "python x.py"), unattributed=size * MIB)
        listing = listing_of(scenes.sample(card), whole=False)
        assert [row.kind for row in listing if row.kind != "process"] == kinds
        assert listing.totals.unattributed == size * MIB
    seen, now, later = (History(), scenes.usual(), scenes.sample(scenes.gpu(0), scenes.gpu(1), at=5))
    seen.add(now)
    listing = ProcessRows(now, seen, {})
    keys = [row.id for row in ProcessRows(now, seen, {}) if isinstance(row.id, ProcessKey)]
    listing.hold()
    seen.add(scenes.usual(1, trained=70 << 30))
    seen.add(later)
    assert [row.id for row in listing if isinstance(row.id, ProcessKey)] == keys
    assert max(row.peak or 0 for row in listing) == 58 << 30
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


def test_the_exited_stay_and_the_unknown_comes_last() -> None:
    before, after = (scenes.usual(0), scenes.sample(scenes.gpu(0), scenes.gpu(1), at=5))
    gone = [row for row in rows_of(before, after) if row.kind == "exited"]
    assert {(row.process.pid, row.peak, row.now) for row in gone if row.process} == {
        (4213, 58 << 30, None),
        (977, 1 << 30, None),
        (5120, 20 << 30, None),
    }
    later = scenes.sample(scenes.gpu(0), scenes.gpu(1), at=70)
    assert not [row for row in rows_of(before, after, later) if row.kind == "exited"]
    notes = [row.note for row in rows_of(scenes.troubled()) if row.kind == "note"]
    assert notes == ["process list unavailable: no permission", "process list unreliable with this driver"]
    listing = listing_of(scenes.troubled())
    for reverse in (False, True):
        rows = in_order(listing, "now", reverse=reverse)
        now = [None if row.kind in REMAINDERS else row.now for row in rows]  # of no process: behind all that are
        known = [count for count in now if count is not None]
        assert now == [*known, *[None] * (len(now) - len(known))]
        assert known == sorted(known, reverse=not reverse)
    usual = listing_of(scenes.usual())
    first, *others = usual
    order = [row.id for row in in_order(usual, "now", places_of(others[::-1]))]
    assert order == [row.id for row in (*reversed(others), first)]
    # A damaged recording has them, and so may a broken driver; it ended the dashboard.
    sample = scenes.usual()
    card = msgspec.structs.replace(sample.gpus[0], processes=sample.gpus[0].processes[:1])
    other = msgspec.structs.replace(card, processes=(msgspec.structs.replace(card.processes[0], pid=7),))
    last = msgspec.structs.replace(other, processes=())
    for cards in ((card, other), (other, card), (card, other, last), (last, card, other)):
        view = view_of([msgspec.structs.replace(sample, gpus=cards)])
        assert len(view.bars) == len(cards)
        assert list(view.rows)


@pytest.mark.parametrize(
    ("wanted", "pids"),
    [
        ("train", {4213}), ("anna LLAMA", {4213}), ("gpu:1", {5120}), ("97", {977}), ("nobody", set()),
        ("", {4213, 977, 5120}),
    ],
)  # fmt: skip
def test_a_filter_is_words_that_must_all_occur(wanted: str, pids: set[int]) -> None:
    found = arranged(RowPredictions(listing_of(scenes.usual()), {}, round_estimate), wanted, ("gpu", False), None)
    assert {row.process.pid for row in found if row.process} == pids


def test_a_gpu_that_falls_silent_keeps_its_last_rows_with_their_age() -> None:
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


ANY_SIZE = st.one_of(st.none(), st.integers(0, 3).map(lambda size: size << 30))


@st.composite
def processes(draw: st.DrawFn) -> tuple[Process, ...]:
    pids = draw(st.lists(st.integers(1, 6), unique=True, max_size=4))
    return tuple(
        Process(
            pid=pid,
            type="C",
            used_memory=draw(ANY_SIZE),
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
    count = draw(st.integers(1, 3))
    return [
        scenes.sample(*(draw(gpus(place)) for place in range(count)), at=5 * moment)
        for moment in range(draw(st.integers(1, 3)))
    ]


def _tenths(count: int) -> int:
    return round(10 * count / GIB)


def plainly(
    rows: list[ProcessRow], words: list[str], column: SortColumn, order: list[ProcessRow], *, reverse: bool
) -> list[ProcessRow]:
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
    rows = list(every)
    wanted = data.draw(st.sampled_from(["", "", "anna", "gpu:1 train", "nobody"]))
    column, reverse = data.draw(st.sampled_from(SORT_COLUMNS)), data.draw(st.booleans())
    order = data.draw(st.one_of(st.none(), st.lists(st.sampled_from(rows), unique_by=id) if rows else st.none()))
    held = places_of(order) if order is not None else None
    found = arranged(every, wanted, (column, reverse), held)
    expected = plainly(rows, wanted.split(), column, order or [], reverse=reverse)
    # Each look makes a row anew.
    assert list(map(astuple, found)) == list(map(astuple, expected)) == list(map(astuple, found[:]))
    if expected:
        chosen = data.draw(st.sampled_from([*rows]))
        first = next((row for row in expected if row.kind == "process"), expected[0])
        assert found[found.selected_index(None)].id == first.id
        assert found[found.selected_index(chosen.id)].id == (chosen if chosen in expected else first).id
    assert [row.id for row in every.matched] == [row.id for row in rows if row.preset]


async def test_owners_of_bytes_and_shared_memory_are_named_on_the_screen() -> None:
    lone = scenes.process(5, GIB, "python x.py")
    plain = scenes.sample(scenes.gpu(0, lone, unattributed=3 * GIB))
    inside = msgspec.structs.replace(plain, host=msgspec.structs.replace(plain.host, private_pids=True))
    for sample, words in ((plain, "unattributed: driver, exited"), (inside, "unattributed: processes outside this")):
        async with dashboard([sample], (160, 35)) as (app, _):
            assert words in screen_text(app)
    memory = Memory(used=3 * GIB, free=99 * GIB, unified=True)
    card = scenes.gpu(0, scenes.process(5, 3 * GIB, "python x.py"), name="NVIDIA GB10", memory=memory)
    async with dashboard([scenes.sample(card)]) as (app, _):
        assert re.search(r"GB10 ▐█+░+▌ 3\.0 GiB unified, 99\.0 free", screen_text(app))


def test_sizes_that_are_shown_alike_or_go_to_and_fro_move_no_rows() -> None:
    def rows(*used: int) -> list[int]:
        cards = scenes.gpu(0, *(scenes.process(pid, size * MIB, "x") for pid, size in enumerate(used, 1)))
        listing = listing_of(scenes.sample(cards))
        return [row.process.pid for row in in_order(listing, "gpu") if row.process is not None]

    assert rows(100, 98, 103) == rows(98, 103, 100) == [1, 2, 3]
    assert rows(100, 98, 3000) == [3, 1, 2]
    # 0.15 GiB are shown as 0.1 or as 0.2; a process there stays where it is until it holds clearly less.
    seen = History()

    def pids(at: int, *used: int) -> list[int]:
        cards = scenes.gpu(0, *(scenes.process(pid, size * MIB, "x") for pid, size in enumerate(used, 1)))
        sample = scenes.sample(cards, at=at)
        seen.add(sample)
        return [row.process.pid for row in in_order(ProcessRows(sample, seen, {}), "now") if row.process is not None]

    assert (pids(0, 120, 155, 160), pids(1, 155, 152, 160)) == ([2, 3, 1], [2, 3, 1])
    assert (pids(2, 152, 155, 152), pids(3, 185, 120, 190)) == ([2, 3, 1], [1, 3, 2])
    assert pids(4, 185, 100, 90) == [1, 2, 3]
    # Of many rows with one size the others keep their lines when one leaves them or joins them.
    many, lines, moved = [100] * 80, None, dict[int, int]()
    for at, size, more in ((5, 100, {}), (5, 3000, {0: 5, 5: 0}), (5, 100, {}), (7, 20, {7: 79, 79: 7}), (7, 100, {})):
        many[at], moved = size, moved | more
        cards = scenes.gpu(0, *(scenes.process(pid, held * MIB, "x") for pid, held in enumerate(many)))
        every = RowPredictions(listing_of(scenes.sample(cards)), {}, round_estimate)
        lines = arranged(every, "", ("now", False), None, lines)
        assert [row.process.pid for row in lines if row.process] == [moved.get(pid, pid) for pid in range(80)]


@given(st.lists(st.integers(16, 4000), min_size=1, max_size=30))
def test_a_place_follows_its_size_with_some_play(sizes: list[int]) -> None:
    seen, shown = History(), set()
    for at, size in enumerate(sizes):
        sample = scenes.sample(scenes.gpu(0, scenes.process(1, size * MIB, "x")), at=at)
        seen.add(sample)
        (row,) = ProcessRows(sample, seen, {})
        assert row.order is not None
        shown.add(as_shown(size * MIB))
        assert row.order in shown
        assert abs(size * MIB / GIB - row.order) < 0.075


RANK = "python -u train.py --lr 1e-4 --local-rank={}"


def host() -> Sample:
    """A job of four ranks on two GPUs, the same command an hour later, two workers of a server, and a notebook."""
    start = scenes.START - 7200
    ranks = [
        scenes.process(100 + rank, (rank + 1) * GIB, RANK.format(rank), started_at=start + rank) for rank in range(4)
    ]
    later = scenes.process(200, 5 * GIB, RANK.format(0), started_at=start + 3600)
    workers = [scenes.process(300 + at, 7 * GIB, f"VLLM::Worker_TP{at}", user="bo") for at in range(2)]
    notebook = scenes.process(400, GIB, "jupyter lab", user="dora")
    return scenes.sample(
        scenes.gpu(0, *ranks[:2], later, workers[0]),
        scenes.gpu(1, *ranks[2:], workers[1], notebook, unattributed=3 * GIB),
    )


def rows() -> list[ProcessRow]:
    return list(listing_of(host(), whole=False))


def told(by: Grouping, *opened: int) -> list[tuple[int | None, int | None]]:
    groups = [row.id for row in RowGroups(rows(), by, ()) if row.kind == "group"]
    shown = RowGroups(rows(), by, [groups[at] for at in opened])
    return [(row.process.pid if row.process else None, (row.now or 0) // GIB) for row in shown]


def test_ranks_users_and_gpus_are_rows_that_open_and_every_row_has_a_place() -> None:
    assert told("job") == [(None, 10), (200, 5), (None, 14), (400, 1), (None, 3)]
    assert told("job", 0)[:6] == [(None, 10), (100, 1), (101, 2), (102, 3), (103, 4), (200, 5)]
    assert told("user") == [(None, 15), (None, 14), (None, 1), (None, 3)]
    assert told("gpu") == [(None, 15), (None, 18)]
    groupings: tuple[Grouping, ...] = ("job", "user", "gpu")
    for by in groupings:
        assert sum(held or 0 for _, held in told(by)) == 33
    every = rows()
    shown = RowGroups(every, "user", ())
    assert all(shown[shown.places[row.id]].kind == "group" for row in every)
    held = [row.now for row in RowGroups(every, "user", (), largest_first=True)]
    assert held == sorted(held, reverse=True)  # type: ignore[type-var]  # known
    busy = {"cpu_percent": 100.0, "host_memory": 2 * GIB, "user": "anna"}
    cards = [scenes.gpu(at, scenes.process(10 + at, GIB, f"x {at}", **busy)) for at in range(4)]
    (by_user,) = RowGroups(list(listing_of(scenes.sample(*cards), whole=False)), "user", ())
    assert by_user.note == "▸ anna: 4 processes, CPU 400 %, RAM 8.0 GiB"
    assert (by_user.gpus, by_user.user) == ("0-3", "anna")
    assert in_ranges([0, 1, 3, 4, 5, 7]) == "0, 1, 3-5, 7"


def test_a_job_is_what_its_launcher_says_and_its_worst_rank_is_named() -> None:
    rows: list[Process] = []
    for job, more in (("gpu01:29500", GIB), ("gpu01:29501", MIB)):
        for rank in range(2):
            place = JobRank(job=job, rank=rank, size=4, launcher="torchrun")
            process = scenes.process(100 + len(rows), GIB + rank * more, "python train.py", started_at=scenes.START)
            rows.append(msgspec.structs.replace(process, rank=place))
    groups = RowGroups(list(listing_of(scenes.sample(scenes.gpu(0, *rows)), whole=False)), "job", ())
    notes = [row.note for row in groups if row.kind == "group"]
    worst = (", worst rank 1, uneven +33.3 %", "")  # the second job's ranks hold nearly the same
    (whole,) = RowGroups([msgspec.structs.replace(row, predicted=GIB) for row in list(groups.rows)[:2]], "job", ())
    assert ", 2.0 predicted · train.py" in whole.note
    assert notes == [f"▸ torchrun 2/4{words} · train.py" for words in worst]


@pytest.mark.parametrize(("one", "other", "same"), [
    ("python t.py --local_rank 0", "python t.py --local_rank 7", True),
    ("VLLM::Worker_TP0_EP0", "VLLM::Worker_TP1_EP1", True),
    ("python t.py --lr 1", "python t.py --lr 2", False),
    ("python t.py --layers 12", "python t.py --layers 13", False),
])  # fmt: skip
def test_only_what_tells_ranks_apart_is_left_out(one: str, other: str, same: bool) -> None:
    assert (job_of(scenes.process(1, GIB, one)) == job_of(scenes.process(2, GIB, other))) == same


async def test_b_groups_and_enter_opens() -> None:
    async with dashboard([host()]) as (app, pilot):
        text = await press(app, pilot, "b")
        assert "▸ 4 processes · train.py" in text
        assert "by job" in text
        assert "▾ 2 processes · " in await press(app, pilot, "home", "enter")
        assert app.screen.view.rows[1].process.pid == 300  # type: ignore[attr-defined]  # Watch
        await press(app, pilot, "down", "b")
        view = app.screen.view  # type: ignore[attr-defined]  # Watch
        assert "by user" in screen_text(app)
        assert view.rows[view.chosen_at].id == ("group", "bo")  # where the process is that had the cursor
        await press(app, pilot, "right")
        assert app.screen.view.chosen.process.pid == 300  # type: ignore[attr-defined]  # it is shown again
        await press(app, pilot, "left", "b", "b", "b")
        assert app.screen.view.group == "none"  # type: ignore[attr-defined]  # Watch


async def test_a_filter_counts_processes_in_groups_that_the_settings_close() -> None:
    settings = Settings(columns=ColumnSettings(group="user"))
    async with dashboard([host()], settings=settings) as (app, _):
        assert "anna: 6 processes" not in screen_text(app)
        assert "anna: 5 processes" in screen_text(app)
    async with dashboard([host()], settings=Settings(columns=ColumnSettings(group="user"))) as (app, pilot):
        assert "Processes · 1 of " in await press(app, pilot, *"/jupyter", "enter")


def tree() -> Sample:
    """A server of two workers, one of them with a helper; a script of two jobs; a notebook; one of unknown parents."""

    def of(pid: int, *above: int) -> Process:
        started = {5: "bash run.sh", 10: "program 10"}
        told = Ancestors(pids=above, command=started[above[-1]] if above else "")
        return msgspec.structs.replace(scenes.process(pid, GIB, f"program {pid}"), ancestors=told)

    helper, worker = of(12, 11, 10), of(11, 10)
    unknown = [scenes.process(pid, GIB, f"program {pid}") for pid in (40, 41)]
    return scenes.sample(
        scenes.gpu(0, helper, of(20, 5), of(30), *unknown), scenes.gpu(1, of(10), of(13, 10), worker, of(21, 6, 5))
    )


async def test_a_tree_is_one_row_that_opens_in_the_order_of_who_started_whom() -> None:
    async with dashboard([tree()], size=(140, 30), settings=Settings(columns=ColumnSettings(group="tree"))) as (
        app,
        pilot,
    ):
        text = screen_text(app)
        assert "by process tree" in text
        lines = text.splitlines()
        assert "▸ 4 processes · program 10" in text
        assert next(line for line in lines if "program 10" in line).split()[1] == "10"  # the root's pid
        assert "▸ 2 processes · bash run.sh" in text
        assert "▸ 2 processes · parent processes not known" in text
        assert next(line for line in lines if "program 30" in line).split()[1] == "30"  # alone: no group
        await press(app, pilot, "home", "enter")
        told = [(row.process.pid, row.depth) for row in app.screen.view.rows[1:5]]  # type: ignore[attr-defined]  # Watch
        assert told == [(10, 0), (13, 1), (11, 1), (12, 2)]
        text = screen_text(app)
        assert "└ program 11" in text
        assert "  └ program 12" in text
        await press(app, pilot, "down", "down", "down", "b")
        assert app.screen.view.group == "none"  # type: ignore[attr-defined]  # Watch
        assert app.screen.view.chosen.process.pid == 11  # type: ignore[attr-defined]  # the cursor stayed on it
    async with dashboard([tree()], size=(140, 40)) as (app, pilot):
        assert "pid 10: program 10" in await press(app, pilot, *"/pid:12", "enter", "i")


SERVER = scenes.process(4214, 1, "vllm serve --port 4213", user="annabel")


def row(**more: object) -> ProcessRow:
    process = scenes.process(4213, 1, scenes.TRAIN, user="Anna")
    fields = {"gpu": scenes.gpu(1), "process": process, "preset": "llama-3.1-8b-lora"} | more
    return ProcessRow("process", ("a", "b"), now=1, **fields)  # type: ignore[arg-type]  # fields of any type


FULFILLED = (
    "", "user:anna", "USER:Anna", "gpu:1", "gpu:gpu-1", "pid:4213", "preset:lora", "cmd:train", "cmd:llama user:anna",
    "421", "anna llama", "a100 gpu:1", "user:", "gpu:", "preset: train",
)  # fmt: skip
REFUSED = (
    "user:ann", "user:bo", "gpu:0", "gpu:11", "pid:421", "pid:42130", "preset:qwen", "cmd:anna", "user:anna gpu:0",
    "gpx:1", "nobody",
)  # fmt: skip


def test_a_row_fulfils_a_filter_and_a_form_asks_for_its_own_column() -> None:
    for wanted in (*FULFILLED, *REFUSED):
        assert holds(row(), conditions(wanted)) == (wanted in FULFILLED), wanted
    # Bytes that no process holds have a GPU only.
    rest = row(process=None, preset=None)
    assert holds(rest, conditions("gpu:1"))
    assert not any(holds(rest, conditions(f"{form}:1")) for form in FORMS if form != "gpu")
    # A bare word is found in another's command as well; the exact form is not.
    both = [row(), row(process=SERVER)]
    for wanted, users in (
        ("user:a", ["Anna", "annabel"]),
        ("user:anna", ["Anna"]),
        ("user:annab", ["annabel"]),
        ("user:nn", []),
        ("user:a cmd:vllm", ["annabel"]),
    ):  # fmt: skip - while the name is typed
        found = [both[at].process for at in pick_rows(both, conditions(wanted))]
        assert [one.user for one in found if one] == users, wanted
    assert [one.process and one.process.pid for one in both if holds(one, conditions("4213"))] == [4213, 4214]
    assert [one.process and one.process.pid for one in both if holds(one, conditions("pid:4213"))] == [4213]
    assert [one.process and one.process.user for one in both if holds(one, conditions("user:anna"))] == ["Anna"]


@pytest.mark.parametrize(("wanted", "words"), [
    ("gpx:0", "There is no gpx: (did you mean gpu?); there are user:, gpu:, pid:, preset:, cmd:."),
    ("usr:anna", "(did you mean user?)"),
    ("gpu:first", "gpu:first is invalid: a GPU is a number or a uuid."),
    ("pid:train.py", "pid:train.py is invalid: a pid is a number."),
    ("gpu:0", ""),
    ("gpu:GPU-1", ""),
    ("user:nobody", ""),
    ("train", ""),
    ("gpx:", ""),
    ("8b:0", ""),
])  # fmt: skip
def test_what_cannot_be_meant_is_said(wanted: str, words: str) -> None:
    told = doubt(wanted)
    assert (words in told) if words else not told


@given(st.text(alphabet=st.sampled_from("ugp:0a- ;[\x1b")), st.booleans())
def test_any_text_is_a_filter(wanted: str, owned: bool) -> None:
    holds(row() if owned else row(process=None, preset=None), conditions(wanted))
    doubt(wanted)


async def test_the_screen_says_it_where_the_rows_would_be() -> None:
    async with dashboard([scenes.usual()]) as (app, pilot):
        assert "user:anna gpu:0 pid:123 preset:llama cmd:train" in await press(app, pilot, "slash")
        await press(app, pilot, *"gpx:0")
        assert "There is no gpx: (did you mean gpu?)" in " ".join(screen_text(app).replace("│", " ").split())
        await press(app, pilot, *(["backspace"] * 5), *"gpu:1")
        assert [one.process.pid for one in app.state.view().rows if one.process] == [5120]


async def test_the_cursor_comes_back_to_its_process_when_a_filter_shows_it_again() -> None:
    """`user:bo` is typed letter by letter, and on the way hides the row that has the cursor."""

    def marked() -> str:
        return next(line for line in screen_text(app).splitlines() if "│▸" in line and "▐" not in line)

    trains = [scenes.process(pid, 9 << 30, scenes.TRAIN, user=user) for pid, user in ((4213, "anna"), (4214, "bo"))]
    async with dashboard([scenes.sample(scenes.gpu(0, *trains))]) as (app, pilot):
        await settle(app, pilot)
        before = marked()
        for keys in (("slash", *"4214"), ("escape",), ("slash", *"user:bo"), ("enter",), ("escape",)):
            await press(app, pilot, *keys)
            if "slash" in keys:
                assert marked().split()[1] != before.split()[1]
        assert marked() == before
        assert "llama-3.1-8b-lora" in screen_text(app)


TRAIN, SERVE = (found.preset.workload for found in PRESETS)


def test_each_kind_of_run_is_stepped_by_its_own_fields_and_ladders() -> None:
    assert [field.name for field in fields_of(TRAIN)] == [
        "batch_size", "sequence_length", "gradient_accumulation_steps", "precision", "quantization", "optimizer",
        "attention", "checkpointing",
    ]  # fmt: skip
    assert [field.name for field in fields_of(SERVE)] == [
        "batch_size", "sequence_length", "new_tokens", "precision", "quantization", "attention", "kv_cache",
    ]  # fmt: skip
    assert step(SERVE, "optimizer", 1) == SERVE
    assert first_of(SERVER_OF_FIELDS, SIZES) == "max_num_seqs"
    assert first_of(SERVER_OF_FIELDS, LENGTHS) == "max_model_len"
    assert isinstance(SERVER_OF_FIELDS.run, ServeRun)
    less = step(SERVER_OF_FIELDS, "gpu_memory_utilization", -1).run
    assert isinstance(less, ServeRun)
    assert less.gpu_memory_utilization == 0.85
    assert trained(step(TRAIN, "batch_size", 1)).batch_size == 5
    one = Workload(model=MODEL, run=TrainRun(batch_size=1))
    assert step(one, "batch_size", -1) == one
    workload = Workload(model=MODEL, run=TrainRun(sequence_length=4000))
    up = step(workload, "sequence_length", 1)
    assert trained(up).sequence_length == 4096
    assert trained(step(up, "sequence_length", 1)).sequence_length == 6144
    assert trained(step(up, "sequence_length", -1)).sequence_length == 3072
    assert trained(step(Workload(model=MODEL, run=TrainRun()), "sequence_length", 1)).sequence_length == 1024
    new = Workload(model=MODEL, run=InferRun(new_tokens=16))
    assert step(new, "new_tokens", -1) == Workload(model=MODEL, run=InferRun(new_tokens=0))
    names = get_args(Optimizer)
    seen = [TRAIN]
    for _ in names:
        seen.append(step(seen[-1], "optimizer", 1))
    assert seen[-1] == TRAIN
    assert {trained(workload).optimizer for workload in seen} == set(names)
    assert step(seen[1], "optimizer", -1) == TRAIN


def trained(workload: Workload) -> TrainRun:
    assert isinstance(workload.run, TrainRun)
    return workload.run


steps = st.lists(st.tuples(st.sampled_from([field.name for field in FIELDS]), st.sampled_from([-1, 1])), max_size=30)


SERVER_OF_FIELDS = Workload(model=MODEL, run=ServeRun())


@given(st.sampled_from([TRAIN, SERVE, SERVER_OF_FIELDS]), steps)
def test_any_steps_leave_a_run_that_a_preset_could_hold(start: Workload, taken: list[tuple[str, int]]) -> None:
    workload = start
    for name, direction in taken:
        workload = step(workload, name, direction)
    changed = changes_of(workload, start)
    for field in fields_of(workload):
        value = value_of(workload, field)
        assert (field.name in changed) == (value != value_of(start, field))
        if field.choices:
            assert value in field.choices
        else:
            assert value is None or value > 0 or value == field.least
    assert workload.model == start.model
