"""This machine's GPUs through NVIDIA's management library."""

import threading
import time
from collections.abc import Callable, Mapping

import pynvml
from msgspec.structs import replace

from vramtui.core.base.errors import SourceFailed
from vramtui.core.base.text import printable
from vramtui.core.base.units import LARGEST_SIZE
from vramtui.core.observation.bounded_samples import MOST_DEVICES, is_possible
from vramtui.core.observation.readings import Absence, Gpu, PcieTraffic, Problem, Sample
from vramtui.sources.host.deadline_worker import DeadlineWorker, Stuck
from vramtui.sources.host.host import HostReader, PidNamespace
from vramtui.sources.host.processes import ProcessReader
from vramtui.sources.nvml.calls import Caller, Device, DeviceGoneError, DriverGoneError, initialise
from vramtui.sources.nvml.device import (
    METRICS_EVERY,
    CardReader,
    CardReading,
    DeviceReading,
    RemovedCards,
    without_former_names,
)
from vramtui.sources.nvml.processes import ProcessLists, ProcessUse

GRAPHICS_EVERY = 10  # looks, while nothing draws on the device
LATEST_CUDA = 1_000_000  # 13000 is CUDA 13.0
TIMEOUT = 0.7  # seconds for one card; less than the usual interval, so that a hung card does not hold up the others


class _SampledDevice:
    """One device, and its last lists: they are gone through again only if they changed."""

    def __init__(self, device: Device) -> None:
        self._device, self._lists, self._looks = device, ProcessLists(), 0
        self._uses: Mapping[int, ProcessUse] = {}
        self._used: dict[int, int] = {}

    def look(self, caller: Caller, total: int | None) -> Mapping[int, int]:
        """Return bytes by pid. Graphics are read seldom, as processes that draw are in the compute list as well."""
        listing = self._lists.read(caller, self._device, total, graphics_too=self._looks % GRAPHICS_EVERY == 0)
        self._looks += 1
        if not listing.trusted:
            return {}
        if listing.uses is not self._uses:
            self._uses = listing.uses
            self._used = {pid: use.used for pid, use in listing.uses.items() if use.used is not None}
        return self._used


