import re
from collections.abc import Mapping

import msgspec
import pytest

from tests.app import scenes
from tests.app.driver import dashboard, give, known, press, screen_text, settle
from tests.examples import Clock
from vramtui.app.state.view import GpuBar, ProcessRow, View
from vramtui.app.themes import Palette
from vramtui.app.ui.lines import delta_colour, wrap
from vramtui.app.ui.view_screen import host_facts
from vramtui.app.watch.estimate_panel import EstimatePanel
from vramtui.app.watch.gpu_panel import GpuPanel
from vramtui.app.watch.process_table import ProcessTable, Rows, columns_for, row_strip, running_time
from vramtui.core.base.colours import DARK
from vramtui.core.base.text import LONGEST_LINE
from vramtui.core.base.units import GIB, MIB
from vramtui.core.observation.history import Peak
from vramtui.core.observation.readings import Host, Process, Sample, process_key
from vramtui.core.schema.settings import ColumnSettings, Settings
from vramtui.monitor.session import MonitorSession

PALETTE = Palette(DARK | {"foreground": "#ffffff", "background": "#000000", "muted": "#888888", "cursor": "#222222"})


def row_of(process: Process, peak: int = GIB) -> ProcessRow:
    card = scenes.gpu(0, process)
    return ProcessRow("process", process_key("h", card, process), card, known(process.used_memory), peak, process)


def drawn(row: ProcessRow, width: int, cursor: str | None = None) -> str:
    return row_strip(columns_for(width, width), row, PALETTE, width, cursor).text


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize(("how", "shown"), [("accounting", "=12.0"), ("probe", "=12.0"), ("sampled", "12.0")])
def test_an_exact_peak_is_marked_and_no_column_moves(width: int, how: str, shown: str) -> None:
    row = row_of(scenes.process(5, 9 * GIB, "python x.py"), 12 * GIB)
    learned = msgspec.structs.replace(row, learned=Peak(bytes=12 * GIB, at=1.0, how=how))
    plain, marked = (drawn(each, width) for each in (row, learned))
    assert shown in marked.split()
    assert marked.replace("=", " ") == plain


@pytest.mark.parametrize("width", range(60, 200, 7))
def test_the_largest_pid_there_is_stands_whole(width: int) -> None:
    """pid_max is 4,194,304 on 64-bit systems (proc(5))."""
    row = row_of(scenes.process(4_194_302, GIB, "python x.py"))
    for cursor in (None, "cursor"):
        text = drawn(row, width, cursor)
        assert re.search(r"(?<!\d)4194302(?!\d)", text), text


