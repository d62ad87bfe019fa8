import ctypes
import os
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from tests.sources.conftest import OTHER, Stage
from tests.stub.world import (
    FUNCTION_NOT_FOUND,
    GPU_IS_LOST,
    MIB,
    NO_PERMISSION,
    NOT_AVAILABLE,
    NOT_SUPPORTED,
    StubGpu,
    StubMig,
    StubProcess,
)
from vramtui.agent.nvml import HOST_TOTAL
from vramtui.core.base.units import LARGEST_SIZE
from vramtui.core.observation.bounded_samples import MOST_PROCESSES, is_possible
from vramtui.core.observation.history import History
from vramtui.core.observation.readings import METRICS, Absence, PcieTraffic, Sample, decode_sample, encode_sample
from vramtui.sources.nvidia_smi import parse_value
from vramtui.sources.nvml.calls import Caller
from vramtui.sources.nvml.device import CALL, BusyProcesses
from vramtui.sources.nvml.processes import accounting_modes


def adds_up(sample: Sample) -> bool:
    for gpu in sample.gpus:
        memory, rest = gpu.memory, gpu.unattributed
        assert memory.total is not None
        assert rest is not None
        if memory.total != gpu.attributed + rest + (memory.reserved or 0) + (memory.free or 0):
            return False
    return True


def test_reads_everything_a_card_and_its_host_tell(stage: Stage) -> None:
    card = stage.world.gpus[1]
    card.name, card.uuid, card.bus = "NVIDIA H200 NVL", "GPU-abc", "00000000:1A:00.0"
    card.utilization, card.memory_utilization, card.fan, card.ecc = 97, 41, 30, 2
    card.throttle = 0x4 | 0x40 | 0x1
    sample = stage.tick()
    gpu, host = sample.gpus[1], sample.host
    assert (gpu.index, gpu.name, gpu.uuid, gpu.pci_bus_id) == (1, "NVIDIA H200 NVL", "GPU-abc", "00000000:1A:00.0")
    assert (gpu.utilization, gpu.memory_utilization, gpu.fan_percent, gpu.ecc_errors) == (97, 41, 30, 2)
    assert (gpu.power_watts, gpu.power_limit_watts, gpu.temperature_celsius) == (76.0, 700.0, 30)
    assert (gpu.sm_clock_mhz, gpu.memory_clock_mhz) == (1980, 3201)
    assert (gpu.pcie_generation, gpu.pcie_width, gpu.compute_capability) == (5, 16, (9, 0))
    assert gpu.throttle_reasons == ("power cap", "hardware thermal slowdown")  # being idle is no throttling
    rates = ("nvlink_sent", "nvlink_received", "pcie_sent", "pcie_received")
    assert (gpu.state, gpu.absent) == ("ok", dict.fromkeys(rates, Absence.FIRST_LOOK))
    memory = gpu.memory
    assert (memory.total, memory.used, memory.reserved) == (card.total, card.used, card.reserved)
    assert (host.driver_version, host.cuda_version, host.name) == ("580.95.05", "13.0", os.uname().nodename)
    assert host.memory_total
    assert host.memory_available
    assert host.cpu_percent is None  # nothing to compare with yet
    assert stage.tick().host.cpu_percent is not None


def test_what_never_changes_is_asked_once_and_what_changes_is_followed(stage: Stage) -> None:
    assert len(stage.tick().gpus) == 3
    names, temperatures, memory = (
        stage.calls(f"nvmlDeviceGet{what}") for what in ("Name", "Temperature", "MemoryInfo_v2")
    )
    for _ in range(5):
        stage.tick(0.1)
    assert (stage.calls("nvmlDeviceGetName"), stage.calls("nvmlDeviceGetTemperature")) == (names, temperatures)
    assert stage.calls("nvmlDeviceGetMemoryInfo_v2") == memory + 15
    stage.world.gpus[2].used, stage.world.gpus[2].utilization = 5000 * MIB, 66
    gpu = stage.tick().gpus[2]
    assert (gpu.memory.used, gpu.utilization) == (5000 * MIB, 66)
    stage.world.gpus.append(stage.world.gpus[0])
    assert len(stage.tick(10).gpus) == 4


