"""Which GPUs a job may use and how a variable names them, and what listens to the job's probe."""

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from vramtui.core.base.errors import SourceFailed
from vramtui.core.observation.readings import NVIDIA, Gpu, usable_gpus

if TYPE_CHECKING:
    from vramtui.sources.probe_listener import ProbeListener


def usable(gpus: Sequence[Gpu]) -> list[Gpu]:
    """The GPUs that a job may use: those of one vendor, as a build of PyTorch runs on no other's (the first card's, so
    NVIDIA's where there are both), and of these what the variables of this process show.
    """
    own = [gpu for gpu in usable_gpus(gpus) if gpu.vendor == gpus[0].vendor]
    if not own or own[0].vendor == NVIDIA:
        return _visible_gpus(own, gpus, "CUDA_VISIBLE_DEVICES")
    # HIP counts anew what ROCr leaves, and takes CUDA's variable where its own is missing (ROCm: GPU isolation).
    left = _visible_gpus(own, gpus, "ROCR_VISIBLE_DEVICES")
    names = os.environ.get("HIP_VISIBLE_DEVICES", os.environ.get("CUDA_VISIBLE_DEVICES"))
    return left if names is None else [gpu for at, gpu in enumerate(left) if str(at) in names.split(",")]


def own_index(gpu: Gpu, gpus: Sequence[Gpu]) -> int:
    """A GPU's index among those of its vendor, as the vendor's runtime counts."""
    return gpu.index - next(one.index for one in gpus if one.vendor == gpu.vendor)


def runtime_uuid(gpu: Gpu, gpus: Sequence[Gpu]) -> str:
    """The name by which the vendor's runtime finds a GPU, whatever the order of devices; its index where a card of
    AMD's has no serial number, but only a place on the bus.
    """
    if gpu.vendor == NVIDIA:
        return gpu.uuid
    serial = gpu.uuid.removeprefix("AMD-").removeprefix("0x")
    return str(own_index(gpu, gpus)) if ":" in serial else f"GPU-{serial}"


def job_name(gpu: Gpu, gpus: Sequence[Gpu]) -> str:
    """What a variable calls it: its index among those of its vendor, of a MIG instance its uuid, as it has no index."""
    return str(own_index(gpu, gpus)) if gpu.mig_parent is None else gpu.uuid


def placing(chosen: Sequence[Gpu], gpus: Sequence[Gpu]) -> dict[str, str]:
    """The variables that put a job on these GPUs of a machine and no others."""
    names = ",".join(runtime_uuid(gpu, gpus) for gpu in chosen)
    if chosen[0].vendor == NVIDIA:
        return {"CUDA_VISIBLE_DEVICES": names}
    return {"ROCR_VISIBLE_DEVICES": names, "HIP_VISIBLE_DEVICES": ",".join(map(str, range(len(chosen))))}


def _visible_gpus(own: list[Gpu], gpus: Sequence[Gpu], variable: str) -> list[Gpu]:
    value = os.environ.get(variable)
    if value is None:
        return own
    names = [name.strip() for name in value.split(",") if name.strip()]
    return [gpu for gpu in own if any(_is_called(gpu, gpus, name) for name in names)]


def _is_called(gpu: Gpu, gpus: Sequence[Gpu], name: str) -> bool:
    """Whether a GPU is named by its index, or by the beginning of its uuid."""
    return name == str(own_index(gpu, gpus)) or (
        len(name) > 4 and runtime_uuid(gpu, gpus).lower().startswith(name.lower())
    )


def open_listener(mark: str) -> "ProbeListener | None":
    """What hears the job's probe; None where it cannot be, which is said, and the job runs all the same."""
    from vramtui.sources.probe_listener import ProbeListener

    try:
        return ProbeListener(f"run-{os.getpid()}", run=mark)
    except SourceFailed as error:
        sys.stderr.write(f"vramtui: the job runs without a probe. {error.message} {error.hint}\n")
        return None
