import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from tests.sources.conftest import OTHER, Stage
from tests.stub import world
from tests.stub.build import LIBRARY, build
from tests.tables import rows
from vramtui.core.base.errors import SourceFailed
from vramtui.core.observation.readings import Absence, Gpu, Memory, Sample, decode_sample, encode_sample
from vramtui.sources.nvml.source import NvmlSource

ME = os.getpid()
IDENTITY = {"compute_capability", "name", "pci_bus_id", "uuid"}
NEED_TWO_LOOKS = {"nvlink_sent", "nvlink_received", "pcie_sent", "pcie_received"}  # not known at the first look


def broken(row: dict[str, Any]) -> world.StubGpu:
    """Card 1 as the others have it, with the fault of a row of the table."""
    gpu = world.StubGpu(
        used=704 * world.MIB,
        utilization=11,
        processes=[world.StubProcess(ME, 500 * world.MIB), world.StubProcess(OTHER, 200 * world.MIB)],
    )
    gpu.fail(row.get("code", 0), *row.get("calls", ()))
    for name, value in row.get("put", {}).items():
        setattr(gpu, name, value)
    gpu.processes[0].used = row.get("first_used", gpu.processes[0].used)
    return gpu


def difference(gpu: Gpu, healthy: Gpu) -> dict[str, Any]:
    changed: dict[str, Any] = {}
    for name in set(gpu.__struct_fields__) - NEED_TWO_LOOKS:
        mine, other = getattr(gpu, name), getattr(healthy, name)
        if name == "processes":
            mine, other = ({row.pid: row.used_memory for row in rows} for rows in (mine, other))
            mine = {{ME: "me", OTHER: "other"}[pid]: used for pid, used in mine.items()}
            other = {{ME: "me", OTHER: "other"}[pid]: used for pid, used in other.items()}
        elif name == "absent":
            mine = {key: why for key, why in mine.items() if key not in NEED_TWO_LOOKS and other.get(key) != why}
            other = {}
        elif name == "memory":
            mine, other = msgspec.to_builtins(mine), msgspec.to_builtins(other)
            if mine["unified"]:  # free is what the host can give
                assert 0 < mine["free"] < psutil.virtual_memory().total
                mine["free"] = "the host's"
        if mine != other:
            changed[name] = plain(mine)
    return changed


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    return "none" if value is None else msgspec.to_builtins(value)


CASES: list[dict[str, Any]] = rows(__file__, "case")
# What never changes is asked once, so these can be there from the start only.
PASSING = [row for row in CASES if row["name"] not in ("no bus id", "no name", "no handle")]


@pytest.fixture
def busy(stage: Stage) -> Stage:
    for index in range(3):
        stage.hold(index, world.StubProcess(ME, 500 * world.MIB), world.StubProcess(OTHER, 200 * world.MIB))
    return stage


def others_go_on(busy: Stage) -> Sample:
    for index in (0, 2):
        busy.world.gpus[index].used += world.MIB
    sample = busy.tick()
    for index in (0, 2):
        gpu = sample.gpus[index]
        assert gpu.memory.used == busy.world.gpus[index].used
        assert (gpu.state, gpu.reason, len(gpu.processes), gpu.utilization) == ("ok", "", 2, 10 + index)
    assert ([gpu.index for gpu in sample.gpus], decode_sample(encode_sample(sample))) == ([0, 1, 2], sample)
    return sample


def check(row: dict[str, Any], sample: Sample, healthy: Gpu) -> None:
    assert difference(sample.gpus[1], healthy) == row["seen"]
    sentences = [problem.message for problem in sample.problems if problem.where == "GPU 1"]
    assert any(row["problem"] in sentence for sentence in sentences) or not row["problem"], sentences
    assert all(sentence.endswith(".") for sentence in sentences), sentences


