"""The driver: whether it can be talked to, and what it keeps to itself; AMD's cards, and whether a machine has no
others.
"""

import os
from pathlib import Path

from vramtui.cli.doctor.check import Check, Finding
from vramtui.core.base.errors import SourceFailed
from vramtui.core.base.text import printable
from vramtui.core.observation.readings import Absence, Gpu, Sample

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
    summary = f"{count} ({names}), {sample.host.driver_version}; context and workspaces are estimated as CUDA's"
    devices = (DEVICES / "kfd", *sorted(DEVICES.glob("dri/renderD*")))
    denied = [str(path) for path in devices if path.exists() and not os.access(path, os.R_OK | os.W_OK)]
    if denied:
        hint = "Join the group that owns them, `render` or `video`, for jobs of your own; nothing is missing here."
        return Finding(
            check="amdgpu", verdict="warning", message=f"{summary}; no access to {', '.join(denied)}", hint=hint
        )
    return Finding(check="amdgpu", verdict="ok", message=summary)


def cards() -> set[str]:
    """The vendors of this machine's cards, as PCI numbers them."""
    capabilities = set()
    for device in SYS.glob("bus/pci/devices/*"):
        try:
            if (device / "class").read_text().startswith(DISPLAY):
                capabilities.add((device / "vendor").read_text().strip())
        except OSError:  # noqa: PERF203 - each of them may go
            continue
    return capabilities


def of_nvidia(check: Check) -> Check:
    """The check, which has nothing to ask where all cards are AMD's."""

    def ask() -> Finding:
        vendors = cards()
        if AMD_CARD in vendors and NVIDIA_CARD not in vendors:
            return Finding(check=check.id, verdict="unknown", message=NO_NVIDIA)
        return check.ask()

    return Check(check.id, ask)


PATIENCE = 4.0
# What a person misses most when the driver does not report it.
WANTED = ("memory", "processes", "utilization", "power_watts")
REASONS = {
    Absence.NOT_SUPPORTED: "not supported",
    Absence.NO_PERMISSION: "no permission",
    Absence.LOST: "lost",
    Absence.DRIVER_TOO_OLD: "the driver is too old",
    Absence.NO_ANSWER: "no answer",
    Absence.FIRST_LOOK: "known after the next look",
    Absence.NOT_ASKED: "not asked for",
    Absence.FAILED: "failed",
}


def nvml() -> Finding:
    """Whether NVML opens, and what it says of itself."""
    sample = _sample()
    if not sample.gpus:
        problem = sample.problems[0] if sample.problems else None
        message = printable(problem.message) if problem else "the driver lists no GPU"
        return Finding(check="nvml", verdict="failed", message=message, hint=problem.hint if problem else "")
    return Finding(check="nvml", verdict="ok", message=driver_words(sample))


def driver_words(sample: Sample) -> str:
    """How many GPUs of which kinds there are, and the versions of the driver and CUDA."""
    names = sorted({printable(gpu.name) for gpu in sample.gpus})
    cards = sum(gpu.mig_parent is None for gpu in sample.gpus)
    count = f"{cards} GPU{'s' if cards > 1 else ''}"
    if cards < len(sample.gpus):
        count += f", {len(sample.gpus) - cards} MIG instance{'s' if len(sample.gpus) - cards > 1 else ''}"
    driver, cuda = sample.host.driver_version or "of unknown version", sample.host.cuda_version or "unknown"
    return f"{count} ({', '.join(names)}), driver {printable(driver)}, CUDA {printable(cuda)}"


def gpus() -> Finding:
    """Whether every GPU answers, and answers everything that matters."""
    sample = _sample()
    if not sample.gpus:
        return Finding(check="gpus", verdict="unknown", message="there is no GPU to ask")
    broken = [f"GPU {gpu.index}: {printable(gpu.reason) or gpu.state}" for gpu in sample.gpus if gpu.state != "ok"]
    if broken:
        hint = "See `dmesg | grep -i xid`; `nvidia-smi --gpu-reset` or a reboot recovers a lost GPU."
        return Finding(check="gpus", verdict="warning", message="; ".join(broken), hint=hint)
    lacking = [text for gpu in sample.gpus if gpu.mig_parent is None for text in _lacking(gpu)]
    if lacking:
        hint = "What is unknown stays a dash; under MIG, vGPU and WSL the driver does not report it."
        return Finding(check="gpus", verdict="warning", message="; ".join(lacking), hint=hint)
    unsure = [str(gpu.index) for gpu in sample.gpus if not gpu.processes_trusted]
    if unsure:
        return Finding(
            check="gpus",
            verdict="warning",
            message=f"the process list of GPU {', '.join(unsure)} is scrambled",
            hint="This driver's list has a different layout than it reports (510 to 550): upgrade the driver.",
        )
    return Finding(check="gpus", verdict="ok", message="all answer: memory, processes, utilisation and power")


