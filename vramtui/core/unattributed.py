"""Why bytes of a GPU are nobody's: what is known to stand in the way of attributing them."""

from vramtui.core.readings import Absence, Gpu, Host

_MPS_SERVER = "nvidia-cuda-mps"  # as much of its name as the kernel keeps


def causes(gpu: Gpu, host: Host | None) -> tuple[str, ...]:
    """What the unattributed bytes of a GPU may be, each a phrase, as far as something is known to hide their owner.

    Only what the readings show is named. Empty where they show nothing: then it is the driver's own, managed memory
    that has come to lie on the device, or what a process left when it ended, and there is no telling which.

    Args:
        gpu: as it was read.
        host: the machine it is in, if known.
    """
    found = []
    if "processes" in gpu.absent:
        found.append("every process, as none is told")
    silent = [row.used_memory for row in gpu.processes].count(None)
    if silent:
        found.append(f"{silent} process{'es' if silent > 1 else ''} listed without a size")
    if "processes.graphics" in gpu.absent:
        found.append("graphics clients, as they are not told")
    if host is not None and host.private_pids and "unseen" not in [row.state for row in gpu.processes]:
        found.append("processes outside this container")
    names = {row.name or row.command for row in gpu.processes}
    if any(name is not None and _MPS_SERVER in name for name in names):
        found.append("clients of its MPS server")
    if gpu.mig_used is not None:
        found.append("what MIG keeps for itself")
    if gpu.absent.get("memory.reserved") is Absence.DRIVER_TOO_OLD:
        found.append("the driver itself, which is too old to tell that apart")
    return tuple(found)
