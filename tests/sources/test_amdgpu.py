import os
import threading
import time
from pathlib import Path

import pytest

from tests.app.driver import screen_text, settle
from tests.app.fakes import PRESETS, FixedPresets, RoundEstimator
from tests.app.test_process_columns import PALETTE
from tests.examples import a_run
from vramtui.app.app import Dashboard
from vramtui.app.history.screen import ledger_lines
from vramtui.app.services import StartOptions
from vramtui.cli import doctor as checks
from vramtui.cli.doctor import Finding
from vramtui.core.base.errors import SourceFailed
from vramtui.core.estimate.estimate import Ledger
from vramtui.core.observation.readings import Absence, Sample, decode_sample, encode_sample
from vramtui.core.observation.snapshot import device_of
from vramtui.sources.amdgpu import AmdgpuSource
from vramtui.sources.demo import DemoSource
from vramtui.sources.pick import CANDIDATES, MergedSource, pick_source

GIB = 1 << 30


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


class Machine:
    def __init__(self, folder: Path) -> None:
        self.sys, self.proc = folder / "sys", folder / "proc"
        self.pid = os.getpid()
        for number, bus in ((0, "0000:03:00.0"), (2, "0000:83:00.0")):
            device = self.device(number)
            write(device / "vendor", "0x1002")
            write(device / "device", "0x74a1")
            write(device / "uevent", f"DRIVER=amdgpu\nPCI_SLOT_NAME={bus}")
            write(device / "mem_info_vram_total", str(192 * GIB))
            write(device / "mem_info_vram_used", str(20 * GIB))
        told = {"product_name": "Instinct MI300X", "unique_id": "0xabc", "gpu_busy_percent": "97"}
        hwmon = {"power1_average": "512300000", "temp1_input": "48000", "freq1_input": "2100000000"}
        for name, text in (told | {f"hwmon/hwmon4/{name}": text for name, text in hwmon.items()}).items():
            write(self.device(0) / name, text)
        write(self.device(1) / "vendor", "0x8086")
        (self.sys / "class/drm/card0-DP-1").mkdir()

    def device(self, number: int) -> Path:
        return self.sys / f"class/drm/card{number}/device"

    def holds(self, pid: int, number: int, text: str, target: str = "/dev/dri/renderD128") -> None:
        link = self.proc / str(pid) / "fd" / str(number)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)
        write(self.proc / str(pid) / "fdinfo" / str(number), text)

    def source(self) -> AmdgpuSource:
        self.proc.mkdir(exist_ok=True)
        return AmdgpuSource(self.sys, self.proc, clock=lambda: 5.0)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def client(number: int, size: str, bus: str = "0000:03:00.0", driver: str = "amdgpu") -> str:
    told = {"drm-driver": driver, "drm-client-id": number, "drm-pdev": bus, "drm-memory-vram": size}
    return "pos:\t0\n" + "".join(f"{name}:\t{value}\n" for name, value in told.items()) + "drm-memory-gtt:\t9 KiB"


def test_cards_with_what_their_driver_tells(machine: Machine) -> None:
    sample = machine.source().read()
    assert decode_sample(encode_sample(sample)) == sample
    first, second = sample.gpus
    assert (first.vendor, first.name) == ("AMD", "AMD Instinct MI300X")
    assert (first.uuid, first.pci_bus_id) == ("AMD-0xabc", "0000:03:00.0")
    assert (first.memory.total, first.memory.used, first.memory.free) == (192 * GIB, 20 * GIB, 172 * GIB)
    told = (first.utilization, first.power_watts, first.temperature_celsius, first.sm_clock_mhz)
    assert told == (97, 512.3, 48, 2100)
    assert (second.name, second.uuid, second.utilization) == ("AMD GPU 0x74a1", "AMD-0000:83:00.0", None)
    assert second.absent["utilization"] == Absence.NOT_SUPPORTED
    assert sample.host.driver_version.startswith("amdgpu ")
    assert sample.host.cuda_version is None
    device = device_of(first)
    assert (device.total_memory, device.vendor) == (192 * GIB, "AMD")
    lines = ledger_lines(a_run(gpu_name=device.name, predicted=Ledger(context=GIB)), PALETTE, 80)
    assert "HIP context" in "".join(line.text for line in lines)


