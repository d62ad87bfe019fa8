"""One card (and its MIG instances) as NVML reports it, from tick to tick."""

import ctypes
import struct
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final

import msgspec
import pynvml

from vramtui.agent.counters import METRICS as COUNTED
from vramtui.agent.counters import CardCounters
from vramtui.agent.nvml import HOST_TOTAL, possible_sizes
from vramtui.agent.stream import NUMBERS, PROFILE, THROTTLING, THROTTLING_CALLS
from vramtui.core.base.text import printable
from vramtui.core.base.units import MIB
from vramtui.core.observation.bounded_samples import MOST_DEVICES, MOST_PROCESSES, is_possible
from vramtui.core.observation.readings import Absence, Gpu, Memory, Problem, XidError
from vramtui.sources.nvml.calls import Absences, Caller, Device, DeviceGoneError, DriverGoneError, Fields
from vramtui.sources.nvml.processes import Accounts, ProcessList, ProcessLists

CALL = "nvmlDeviceGetProcessUtilization"
# Nothing has run since the last samples; drivers report a count of 0 as a success without an answer.
_NONE = (pynvml.NVML_SUCCESS, pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_NO_DATA)
_RECORD = struct.Struct("=I4xQI12x")  # nvmlProcessUtilizationSample_t: pid, time, and percent of the first engine
_NEVER = (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_NO_PERMISSION)


class BusyProcesses:
    """Reads the samples of one card since the last read: the driver keeps one for each process that ran anything
    within its last period (nvml.h).
    """

    def __init__(self) -> None:
        self._since = 0
        self._can = True

    def read(self, caller: Caller, device: Device) -> Mapping[int, int] | None:
        """Return SM % by pid of the processes that it is not 0 of; None if this device does not report it."""
        if not self._can:
            return None
        caller.call = CALL
        try:
            records = self._records(device)
        except pynvml.NVMLError as error:
            code = getattr(error, "value", None)
            if code in _NONE:
                return {} if self._since else None
            self._can = code not in _NEVER
            if self._can:
                caller.absence(CALL, error)
            return None
        latest: dict[int, tuple[int, int]] = {}
        since = self._since
        for pid, at, share in _RECORD.iter_unpack(records):
            # Some drivers fill in old records.
            if at > since and share <= 100 and pid and (pid not in latest or latest[pid] < (at, share)):
                latest[pid] = (at, share)
        self._since = max([since, *(at for at, _ in latest.values())])
        return {pid: share for pid, (_, share) in latest.items() if share}

    def _records(self, device: Device) -> memoryview:
        """Return the samples as the driver writes them: pynvml's objects for a thousand processes take ten times as
        long to read.

        Raises:
            pynvml.NVMLError: there are none, or the device does not report them.
        """
        call = getattr(pynvml.nvmlLib, CALL, None)
        if call is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        count = ctypes.c_uint(0)
        code = call(device, None, ctypes.byref(count), ctypes.c_ulonglong(self._since))
        if code == pynvml.NVML_ERROR_INSUFFICIENT_SIZE and count.value <= MOST_PROCESSES:
            buffer = ctypes.create_string_buffer(count.value * _RECORD.size)
            code = call(device, buffer, ctypes.byref(count), ctypes.c_ulonglong(self._since))
            if code == pynvml.NVML_SUCCESS:
                return memoryview(buffer)[: count.value * _RECORD.size]
        raise pynvml.NVMLError(code)


class Metric(msgspec.Struct, frozen=True):
    """Fields of `core.readings.Gpu` and the calls that fill them, the newest first."""

    fields: tuple[str, ...]
    calls: tuple[str, ...]
    arguments: tuple[int, ...] = ()
    convert: Callable[[Any], tuple[Any, ...]] = lambda value: (value,)


def _number(field: str, *older_calls: str) -> Metric:
    """A field of one call, with the agent's call and unit."""
    call, arguments, divisor = NUMBERS[field]
    return Metric((field,), (call, *older_calls), arguments, lambda value: (value / divisor if divisor > 1 else value,))


def _text(field: str, call: str) -> Metric:
    return Metric((field,), (call,), convert=lambda text: (printable(text),))


