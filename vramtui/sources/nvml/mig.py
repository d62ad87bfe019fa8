"""MIG: the instances a card is cut into, each with memory and processes of its own."""

import re

import msgspec
import pynvml

from vramtui.core.base.text import printable
from vramtui.core.base.units import MIB
from vramtui.core.observation.limits import MOST_DEVICES
from vramtui.sources.nvml.calls import Caller, Device

_PROFILE = re.compile(r"\bMIG (\S+)\s*$")


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """One MIG instance. Instances of one card with the same `gpu_instance` share that part's memory."""

    handle: Device
    name: str
    uuid: str
    profile: str | None
    gpu_instance: int | None


def find_instances(caller: Caller, card: Device, card_uuid: str, card_name: str) -> tuple[Instance, ...]:
    """The instances of a card that this process may see; none when MIG is off.

    Raises:
        DeviceGone, DriverGone: as `Caller.ask`.
    """
    modes, absence = caller.ask("nvmlDeviceGetMigMode", card)
    if absence is not None or modes[0] != pynvml.NVML_DEVICE_MIG_ENABLE:
        return ()
    count, absence = caller.ask("nvmlDeviceGetMaxMigDeviceCount", card)
    found = []
    for index in range(min(count, MOST_DEVICES) if absence is None else 0):
        handle, absence = caller.ask("nvmlDeviceGetMigDeviceHandleByIndex", card, index)
        if absence is None:
            found.append(_describe(caller, handle, f"{card_uuid}/{index}", card_name))
    return tuple(found)


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
