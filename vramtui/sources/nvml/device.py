"""One card (and its MIG instances) as NVML reports it, from tick to tick."""

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet

import msgspec
import pynvml

from vramtui.agent.counters import CardCounters
from vramtui.agent.stream import PROFILE
from vramtui.core.base.text import printable
from vramtui.core.base.units import MIB
from vramtui.core.observation.bounded_samples import MOST_DEVICES, is_possible
from vramtui.core.observation.readings import Absence, Gpu, Memory, Problem, XidError
from vramtui.sources.nvml import metrics as nvml_metrics
from vramtui.sources.nvml.calls import Absences, Caller, Device, DeviceGoneError, DriverGoneError, Fields
from vramtui.sources.nvml.processes import Accounts, ProcessList, ProcessLists

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

    def __init__(self, metrics: tuple[nvml_metrics.Metric, ...], every: float, looks: int = 1) -> None:
        self._metrics, self._pace = metrics, _Pace(every, looks)
        self.values: Fields = {}
        self.absent: Absences = {}
        self.problems: list[Problem] = []

    def read(self, caller: Caller, device: Device, now: float) -> bool:
        """Ask again if it is time to; return whether it was."""
        if not self._pace.is_due(now):
            return False
        before = len(caller.problems)
        self.values, self.absent = nvml_metrics.read_metrics(caller, device, self._metrics)
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
        absent=dict.fromkeys(("memory", "processes", *nvml_metrics.NOT_OF_AN_INSTANCE), absence),
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
        self._static = _Tier(nvml_metrics.NEVER_CHANGING, float("inf"))
        self._rare = _Tier(nvml_metrics.RARELY_CHANGING, RARE_EVERY, RARE_LOOKS)
        self._changing = _Tier(nvml_metrics.CHANGING, METRICS_EVERY)
        self._tiers = (self._static, self._rare, self._changing)
        self._instances: tuple[Instance, ...] = ()
        self._knows_instances = True
        self._lists: dict[str, ProcessLists] = {}
        self._accounts = Accounts()
        self._busy = nvml_metrics.BusyProcesses()
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
            memory, absent = nvml_metrics.read_memory(self.caller, instance.handle)
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
                absent={**dict.fromkeys(nvml_metrics.NOT_OF_AN_INSTANCE, Absence.NOT_ASKED), **absent},
            )
            parts.append(DeviceReading(gpu=gpu, listing=listing))
            if memory.used is not None:
                used[instance.uuid if instance.gpu_instance is None else instance.gpu_instance] = memory.used
        memory, absent = nvml_metrics.read_memory(self.caller, self._handle)
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
