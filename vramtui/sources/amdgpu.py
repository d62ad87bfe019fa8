"""GPUs and their processes as the amdgpu driver shows them under /sys and /proc; ROCm is not needed.

Files and units are those of the kernel's documentation: "GPU Power/Thermal Controls and Monitoring" and "GPU Memory
usage information" (Documentation/gpu/amdgpu), "DRM client usage stats" (drm-usage-stats.rst) for fdinfo, and the KFD's
`proc/PID/vram_GPU` (kernel 5.10 and newer) for compute. This was written from them; no such card was at hand.

The graphics unit inside a processor is left out if there is another GPU, unless the firmware has set aside much memory
for it. The driver gives such a unit a voltage called `vddnb`, and no card
(`hwmon_attributes_visible` in amdgpu_pm.c of Linux 6.12: "only APUs other than gc 9,4,3 have vddnb", so that the MI300A
counts as a card). PCI's class and `boot_vga` cannot tell it: they say which GPU draws the screen.
"""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from vramtui.agent.ancestors import read_file
from vramtui.core.base.errors import SourceFailed
from vramtui.core.base.text import printable
from vramtui.core.base.units import LARGEST_SIZE
from vramtui.core.observation.readings import METRICS, Absence, Gpu, Memory, Problem, Sample
from vramtui.sources.host.host import HostReader
from vramtui.sources.host.processes import ProcessReader

VENDOR = "0x1002"
MOST = 1 << 16  # characters of a file
# Bytes. Firmware sets aside 64 MiB to 2 GiB for a processor's graphics by itself; who computes there sets more by hand.
INTEGRATED_MEMORY = 4 << 30
# Metric, file, and divisor of its figure.
_FILES = (
    ("utilization", "gpu_busy_percent", 1),
    ("memory_utilization", "mem_busy_percent", 1),
    ("power_watts", "hwmon/power1_average", 1_000_000),
    ("power_watts", "hwmon/power1_input", 1_000_000),
    ("power_limit_watts", "hwmon/power1_cap", 1_000_000),
    ("temperature_celsius", "hwmon/temp1_input", 1000),
    ("sm_clock_mhz", "hwmon/freq1_input", 1_000_000),
    ("memory_clock_mhz", "hwmon/freq2_input", 1_000_000),
    ("pcie_width", "current_link_width", 1),
)
_WATTS = ("power_watts", "power_limit_watts")


class AmdgpuSource:
    """Every AMD card; `stands_beside` if they follow another vendor's."""

    name = "amdgpu"

    def __init__(
        self,
        sys: Path = Path("/sys"),
        proc: Path = Path("/proc"),
        clock: Callable[[], float] = time.time,
        *,
        stands_beside: bool = False,
    ) -> None:
        self._sys = sys
        self._stands_beside = stands_beside
        self._proc = proc
        self._processes = ProcessReader()
        self._clock = clock
        self._host = HostReader()

    def read(self) -> Sample:
        """Return a sample of all cards; raises SourceFailed if there is no AMD card."""
        cards = self.cards()
        if not cards:
            raise SourceFailed("")  # the sources before it have said what is missing
        vram, unseen = self._read_vram()
        self._processes.update({pid for pids in vram.values() for pid in pids})
        version = printable(_read(self._sys / "module/amdgpu/version") or os.uname().release)
        problems: tuple[Problem, ...] = ()
        if unseen:
            message = f"{unseen} processes of other users may not be looked at; only what KFD reports of them is shown."
            problems = (Problem(where="/proc", message=message, hint="root sees all."),)
        return Sample(
            taken_at=self._clock(),
            source=self.name,
            host=self._host.read(f"amdgpu {version}", None),
            gpus=tuple(self._gpu(at, card, vram) for at, card in enumerate(cards)),
            problems=problems,
        )

    def close(self) -> None:
        """Close; there is nothing to release."""

    def cards(self) -> list[Path]:
        """Return the devices that are shown, in the order of their numbers: a processor's graphics only if there is no
        other, or if it has much memory.
        """
        folders = [path for path in self._sys.glob("class/drm/card[0-9]*") if path.name[4:].isdigit()]
        every = (path / "device" for path in sorted(folders, key=lambda path: int(path.name[4:])))
        devices = [
            device
            for device in every
            if _read(device / "vendor") == VENDOR and (device / "mem_info_vram_total").exists()
        ]
        cards = []
        for device in devices:  # a processor's graphics has little memory, and its voltage
            total = _bytes(device / "mem_info_vram_total")
            small = total is not None and total < INTEGRATED_MEMORY
            if not (small and any(_read(path) == "vddnb" for path in device.glob("hwmon/hwmon*/in1_label"))):
                cards.append(device)
        return cards if cards or self._stands_beside else devices

    def _gpu(self, index: int, device: Path, vram: dict[str, dict[int, int]]) -> Gpu:
        event = dict(line.split("=", 1) for line in _read(device / "uevent").splitlines() if "=" in line)
        bus = printable(event.get("PCI_SLOT_NAME", ""))
        name = _read(device / "product_name") or f"GPU {_read(device / 'device')}"  # PCI's number if there is no name
        total, used = _bytes(device / "mem_info_vram_total"), _bytes(device / "mem_info_vram_used")
        known = _metrics(device)
        fields = {*known, "pci_bus_id"} if bus else set(known)
        # Its file is missing, or it has none.
        files = {name for name, _, _ in _FILES}
        absent = {
            name: Absence.NOT_SUPPORTED if name in files else Absence.NOT_ASKED
            for name in METRICS
            if name not in fields
        }
        if total is None or used is None:
            absent["memory"] = Absence.FAILED
        free = None if total is None or used is None else max(0, total - used)
        serial = _read(device / "unique_id")
        return Gpu(
            index=index,
            uuid=f"AMD-{serial}" if serial.strip("0x") else f"AMD-{bus}",
            name=printable(name if name.upper().startswith("AMD") else f"AMD {name}"),
            vendor="AMD",
            memory=Memory(total=total, used=used, free=free) if "memory" not in absent else Memory(),
            processes=tuple(
                self._processes.row(pid, bus, "C", size, None) for pid, size in sorted(vram.get(bus, {}).items())
            ),
            pci_bus_id=bus or None,
            absent=absent,
            **known,  # type: ignore[arg-type]  # each figure has its field's type, as _metrics has seen to
        )

    def _read_vram(self) -> tuple[dict[str, dict[int, int]], int]:
        """Return bytes of VRAM by card address and pid, and the number of pids that may not be looked at."""
        vram: dict[str, dict[int, int]] = {}
        unseen = 0
        for folder in self._proc.iterdir():
            if not folder.name.isdigit():
                continue
            try:
                clients = dict(_clients(folder))
            except PermissionError:
                unseen += 1
                continue
            except OSError:
                continue  # it ended between the two looks
            for (bus, _), size in clients.items():
                pids = vram.setdefault(bus, {})
                pids[int(folder.name)] = pids.get(int(folder.name), 0) + size
        # What ROCm holds, which every user may read: by card address and pid.
        kfd = self._sys / "class/kfd/kfd"
        buses = {}
        for node in kfd.glob("topology/nodes/*"):
            fields = dict(line.split(" ", 1) for line in _read(node / "properties").splitlines() if " " in line)
            number = _read(node / "gpu_id")
            location, domain = _number(fields.get("location_id", "")), _number(fields.get("domain", "0"))
            if number not in ("", "0") and location is not None:
                # location_id is bus << 8 | device << 3 | function (kfd_topology.c)
                place = f"{domain or 0:04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}.{location & 7}"
                buses[number] = place
        for file in kfd.glob("proc/[0-9]*/vram_*"):
            address, in_rocm = buses.get(file.name.removeprefix("vram_")), _bytes(file)
            if address is not None and in_rocm and file.parent.name.isdigit():
                # These count what a process holds through ROCm, which newer kernels' fdinfo has as well.
                pids, pid = vram.setdefault(address, {}), int(file.parent.name)
                pids[pid] = max(in_rocm, pids.get(pid, 0))
        return {bus: {pid: size for pid, size in pids.items() if size} for bus, pids in vram.items()}, unseen