@pytest.mark.parametrize("row", CASES, ids=lambda row: str(row["name"]))
def test_a_fault_from_the_start(busy: Stage, row: dict[str, Any]) -> None:
    busy.world.gpus[1] = broken(row)
    samples = busy.tick(), others_go_on(busy)
    busy.source.close()
    busy.world.gpus[1], busy.source = broken({}), NvmlSource(monotonic=busy.clock, timeout=20.0)
    healthy = busy.tick().gpus[1]
    for sample in samples:
        check(row, sample, healthy)


@pytest.mark.parametrize("row", PASSING, ids=lambda row: str(row["name"]))
def test_a_fault_that_comes_and_goes(busy: Stage, row: dict[str, Any]) -> None:
    before, whole = busy.tick().gpus[1], busy.world.gpus[1]
    busy.world.gpus[1] = broken(row)
    others_go_on(busy)
    sample = busy.tick(10)  # what rarely changes has been asked for again by now
    seen = {name: value for name, value in row["seen"].items() if name not in IDENTITY}  # which is remembered
    check({**row, "seen": seen}, sample, before)
    assert (sample.gpus[1].uuid, sample.gpus[1].name) == (before.uuid, before.name)
    busy.world.gpus[1] = whole
    assert difference(busy.tick(10).gpus[1], before) == {}


def test_lost_from_the_start_or_cut_into_instances_has_a_row_of_its_own(busy: Stage) -> None:
    busy.world.gpus[0].lose()
    busy.world.gpus[1].lose()
    gpus = busy.tick().gpus
    assert ([gpu.state for gpu in gpus], len({gpu.uuid for gpu in gpus})) == (["lost", "lost", "ok"], 3)
    assert gpus[1].name == "GPU 1"
    card = busy.world.gpus[1]
    card.faults.clear()
    card.mig_mode, card.migs = 1, [world.StubMig("1g.18gb", "MIG-a", 1, 0, total=18000 * world.MIB)]
    assert len(busy.tick(10).gpus) == 4
    card.lose()
    assert [gpu.state for gpu in busy.tick().gpus] == ["lost", "lost", "ok"]


def test_a_card_that_is_not_listed_any_more(stage: Stage) -> None:
    cards = [world.StubGpu(uuid=f"GPU-{index}") for index in range(3)]
    stage.world.gpus = list(cards)
    assert [gpu.state for gpu in stage.tick().gpus] == ["ok", "ok", "ok"]
    stage.world.gpus = cards[:2]
    gone = stage.tick().gpus
    assert [(gpu.uuid, gpu.state) for gpu in gone] == [("GPU-0", "ok"), ("GPU-1", "ok"), ("GPU-2", "lost")]
    assert gone[2].reason == "the driver does not list it any more"
    stage.world.gpus = list(cards)
    assert [gpu.state for gpu in stage.tick().gpus] == ["ok", "ok", "ok"]
    stage.world.gpus = cards[::2]  # the driver counts anew, and no two have one number
    assert [(gpu.index, gpu.uuid) for gpu in stage.tick().gpus] == [(0, "GPU-0"), (1, "GPU-2"), (2, "GPU-1")]


def test_all_are_lost_and_the_count_with_them(stage: Stage) -> None:
    stage.tick()
    for gpu in stage.world.gpus:
        gpu.lose()
    stage.world.faults["nvmlDeviceGetCount"] = stage.world.faults["nvmlDeviceGetCount_v2"] = world.GPU_IS_LOST
    sample = stage.tick()
    assert {gpu.state for gpu in sample.gpus} == {"lost"}
    assert not any("DeviceGoneError" in problem.message for problem in sample.problems)
    for gpu in stage.world.gpus:
        gpu.faults.clear()
    stage.world.faults.clear()
    assert {gpu.state for gpu in stage.tick().gpus} == {"ok"}


