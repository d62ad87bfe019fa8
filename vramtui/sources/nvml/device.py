"""One card (and its MIG instances) as NVML tells of it, from tick to tick."""

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
from vramtui.sources.nvml.accounting import Accounts
from vramtui.sources.nvml.calls import Absences, Caller, Device, DeviceGoneError, DriverGoneError, Fields
from vramtui.sources.nvml.metrics import (
    CHANGING,
    NEVER_CHANGING,
    NOT_OF_AN_INSTANCE,
    RARELY_CHANGING,
    BusyProcesses,
    Metric,
    read_memory,
    read_metrics,
)
from vramtui.sources.nvml.processes import ProcessList, ProcessLists

_XIDS = "xid_errors"


def counters_of(caller: Caller, clock: Callable[[], float], former: CardCounters | None = None) -> CardCounters:
    """A reader that asks as `caller`, so that a call which hangs has its name.

    Args:
        caller: of the same card.
        clock: seconds, of which only differences matter.
        former: the one before the driver was initialised anew; its errors are kept.
    """
    return CardCounters(_ask_as(caller), clock, None if former is None else list(former.xids))


def read_counters(counters: CardCounters, device: Device) -> tuple[Fields, Absences]:
    """What the card counts, and why some of it is not known.

    Raises:
        DeviceGoneError, DriverGoneError: as `Caller.ask`.
    """
    counted, reasons = counters.read(device)
    if _XIDS in counted:
        counted[_XIDS] = msgspec.convert(counted[_XIDS], tuple[XidError, ...])
    values = {name: value for name, value in counted.items() if is_possible(name, value)}
    absent = {name: Absence(why) for name, why in reasons.items()}
    return values, absent | dict.fromkeys(counted.keys() - values.keys(), Absence.FAILED)


def _ask_as(caller: Caller) -> Callable[..., int]:
    def ask(name: str, *arguments: object) -> int:
        caller.call = name
        function = getattr(pynvml.nvmlLib, name, None)
        code = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND if function is None else int(function(*arguments))
        caller.raise_if_gone(name, code)
        return code

    return ask


_PASSING = (Absence.FAILED, Absence.NO_ANSWER)  # what may be told another time


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """One MIG instance. Instances of one card with the same `gpu_instance` share that part's memory."""

    handle: Device
    name: str
    uuid: str
    profile: str | None
    gpu_instance: int | None


def find_instances(caller: Caller, card: Device, card_uuid: str, card_name: str) -> tuple[Instance, ...] | None:
    """The instances of a card that this process may see; none when MIG is off, None where the driver does not tell it
    now, which is then among the caller's problems.

    Raises:
        DeviceGoneError, DriverGoneError: as `Caller.ask`.
    """
    modes, absence = caller.ask("nvmlDeviceGetMigMode", card)
    if absence in _PASSING:
        _tell(caller, absence)
        return None
    if absence is not None or modes[0] == pynvml.NVML_DEVICE_MIG_DISABLE:
        return ()
    if modes[0] != pynvml.NVML_DEVICE_MIG_ENABLE:
        caller.problems.append(Problem(where=caller.where, message=f"{caller.call}: {modes[0]} is no mode."))
        return None
    count, absence = caller.ask("nvmlDeviceGetMaxMigDeviceCount", card)
    if absence is not None:
        _tell(caller, absence)
        return None
    instances = []
    for index in range(min(count, MOST_DEVICES)):
        handle, absence = caller.ask("nvmlDeviceGetMigDeviceHandleByIndex", card, index)
        if absence is Absence.FAILED:
            return None
        if absence is None:  # the others: there is no instance of that index, or not for this process
            instances.append(_describe(caller, handle, f"{card_uuid}/{index}", card_name))
    return tuple(instances)


def _tell(caller: Caller, absence: Absence) -> None:
    if absence is not Absence.FAILED:  # of which the caller has made a problem already
        reason = absence.value.replace("_", " ")
        caller.problems.append(Problem(where=caller.where, message=f"{caller.call}: {reason}."))


def _describe(caller: Caller, handle: Device, fallback: str, card_name: str) -> Instance:
    uuid, _ = caller.ask("nvmlDeviceGetUUID", handle)
    name, _ = caller.ask("nvmlDeviceGetName", handle)
    gpu_instance, _ = caller.ask("nvmlDeviceGetGpuInstanceId", handle)
    return Instance(
        handle=handle,
        name=printable(name or card_name),
        uuid=printable(uuid or fallback),
        profile=_profile(caller, handle, name or ""),
        gpu_instance=gpu_instance,
    )


def _profile(caller: Caller, handle: Device, name: str) -> str | None:
    """The size's name, such as 1g.18gb: the end of the instance's name, or put together from its attributes."""
    match = PROFILE.search(name)
    if match:
        return printable(match[1])
    attributes, absence = caller.ask("nvmlDeviceGetAttributes_v2", handle)
    if absence is not None:
        return None
    size = f"{attributes.gpuInstanceSliceCount}g.{round(attributes.memorySizeMB * MIB / 1e9)}gb"
    whole = attributes.computeInstanceSliceCount == attributes.gpuInstanceSliceCount
    return size if whole else f"{attributes.computeInstanceSliceCount}c.{size}"