def test_of_a_command_of_any_length_a_row_reads_no_more_than_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it was looked at as a whole, twenty such processes held the screen for a tenth of a second at each tick."""
    lengths: list[int] = []

    def measured(text: str) -> str:
        lengths.append(len(text))
        return text

    monkeypatch.setattr("vramtui.core.base.text.printable", measured)
    row = row_of(scenes.process(5, GIB, "python é.py " + "é" * 65536))
    for width in (80, 200):
        assert "é.py ééé" in drawn(row, width)
    assert 0 < max(lengths) <= LONGEST_LINE


LONG = "torchrun --nproc-per-node=8 finetune.py --config " + "configs/a/very/long/path/" * 9


def busy(at: float = 0.0) -> Sample:
    seen = [
        scenes.process(pid, GIB, LONG, user="anna" if pid % 2 else "bo", cpu_percent=97.4, host_memory=3 * GIB)
        for pid in range(100, 140)
    ]
    return scenes.sample(scenes.gpu(0, *seen, unattributed=9 * MIB), at=at)


def names(width: int, *, predicts: bool = False) -> list[str]:
    return [column.name for column in columns_for(width, width, predicts=predicts)]


def test_columns_come_as_the_width_allows() -> None:
    assert names(66, predicts=True) == ["pid", "gpu", "user", "now", "predicted", "delta", "command"]
    assert names(78) == ["pid", "gpu", "user", "now", "peak", "cpu", "time", "command"]
    assert {"type", "cpu", "host", "time"} <= set(names(118))
    for width in range(60, 240):
        by_name = {column.name: column.width for column in columns_for(width, width, predicts=False)}
        assert sum(by_name.values()) == width
        assert by_name["command"] >= (26 if "cpu" in by_name else 28) or not {"time", "host", "type"} & set(by_name)
    rare = frozenset({"sm", "job"})
    for width in range(60, 240):
        columns = columns_for(width, width, predicts=False, rare=rare, user=5)
        by_name = {column.name: column.width for column in columns}
        assert sum(by_name.values()) == width
        assert "job" in by_name or width < 118
        assert by_name["command"] >= (36 if "job" in by_name else 26 if "cpu" in by_name else 28) or width < 70
        assert by_name.get("job", 30) == 30 or by_name["command"] <= 48
    assert {"sm", "cpu", "time", "job"} <= {column.name for column in columns_for(118, 118, predicts=False, rare=rare)}
    # Beside predictions the job comes after them.
    assert "job" not in {column.name for column in columns_for(118, 118, rare=rare)}
    # Beside the estimate at 120 columns, and only where the command would be short otherwise.
    shared, alone = columns_for(74, 74, user=8), columns_for(74, 74, user=0)
    assert [{"user", "peak"} & {column.name for column in one} for one in (shared, alone)] == [{"user"}, {"peak"}]
    assert "user" in {column.name for column in columns_for(180, 180, user=0)}


@pytest.mark.parametrize("user", [0, 4, 6, 9, 32])
def test_how_busy_a_process_is_stands_at_80_columns_however_long_a_users_name_is(user: int) -> None:
    columns = columns_for(78, 78, predicts=False, rare=frozenset({"sm", "job"}), user=user)
    by_name = {column.name: column.width for column in columns}
    assert {"sm", "cpu", "time"} <= by_name.keys()
    assert by_name["command"] >= 26


@pytest.mark.parametrize("size", [(80, 24), (120, 35), (200, 50)])
async def test_a_command_that_is_cut_ends_in_an_ellipsis(size: tuple[int, int]) -> None:
    async with dashboard([busy()], size) as (app, _):
        lines = [line for line in screen_text(app).splitlines() if "torchrun" in line and "Memory" not in line]
        lines = [line for line in lines if "m assigns" not in line]
        assert len(lines) > 5
        assert all(line.rstrip(" │▁▂▃▄▅▆▇█").endswith("…") for line in lines)


async def test_without_a_prediction_there_are_no_columns_and_no_panel_for_one() -> None:
    async with dashboard([busy()]) as (app, pilot):
        assert "PREDICT" not in screen_text(app)
        assert not app.screen.query_one(EstimatePanel).display
        assert app.screen.query_one(ProcessTable).size.width == 118
        await give(app, pilot, scenes.usual(1))
        assert "PREDICT" in screen_text(app)
        assert app.screen.query_one(EstimatePanel).display
        await give(app, pilot, busy(2))
        assert "PREDICT" in screen_text(app)  # once there, it stays


def test_hosts_columns_come_with_the_first_value_and_bars_end_in_one_column() -> None:
    assert not {"sm", "job"} & set(names(200))
    shown = [column.name for column in columns_for(200, 200, predicts=False, rare=frozenset({"sm", "job"}))]
    assert {"sm", "cpu", "host", "time", "job"} <= set(shown)
    row = row_of(scenes.process(7, GIB, "x", sm_percent=37, container="slurm 4711"))
    line = row_strip(columns_for(120, 120, ("pid", "sm", "job", "command")), row, PALETTE, 120, None).text
    assert re.search(r"7 +37 +slurm 4711 +x", line)
    host = Host(name="gpu01", cpu_percent=12.4, memory_total=512 * GIB, memory_available=480 * GIB, load=(1.04, 2, 3))
    host = msgspec.structs.replace(host, swap_total=8 * GIB, swap_free=7 * GIB)
    assert host_facts(host) == ("CPU 12 %", "RAM  7 % of 512 GiB", "load 1.0", "swap 13 % of 8 GiB")
    assert not any(host_facts(Host(name="gpu01", memory_total=GIB)))
    panel = GpuPanel()
    asked, failed = (panel.build(View(failure=failure), PALETTE, 78, 1)[0].text for failure in ("", "gpu01: no route"))
    assert asked.strip() == "asking the driver …"
    assert failed.strip() == "no GPU can be read; trying again · d opens the demo"
    assert panel.part(View()) != panel.part(View(failure="gpu01: no route"))
    sample = scenes.divided()
    view = View(sample=sample, bars=tuple(GpuBar(gpu=gpu, predicted=None, chosen=False) for gpu in sample.gpus))
    for width in (60, 78, 118):
        lines = [line.text for line in GpuPanel().build(view, PALETTE, width, 12)]
        bars = [line for line in lines if "▌" in line]
        assert len({line.index("▌") for line in bars}) == 1, lines
        assert next(line for line in lines if "MIG" in line).rstrip().endswith("GiB")


async def test_the_reason_of_another_process_is_whole_or_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    why = "a.py: model unknown · m assigns · b.py: llama-8b is not known here"
    monkeypatch.setattr(MonitorSession, "why_unmatched", lambda *_: why)
    pair = scenes.process(7, GIB, "a.py"), scenes.process(8, GIB, "b.py")
    async with dashboard([scenes.sample(scenes.gpu(0, *pair))], (80, 24)) as (app, pilot):
        assert f"─ {why} ─╯" in screen_text(app)
        assert "─ a.py: model unknown · m assigns · sorting frozen · Esc resumes ─╯" in await press(app, pilot, "down")


async def test_columns_are_chosen_live_and_kept() -> None:
    kept: list[Mapping[str, object]] = []
    async with dashboard([busy()], (120, 35), keep_settings=kept.append) as (app, pilot):
        table = app.screen.query_one(ProcessTable)
        before = table.column_names()
        await press(app, pilot, "f", "down", "space")
        assert table.column_names() == [name for name in before if name != "gpu"]
        await press(app, pilot, "escape")
        assert table.column_names() == before
        assert kept == []
        await press(app, pilot, "f", "space", "down", "space", "enter")
        wanted = tuple(name for name in before if name not in {"pid", "gpu"})
        assert (tuple(table.column_names()), kept) == (wanted, [{"columns.processes": wanted}])
        await press(app, pilot, "f", "a")
        assert table.column_names() == before
        assert kept[1:] == [{"columns.processes": None}]


async def test_the_estimate_is_folded_away_and_rows_move_into_new_columns() -> None:
    async with dashboard([scenes.usual()], (120, 35)) as (app, pilot):
        table = app.screen.query_one(ProcessTable)
        beside = table.size.width
        for display, width in ((False, 118), (True, beside)):
            await press(app, pilot, "v")
            assert app.screen.query_one(EstimatePanel).display is display
            assert table.size.width == width
            assert "PREDICT" in screen_text(app)
    # The first prediction brings columns, while the table is as wide as it was.
    idle = scenes.process(3177, 3 * GIB, "ipykernel", user="dora", cpu_percent=0.0, started_at=scenes.START - 95_000)
    async with dashboard([scenes.sample(scenes.gpu(0, idle))], (80, 24)) as (app, _):
        rows = app.screen.query_one(Rows)
        view, palette = rows.view, rows.palette
        assert view is not None
        assert palette is not None
        assert "26h" in rows.render_line(0).text
        rows.take(msgspec.structs.replace(view, predicts=True), palette)
        assert re.search(r"3\.0 +3\.0 +– +ipykernel", rows.render_line(0).text)


async def test_below_the_rows_stands_what_each_user_holds_and_what_has_no_row() -> None:
    async with dashboard([busy()]) as (app, pilot):
        await settle(app, pilot)
        text = screen_text(app)
        assert "all 40.0 GiB  bo 20.0  anna 20.0" in text
        assert "driver 600.0 MiB · unattributed 9.0 MiB" in text
        assert "driver and firmware" not in text
    settings = Settings(columns=ColumnSettings(processes=("pid", "now", "command"), bookkeeping=True))
    async with dashboard([busy()], settings=settings) as (app, pilot):
        assert app.screen.query_one(ProcessTable).column_names() == ["pid", "now", "command"]
        await pilot.press("end")
        await give(app, pilot)
        assert "driver and firmware" in screen_text(app)


@pytest.mark.parametrize(
    ("minutes", "shown"), [(0, "0 m"), (59, "59 m"), (60, "1h 00m"), (5999, "99h 59m"), (6000, "4d 04h")]
)
def test_how_long_a_process_runs_is_said_in_seven_columns(minutes: int, shown: str) -> None:
    assert running_time(minutes) == shown
    assert len(shown) <= 7


@pytest.mark.parametrize("fraction", [-0.9, -0.5, -0.181, -0.08, 0.0, 0.05, 0.3])
def test_no_difference_is_dimmer_than_a_smaller_one(fraction: float) -> None:
    assert delta_colour(fraction) in {"success", "foreground", "error"}


@pytest.mark.parametrize(("width", "whole"), [(80, False), (110, False), (190, True)])
def test_a_list_of_commands_is_all_brief_or_all_whole(width: int, *, whole: bool) -> None:
    for command in ("python /srv/a.py", "python /srv/project/train.py --rank=12 --lr 3e-4"):
        text = drawn(row_of(scenes.process(5, GIB, command)), width)
        assert ("python /srv" in text) == whole, text


def test_a_quick_prediction_is_marked_and_compared_later() -> None:
    row = row_of(scenes.process(5, 9 * GIB, "python x.py"), 11 * GIB)
    row = msgspec.structs.replace(row, predicted=12 * GIB, preset="p", fraction=0.5)
    marks = ("12.0 +50.0 %", "≈12.0 …", "~12.0 +50.0 %", "~12.0 …")
    for at, shown in enumerate(marks):
        one = msgspec.structs.replace(row, is_assumed=at >= 2, is_quick=at % 2 == 1)
        assert shown in " ".join(drawn(one, 120).split())


@pytest.mark.parametrize("user", [0, 4, 30])
def test_beside_the_estimate_the_others_give_the_command_what_they_can_spare(user: int) -> None:
    columns = columns_for(74, 74, user=user)
    assert columns[-1].width > 32  # with the gap before it
    row = row_of(scenes.process(54321, 1234 * GIB // 10, "python x.py", user="annabell"), 141 * GIB)
    row = msgspec.structs.replace(row, predicted=4 * GIB, preset="p", fraction=34.25, is_assumed=True)
    values = row_strip(columns, row, PALETTE, 74, None).text.split()
    assert values[-5 - (not user) :] == ["123.4", *["141.0"][user:], "~4.0", "+3425", "%", "x.py"]


async def test_every_press_counts_and_the_last_is_drawn_by_itself() -> None:
    crowd = scenes.gpu(0, *(scenes.process(pid, 1 << 30, f"job {pid}") for pid in range(1000, 1200)))
    clock = Clock(scenes.START)
    async with dashboard([scenes.sample(crowd)], clock=clock) as (app, pilot):
        rows = app.screen.query_one(Rows)
        await pilot.press("home")
        clock.now += 0.01
        for _ in range(4):
            rows.action_move(1)
        await settle(app, pilot)
        assert rows.view.chosen is rows.view.rows[4]
        assert rows.view.chosen_at == 4
    clock = Clock(scenes.START)
    async with dashboard([scenes.usual()], clock=clock) as (app, pilot):
        rows = app.screen.query_one(Rows)
        await pilot.press("home")
        clock.now += 0.01
        await pilot.press("end")
        while rows.view is not None and rows.view.chosen is not rows.view.rows[-2]:  # the last is nobody's
            await pilot.pause(0.02)


@pytest.mark.parametrize(("rows", "shown"), [(5, True), (10, False)])
async def test_a_low_terminal_shows_the_memory_graph_if_its_processes_leave_room(rows: int, shown: bool) -> None:
    seen = [scenes.process(pid, GIB, "python x.py") for pid in range(100, 100 + rows)]
    async with dashboard([scenes.sample(scenes.gpu(0, *seen))], (80, 24)) as (app, _):
        assert ("─ Memory · pid " in screen_text(app)) is shown
        assert all(str(pid) in screen_text(app) for pid in range(100, 100 + rows))


@pytest.mark.parametrize("width", range(12, 40))
def test_a_line_never_begins_with_a_unit(width: int) -> None:
    words = "fits GPU 0: needs 58.8 GiB, has 79.0 GiB: 20.2 GiB spare, +24.1 % of it"
    lines = wrap(words, width)
    assert " ".join(lines) == words
    assert not any(line.startswith(("GiB", "%")) for line in lines)
    assert all(len(line) <= width for line in lines)


def test_a_selected_group_says_how_to_see_a_prediction() -> None:
    view = View(chosen=ProcessRow("group", ("group", "anna"), scenes.gpu(0), GIB))
    for each, words in ((view, "Enter opens it"), (View(), "Press p to choose one")):
        assert words in " ".join(line.text.strip() for line in EstimatePanel().build(each, PALETTE, 48, 9))
