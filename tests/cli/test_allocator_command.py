"""`vramtui allocator`, as a person and as a program would call it."""

import gzip
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from vramtui.cli.allocator import PLOT_POINTS, PLOT_ROWS, thinned
from vramtui.cli.main import program
from vramtui.records.allocator_traces.memory_snapshot import read_allocator_trace

GOLDEN = Path(__file__).parents[1] / "golden"
TRACES = sorted((GOLDEN / "allocator").glob("*.json.gz"))
REAL = GOLDEN / "real" / "forward_memory_snapshot_150.json.gz"
MIB = 1 << 20


def _run(*arguments: object) -> Result:
    return CliRunner().invoke(program(), ["allocator", *map(str, arguments)])


def _json(*arguments: object, code: int = 0) -> Any:
    done = _run(*arguments, "--json")
    assert done.exit_code == code, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name)
def test_the_rows_are_those_recorded(path: Path) -> None:
    golden = json.loads(gzip.decompress(path.read_bytes()))
    document = _json(path, "--rows")
    assert document["schema"] == 1
    assert document["columns"] == golden["columns"]
    assert document["rows"] == golden["rows"]
    for name, value in document["recorded"].items():
        assert document["simulated"][name] == value
    assert document["simulated"]["ooms"] == sum(row[-1] for row in golden["rows"])
    assert document["simulated"]["peak_reserved"] == golden["rows"][-1][9]
    assert document["total_memory"] == golden["settings"]["total_memory"]


def test_rows_only_where_asked() -> None:
    assert not {"rows", "columns"} & _json(TRACES[0]).keys()
    done = _run(TRACES[0], "--rows")
    assert done.exit_code == 2
    assert done.stderr == "vramtui: --rows goes with --json\n"


def test_figures_told_beside_the_events() -> None:
    document = _json(REAL)
    assert document["recorded"]["peak_reserved"] == document["simulated"]["peak_reserved"] == 666_894_336
    assert document["recorded"]["ooms"] is None
    assert document["total_memory"] is None


def test_other_settings_side_by_side() -> None:
    split = next(path for path in TRACES if "split128" in path.name)
    settings = ("--alloc-conf", "expandable_segments:True", "--alloc-conf", "roundup_power2_divisions:4")
    document = _json(split, *settings)
    columns = [document["simulated"], *document["others"]]
    assert [column["alloc_conf"] for column in columns] == [
        "expandable_segments:True",
        "roundup_power2_divisions:4",
        "max_split_size_mb:128",
        "",
    ]
    assert columns[0]["segments"] == 0
    assert columns[0]["fragmentation"] < columns[2]["fragmentation"]
    assert columns[2]["peak_reserved"] == document["recorded"]["peak_reserved"]
    table = _run(split, *settings)
    assert table.exit_code == 0
    heading = table.stdout.splitlines()[0].split()
    assert heading == [
        "recorded",
        "default",
        "as",
        "recorded",
        "roundup_power2_divisions:4",
        "expandable_segments:True",
    ]
    assert "peak reserved" in table.stdout
    assert "803 events on 4.00 GiB" in table.stdout


def test_a_smaller_device_is_a_no() -> None:
    document = _json(REAL, "--memory", "600MiB", code=1)
    refusal = document["simulated"]["first_refusal"]
    assert document["simulated"]["ooms"] > 0
    assert refusal["free"] < refusal["segment_size"]
    assert refusal["reserved"] + refusal["free"] == 600 * MIB
    table = _run(REAL, "--memory", "600MiB")
    assert table.exit_code == 1
    assert f"default: event {refusal['event']}: out of memory: tried to allocate" in table.stdout


def test_refusals_that_were_recorded_are_no_news() -> None:
    huge = next(path for path in TRACES if "huge_24g" in path.name)
    assert _json(huge)["simulated"]["ooms"] == 36
    assert _json(huge, "--memory", "20GiB", code=1)["simulated"]["ooms"] > 36


