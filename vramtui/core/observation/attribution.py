"""Possible owners of a GPU's unattributed bytes."""

from vramtui.core.observation.readings import Absence, Gpu, Host

_MPS_SERVER = "nvidia-cuda-mps"  # as much of its name as the kernel keeps


def causes(gpu: Gpu, host: Host | None) -> tuple[str, ...]:
    """Possible owners of a GPU's unattributed bytes, each a phrase, as far as the readings show them.

    Only what the readings show is named. Empty where they show nothing: then it is the driver's own, managed memory
    on the device, or memory that a process left when it ended, which cannot be told apart.

    Args:
        gpu: as it was read.
        host: the machine it is in, if known.
    """
    reasons = []
    if "processes" in gpu.absent:
        reasons.append("every process, because the list is unavailable")
    silent = [row.used_memory for row in gpu.processes].count(None)
    if silent:
        reasons.append(f"{silent} process{'es' if silent > 1 else ''} listed without a size")
    if "processes.graphics" in gpu.absent:
        reasons.append("graphics clients, as they are not told")
    if host is not None and host.private_pids and "unseen" not in [row.state for row in gpu.processes]:
        reasons.append("processes outside this container")
    names = {row.name or row.command for row in gpu.processes}
    if any(name is not None and _MPS_SERVER in name for name in names):
        reasons.append("clients of its MPS server")
    if gpu.mig_used is not None:
        reasons.append("what MIG keeps for itself")
    if gpu.absent.get("memory.reserved") is Absence.DRIVER_TOO_OLD:
        reasons.append("the driver itself, which is too old to tell that apart")
    return tuple(reasons)


def overlap(gpu: Gpu, grown: int | None) -> str:
    """Why the processes of a GPU hold more than is in use on it, as far as that can be known: a phrase.

    The driver is asked for a card's bytes and for its processes' one after the other. What a process grew in between
    is not more than what it grew since the look before; what goes beyond that is counted for several at once.

    Args:
        gpu: as it was read, with fewer than no unattributed bytes.
        grown: bytes by which its processes grew since the look before; None if there was none.
    """
    if grown is None:
        return "counted more than once: processes share it, or one grew between two readings"
    if grown + (gpu.unattributed or 0) >= 0:
        return "a process grew between two readings"
    return "counted more than once: processes share it"