METRICS_EVERY = 0.9  # seconds; memory and processes are read each time, so fast sampling stays cheap
RARE_EVERY = 5.0
RARE_LOOKS, COUNT_LOOKS = 5, 3  # where looks are far apart: who wants fewer wants it cheaper; XID errors are counts


class DeviceReading(msgspec.Struct, kw_only=True):
    """A card or a MIG instance without its processes, and the list they are to be made from."""

    gpu: Gpu
    listing: ProcessList


class CardReading(msgspec.Struct, kw_only=True):
    """What one look at a card gave; `driver_gone` says that NVML has to be initialised anew, and why."""

    parts: list[DeviceReading] = []
    problems: tuple[Problem, ...] = ()
    driver_gone: str = ""


class _Pace:
    """When something is to be asked for again.

    Args:
        every: seconds between two answers.
        looks: and at least so many looks, while the answers are there or missing as before.
    """

    def __init__(self, every: float, looks: int) -> None:
        self._every = every
        self._least_looks = self._looks = looks
        self._next = float("-inf")
        self._missing: AbstractSet[str] | None = None

    def is_due(self, now: float) -> bool:
        """Whether the metrics are asked for at this look; `now` in seconds, of which only differences matter."""
        self._looks += 1
        return now >= self._next and self._looks >= self._least_looks

    def note(self, now: float, missing: AbstractSet[str]) -> None:
        """Set when a group of metrics is asked for next, from what was missing when asked at `now`."""
        self._next = now + (min(self._every, RARE_EVERY) if missing else self._every)  # it may be told another time
        self._looks = 0 if missing == self._missing else self._least_looks
        self._missing = missing


class _Tier:
    """Metrics that are asked for at the same pace, with what the last answers were."""

    def __init__(self, metrics: tuple[Metric, ...], every: float, looks: int = 1) -> None:
        self._metrics, self._pace = metrics, _Pace(every, looks)
        self.values: Fields = {}
        self.absent: Absences = {}
        self.problems: list[Problem] = []

    def read(self, caller: Caller, device: Device, now: float) -> bool:
        """Ask again if it is time to; False when it is not."""
        if not self._pace.is_due(now):
            return False
        before = len(caller.problems)
        self.values, self.absent = read_metrics(caller, device, self._metrics)
        self.problems = caller.problems[before:]
        del caller.problems[before:]
        self._pace.note(now, self.absent.keys())
        return True


class RemovedCards:
    """The cards that the driver has listed once and does not list any more: each keeps a row that says so."""

    def __init__(self) -> None:
        self._known: dict[str, Gpu] = {}

    def rows(self, listed: list[Gpu]) -> list[DeviceReading]:
        """Rows for the cards that are missing among `listed`."""
        here = {gpu.uuid for gpu in listed}
        self._known |= {gpu.uuid: gpu for gpu in listed if gpu.mig_parent is None and gpu.state == "ok"}
        reason = "the driver does not list it any more"
        # A card that has not said who it is since the driver was reloaded may be the one that was known there.
        unnamed = {gpu.index for gpu in listed if gpu.uuid == unknown_uuid(gpu.index)}
        return [
            gone_card(gpu.index, {"name": gpu.name, "uuid": uuid}, reason, Absence.LOST)
            for uuid, gpu in self._known.items()
            if uuid not in here and gpu.index not in unnamed
        ]


def unknown_uuid(index: int) -> str:
    """What stands for the uuid of a card that has not told it yet."""
    return f"unknown-{index}"


def unknown_identity(index: int) -> Fields:
    """What such a card is called."""
    return {"name": f"GPU {index}", "uuid": unknown_uuid(index)}


def gone_card(index: int, identity: Fields, reason: str, absence: Absence) -> DeviceReading:
    """The row of a card of which nothing can be read."""
    gpu = Gpu(
        index=index,
        **identity,
        state="lost" if absence is Absence.LOST else "failed",
        reason=reason,
        absent=dict.fromkeys(("memory", "processes", *NOT_OF_AN_INSTANCE), absence),
    )
    return DeviceReading(gpu=gpu, listing=ProcessList(absent=absence))


def without_former_names(parts: list[DeviceReading]) -> list[DeviceReading]:
    """The rows, those of cards that do not answer nameless where another card has their former name by now: the driver
    may number its cards anew when it is loaded again.
    """
    answering = {part.gpu.uuid for part in parts if part.gpu.state == "ok"}
    return [part if part.gpu.state == "ok" or part.gpu.uuid not in answering else _nameless(part) for part in parts]


def _nameless(part: DeviceReading) -> DeviceReading:
    return msgspec.structs.replace(part, gpu=msgspec.structs.replace(part.gpu, **unknown_identity(part.gpu.index)))


