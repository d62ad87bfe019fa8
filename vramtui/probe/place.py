"""Where those who listen to probes are found: sockets in a folder that only this user can enter."""

import os
import stat

SOCKET = "VRAMTUI_PROBE"  # the environment's name for the socket of the `vramtui run` that started this job
RUN = "VRAMTUI_RUN"  # and for what tells that run's processes from any other's
SUFFIX = ".sock"


def listeners_folder() -> str:
    """`$XDG_RUNTIME_DIR/vramtui`, or a folder of this user's own in /tmp."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime and os.path.isdir(runtime):
        return runtime + "/vramtui"
    return f"/tmp/vramtui-{os.getuid()}"  # noqa: S108 - who else could have made it is looked at in `private`


def private(folder: str) -> bool:
    """Whether `folder` is a real one, this user's, and closed to everyone else."""
    try:
        found = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not stat.S_IMODE(found.st_mode) & 0o077
