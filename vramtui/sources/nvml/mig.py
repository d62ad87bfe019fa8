"""MIG: the instances a card is cut into, each with memory and processes of its own."""

import re

import msgspec
import pynvml

from vramtui.core.base.text import printable
from vramtui.core.base.units import MIB
from vramtui.core.observation.limits import MOST_DEVICES
from vramtui.core.observation.readings import Absence, Problem
from vramtui.sources.nvml.calls import Caller, Device

_PASSING = (Absence.FAILED, Absence.NO_ANSWER)  # what may be told another time
_PROFILE = re.compile(r"\bMIG (\S+)\s*$")


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
        DeviceGone, DriverGone: as `Caller.ask`.
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
    found = []
    for index in range(min(count, MOST_DEVICES)):
        handle, absence = caller.ask("nvmlDeviceGetMigDeviceHandleByIndex", card, index)
        if absence is Absence.FAILED:
            return None
        if absence is None:  # the others: there is no instance of that index, or not for this process
            found.append(_describe(caller, handle, f"{card_uuid}/{index}", card_name))
    return tuple(found)


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
    match = _PROFILE.search(name)
    if match:
        return printable(match[1])
    attributes, absence = caller.ask("nvmlDeviceGetAttributes_v2", handle)
    if absence is not None:
        return None
    size = f"{attributes.gpuInstanceSliceCount}g.{round(attributes.memorySizeMB * MIB / 1e9)}gb"
    whole = attributes.computeInstanceSliceCount == attributes.gpuInstanceSliceCount
    return size if whole else f"{attributes.computeInstanceSliceCount}c.{size}"