def _lacking(gpu: Gpu) -> list[str]:
    return [
        f"GPU {gpu.index}: {field.replace('_watts', '')} {REASONS[gpu.absent[field]]}"
        for field in WANTED
        if field in gpu.absent
    ]


def nvidia_smi() -> Finding:
    """Whether the second way to the driver is there."""
    from vramtui.sources.nvidia_smi import NvidiaSmiSource  # loads what other checks do not need

    try:
        sample = NvidiaSmiSource().read()
    except SourceFailed as error:
        message = f"{error.message.rstrip('.')}; it is used only where NVML cannot be loaded"
        return Finding(check="nvidia-smi", verdict="warning", message=message, hint=error.hint)
    return Finding(check="nvidia-smi", verdict="ok", message=f"answers for {len(sample.gpus)} GPUs")


def permissions() -> Finding:
    """Whether this user may open the driver's device files."""
    files = sorted(DEVICES.glob("nvidia[0-9]*")) + [
        path for name in ("nvidiactl", "nvidia-uvm", "dxg") if (path := DEVICES / name).exists()
    ]
    if not files:
        hint = "Load the driver; in a container, pass the devices in with --gpus all."
        return Finding(check="permissions", verdict="warning", message="there are no /dev/nvidia* files", hint=hint)
    denied = [path.name for path in files if not os.access(path, os.R_OK | os.W_OK)]
    if denied:
        hint = "Join the group that owns them (`ls -l /dev/nvidia*`), often `video` or `render`."
        return Finding(check="permissions", verdict="failed", message=f"no access to {', '.join(denied)}", hint=hint)
    return Finding(check="permissions", verdict="ok", message=f"{len(files)} device files can be opened")


def accounting() -> Finding:
    """Whether the driver keeps exact peaks of every process."""
    from vramtui.sources.nvml.processes import accounting_modes  # loads pynvml

    modes = accounting_modes()
    off = [str(index) for index, mode in modes.items() if mode is False]
    unknown = [str(index) for index, mode in modes.items() if mode is None]
    if off:
        hint = "`sudo nvidia-smi --accounting-mode=1` lets the driver keep exact peaks; without it they are sampled."
        return Finding(check="accounting", verdict="warning", message=f"off on GPU {', '.join(off)}", hint=hint)
    if unknown or not modes:
        where = f"GPU {', '.join(unknown)} does" if unknown else "the driver does"
        message = f"{where} not report it; peaks are sampled"
        return Finding(check="accounting", verdict="warning", message=message)
    return Finding(check="accounting", verdict="ok", message="on: the driver keeps exact peaks")


def _sample() -> Sample:
    from vramtui.sources.nvml.source import NvmlSource  # loads pynvml, which may be the very problem

    return NvmlSource(timeout=PATIENCE).read()


def _first(check: Check) -> Check:
    """The check, with a driver that cannot be talked to as its finding."""

    def ask() -> Finding:
        try:
            return check.ask()
        except SourceFailed as error:
            return Finding(check=check.id, verdict="failed", message=error.message.rstrip("."), hint=error.hint)

    return Check(check.id, ask)


def _later(check: Check) -> Check:
    """The check, which has nothing to add where the driver cannot be talked to."""

    def ask() -> Finding:
        try:
            return check.ask()
        except SourceFailed:
            return Finding(check=check.id, verdict="unknown", message="NVML has to open first")

    return Check(check.id, ask)


CHECKS = (
    *(
        of_nvidia(check)
        for check in (
            _first(Check("nvml", nvml)),
            _later(Check("gpus", gpus)),
            Check("nvidia-smi", nvidia_smi),
            Check("permissions", permissions),
            _later(Check("accounting", accounting)),
        )
    ),
    Check("amdgpu", amdgpu),
)