class NvmlSource:
    """Every card and MIG instance with its processes. A card that hangs (for `timeout` seconds) or is lost keeps its
    row; the others go on.
    """

    name = "nvml"

    def __init__(
        self,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        timeout: float = TIMEOUT,
    ) -> None:
        self._clock = clock
        self._monotonic = monotonic
        self._worker: DeadlineWorker[CardReading] = DeadlineWorker(timeout)
        self._host = HostReader()
        self._namespace = PidNamespace()
        self._numbers: Mapping[int, int] = {}
        self._processes = ProcessReader(monotonic, self._namespace)
        self._close_caller = Caller("close look")  # of another thread, which has its own handles and buffers
        self._sampled: dict[str, _SampledDevice] = {}
        self._totals: dict[str, int | None] = {}
        self._system = Caller("driver")
        self._removed = RemovedCards()
        self._cards: list[CardReader] = []
        self._versions: tuple[str | None, str | None] = (None, None)
        self._opening = threading.Lock()
        self._ready = False
        self._worked = False
        self._has_read = False
        self._next_count = float("-inf")

    def shorten_first_read(self) -> None:
        self._processes.shorten_first_read()

    def leave_torch(self) -> None:
        """Do not look for the PyTorch of processes, which takes longest of all: who needs it of a few looks itself."""
        self._processes.asks_torch = False

    def open(self) -> None:
        """Begin to talk to the driver; `read` does so by itself; raises SourceFailed if NVML cannot be initialised."""
        with self._opening:
            if self._ready:
                return
            initialise(again=self._worked)
            self._worked = True
            self._next_count = float("-inf")
            self._cards = [CardReader(card.index, self._monotonic, card) for card in self._cards]
            try:
                driver, _ = self._system.ask("nvmlSystemGetDriverVersion")
                cuda, _ = self._system.ask_first(
                    ("nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetCudaDriverVersion")
                )
            except (DriverGoneError, DeviceGoneError):
                driver = cuda = None
            version = f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda and 0 < cuda < LATEST_CUDA else None
            self._versions = (printable(driver) if driver else None, version)
            self._ready = True

    def read(self) -> Sample:
        """Return a sample of all cards. Raises SourceFailed if NVML cannot be initialised, or does not report how many
        GPUs there are.
        """
        self._system.problems = []
        self.open()
        seen = self._look()
        if any(isinstance(card, CardReading) and card.driver_gone for card in seen.values()):
            self._ready = False  # the driver was reloaded under us: begin again, and only once
            self.open()
            seen = self._look()
        problems = list(self._system.problems)
        devices: list[DeviceReading] = []
        for card in self._cards:
            now = seen[card.index]
            if isinstance(now, Stuck):
                reason = f"no answer for {max(0.0, time.monotonic() - now.since):.0f} s (in {card.caller.call})"
                problems.append(Problem(where=f"GPU {card.index}", message=f"{reason}."))
                devices.append(card.gone(reason, Absence.NO_ANSWER))
                continue
            problems += now.problems
            devices += [card.gone(now.driver_gone, Absence.NO_ANSWER)] if now.driver_gone else now.parts
        parts = without_former_names(devices)
        parts += self._removed.rows([part.gpu for part in parts])
        self._totals = {part.gpu.uuid: part.gpu.memory.total for part in parts if part.gpu.state == "ok"}
        listed: dict[int, int] = {}  # bytes, in the order of the cards; there may be thousands
        for part in parts:
            listed.update((pid, use.used or 0) for pid, use in part.listing.uses.items())
        self._numbers = self._namespace.numbers(listed)
        if self._numbers:
            for part in parts:
                part.listing = part.listing.under(self._numbers)
            listed = {self._numbers.get(pid, pid): used for pid, used in listed.items()}
        # The first time in the order of the screen, as those that come first are named first.
        self._processes.update(listed if self._has_read else sorted(listed, key=lambda pid: -listed[pid]))
        self._has_read = True
        host = self._host.read(*self._versions)
        if not self._cards:
            hint = "In a container, start it with --gpus all; see also NVIDIA_VISIBLE_DEVICES."
            problems.append(Problem(where="driver", message="nvmlDeviceGetCount: the driver lists no GPU.", hint=hint))
        return Sample(
            taken_at=self._clock(),
            source=self.name,
            host=host,
            gpus=tuple(self._finish(part, problems, host.memory_available) for part in parts),
            problems=tuple(problems),
        )

    def look(self, gpu_uuid: str) -> Mapping[int, int]:
        """Return bytes by pid on one device that the last `read` found in order; empty for another, or if it does not
        answer: `read` reports what is wrong.
        """
        totals = self._totals
        if gpu_uuid not in totals:
            return {}
        try:
            watched = self._sampled.get(gpu_uuid)
            if watched is None:
                device, _ = self._close_caller.ask("nvmlDeviceGetHandleByUUID", gpu_uuid)
                if device is None:
                    return {}
                watched = self._sampled[gpu_uuid] = _SampledDevice(device)
            sizes, numbers = watched.look(self._close_caller, totals[gpu_uuid]), self._numbers
            return {numbers.get(pid, pid): size for pid, size in sizes.items()} if numbers else sizes
        except (DeviceGoneError, DriverGoneError):
            self._sampled.clear()
            return {}
        finally:
            self._close_caller.problems.clear()

    def measure_traffic(self, gpu_uuid: str) -> PcieTraffic | Absence:
        """Return PCIe traffic, which the driver measures over 20 ms for each direction, or why it is not known.

        Drivers count these bytes in 32 bits (an H200's, 580.159), which wrap several times between two looks at a busy
        card: there is no other way to know.
        """
        caller = Caller("traffic")
        rates = []
        try:
            device, absence = caller.ask("nvmlDeviceGetHandleByUUID", gpu_uuid)
            for counter in (pynvml.NVML_PCIE_UTIL_TX_BYTES, pynvml.NVML_PCIE_UTIL_RX_BYTES):
                if absence is None:
                    rate, absence = caller.ask("nvmlDeviceGetPcieThroughput", device, counter)
                    rates.append(1000 * (rate or 0))  # in KB a second
        except (DeviceGoneError, DriverGoneError):
            return Absence.LOST
        if absence is not None:
            return absence
        return PcieTraffic(*rates) if all(is_possible("pcie_sent", rate) for rate in rates) else Absence.FAILED

    def close(self) -> None:
        """Let the worker go. NVML is not shut down: that could block, or free what a stuck call still uses."""
        self._worker.close()

    def _look(self) -> dict[int, CardReading | Stuck]:
        now = self._monotonic()
        if now >= self._next_count:
            self._count()
            self._next_count = now + METRICS_EVERY
        return self._worker.run({card.index: card.read for card in self._cards})

    def _count(self) -> None:
        try:
            count, absence = self._system.ask("nvmlDeviceGetCount")
        except DriverGoneError as error:
            self._ready = False
            raise SourceFailed(f"{error}.", "It is asked again at every tick.") from error
        except DeviceGoneError as error:
            # All are lost, and each of them says so when it is asked.
            if not self._cards:
                raise SourceFailed(f"{error}.", "It is asked again at every tick.") from error
            self._system.problems.append(Problem(where="driver", message=f"{error}."))
            return
        if absence is None and not 0 <= count <= MOST_DEVICES:
            absence = Absence.FAILED
            message = f"nvmlDeviceGetCount: impossible number of GPUs: {count}."
            self._system.problems.append(Problem(where="driver", message=message))
        if absence is not None:
            self._ready = bool(self._cards)
            if not self._cards:
                reason = absence.value.replace("_", " ")
                raise SourceFailed(f"nvmlDeviceGetCount: {reason}.", "See `nvidia-smi` for what the driver says.")
        elif count != len(self._cards):
            # Another card than before may be behind each index.
            self._cards = [CardReader(index, self._monotonic) for index in range(count)]

    def _finish(self, part: DeviceReading, problems: list[Problem], available: int | None) -> Gpu:
        """Return the card or instance with its processes; the host has `available` bytes of free memory."""
        gpu, listing = part.gpu, part.listing
        rows = self._processes.columns(listing.uses, listing.busy, listing.peaks)
        message, hint = "", ""
        driver = self._versions[0] or "of unknown version"
        if not listing.trusted:
            message = f"The process list is not trusted on driver {driver}: it holds impossible pids or sizes."
            hint = "The device's own totals are right. Another driver version mends this."
        elif listing.note:
            message = f"Driver {driver}: {listing.note}."
        elif listing.absent is not None and gpu.state == "ok":
            message = f"The driver does not tell which processes it has: {listing.absent.value.replace('_', ' ')}."
        if message:
            problems.append(Problem(where=f"GPU {gpu.index}", message=message, hint=hint))
        if listing.final_peaks:
            gpu = replace(gpu, final_peaks=listing.final_peaks)
        if not rows and not listing.withheld and listing.trusted and not gpu.memory.unified:
            return gpu
        memory, absent = gpu.memory, gpu.absent
        if memory.unified:
            # It shares the host's memory: its processes' is used, the host's free is free, and there is no total,
            # as no device has what other programs hold of the host's memory.
            if available is not None:
                memory = replace(memory, free=available)
                absent = {name: why for name, why in absent.items() if name != "memory.free"}
            if listing.absent is not None:
                absent = {**absent, "memory.used": listing.absent}
            else:
                used = min(LARGEST_SIZE, sum(size or 0 for size in rows.sizes))
                memory = replace(memory, used=used)
        if listing.withheld:
            absent = {**absent, **listing.withheld}
        gpu = replace(gpu, memory=memory, processes=rows, processes_trusted=listing.trusted, absent=absent)
        gpu.held_by_user  # noqa: B018 - added up here, off the screen's thread and while the rows are in the cache
        return gpu
