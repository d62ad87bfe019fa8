"""Refuses what no copy stands for: connections, and by Landlock what C libraries and other programs would write."""

import ctypes
import os
import platform
import socket
import struct
import sys
from typing import Any


def refuse_network() -> None:
    """Let this process reach no address of a network; sockets of the file system stay."""

    def refuse(event: str, arguments: tuple[Any, ...]) -> None:
        if event in {"socket.connect", "socket.sendto"} and isinstance(arguments[1], tuple):
            raise ConnectionRefusedError("a trace reaches no network")
        if event == "socket.getaddrinfo":
            raise socket.gaierror(socket.EAI_AGAIN, "a trace reaches no network")

    sys.addaudithook(refuse)


# linux/landlock.h, linux/prctl.h; the numbers of these calls are the same on x86-64 and aarch64
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF, PR_SET_NO_NEW_PRIVS = 444, 445, 446, 38
_PATH_BENEATH, _VERSION = 1, 1
# WRITE_FILE, and REMOVE_DIR to MAKE_SYM; REFER, moving between folders, and TRUNCATE came with versions 2 and 3.
_CHANGES, _REFER, _TRUNCATE = 0x1FF2, 1 << 13, 1 << 14
_REFER_SINCE, _TRUNCATE_SINCE = 2, 3
_STILL_WRITTEN = ("/dev", "/proc")


def refuse_writes(scratch: str) -> bool:
    """Let this process, its libraries and its children change no file but those in `scratch` and of devices.

    Returns:
        Whether the kernel has Landlock, which does this.
    """
    if platform.machine() not in {"x86_64", "aarch64"}:
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(_CREATE_RULESET, None, 0, _VERSION)
    if version < 1:
        return False
    changes = _CHANGES | (_REFER if version >= _REFER_SINCE else 0) | (_TRUNCATE if version >= _TRUNCATE_SINCE else 0)
    ruleset = libc.syscall(_CREATE_RULESET, struct.pack("Q", changes), 8, 0)
    if ruleset < 0:
        return False
    for folder in (scratch, *_STILL_WRITTEN):
        descriptor = os.open(folder, os.O_PATH)
        libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", changes, descriptor), 0)
        os.close(descriptor)
    refused = libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.syscall(_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)
    return not refused