def test_processes_by_fdinfo_each_client_once(machine: Machine) -> None:
    pid = machine.pid
    machine.holds(pid, 5, client(1, "1048576 KiB"))
    machine.holds(pid, 6, client(1, "1048576 KiB"))  # the same client through another descriptor
    machine.holds(pid, 7, client(2, "512 MiB"))
    machine.holds(pid, 8, client(3, "2 KiB", bus="0000:83:00.0"))
    machine.holds(pid, 9, client(4, "9 MiB", driver="i915"))
    machine.holds(pid, 10, client(5, "9 MiB"), target="/dev/null")
    first, second = machine.source().read().gpus
    (process,) = first.processes
    assert (process.pid, process.used_memory, process.state) == (pid, GIB + (512 << 20), "running")
    assert process.command
    assert [row.used_memory for row in second.processes] == [2048]


def test_what_rocm_holds_is_read_from_kfd_and_counted_once(machine: Machine) -> None:
    kfd = machine.sys / "class/kfd/kfd"
    write(kfd / "topology/nodes/0/gpu_id", "0")  # the processor
    write(kfd / "topology/nodes/0/properties", "cpu_cores_count 64")
    write(kfd / "topology/nodes/1/gpu_id", "4711")
    write(kfd / "topology/nodes/1/properties", f"simd_count 1216\nlocation_id {3 << 8}\ndomain 0")
    write(kfd / f"proc/{machine.pid}/vram_4711", str(7 * GIB))
    write(kfd / f"proc/{machine.pid}/vram_9", str(7 * GIB))
    machine.holds(machine.pid, 5, client(1, "1024 KiB"))
    first, second = machine.source().read().gpus
    assert ([row.used_memory for row in first.processes], first.unattributed) == ([7 * GIB], 13 * GIB)
    assert not second.processes


@pytest.mark.parametrize("text", ["", "x", "-5", "9" * 19, "5 parsecs"])
def test_figures_that_are_none(machine: Machine, text: str) -> None:
    write(machine.device(0) / "mem_info_vram_used", text)
    write(machine.device(0) / "gpu_busy_percent", text)
    machine.holds(machine.pid, 5, client(1, text))
    gpu = machine.source().read().gpus[0]
    assert (gpu.memory.used, gpu.absent["memory"], gpu.processes) == (None, Absence.FAILED, ())