@pytest.mark.parametrize(
    "call", ["nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetTemperature", "nvmlDeviceGetComputeRunningProcesses_v3"]
)
def test_a_call_that_hangs_holds_up_no_other_card(busy: Stage, call: str) -> None:
    busy.impatient()
    known = busy.tick().gpus[1]
    busy.world.gpus[1].hangs[call] = world.FOR_EVER
    for _ in range(3):
        gpu = others_go_on(busy).gpus[1]
        assert (gpu.state, gpu.uuid, gpu.name) == ("failed", known.uuid, known.name)
        assert "no answer for" in gpu.reason
        assert call.removesuffix("_v2") in gpu.reason
        assert gpu.memory == Memory()
        for field in ("memory", "processes", "utilization", "power_watts", "temperature_celsius"):
            assert gpu.absent[field] is Absence.NO_ANSWER
    busy.world.gpus[1].hangs.clear()
    while (gpu := busy.tick().gpus[1]).state != "ok":  # the stuck thread comes back in its own time
        pass
    assert gpu.memory == known.memory


def test_hanging_from_the_first_look_on_and_every_card(busy: Stage) -> None:
    busy.impatient()
    for gpu in busy.world.gpus:
        gpu.hangs["nvmlDeviceGetName"] = world.FOR_EVER
    for _ in range(2):
        sample = busy.tick()
        assert [gpu.state for gpu in sample.gpus] == ["failed"] * 3
    assert {problem.where for problem in sample.problems} == {"GPU 0", "GPU 1", "GPU 2"}


@pytest.mark.slow
def test_a_card_that_is_only_slow_is_waited_for(busy: Stage) -> None:
    busy.impatient()
    busy.tick()
    busy.world.gpus[1].hangs["nvmlDeviceGetTemperature"] = 1.5  # longer than the timeout
    while busy.tick().gpus[1].state != "ok":  # until it has come back once, late
        pass
    for _ in range(2):
        assert busy.tick().gpus[1].temperature_celsius == 30


def test_old_driver_without_the_newer_calls(make_stage: Callable[..., Stage]) -> None:
    old = make_stage("old")
    old.world.driver, old.world.cuda = "470.82.01", 11040
    old.hold(1, world.StubProcess(ME, 500 * world.MIB, "C"), world.StubProcess(OTHER, 20 * world.MIB, "G"))
    old.world.gpus[1].throttle = 0x4
    sample = old.tick()
    gpu = sample.gpus[1]
    assert (sample.host.driver_version, sample.host.cuda_version) == ("470.82.01", "11.4")
    assert {row.pid: (row.used_memory, row.type) for row in gpu.processes} == {
        ME: (500 * world.MIB, "C"),
        OTHER: (20 * world.MIB, "G"),
    }
    assert gpu.memory.reserved is None
    assert gpu.absent["memory.reserved"] is Absence.DRIVER_TOO_OLD
    assert gpu.memory.used == old.world.gpus[1].used + old.world.gpus[1].reserved
    assert gpu.throttle_reasons == ("power cap",)
    assert sample.problems == ()


@pytest.mark.parametrize(
    ("code", "words"), [(world.UNINITIALIZED, "reloaded"), (world.DRIVER_NOT_LOADED, "not loaded")]
)
def test_calls_that_miss_the_driver_while_it_can_be_opened_keep_the_names(busy: Stage, code: int, words: str) -> None:
    before = busy.tick()
    for gpu in busy.world.gpus:
        gpu.fail(code, world.EVERY_CALL)
    for _ in range(2):
        sample = busy.tick()
        assert [gpu.state for gpu in sample.gpus] == ["failed"] * 3
        assert words in sample.gpus[0].reason
        assert [(gpu.uuid, gpu.name) for gpu in sample.gpus] == [(gpu.uuid, gpu.name) for gpu in before.gpus]
    for gpu in busy.world.gpus:
        gpu.faults.clear()
    assert busy.tick().gpus == before.gpus


def test_a_former_name_is_not_kept_where_another_card_has_it(busy: Stage) -> None:
    """The driver may number its cards anew when it is loaded again."""
    names = [gpu.uuid for gpu in busy.tick().gpus]
    first, second, _ = busy.world.gpus
    first.uuid, second.uuid = names[1], names[0]
    first.fail(world.DRIVER_NOT_LOADED, world.EVERY_CALL)
    gone, here, *_ = busy.tick().gpus
    assert (here.state, here.uuid) == ("ok", names[0])
    assert (gone.state, gone.uuid, gone.name) == ("failed", "unknown-0", "GPU 0")