def _clients(folder: Path) -> Iterator[tuple[tuple[str, str], int]]:
    """Yield card address and client number, once each, with the client's bytes of VRAM. Raises OSError if the process's
    files may not be read, or it has ended.
    """
    for file in os.scandir(folder / "fd"):
        try:
            if not os.readlink(file.path).startswith("/dev/dri/"):  # noqa: PTH115 - thousands of them at each look
                continue
        except OSError:
            continue
        text = _read(folder / "fdinfo" / file.name)
        fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}
        if fields.get("drm-driver") == "amdgpu":
            text = fields.get("drm-memory-vram") or fields.get("drm-resident-vram") or ""
            figure, _, unit = text.partition(" ")  # `1024 KiB`; without a unit bytes (drm-usage-stats.rst)
            size = (_number(figure) or 0) * {"": 1, "KiB": 1 << 10, "MiB": 1 << 20}.get(unit.strip(), 0)
            size = size if size <= LARGEST_SIZE else 0
            yield (fields.get("drm-pdev", ""), fields.get("drm-client-id", file.name)), size


def _metrics(device: Path) -> dict[str, float | int]:
    hwmon = next(iter(sorted(device.glob("hwmon/hwmon*"))), device / "hwmon/none")
    known: dict[str, float | int] = {}
    for field, name, divisor in _FILES:
        path = hwmon / name.removeprefix("hwmon/") if name.startswith("hwmon/") else device / name
        figure = _number(_read(path))
        if figure is not None and field not in known:
            known[field] = round(figure / divisor, 1) if field in _WATTS else figure // divisor
    return known


def _read(path: Path) -> str:
    """Return its text; empty if it is missing or fails, as a sleeping card's files do."""
    return read_file(str(path), MOST).decode("utf-8", "replace").strip()


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def _bytes(path: Path) -> int | None:
    size = _number(_read(path))
    return size if size is not None and size <= LARGEST_SIZE else None


def open_here(_: Problem | None = None, *, stands_beside: bool = False) -> AmdgpuSource:
    """Open this machine's AMD cards, in addition to another vendor's without a processor's own graphics. A missing
    NVIDIA library is normal on a machine with them. Raises SourceFailed without an AMD card.
    """
    source = AmdgpuSource(stands_beside=stands_beside)
    if not source.cards():
        raise SourceFailed("")
    return source


def open_beside() -> AmdgpuSource:
    return open_here(stands_beside=True)
