"""What a traced script writes is thrown away, and nothing that it sends leaves the machine.

Where the kernel lets a user have one, the process gets a view of the files of its own (a mount namespace): over each
file system and each folder of the root lies an overlay whose upper layer is memory that goes with the process. A
network namespace of its own has loopback and nothing else. Where that is refused, guard.py and refusals.py stand in.
"""

import contextlib
import ctypes
import os
import socket
import struct
from fcntl import ioctl
from pathlib import Path

from vramtui.dryrun.guard import redirect
from vramtui.dryrun.refusals import refuse_network, refuse_writes

# linux/sched.h, linux/mount.h, linux/sockios.h, linux/if.h
CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWNET = 0x20000, 0x10000000, 0x40000000
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1
# File systems that hold no files of anybody's.
NOT_FILES = {
    "autofs", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "devtmpfs", "efivarfs",
    "fusectl", "hugetlbfs", "mqueue", "nsfs", "proc", "pstore", "ramfs", "rpc_pipefs", "securityfs", "selinuxfs",
    "sysfs", "tracefs",
}  # fmt: skip
NOT_FOLDERS = {"/dev", "/proc", "/sys"}
NO_NAMESPACE = (
    "no namespace of its own is to be had here ({}): what Python, PyTorch, safetensors, Arrow and SQLite write goes to "
    "a temporary folder, {}"
)
REST_REFUSED = "and whatever else writes is refused; other programs that the code starts may reach the network"
REST_OPEN = "what other C libraries write, and other programs that the code starts, is not shielded"
# What libraries understand, so that they do not wait for an answer that does not come.
OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "WANDB_MODE": "disabled",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "COMET_MODE": "disabled",
    "NEPTUNE_MODE": "debug",
    "CLEARML_OFFLINE_MODE": "1",
    "SWANLAB_MODE": "disabled",
}


class Mounts:
    """Mounts of this process's own namespace, whose upper layers lie in `scratch`."""

    def __init__(self, scratch: str) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._call("tmpfs", scratch, "tmpfs", 0, "mode=700")
        self._upper = os.open(scratch, os.O_PATH)
        self._count = 0

    def _call(self, source: str, target: str, kind: str, flags: int, data: str) -> None:
        if self._libc.mount(*map(os.fsencode, (source, target, kind)), flags, os.fsencode(data)):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), target)

    def cover(self, target: str, lower: int) -> None:
        """Lay an overlay over `target`, of which `lower` is a descriptor; a file is bound back as it was.

        Raises:
            OSError: the kernel refuses it there.
        """
        below = f"/proc/self/fd/{lower}"
        if not Path(below).is_dir():
            self._call(below, target, "", MS_BIND, "")
            return
        self._count += 1
        above = f"/proc/self/fd/{self._upper}/{self._count}"
        for part in ("", "/upper", "/work"):
            Path(above + part).mkdir()
        self._call("overlay", target, "overlay", 0, f"lowerdir={below},upperdir={above}/upper,workdir={above}/work")

    def keep(self, target: str, was: int) -> None:
        """Bring back what a mount above it hides: a device, a file system without files."""
        self._call(f"/proc/self/fd/{was}", target, "", MS_BIND | MS_REC, "")

    def hide(self, device: str) -> None:
        """Let the null device stand in place of a device."""
        self._call(os.devnull, device, "", MS_BIND, "")


def protect(scratch: str, unchanged: tuple[str, ...] = (), hidden: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Let this process and its children write to `scratch` instead of wherever they do, and reach no network.

    Args:
        scratch: an empty folder, which the caller removes afterwards.
        unchanged: folders that stay what they are.
        hidden: devices that nothing in here can open, where there is a namespace.

    Returns:
        What could not be shielded, a sentence each.
    """
    os.environ.update(OFFLINE)
    try:
        _leave_namespaces()
        descriptors = [os.open(folder, os.O_PATH) for folder in unchanged]
        mounts = Mounts(scratch)
        open_to_writes = _cover_all(mounts)
        for folder, was in zip(unchanged, descriptors, strict=True):
            mounts.keep(folder, was)
            os.close(was)
        for device in hidden:
            mounts.hide(device)
    except OSError as error:
        redirect(scratch, ("/",))
        refuse_network()
        refusal = REST_REFUSED if refuse_writes(scratch) else REST_OPEN
        return (NO_NAMESPACE.format(error.strerror, refusal),)
    os.chdir(Path.cwd())  # as it is seen now
    if not open_to_writes:
        return ()
    redirect(scratch, open_to_writes)
    return (f"no overlay can lie over {', '.join(open_to_writes)}: what C libraries write there is not shielded",)


def _leave_namespaces() -> None:
    """Files and network of its own; as an ordinary user by way of a user namespace in which ids are what they were.

    Raises:
        OSError: the kernel refuses it.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.geteuid(), os.getegid()
    if libc.unshare(CLONE_NEWNS | CLONE_NEWNET):
        if libc.unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{user} {user} 1"),
            ("gid_map", f"{group} {group} 1"),
        ):
            Path(f"/proc/self/{name}").write_text(text, encoding="ascii")
    if libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        flags = struct.unpack("16sH", ioctl(control, SIOCGIFFLAGS, struct.pack("16sH14x", b"lo", 0))[:18])[1]
        ioctl(control, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | IFF_UP))


def _cover_all(mounts: Mounts) -> tuple[str, ...]:
    """Cover what can be written to; the folders that stay open, where this user may write there."""
    left: list[str] = []
    places = _places()
    descriptors = {}
    for place in places:
        with contextlib.suppress(OSError):
            descriptors[place] = os.open(place, os.O_PATH)
    for place in sorted(descriptors, key=lambda path: path.count("/")):
        if not places[place]:
            if place.count("/") > 1 and not place.startswith(tuple(f"{one}/" for one in NOT_FOLDERS)):
                with contextlib.suppress(OSError):
                    mounts.keep(place, descriptors[place])
            continue
        try:
            mounts.cover(place, descriptors[place])
        except OSError:
            left += _cover_below(mounts, place)
    for descriptor in descriptors.values():
        os.close(descriptor)
    return tuple(left)


def _cover_below(mounts: Mounts, place: str) -> list[str]:
    """A folder with other file systems in it that came from outside takes no overlay: those of its folders do that
    this user may write to.
    """
    if os.access(place, os.W_OK):
        return [place]
    left = []
    with contextlib.suppress(OSError):
        for folder in [one for one in Path(place).iterdir() if one.is_dir() and not one.is_symlink()]:
            if os.access(folder, os.W_OK) and not folder.is_mount():
                try:
                    descriptor = os.open(folder, os.O_PATH)
                    mounts.cover(str(folder), descriptor)
                    os.close(descriptor)
                except OSError:
                    left.append(str(folder))
    return left


def _places() -> dict[str, bool]:
    """Every mount and every folder of the root, and whether files are written there."""
    places = {
        str(path): str(path) not in NOT_FOLDERS
        for path in Path("/").iterdir()
        if path.is_dir() and not path.is_symlink()
    }
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        before, _, after = line.partition(" - ")
        place = before.split(" ")[4].encode().decode("unicode_escape")
        if place != "/" and not place.startswith(tuple(f"{one}/" for one in NOT_FOLDERS)):
            kind, options = after.split(" ")[0], before.split(" ")[5].split(",")
            places[place] = kind not in NOT_FILES and "rw" in options and places.get(place, True)
    if "/dev/shm" in Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace"):  # noqa: S108 - a mount
        places["/dev/shm"] = True  # noqa: S108 - as above
    return places