def test_a_total_that_is_the_hosts_is_memory_shared_with_it(stage: Stage) -> None:
    stage.world.gpus[0].total, stage.world.gpus[0].reserved = HOST_TOTAL, 0
    stage.hold(0, StubProcess(os.getpid(), 500 * MIB))
    memory = stage.tick().gpus[0].memory
    assert (memory.unified, memory.total, memory.used) == (True, None, 500 * MIB)
    assert 0 < (memory.free or 0) < HOST_TOTAL


def test_the_rows_of_processes_and_of_a_growing_list(stage: Stage) -> None:
    """Lists that overlap are one row with the larger value; a process on two cards is a row on each."""
    me = os.getpid()
    stage.hold(0, StubProcess(me, 300 * MIB, "C"), StubProcess(me, 310 * MIB, "G"), StubProcess(OTHER, 20 * MIB, "G"))
    stage.hold(1, StubProcess(me, NOT_AVAILABLE), StubProcess(OTHER, 0))
    stage.hold(2, StubProcess(me, 500 * MIB), StubProcess(me, 500 * MIB, "M+C"), StubProcess(OTHER, 7 * MIB, "M+C"))
    stage.world.gpus[0].used = 334 * MIB
    sample = stage.tick()
    first, second, third = ({row.pid: row for row in gpu.processes} for gpu in sample.gpus)
    assert {pid: (row.type, row.used_memory) for pid, row in first.items()} == {
        me: ("C+G", 310 * MIB),
        OTHER: ("G", 20 * MIB),
    }
    assert (second[me].used_memory, second[me].absent["used_memory"]) == (None, Absence.NOT_SUPPORTED)
    assert second[OTHER].used_memory == 0  # told, and nothing
    assert "used_memory" not in second[OTHER].absent
    assert (third[me].type, third[me].used_memory) == ("M+C", 500 * MIB)
    assert (third[OTHER].type, third[OTHER].used_memory) == ("M+C", 7 * MIB)  # a client of MPS, in its list only
    assert first[me].command == third[me].command
    assert adds_up(sample)
    assert sample.gpus[0].unattributed == 4 * MIB
    for count in (1, 100, 1000, 3, 0):
        stage.hold(1, *(StubProcess(2_000_000 + i, MIB) for i in range(count)))
        assert len(stage.tick().gpus[1].processes) == count


def cut_into_instances(stage: Stage) -> None:
    card = stage.world.gpus[1]
    card.mig_mode = 1
    card.used = 600 * MIB
    card.migs = [
        StubMig("3g.71gb", "MIG-a", 1, 0, total=70000 * MIB, used=400 * MIB, gpu_slices=3, compute_slices=3),
        StubMig("1g.18gb", "MIG-b", 5, 0, total=18000 * MIB, used=150 * MIB),
    ]
    card.processes = [StubProcess(os.getpid(), 390 * MIB, "C", 1, 0), StubProcess(OTHER, 140 * MIB, "C", 5, 0)]


def test_mig_instances_are_rows_and_no_byte_counts_twice(stage: Stage) -> None:
    cut_into_instances(stage)
    sample = stage.tick()
    card = sample.gpus[1]
    first, second = (gpu for gpu in sample.gpus if gpu.mig_parent == card.uuid)
    assert [gpu.index for gpu in sample.gpus] == [0, 1, 1, 1, 2]
    assert (first.uuid, first.mig_profile, first.name) == ("MIG-a", "3g.71gb", "NVIDIA H200 MIG 3g.71gb")
    assert (second.uuid, second.mig_profile, second.memory.total) == ("MIG-b", "1g.18gb", 18000 * MIB)
    assert [row.pid for row in first.processes] == [os.getpid()]
    assert [row.pid for row in second.processes] == [OTHER]
    assert card.processes == ()
    assert (card.mig_used, card.unattributed) == (550 * MIB, 50 * MIB)
    assert adds_up(sample)
    assert card.absent["utilization"] is Absence.NOT_SUPPORTED
    assert card.temperature_celsius == 30