CHANGING: Final = (
    Metric(
        ("utilization", "memory_utilization"),
        ("nvmlDeviceGetUtilizationRates",),
        convert=lambda rates: (rates.gpu, rates.memory),
    ),
    *map(_number, ("power_watts", "temperature_celsius", "sm_clock_mhz", "memory_clock_mhz")),
    Metric(
        ("throttle_reasons",),
        THROTTLING_CALLS,
        convert=lambda bits: (tuple(word for bit, word in THROTTLING if bits & bit),),
    ),
)
# The last three change, but only details show them: three of seventeen calls of a look at a card.
RARELY_CHANGING: Final = (
    _number("power_limit_watts", "nvmlDeviceGetPowerManagementLimit"),
    Metric(
        ("ecc_errors",),
        ("nvmlDeviceGetTotalEccErrors",),
        (pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC),
    ),
    *map(_number, ("fan_percent", "pcie_generation", "pcie_width")),
)
NEVER_CHANGING: Final = (
    _text("name", "nvmlDeviceGetName"),
    _text("uuid", "nvmlDeviceGetUUID"),
    Metric(
        ("pci_bus_id",),
        ("nvmlDeviceGetPciInfo",),
        convert=lambda pci: (
            printable(pci.busId.decode(errors="replace") if isinstance(pci.busId, bytes) else pci.busId),
        ),
    ),
    Metric(("compute_capability",), ("nvmlDeviceGetCudaComputeCapability",), convert=lambda pair: (tuple(pair),)),
)
NOT_OF_AN_INSTANCE: Final = (*(field for metric in (*CHANGING, *RARELY_CHANGING) for field in metric.fields), *COUNTED)


def read_metrics(caller: Caller, device: Device, metrics: tuple[Metric, ...]) -> tuple[Fields, Absences]:
    """Return the values that could be read, and the reasons for the others."""
    values: Fields = {}
    absent: Absences = {}
    for metric in metrics:
        answer, absence = caller.ask_first(metric.calls, device, *metric.arguments)
        if absence is not None:
            absent.update(dict.fromkeys(metric.fields, absence))
            continue
        try:
            converted = metric.convert(answer)
        except UnicodeDecodeError:  # pynvml decodes a structure's text only when it is looked at
            converted = (None,) * len(metric.fields)
        for field, value in zip(metric.fields, converted, strict=True):
            if is_possible(field, value):
                values[field] = value
            else:
                absent[field] = Absence.FAILED
    return values, absent


def read_memory(caller: Caller, device: Device) -> tuple[Memory, Absences]:
    """Read memory by version 2 of the call, or by version 1 if the driver has no other.

    A device without memory of its own says so, or says 0 or the host's: it shares that, and only `unified` is known.
    """
    info, absence = caller.ask("nvmlDeviceGetMemoryInfo", device, pynvml.nvmlMemory_v2)
    absent: Absences = {}
    if absence in (Absence.DRIVER_TOO_OLD, Absence.NOT_SUPPORTED):
        info, absence = caller.ask("nvmlDeviceGetMemoryInfo", device)
        absent = {"memory.reserved": Absence.DRIVER_TOO_OLD}
    if absence is Absence.NOT_SUPPORTED or (absence is None and info.total in (0, HOST_TOTAL)):
        return Memory(unified=True), dict.fromkeys(("memory.total", "memory.free"), Absence.NOT_SUPPORTED)
    if absence is not None:
        return Memory(), {"memory": absence}
    known, impossible = possible_sizes(
        {name: getattr(info, name, None) for name in ("total", "used", "reserved", "free")}
    )
    return msgspec.convert(known, Memory), absent | {name: Absence(why) for name, why in impossible.items()}


METRICS_EVERY = 0.9  # seconds; memory and processes are read each time, so fast sampling stays cheap
RARE_EVERY = 5.0
RARE_LOOKS, COUNT_LOOKS = 5, 3  # if looks are rare, they should be cheap; XID errors are counted, so none is missed


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """One MIG instance. Instances of one card with the same `gpu_instance` share that part's memory."""

    handle: Device
    name: str
    uuid: str
    profile: str | None
    gpu_instance: int | None


