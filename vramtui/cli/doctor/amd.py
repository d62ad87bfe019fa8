"""AMD's cards: whether their driver shows them, and whether a machine has no others."""

import os
from pathlib import Path

from vramtui.cli.doctor.check import Check, Finding
from vramtui.core.base.errors import SourceFailed
from vramtui.core.base.text import printable

SYS, DEVICES = Path("/sys"), Path("/dev")
NVIDIA_CARD, AMD_CARD = "0x10de", "0x1002"  # PCI's numbers of the vendors
DISPLAY = "0x03"  # PCI's classes of cards: VGA 0x0300, 3D 0x0302, and accelerators' 0x0380
NO_NVIDIA = "no NVIDIA GPU"


def amdgpu() -> Finding:
    """Whether the kernel shows cards of AMD's, and whom they belong to."""
    from vramtui.sources.amdgpu import AmdgpuSource  # loads what other checks do not need

    try:
        sample = AmdgpuSource(SYS).read()
    except SourceFailed:
        if AMD_CARD not in cards():
            return Finding(check="amdgpu", verdict="unknown", message="no AMD GPU")
        hint = "Load the driver: `modprobe amdgpu`."
        return Finding(check="amdgpu", verdict="failed", message="the AMD GPU has no amdgpu driver", hint=hint)
    names = ", ".join(sorted({printable(gpu.name) for gpu in sample.gpus}))
    count = f"{len(sample.gpus)} GPU{'s' if len(sample.gpus) > 1 else ''}"
    told = f"{count} ({names}), {sample.host.driver_version}; context and workspaces are estimated as CUDA's"
    devices = (DEVICES / "kfd", *sorted(DEVICES.glob("dri/renderD*")))
    denied = [str(path) for path in devices if path.exists() and not os.access(path, os.R_OK | os.W_OK)]
    if denied:
        hint = "Join the group that owns them, `render` or `video`, for jobs of your own; nothing is missing here."
        return Finding(
            check="amdgpu", verdict="warning", message=f"{told}; no access to {', '.join(denied)}", hint=hint
        )
    return Finding(check="amdgpu", verdict="ok", message=told)


def cards() -> set[str]:
    """The vendors of this machine's cards, as PCI numbers them."""
    found = set()
    for device in SYS.glob("bus/pci/devices/*"):
        try:
            if (device / "class").read_text().startswith(DISPLAY):
                found.add((device / "vendor").read_text().strip())
        except OSError:  # noqa: PERF203 - each of them may go
            continue
    return found


def of_nvidia(check: Check) -> Check:
    """The check, which has nothing to ask where all cards are AMD's."""

    def ask() -> Finding:
        vendors = cards()
        if AMD_CARD in vendors and NVIDIA_CARD not in vendors:
            return Finding(check=check.id, verdict="unknown", message=NO_NVIDIA)
        return check.ask()

    return Check(check.id, ask)


CHECKS = (Check("amdgpu", amdgpu),)