def test_a_machine_without_such_a_card_says_what_it_did_before(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    with pytest.raises(SourceFailed):
        AmdgpuSource(tmp_path / "sys", tmp_path / "proc").read()
    with pytest.raises(SourceFailed) as failed:
        pick_source(CANDIDATES)
    assert "amd" not in failed.value.message.lower()


def test_cards_of_both_vendors_are_one_machines(machine: Machine) -> None:
    machine.holds(machine.pid, 5, client(1, "1048576 KiB"))
    demo = DemoSource(clock=lambda: 5.0)
    nvidia = demo.read().gpus
    source = MergedSource(demo, machine.source())
    sample = source.read()
    assert [gpu.index for gpu in sample.gpus] == list(range(len(nvidia) + 2))
    assert [gpu.vendor for gpu in sample.gpus] == ["NVIDIA"] * len(nvidia) + ["AMD"] * 2
    assert sample.gpus[len(nvidia)].processes[0].used_memory == GIB
    assert not source.look(sample.gpus[-1].uuid)
    for card in machine.sys.glob("class/drm/card?/device/vendor"):
        card.unlink()
    sample = source.read()
    assert [gpu.state for gpu in sample.gpus] == ["ok"] * len(nvidia) + ["lost"] * 2
    assert sample.gpus[-1].absent["memory"] == Absence.LOST
    assert sample.problems[-1].message == "amdgpu shows no card any more."
    source.close()


class Held(DemoSource):
    """Cards whose driver hangs while `opens` is not set, and breaks where it is `broken`."""

    def __init__(self) -> None:
        super().__init__(clock=lambda: 5.0)
        self.opens = threading.Event()
        self.opens.set()
        self.broken = False

    def read(self, before: float = 0.0) -> Sample:
        self.opens.wait()
        if self.broken:
            raise ZeroDivisionError
        return super().read(before)


def test_a_driver_that_hangs_holds_up_no_card_of_the_other_vendor(machine: Machine) -> None:
    nvidia = Held()
    source = MergedSource(nvidia, machine.source(), timeout=0.8)
    before = source.read()
    cards = len(before.gpus) - 2
    nvidia.opens.clear()
    for _ in range(2):
        began = time.monotonic()
        sample = source.read()
        assert time.monotonic() - began < 5.0
        assert [gpu.uuid for gpu in sample.gpus] == [gpu.uuid for gpu in before.gpus]
        assert [gpu.index for gpu in sample.gpus] == [gpu.index for gpu in before.gpus]
        assert {gpu.state for gpu in sample.gpus[:cards]} == {"failed"}
        assert {gpu.memory.used for gpu in sample.gpus[:cards]} == {None}
        assert sample.gpus[0].reason.startswith("demo: no answer for ")
        assert (sample.gpus[cards:], sample.problems[0].where) == (before.gpus[cards:], "demo")
        assert sample.host.cuda_version == before.host.cuda_version
    nvidia.opens.set()
    for _ in range(100):
        if source.read().gpus[0].state == "ok":
            break
        time.sleep(0.02)
    assert source.read().gpus == before.gpus
    nvidia.broken = True
    sample = source.read()
    assert (sample.gpus[0].state, sample.gpus[-1].state) == ("failed", "ok")
    assert "ZeroDivisionError" in sample.gpus[0].reason
    source.close()


def integrate(machine: Machine, number: int, total: int) -> None:
    write(machine.device(number) / "hwmon/hwmon9/in1_label", "vddnb")
    write(machine.device(number) / "mem_info_vram_total", str(total))


def test_a_processors_graphics_are_no_card_beside_one(machine: Machine) -> None:
    integrate(machine, 2, 512 << 20)
    assert [gpu.name for gpu in machine.source().read().gpus] == ["AMD Instinct MI300X"]
    integrate(machine, 2, 96 * GIB)  # set by hand, to compute there
    assert len(machine.source().read().gpus) == 2
    for number in (0, 2):
        integrate(machine, number, 2 * GIB)
    assert len(machine.source().read().gpus) == 2  # nothing else is there to be shown
    with pytest.raises(SourceFailed):
        AmdgpuSource(machine.sys, machine.proc, stands_beside=True).read()


def test_the_doctor_asks_no_nvidia_driver_about_amd(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "SYS", machine.sys)
    monkeypatch.setattr(checks, "DEVICES", machine.proc)
    asked = checks.of_nvidia("nvml", lambda: Finding(check="nvml", verdict="failed", message="no library"))
    found = checks.amdgpu()
    assert (found.verdict, "2 GPUs (AMD " in found.message, "as CUDA's" in found.message) == ("ok", True, True)
    assert asked().verdict == "failed"
    for number, vendor in enumerate(("0x1002", "0x10de")):
        write(machine.sys / f"bus/pci/devices/{number}/class", "0x038000")
        write(machine.sys / f"bus/pci/devices/{number}/vendor", vendor)
        assert asked().verdict == ("unknown", "failed")[number]


async def test_the_estimate_panel_says_which_constants_are_cudas(machine: Machine) -> None:
    machine.holds(machine.pid, 5, client(1, "1048576 KiB"))
    app = Dashboard(machine.source(), FixedPresets(), start=StartOptions(estimator=RoundEstimator(), preset=PRESETS[0]))
    async with app.run_test(size=(160, 45)) as pilot:
        for _ in range(100):
            await settle(app, pilot)
            app.draw()
            if "AMD Instinct" in screen_text(app) and "CUDA's; on AMD they differ" in screen_text(app):
                break
            await pilot.pause(0.05)
        assert "AMD Instinct MI300X" in screen_text(app)
        assert "kernels are estimated as " in screen_text(app)
        assert "HIP context" in screen_text(app)
        assert "CUDA context" not in screen_text(app)
        app.stop_reading()