def find_instances(caller: Caller, card: Device, card_uuid: str, card_name: str) -> tuple[Instance, ...] | None:
    """Return the instances of a card that this process may see: an empty tuple if MIG is off, None (and a problem of
    the caller's) if the driver does not report it now.
    """

    def complain(reason: str) -> None:
        caller.problems.append(Problem(where=caller.where, message=f"{caller.call}: {reason}."))

    modes, absence = caller.ask("nvmlDeviceGetMigMode", card)
    if absence is Absence.NO_ANSWER:
        complain("no answer")
    if absence in (Absence.FAILED, Absence.NO_ANSWER):  # the caller has made a problem of a failure
        return None
    if absence is not None or modes[0] == pynvml.NVML_DEVICE_MIG_DISABLE:
        return ()
    if modes[0] != pynvml.NVML_DEVICE_MIG_ENABLE:
        complain(f"unknown mode {modes[0]}")
        return None
    count, absence = caller.ask("nvmlDeviceGetMaxMigDeviceCount", card)
    if absence is not None:
        if absence is not Absence.FAILED:
            complain(absence.value.replace("_", " "))
        return None
    instances = []
    for index in range(min(count, MOST_DEVICES)):
        handle, absence = caller.ask("nvmlDeviceGetMigDeviceHandleByIndex", card, index)
        if absence is Absence.FAILED:
            return None
        if absence is not None:
            continue  # no instance has that index, or this process may not see it
        uuid, _ = caller.ask("nvmlDeviceGetUUID", handle)
        name, _ = caller.ask("nvmlDeviceGetName", handle)
        gpu_instance, _ = caller.ask("nvmlDeviceGetGpuInstanceId", handle)
        names = {"name": printable(name or card_name), "uuid": printable(uuid or f"{card_uuid}/{index}")}
        profile = _profile(caller, handle, name or "")
        instances.append(Instance(handle=handle, profile=profile, gpu_instance=gpu_instance, **names))
    return tuple(instances)


def _profile(caller: Caller, handle: Device, name: str) -> str | None:
    """The size's name, for example 1g.18gb: the end of the instance's name, or made from its attributes."""
    match = PROFILE.search(name)
    if match:
        return printable(match[1])
    attributes, absence = caller.ask("nvmlDeviceGetAttributes_v2", handle)
    if absence is not None:
        return None
    size = f"{attributes.gpuInstanceSliceCount}g.{round(attributes.memorySizeMB * MIB / 1e9)}gb"
    whole = attributes.computeInstanceSliceCount == attributes.gpuInstanceSliceCount
    return size if whole else f"{attributes.computeInstanceSliceCount}c.{size}"


class DeviceReading(msgspec.Struct, kw_only=True):
    """A card or a MIG instance without its processes, and the list of its processes."""

    gpu: Gpu
    listing: ProcessList


class CardReading(msgspec.Struct, kw_only=True):
    """The result of one look at a card; `driver_gone` is why NVML must be initialised again."""

    parts: list[DeviceReading] = []
    problems: tuple[Problem, ...] = ()
    driver_gone: str = ""


class _Pace:
    """Decides when to ask again: after `every` seconds and `looks` looks, if the same answers are missing as before."""

    def __init__(self, every: float, looks: int) -> None:
        self._every = every
        self._least_looks = self._looks = looks
        self._next = float("-inf")
        self._missing: AbstractSet[str] | None = None

    def is_due(self, now: float) -> bool:
        """Count this look, and return whether to ask at it; `now` in seconds."""
        self._looks += 1
        return now >= self._next and self._looks >= self._least_looks

    def note(self, now: float, missing: AbstractSet[str]) -> None:
        """Set when to ask next, from what was missing when asked at `now`."""
        self._next = now + (min(self._every, RARE_EVERY) if missing else self._every)  # it may be there another time
        self._looks = 0 if missing == self._missing else self._least_looks
        self._missing = missing


class _Tier:
    """Metrics that are asked for at the same pace, with their last answers."""

    def __init__(self, metrics: tuple[Metric, ...], every: float, looks: int = 1) -> None:
        self._metrics, self._pace = metrics, _Pace(every, looks)
        self.values: Fields = {}
        self.absent: Absences = {}
        self.problems: list[Problem] = []

    def read(self, caller: Caller, device: Device, now: float) -> bool:
        """Ask again if it is time to; return whether it was."""
        if not self._pace.is_due(now):
            return False
        before = len(caller.problems)
        self.values, self.absent = read_metrics(caller, device, self._metrics)
        self.problems = caller.problems[before:]
        del caller.problems[before:]
        self._pace.note(now, self.absent.keys())
        return True