def test_a_mig_layout_that_changes_is_seen_within_a_second(stage: Stage) -> None:
    cut_into_instances(stage)
    card = stage.world.gpus[1]
    assert len(stage.tick().gpus) == 5
    card.migs = [StubMig("7g.141gb", "MIG-c", 0, 0, total=141000 * MIB, used=400 * MIB)]
    card.processes = [StubProcess(os.getpid(), 390 * MIB, "C", 0, 0)]
    _, _, whole, _ = stage.tick(1).gpus
    assert (whole.uuid, whole.mig_profile, whole.memory.total) == ("MIG-c", "7g.141gb", 141000 * MIB)
    card.mig_mode, card.migs, card.processes = 0, [], [StubProcess(os.getpid(), 390 * MIB)]
    gpus = stage.tick(1).gpus
    assert [gpu.mig_parent for gpu in gpus] == [None, None, None]
    assert (gpus[1].mig_used, len(gpus[1].processes)) == (None, 1)
    card.mig_mode, card.migs = (
        1,
        [StubMig("1c.2g.35gb", f"MIG-{at}", 1, at, total=35000 * MIB, used=400 * MIB) for at in (0, 1)],
    )
    assert stage.tick(1).gpus[1].mig_used == 400 * MIB  # compute instances of one GPU instance share its memory


def test_no_card_at_all_is_said(stage: Stage) -> None:
    stage.world.gpus = []
    sample = stage.tick()
    assert sample.gpus == ()
    assert "no GPU" in sample.problems[0].message
    assert sample.problems[0].hint


@pytest.mark.parametrize("name", ["[red]x[/]", "a\x1b[2Jb", "\x1b]0;pwn\x07", "\u202eevil"])
def test_names_from_the_driver_are_made_safe(stage: Stage, name: str) -> None:
    stage.world.gpus[0].name = name
    assert stage.tick().gpus[0].name.isprintable()


SECONDS = 10.0


