"""Rows under one row for each job, user or GPU."""

import msgspec
import pytest

from tests.app import scenes
from tests.app.driver import dashboard, screen_text, settle
from vramtui.app.state.rows import ProcessRows, RowGroups, in_ranges
from vramtui.app.state.view import ProcessRow
from vramtui.core.base.units import GIB
from vramtui.core.observation.history import History
from vramtui.core.observation.readings import Ancestors, JobRank, Process, Sample
from vramtui.core.runs.ranked_jobs import job_of
from vramtui.core.schema.settings import ColumnSettings, Grouping, Settings

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
    seen = History()
    seen.add(host())
    return list(ProcessRows(host(), seen, {}))


def told(by: Grouping, *opened: int) -> list[tuple[int | None, int | None]]:
    """Of each row that is shown: pid (None for a group) and GiB."""
    closed = RowGroups(rows(), by, ())
    groups = [row.id for row in closed if row.kind == "group"]
    shown = RowGroups(rows(), by, [groups[at] for at in opened])
    return [(row.process.pid if row.process else None, (row.now or 0) // GIB) for row in shown]


def test_the_ranks_of_a_job_are_one_row_that_opens() -> None:
    assert told("job") == [(None, 10), (200, 5), (None, 14), (400, 1), (None, 3)]
    assert told("job", 0)[:6] == [(None, 10), (100, 1), (101, 2), (102, 3), (103, 4), (200, 5)]


def test_a_job_is_what_its_launcher_says_and_its_worst_rank_is_named() -> None:
    """Two jobs of one command, which the command alone would not tell apart."""
    rows: list[Process] = []
    for job in ("gpu01:29500", "gpu01:29501"):
        for rank in range(2):
            place = JobRank(job=job, rank=rank, size=4, launcher="torchrun")
            process = scenes.process(100 + len(rows), (rank + 1) * GIB, "python train.py", started_at=scenes.START)
            rows.append(msgspec.structs.replace(process, rank=place))
    sample = scenes.sample(scenes.gpu(0, *rows))
    seen = History()
    seen.add(sample)
    groups = RowGroups(list(ProcessRows(sample, seen, {})), "job", ())
    notes = [row.note for row in groups if row.kind == "group"]
    assert notes == ["▸ 2 of 4 ranks on GPU 0, worst rank 1, uneven +33.3 %: python train.py"] * 2


def test_users_and_gpus_are_groups_of_all_they_hold() -> None:
    assert told("user") == [(None, 15), (None, 14), (None, 1), (None, 3)]
    assert told("gpu") == [(None, 15), (None, 18)]
    groupings: tuple[Grouping, ...] = ("job", "user", "gpu")
    for by in groupings:
        assert sum(held or 0 for _, held in told(by)) == 33


def test_every_row_has_a_place_be_it_its_groups() -> None:
    every = rows()
    shown = RowGroups(every, "user", ())
    assert all(shown[shown.places[row.id]].kind == "group" for row in every)
    largest = RowGroups(every, "user", (), largest_first=True)
    held = [row.now for row in largest]
    assert held == sorted(held, reverse=True)  # type: ignore[type-var]  # known


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("python t.py --local_rank 0", "python t.py --local_rank 7", True),
        ("VLLM::Worker_TP0_EP0", "VLLM::Worker_TP1_EP1", True),
        ("python t.py --lr 1", "python t.py --lr 2", False),
        ("python t.py --layers 12", "python t.py --layers 13", False),
    ],
)
def test_only_what_tells_ranks_apart_is_left_out(one: str, other: str, same: bool) -> None:
    assert (job_of(scenes.process(1, GIB, one)) == job_of(scenes.process(2, GIB, other))) == same


async def test_b_groups_and_enter_opens() -> None:
    async with dashboard([host()]) as (app, pilot):
        await pilot.press("b")
        await settle(app, pilot)
        text = screen_text(app)
        assert "▸ 4 processes on GPU 0, 1: python -u train.py" in text
        assert "by job" in text
        await pilot.press("home", "enter")
        await settle(app, pilot)
        assert "▾ 2 processes on GPU 0, 1" in screen_text(app)
        assert app.screen.view.rows[1].process.pid == 300  # type: ignore[attr-defined]  # Watch
        await pilot.press("down", "b")
        await settle(app, pilot)
        view = app.screen.view  # type: ignore[attr-defined]  # Watch
        assert "by user" in screen_text(app)
        assert view.rows[view.chosen_at].id == ("group", "bo")  # where the process is that had the cursor
        await pilot.press("right")
        await settle(app, pilot)
        assert app.screen.view.chosen.process.pid == 300  # type: ignore[attr-defined]  # it is shown again
        await pilot.press("left", "b", "b", "b")
        await settle(app, pilot)
        assert app.screen.view.group == "none"  # type: ignore[attr-defined]  # Watch


async def test_the_settings_group_from_the_beginning() -> None:
    settings = Settings(columns=ColumnSettings(group="user"))
    async with dashboard([host()], settings=settings) as (app, _):
        assert "anna: 6 processes on GPU 0, 1" not in screen_text(app)
        assert "anna: 5 processes on GPU 0, 1" in screen_text(app)


def test_a_group_has_its_gpus_its_user_and_what_its_processes_take_of_the_host() -> None:
    busy = {"cpu_percent": 100.0, "host_memory": 2 * GIB, "user": "anna"}
    cards = [scenes.gpu(at, scenes.process(10 + at, GIB, f"x {at}", **busy)) for at in range(4)]
    history, sample = History(), scenes.sample(*cards)
    history.add(sample)
    (by_user,) = RowGroups(list(ProcessRows(sample, history, {})), "user", ())
    assert by_user.note == "▸ anna: 4 processes, CPU 400 %, RAM 8.0 GiB on GPU 0-3"
    assert (by_user.gpus, by_user.user) == ("0-3", "anna")
    assert in_ranges([0, 1, 3, 4, 5, 7]) == "0, 1, 3-5, 7"


async def test_a_filter_counts_processes_in_groups_that_are_closed() -> None:
    async with dashboard([host()], settings=Settings(columns=ColumnSettings(group="user"))) as (app, pilot):
        await pilot.press(*"/jupyter", "enter")
        await settle(app, pilot)
        assert "Processes · 1 of " in screen_text(app)


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
        assert "▸ 4 processes on GPU 0, 1: program 10" in text
        assert next(line for line in lines if "program 10" in line).split()[1] == "10"  # the root's pid
        assert "▸ 2 processes on GPU 0, 1: bash run.sh" in text
        assert "▸ 2 processes on GPU 0: parent processes not known" in text
        assert next(line for line in lines if "program 30" in line).split()[1] == "30"  # alone: no group
        await pilot.press("home", "enter")
        await settle(app, pilot)
        told = [(row.process.pid, row.depth) for row in app.screen.view.rows[1:5]]  # type: ignore[attr-defined]  # Watch
        assert told == [(10, 0), (13, 1), (11, 1), (12, 2)]
        text = screen_text(app)
        assert "└ program 11" in text
        assert "  └ program 12" in text
        await pilot.press("down", "down", "down", "b")
        await settle(app, pilot)
        assert app.screen.view.group == "none"  # type: ignore[attr-defined]  # Watch
        assert app.screen.view.chosen.process.pid == 11  # type: ignore[attr-defined]  # the cursor stayed on it


async def test_who_started_a_process_stands_in_its_details() -> None:
    async with dashboard([tree()], size=(140, 40)) as (app, pilot):
        await pilot.press(*"/pid:12", "enter", "i")
        await settle(app, pilot)
        assert "pid 10: program 10" in screen_text(app)