class RemovedCards:
    """The cards that the driver listed once and does not list any more: each keeps a row that says so."""

    def __init__(self) -> None:
        self._known: dict[str, Gpu] = {}

    def rows(self, listed: list[Gpu]) -> list[DeviceReading]:
        """Return rows for the cards missing among `listed`, behind those: after a removal the driver counts anew."""
        here = {gpu.uuid for gpu in listed}
        self._known |= {gpu.uuid: gpu for gpu in listed if gpu.mig_parent is None and gpu.state == "ok"}
        # A card that has not given its uuid since the driver was reloaded may be the one that was known there.
        unnamed = {gpu.index for gpu in listed if gpu.uuid == unknown_identity(gpu.index)["uuid"]}
        gone = [gpu for gpu in self._known.values() if gpu.uuid not in here and gpu.index not in unnamed]
        return [
            _gone(at, {"name": gpu.name, "uuid": gpu.uuid}, "the driver does not list it any more", Absence.LOST)
            for at, gpu in enumerate(gone, max(gpu.index for gpu in listed) + 1 if listed else 0)
        ]


def unknown_identity(index: int) -> Fields:
    """Name and uuid of a card that has not given them yet."""
    return {"name": f"GPU {index}", "uuid": f"unknown-{index}"}


def _gone(index: int, identity: Fields, reason: str, absence: Absence) -> DeviceReading:
    """The row of a card that cannot be read."""
    gpu = Gpu(
        index=index,
        **identity,
        state="lost" if absence is Absence.LOST else "failed",
        reason=reason,
        absent=dict.fromkeys(("memory", "processes", *NOT_OF_AN_INSTANCE), absence),
    )
    return DeviceReading(gpu=gpu, listing=ProcessList(absent=absence))


def without_former_names(parts: list[DeviceReading]) -> list[DeviceReading]:
    """Take the name from each card that does not answer if another card now has it: the driver may number its cards
    differently when it is loaded again.
    """
    answering = {part.gpu.uuid for part in parts if part.gpu.state == "ok"}
    return [
        part
        if part.gpu.state == "ok" or part.gpu.uuid not in answering
        else msgspec.structs.replace(part, gpu=msgspec.structs.replace(part.gpu, **unknown_identity(part.gpu.index)))
        for part in parts
    ]