def test_traffic_is_bytes_a_second_between_two_looks(stage: Stage) -> None:
    card = stage.world.gpus[0]
    card.nvlink_sent, card.pcie_received, card.pcie_sent = 1 << 40, 5_000, 1 << 50
    first = stage.tick().gpus[0]
    assert (first.nvlink_sent, first.absent["nvlink_sent"]) == (None, Absence.FIRST_LOOK)
    card.nvlink_sent += 3 << 20  # KiB
    card.pcie_received += 70_000
    card.pcie_sent = 10
    gpu = stage.tick(SECONDS).gpus[0]
    assert (gpu.nvlink_sent, gpu.nvlink_received, gpu.pcie_received) == ((3 << 30) // 10, 0, 7_000)
    assert gpu.absent["pcie_sent"] is Absence.FIRST_LOOK  # a count that begins anew is no rate
    card.pcie_sent = 30
    gpu = stage.tick(SECONDS).gpus[0]
    assert (gpu.pcie_sent, gpu.pcie_received) == (2, 0)


def test_what_is_counted_in_32_bits_is_measured_where_somebody_asks(stage: Stage) -> None:
    card, other, _ = stage.world.gpus
    card.pcie_narrow, card.pcie_throughput, card.pcie_sent = 1, 3_000, 7
    stage.tick()
    gpus = stage.tick(SECONDS).gpus
    assert gpus[0].absent["pcie_sent"] is Absence.NOT_ASKED
    assert stage.calls("nvmlDeviceGetPcieThroughput") == 0
    assert stage.source.measure_traffic(gpus[0].uuid) == PcieTraffic(sent=3_000_000, received=6_000_000)
    assert stage.source.measure_traffic(gpus[1].uuid) is Absence.NOT_SUPPORTED
    other.lose()
    stage.world.write(stage.path)
    assert stage.source.measure_traffic(gpus[1].uuid) is Absence.LOST
    assert stage.source.measure_traffic("GPU-of-nobody") is Absence.NO_ANSWER


def test_repairs_video_engines_and_a_driver_without_these_calls(stage: Stage) -> None:
    rows, pages, none = stage.world.gpus
    rows.remapped, rows.remap_pending = 3, 1
    rows.encoder, rows.decoder = 12, 34
    pages.remapped = pages.remap_pending = NOT_AVAILABLE
    pages.retired, pages.encoder = 5, None
    none.remapped = none.remap_pending = NOT_AVAILABLE
    none.fail(NOT_SUPPORTED, "nvmlDeviceRegisterEvents")
    seen = stage.tick().gpus
    assert [gpu.memory_repairs for gpu in seen] == [3, 5, None]  # rows or pages, whichever the card has
    assert [gpu.repair_pending for gpu in seen] == [True, None, None]
    assert seen[2].absent["memory_repairs"] is seen[2].absent["xid_errors"] is Absence.NOT_SUPPORTED
    assert (seen[0].encoder_utilization, seen[0].decoder_utilization) == (12, 34)
    assert seen[1].absent["encoder_utilization"] is Absence.NOT_SUPPORTED
    rows.fail(FUNCTION_NOT_FOUND, "nvmlDeviceGetFieldValues", "nvmlDeviceGetEncoderUtilization")
    gpu = stage.tick(SECONDS).gpus[0]
    assert gpu.state == "ok"
    assert gpu.absent["pcie_sent"] is gpu.absent["encoder_utilization"] is Absence.DRIVER_TOO_OLD


def test_errors_since_it_looks_stay_when_the_card_is_lost(stage: Stage) -> None:
    card = stage.world.gpus[0]
    card.xids = [13]  # before anybody looked
    assert stage.tick().gpus[0].xid_errors == ()
    card.xids = [13, 31, 79]
    seen = stage.tick(SECONDS).gpus[0].xid_errors
    assert seen is not None
    assert [error.code for error in seen] == [31, 79]
    card.lose()
    assert stage.tick(SECONDS).gpus[0].state == "lost"
    card.faults.clear()
    assert stage.tick(SECONDS).gpus[0].xid_errors == seen


ONE, TWO = OTHER, OTHER - 1


@pytest.mark.parametrize(("accounting", "peak", "how"), [(1, 900 * MIB, "accounting"), (0, None, "sampled")])
def test_a_peak_between_two_looks_is_the_drivers(stage: Stage, accounting: int, peak: int | None, how: str) -> None:
    stage.hold(0, StubProcess(ONE, 100 * MIB))
    stage.world.gpus[0].accounting, stage.world.gpus[0].accounted = accounting, {ONE: 900 * MIB}
    before = stage.calls("nvmlDeviceGetAccountingStats")
    history, sample = History(), stage.tick()
    history.add(sample)
    assert sample.gpus[0].processes[0].peak_memory == peak
    assert stage.calls("nvmlDeviceGetAccountingStats") - before == accounting
    (track,) = history.tracks.values()
    assert (track.peak.bytes, track.peak.how) == (peak or 100 * MIB, how)


def test_the_last_word_comes_after_the_exit(stage: Stage) -> None:
    stage.hold(0, StubProcess(ONE, 100 * MIB), StubProcess(TWO, 50 * MIB))
    stage.world.gpus[0].accounting = 1
    stage.world.gpus[0].accounted = {ONE: 100 * MIB, TWO: 50 * MIB}
    history = History()
    history.add(stage.tick())
    stage.world.gpus[0].accounted[ONE] = 700 * MIB
    stage.hold(0, StubProcess(TWO, 50 * MIB))
    sample = stage.tick()
    assert sample.gpus[0].final_peaks == {ONE: 700 * MIB}
    history.add(sample)
    peaks = {track.process.pid: track.peak for track in history.tracks.values()}
    last = peaks[ONE]
    assert (last.bytes, last.how, stage.tick().gpus[0].final_peaks) == (700 * MIB, "accounting", {})


def test_a_driver_that_does_not_tell_is_asked_once_a_minute(stage: Stage) -> None:
    stage.hold(0, StubProcess(ONE, 100 * MIB))
    for gpu in stage.world.gpus:
        gpu.fail(NO_PERMISSION, "nvmlDeviceGetAccountingMode")
    before = stage.calls("nvmlDeviceGetAccountingMode")
    for _ in range(5):
        assert stage.tick().gpus[0].processes[0].peak_memory is None
    assert stage.calls("nvmlDeviceGetAccountingMode") == before + 3


def test_peaks_are_asked_for_every_few_seconds_and_for_whoever_arrives(stage: Stage) -> None:
    gpu = stage.world.gpus[0]
    gpu.accounting, gpu.accounted = 1, {ONE: 10 * MIB}
    stage.hold(0, StubProcess(ONE, 10 * MIB))
    stage.tick()
    before = stage.calls("nvmlDeviceGetAccountingStats")
    stage.tick()
    stage.tick()
    assert stage.calls("nvmlDeviceGetAccountingStats") == before
    gpu.accounted[TWO] = 30 * MIB
    stage.hold(0, StubProcess(ONE, 10 * MIB), StubProcess(TWO, 20 * MIB))
    rows = {process.pid: process.peak_memory for process in stage.tick().gpus[0].processes}
    assert (rows, stage.calls("nvmlDeviceGetAccountingStats")) == ({ONE: 10 * MIB, TWO: 30 * MIB}, before + 1)
    stage.tick(5.0)
    assert stage.calls("nvmlDeviceGetAccountingStats") == before + 3


def test_the_modes_of_all_cards(stage: Stage) -> None:
    stage.world.gpus[1].accounting = 1
    stage.world.gpus[2].fail(GPU_IS_LOST, "nvmlDeviceGetAccountingMode")
    stage.world.write(stage.path)
    assert accounting_modes() == {0: False, 1: True, 2: None}


HUGE = (1 << 63, (1 << 64) - 2, 1 << 60, (1 << 62) + 1)


@pytest.mark.parametrize("size", HUGE)
@pytest.mark.parametrize("total", [0, 80 << 30])
def test_a_process_of_a_size_that_nothing_has(stage: Stage, size: int, total: int) -> None:
    """On a card without a total there is nothing else to hold it to."""
    gpu = StubGpu(total=total, used=0, reserved=0)
    gpu.processes = [StubProcess(1000 + number, 500 * MIB) for number in range(4)] + [StubProcess(2000, size)]
    stage.world.gpus = [gpu, StubGpu()]
    sample = stage.tick()
    assert decode_sample(encode_sample(sample)) == sample
    held = {row.pid: row.used_memory for row in sample.gpus[0].processes}
    assert held == {1000: 500 * MIB, 1001: 500 * MIB, 1002: 500 * MIB, 1003: 500 * MIB, 2000: None}
    assert any("1 record of nvmlDeviceGetComputeRunningProcesses" in problem.message for problem in sample.problems)
    history = History()
    history.add(sample)
    assert len(history.tracks) == 5
    stage.world.gpus = [StubGpu(total=size, used=size, reserved=1)]  # nor has a card so much
    sample = stage.tick()
    assert (sample.gpus[0].memory.total, sample.gpus[0].memory.used) == (None, None)
    assert decode_sample(encode_sample(sample)) == sample


@pytest.mark.parametrize(("pid", "said"), [(1 << 30, "1 record"), (0, "impossible pid")])
def test_one_of_two_with_a_pid_that_nothing_has_hides_itself_alone(stage: Stage, pid: int, said: str) -> None:
    stage.world.gpus = [StubGpu(processes=[StubProcess(pid, 100 * MIB), StubProcess(1000, 500 * MIB)])]
    sample = stage.tick()
    assert {row.pid: row.used_memory for row in sample.gpus[0].processes} == {1000: 500 * MIB}
    assert sample.gpus[0].processes_trusted
    assert [problem.message for problem in sample.problems if said in problem.message]


@pytest.mark.parametrize(
    "metric", ["power", "power_limit", "temperature", "sm_clock", "fan", "pcie_generation", "pcie_width", "utilization"]
)
def test_a_metric_beyond_its_limit_is_a_failed_answer(stage: Stage, metric: str) -> None:
    changed: dict[str, Any] = {metric: 1 << 31}
    stage.world.gpus = [replace(StubGpu(), **changed)]
    gpu = stage.tick().gpus[0]
    assert Absence.FAILED in gpu.absent.values()
    assert all(is_possible(name, getattr(gpu, name)) for name in METRICS if getattr(gpu, name) is not None)


def test_what_nvidia_smi_prints_is_bounded_too() -> None:
    assert LARGEST_SIZE == (1 << 60) - 1  # what a recording can hold
    for text in (f"{1 << 44} MiB", "-5 MiB", str(1 << 70)):
        assert parse_value(text, "mib") == (None, Absence.FAILED)


Told = tuple[int, int, int]  # pid, time, percent


class _Driver:
    def __init__(self, told: list[Told], code: int = pynvml.NVML_SUCCESS) -> None:
        self.told, self.code, self.asked = told, code, list[int]()

    def __call__(self, _: object, out: Any, count: Any, since: ctypes.c_ulonglong) -> int:
        self.asked.append(since.value)
        if self.code or not self.told:
            return self.code
        asked = ctypes.cast(count, ctypes.POINTER(ctypes.c_uint)).contents
        room, asked.value = asked.value, len(self.told)
        if room < len(self.told):
            return int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
        records = [pynvml.c_nvmlProcessUtilizationSample_t(pid, at, sm) for pid, at, sm in self.told]
        ctypes.memmove(out, b"".join(map(bytes, records)), len(records) * ctypes.sizeof(records[0]))
        return int(pynvml.NVML_SUCCESS)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> _Driver:
    made = _Driver([(7, 100, 40)])
    monkeypatch.setattr(pynvml, "nvmlLib", SimpleNamespace(**{CALL: made}))
    return made


@pytest.mark.parametrize("code", [pynvml.NVML_SUCCESS, pynvml.NVML_ERROR_NOT_FOUND])
def test_idle_processes_are_idle_and_not_unknown(driver: _Driver, code: int) -> None:
    busy, caller = BusyProcesses(), Caller("GPU 0")
    busy.read(caller, None)
    driver.told, driver.code = [], code
    assert (busy.read(caller, None), caller.problems) == ({}, [])


def test_the_latest_sample_of_each_once_and_no_impossible_count(driver: _Driver) -> None:
    driver.told = [(7, 100, 40), (7, 200, 60), (8, 150, 5), (9, 150, 4_000_000), (0, 0, 0)]
    busy, caller = BusyProcesses(), Caller("GPU 0")
    assert (busy.read(caller, None), busy.read(caller, None)) == ({7: 60, 8: 5}, {})
    assert driver.asked == [0, 0, 200, 200]
    driver.asked.clear()
    driver.told = [(7, 100, 40)] * (MOST_PROCESSES + 1)
    assert BusyProcesses().read(caller, None) is None
    assert (len(driver.asked), [problem.where for problem in caller.problems]) == (1, ["GPU 0"])
    driver.code, busy = pynvml.NVML_ERROR_NOT_SUPPORTED, BusyProcesses()
    driver.asked.clear()
    assert ([busy.read(caller, None), busy.read(caller, None)], len(driver.asked)) == ([None, None], 1)