def test_driver_upgraded_while_running(busy: Stage) -> None:
    busy.tick()
    busy.world.init = world.MISMATCH
    for gpu in busy.world.gpus:
        gpu.fail(world.UNINITIALIZED, world.EVERY_CALL)
    with pytest.raises(SourceFailed, match="different versions") as caught:
        busy.tick()
    assert "Start this program again" in caught.value.hint
    busy.world.init = 0
    for gpu in busy.world.gpus:
        gpu.faults.clear()
    assert [gpu.state for gpu in busy.tick().gpus] == ["ok"] * 3


def test_the_count_fails(stage: Stage) -> None:
    stage.world.faults["nvmlDeviceGetCount_v2"] = world.INVALID_ARGUMENT
    with pytest.raises(SourceFailed, match="nvmlDeviceGetCount"):
        stage.tick()
    stage.world.faults.clear()
    assert len(stage.tick().gpus) == 3
    stage.world.faults["nvmlDeviceGetCount_v2"] = world.INVALID_ARGUMENT
    assert len(stage.tick(10).gpus) == 3  # those that are known go on


def run(code: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip


PICK = """
from vramtui.core.base.errors import SourceFailed
from vramtui.sources.pick import pick_source
try:
    source = pick_source()
    print(source.name, len(source.read().gpus))
except SourceFailed as error:
    print(error.message, "|", error.hint)
"""


def test_library_missing(tmp_path: Path) -> None:
    (tmp_path / LIBRARY).write_text("no library\n")  # found first, and cannot be loaded
    done = run(PICK, LD_LIBRARY_PATH=str(tmp_path), PATH=str(tmp_path))
    assert done.stdout.startswith(
        "nvmlInit: NVIDIA's library libnvidia-ml.so.1 was not found. nvidia-smi: no such file"
    )
    assert "Install the NVIDIA driver" in done.stdout
    assert done.stderr == ""


HANG = """
import threading
from vramtui.sources.nvml.source import NvmlSource
source = NvmlSource()
reader = threading.Thread(target=source.read, daemon=True)
reader.start()
reader.join(0.5)
print("hung" if reader.is_alive() else "came back")
source.close()
"""


@pytest.mark.parametrize(("call", "code", "printed"), [
    ("nvmlInitWithFlags", HANG, "hung"),
    ("nvmlDeviceGetCount_v2", HANG, "hung"),
    ("nvmlSystemGetDriverVersion", HANG, "hung"),
    ("nvmlInitWithFlags", "from vramtui.sources.pick import pick_source; print(pick_source().name)", "nvml"),
])  # fmt: skip
def test_a_hung_driver_lets_the_program_pick_and_end(stage: Stage, call: str, code: str, printed: str) -> None:
    stage.world.hangs[call] = world.FOR_EVER
    stage.world.write(stage.path)
    done = run(code, LD_LIBRARY_PATH=str(build()), VRAMTUI_STUB_STATE=str(stage.path))
    assert (done.stdout, done.returncode, done.stderr) == (f"{printed}\n", 0, "")


def test_found_through_the_library_path_and_a_hung_card_does_not_keep_the_program_from_ending(stage: Stage) -> None:
    stage.world.gpus[1].hangs["nvmlDeviceGetMemoryInfo_v2"] = world.FOR_EVER
    stage.world.write(stage.path)
    code = PICK + "print([gpu.state for gpu in source.read().gpus])"
    done = run(code, LD_LIBRARY_PATH=str(build()), VRAMTUI_STUB_STATE=str(stage.path))
    assert (done.stdout, done.returncode, done.stderr) == ("nvml 3\n['ok', 'failed', 'ok']\n", 0, "")