class CardReader:
    """Looks at one card. Remembers its name and identity for the time when it is lost.

    Args:
        index: NVML's.
        clock: seconds; only differences matter.
        former: the card's reader before NVML was initialised again, whose call may still hang; its identity and XID
            errors are kept.
    """

    def __init__(self, index: int, clock: Callable[[], float], former: "CardReader | None" = None) -> None:
        self.index = index
        self.caller = Caller(f"GPU {index}")
        self._clock = clock
        self.identity = unknown_identity(index)
        if former is not None:
            self.identity |= {name: former.identity[name] for name in ("name", "uuid")}
        xids = None if former is None else list(former.counters.xids)
        self.counters: CardCounters = CardCounters(self._call, clock, xids)
        self._forget()

    def _call(self, name: str, *arguments: object) -> int:
        """Call the library for the counters as `caller`, so that a call that hangs has its name."""
        self.caller.call = name
        function = getattr(pynvml.nvmlLib, name, None)
        code = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND if function is None else int(function(*arguments))
        self.caller.raise_if_gone(name, code)
        return code

    def read(self) -> CardReading:
        """Look at the card. Never raises; may block for as long as the driver does."""
        self.caller.problems = []
        try:
            parts = self._read()
        except DriverGoneError as error:
            return CardReading(driver_gone=str(error))
        except DeviceGoneError as error:
            self._forget()
            return CardReading(parts=[self.gone(f"{error}", Absence.LOST if error.lost else Absence.FAILED)])
        except Exception:  # noqa: BLE001 - no answer of a driver may end the program
            self._forget()
            reason = f"{self.caller.call}: the driver's answer makes no sense"
            return CardReading(parts=[self.gone(reason, Absence.FAILED)])
        lasting = [problem for tier in self._tiers for problem in tier.problems]
        return CardReading(parts=parts, problems=(*lasting, *self.caller.problems))

    def gone(self, reason: str, absence: Absence) -> DeviceReading:
        """Return the card's row while it cannot be read, under its last known name."""
        return _gone(self.index, self.identity, reason, absence)

    def _forget(self) -> None:
        self._handle: Device = None
        self._static = _Tier(NEVER_CHANGING, float("inf"))
        self._rare = _Tier(RARELY_CHANGING, RARE_EVERY, RARE_LOOKS)
        self._changing = _Tier(CHANGING, METRICS_EVERY)
        self._tiers = (self._static, self._rare, self._changing)
        self._instances: tuple[Instance, ...] = ()
        self._knows_instances = True
        self._lists: dict[str, ProcessLists] = {}
        self._accounts = Accounts()
        self._busy = BusyProcesses()
        self._shares: Mapping[int, int] | None = None
        self.counters.begin_anew()
        self._counted: Fields = {}
        self._not_counted: Absences = {}
        self._count_pace = _Pace(RARE_EVERY, COUNT_LOOKS)

    def _read(self) -> list[DeviceReading]:
        if self._handle is None:
            handle, absence = self.caller.ask("nvmlDeviceGetHandleByIndex", self.index)
            if absence is not None:
                return [self.gone(f"nvmlDeviceGetHandleByIndex: {absence.value.replace('_', ' ')}", absence)]
            self._handle = handle
        now = self._clock()
        if self._static.read(self.caller, self._handle, now):
            self.identity |= self._static.values
        self._rare.read(self.caller, self._handle, now)
        if self._count_pace.is_due(now):
            counted, reasons = self.counters.read(self._handle)
            if "xid_errors" in counted:
                counted["xid_errors"] = msgspec.convert(counted["xid_errors"], tuple[XidError, ...])
            self._counted = {name: value for name, value in counted.items() if is_possible(name, value)}
            self._not_counted = {name: Absence(why) for name, why in reasons.items()} | dict.fromkeys(
                counted.keys() - self._counted.keys(), Absence.FAILED
            )
            self._count_pace.note(now, self._not_counted.keys())
        if self._changing.read(self.caller, self._handle, now):
            self._shares = self._busy.read(self.caller, self._handle)
            self._knows_instances = False
        if not self._knows_instances:
            instances = find_instances(self.caller, self._handle, self.identity["uuid"], self.identity["name"])
            self._knows_instances = instances is not None
            self._instances = self._instances if instances is None else instances
        # The card, then its MIG instances; instances that share their memory count once in `mig_used`.
        parts = []
        used: dict[int | str, int] = {}
        for instance in self._instances:
            memory, absent = read_memory(self.caller, instance.handle)
            listing = self._list(instance.uuid, instance.handle, memory)
            gpu = Gpu(
                index=self.index,
                uuid=instance.uuid,
                name=instance.name,
                memory=memory,
                compute_capability=self._static.values.get("compute_capability"),
                pci_bus_id=self._static.values.get("pci_bus_id"),
                mig_parent=self.identity["uuid"],
                mig_profile=instance.profile,
                absent={**dict.fromkeys(NOT_OF_AN_INSTANCE, Absence.NOT_ASKED), **absent},
            )
            parts.append(DeviceReading(gpu=gpu, listing=listing))
            if memory.used is not None:
                used[instance.uuid if instance.gpu_instance is None else instance.gpu_instance] = memory.used
        memory, absent = read_memory(self.caller, self._handle)
        listing = self._list(self.identity["uuid"], self._handle, memory)
        if parts:
            below = {pid for part in parts for pid in part.listing.uses}
            cut = {instance.gpu_instance for instance in self._instances} - {None}
            listing.uses = {
                pid: row for pid, row in listing.uses.items() if pid not in below and row.instance not in cut
            }
        if listing.absent is None and listing.trusted:
            listing.final_peaks = self._accounts.read(self.caller, self._handle, listing.uses, self._clock())
            listing.peaks = self._accounts.peaks
            listing.busy = self._shares
        fields, missing = dict(self.identity), dict(absent)
        for tier in self._tiers:
            fields |= tier.values
            missing |= tier.absent
        gpu = Gpu(
            index=self.index,
            memory=memory,
            mig_used=sum(used.values()) if used else None,
            absent=missing | self._not_counted,
            **(fields | self._counted),
        )
        return [DeviceReading(gpu=gpu, listing=listing), *parts]

    def _list(self, uuid: str, device: Device, memory: Memory) -> ProcessList:
        lists = self._lists.get(uuid)
        if lists is None:
            lists = self._lists[uuid] = ProcessLists()
        return lists.read(self.caller, device, memory.total)
