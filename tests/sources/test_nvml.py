"""The NVML source over a host that is well."""

import os

import pytest

from tests.sources.conftest import OTHER, Stage
from tests.stub.world import MIB, NOT_AVAILABLE, StubMig, StubProcess
from vramtui.core.observation.readings import Absence, Sample


def adds_up(sample: Sample) -> bool:
    """Whether for every card total = processes and instances + unattributed + reserved + free."""
    for gpu in sample.gpus:
        memory, rest = gpu.memory, gpu.unattributed
        assert memory.total is not None
        assert rest is not None
        if memory.total != gpu.attributed + rest + (memory.reserved or 0) + (memory.free or 0):
            return False
    return True


def test_reads_everything_a_card_tells(stage: Stage) -> None:
    card = stage.world.gpus[1]
    card.name, card.uuid, card.bus = "NVIDIA H200 NVL", "GPU-abc", "00000000:1A:00.0"
    card.utilization, card.memory_utilization, card.fan, card.ecc = 97, 41, 30, 2
    card.throttle = 0x4 | 0x40 | 0x1
    gpu = stage.tick().gpus[1]
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


def test_reads_the_host(stage: Stage) -> None:
    host = stage.tick().host
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
    assert stage.calls("nvmlDeviceGetName") == names
    assert stage.calls("nvmlDeviceGetTemperature") == temperatures
    assert stage.calls("nvmlDeviceGetMemoryInfo_v2") == memory + 15
    stage.world.gpus[2].used, stage.world.gpus[2].utilization = 5000 * MIB, 66
    gpu = stage.tick().gpus[2]
    assert (gpu.memory.used, gpu.utilization) == (5000 * MIB, 66)
    stage.world.gpus.append(stage.world.gpus[0])
    assert len(stage.tick(10).gpus) == 4


def test_the_rows_of_processes(stage: Stage) -> None:
    """Lists that overlap are one row with the larger value; a process on two cards is a row on each."""
    me = os.getpid()
    stage.hold(0, StubProcess(me, 300 * MIB, "C"), StubProcess(me, 310 * MIB, "G"), StubProcess(OTHER, 20 * MIB, "G"))
    stage.hold(1, StubProcess(me, NOT_AVAILABLE), StubProcess(OTHER, 0))
    stage.hold(2, StubProcess(me, 500 * MIB))
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
    assert third[me].used_memory == 500 * MIB
    assert first[me].command == third[me].command
    assert adds_up(sample)
    assert sample.gpus[0].unattributed == 4 * MIB


def test_many_processes_and_a_growing_list(stage: Stage) -> None:
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
    card.processes = [
        StubProcess(os.getpid(), 390 * MIB, "C", 1, 0),
        StubProcess(OTHER, 140 * MIB, "C", 5, 0),
    ]


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