def test_without_anything_recorded(tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    file.write_text('{"events": [{"op": "alloc", "id": 0, "size": 0}]}')
    document = _json(file)
    assert document["recorded"] is None
    assert document["simulated"]["peak_reserved"] == 0
    assert "recorded" not in _run(file).stdout


def test_a_snapshots_warnings_are_said(tmp_path: Path) -> None:
    segment = {"address": 0, "total_size": 2 * MIB, "blocks": [{"size": 512, "state": "active_allocated"}]}
    entries = [{"action": "alloc", "addr": 512, "size": 512, "stream": 0}]
    file = tmp_path / "s.pickle"
    file.write_bytes(pickle.dumps({"segments": [segment], "device_traces": [entries]}))
    done = _run(file)
    assert done.exit_code == 0
    assert "vramtui: the trace begins with 1 block (512 B) already live" in done.stderr
    document = _json(file)
    assert len(document["warnings"]) == 1
    assert document["simulated"]["peak_allocated"] == 1024


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--alloc-conf", "max_split_size:64"), "(did you mean max_split_size_mb?)"),
        (("--memory", "much"), "'much' is not a size"),
        (("--memory", "0"), "--memory 0 leaves nothing to allocate from"),
        (("--gpu", "1"), "--gpu is for memory snapshots"),
        (("--plot", "--json"), "--plot is for people"),
    ],
)
def test_bad_use_is_one_sentence(arguments: tuple[str, ...], sentence: str) -> None:
    done = _run(TRACES[0], *arguments)
    assert done.exit_code == 2
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_a_plot_over_milliseconds(tmp_path: Path) -> None:
    """Three blocks of 2 MiB, 10 and 90 ms apart, the first freed at the end; the clock is the snapshot's."""
    entries = [
        {"action": "segment_alloc", "addr": 0, "size": 20 * MIB, "time_us": 1_000_000},
        {"action": "alloc", "addr": 0, "size": 2 * MIB, "time_us": 1_000_100},
        {"action": "alloc", "addr": 2 * MIB, "size": 2 * MIB, "time_us": 1_010_100},
        {"action": "alloc", "addr": 4 * MIB, "size": 2 * MIB, "time_us": 1_100_100},
        {"action": "free_requested", "addr": 0, "size": 2 * MIB, "time_us": 1_200_100},
        {"action": "free_completed", "addr": 0, "size": 2 * MIB, "time_us": 1_200_100},
    ]
    blocks = [
        {"size": 2 * MIB, "state": "inactive"},
        {"size": 4 * MIB, "state": "active_allocated"},
        {"size": 14 * MIB, "state": "inactive"},
    ]
    file = tmp_path / "s.pickle"
    snapshot = {"segments": [{"address": 0, "total_size": 20 * MIB, "blocks": blocks}], "device_traces": [entries]}
    file.write_bytes(pickle.dumps(snapshot))
    assert read_allocator_trace(file).milliseconds == (0.0, 10.0, 100.0, 200.0, 200.0)
    done = _run(file, "--plot")
    assert done.exit_code == 0
    assert "default: allocated below reserved, MiB, over milliseconds" in done.stdout
    assert done.stdout.splitlines()[-1].split() == ["0", "40", "80", "120", "160", "200"]
    times = [entry.pop("time_us") for entry in entries]
    entries[0]["time_us"] = times[0]
    file.write_bytes(pickle.dumps(snapshot))
    assert read_allocator_trace(file).milliseconds is None
    assert "over events" in _run(file, "--plot").stdout


def test_a_plot_of_a_long_trace_keeps_its_peaks() -> None:
    values = [0] * 100_000
    values[54_321] = 7
    xs, ys = thinned(range(len(values)), values)
    assert len(xs) == len(ys) <= PLOT_POINTS
    assert max(ys) == 7
    assert xs == sorted(xs)
    assert (xs[0], xs[-1]) == (0, 99_999)
    assert _run(TRACES[0], "--plot").stdout.count("\n") > PLOT_ROWS