class CardReader:
    """Looks at one card. Remembers its name and identity for the time when it is lost.

    Args:
        index: NVML's.
        clock: seconds, of which only differences matter.
    """

    def __init__(self, index: int, clock: Callable[[], float]) -> None:
        self.index = index
        self.caller = Caller(f"GPU {index}")
        self._clock = clock
        self._identity: Fields = unknown_identity(index)
        self._counters = counters_of(self.caller, clock)
        self._forget()

    def read(self) -> CardReading:
        """Look at the card. Never raises; may block for as long as the driver does."""
        self.caller.problems = []
        try:
            parts = self._read()
        except DriverGoneError as error:
            return CardReading(driver_gone=str(error))
        except DeviceGoneError as error:
            self._forget()
            return CardReading(parts=[self.gone(f"{error}", lost=error.lost)])
        except Exception:  # noqa: BLE001 - no answer of a driver may end the program
            self._forget()
            reason = f"{self.caller.call}: the driver's answer makes no sense"
            return CardReading(parts=[self.gone(reason)])
        lasting = [problem for tier in self._tiers for problem in tier.problems]
        return CardReading(parts=parts, problems=(*lasting, *self.caller.problems))

    def anew(self) -> "CardReader":
        """One for when NVML was initialised again: it asks for everything, and knows what the card was called. A call
        that hangs may still be in this one.
        """
        reader = CardReader(self.index, self._clock)
        reader._identity = {name: self._identity[name] for name in ("name", "uuid")}
        reader._counters = counters_of(reader.caller, self._clock, self._counters)
        return reader

    def gone(self, reason: str, *, lost: bool = False, absence: Absence | None = None) -> DeviceReading:
        """The card's row while nothing can be read of it, under the name it was last known by."""
        why = absence or (Absence.LOST if lost else Absence.FAILED)
        return gone_card(self.index, self._identity, reason, why)

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
        self._counters.begin_anew()
        self._counted: tuple[Fields, Absences] = ({}, {})
        self._count_pace = _Pace(RARE_EVERY, COUNT_LOOKS)

    def _read(self) -> list[DeviceReading]:
        if self._handle is None:
            handle, absence = self.caller.ask("nvmlDeviceGetHandleByIndex", self.index)
            if absence is not None:
                reason = f"nvmlDeviceGetHandleByIndex: {absence.value.replace('_', ' ')}"
                return [self.gone(reason, absence=absence)]
            self._handle = handle
        now = self._clock()
        if self._static.read(self.caller, self._handle, now):
            self._identity |= self._static.values
        self._rare.read(self.caller, self._handle, now)
        if self._count_pace.is_due(now):
            self._counted = read_counters(self._counters, self._handle)
            self._count_pace.note(now, self._counted[1].keys())
        if self._changing.read(self.caller, self._handle, now):
            self._shares = self._busy.read(self.caller, self._handle)
            self._knows_instances = False
        if not self._knows_instances:
            instances = find_instances(self.caller, self._handle, self._identity["uuid"], self._identity["name"])
            self._knows_instances = instances is not None
            self._instances = self._instances if instances is None else instances
        return self._card(*self._parts())

    def _card(self, instances: list[DeviceReading], mig_used: int | None) -> list[DeviceReading]:
        memory, absent = read_memory(self.caller, self._handle)
        listing = self._list(self._identity["uuid"], self._handle, memory)
        if instances:
            below = {pid for part in instances for pid in part.listing.uses}
            cut = {instance.gpu_instance for instance in self._instances} - {None}
            listing.uses = {
                pid: row for pid, row in listing.uses.items() if pid not in below and row.instance not in cut
            }
        if listing.absent is None and listing.trusted:
            listing.final_peaks = self._accounts.read(self.caller, self._handle, listing.uses, self._clock())
            listing.peaks = self._accounts.peaks
            listing.busy = self._shares
        fields, reasons = dict(self._identity), dict(absent)
        for tier in self._tiers:
            fields |= tier.values
            reasons |= tier.absent
        fields |= self._counted[0]
        reasons |= self._counted[1]
        gpu = Gpu(index=self.index, memory=memory, mig_used=mig_used, absent=reasons, **fields)
        return [DeviceReading(gpu=gpu, listing=listing), *instances]

    def _parts(self) -> tuple[list[DeviceReading], int | None]:
        """The MIG instances, and the bytes they hold together; instances that share their memory count once."""
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
                mig_parent=self._identity["uuid"],
                mig_profile=instance.profile,
                absent={**dict.fromkeys(NOT_OF_AN_INSTANCE, Absence.NOT_ASKED), **absent},
            )
            parts.append(DeviceReading(gpu=gpu, listing=listing))
            if memory.used is not None:
                used[instance.uuid if instance.gpu_instance is None else instance.gpu_instance] = memory.used
        return parts, sum(used.values()) if used else None

    def _list(self, uuid: str, device: Device, memory: Memory) -> ProcessList:
        lists = self._lists.get(uuid)
        if lists is None:
            lists = self._lists[uuid] = ProcessLists()
        return lists.read(self.caller, device, memory.total)
