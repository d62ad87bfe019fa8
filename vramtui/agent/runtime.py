"""What a process runs under, as far as its memory hangs on it: CUDA's loading of kernels, PyTorch's release, and the
settings of its allocator.

Nothing of the process is imported: PyTorch's release stands in the `version.py` beside the library that it has loaded.
"""

from __future__ import annotations

import os
import re
import stat

LONGEST_SETTING = 1024
MOST_MAPS = 1 << 23  # bytes
MOST_VERSION = 1 << 12
# PyTorch reads them in this order (c10/core/AllocatorConfig.h, parseEnv).
ALLOC_CONF = (b"PYTORCH_ALLOC_CONF", b"PYTORCH_CUDA_ALLOC_CONF")
_LIBRARY = re.compile(rb" (/[^\n]*)/lib/libtorch[a-z_]*\.so")
_VERSION = re.compile(rb"""__version__[^=\n]*=\s*['"]([0-9]+\.[0-9]+[0-9A-Za-z.+-]{0,40})['"]""")


def module_loading_of(environment: bytes) -> str | None:
    """`eager` or `lazy`, as CUDA_MODULE_LOADING has it (CUDA C++ Programming Guide, "Lazy Loading"); else None."""
    value = _value(environment, b"CUDA_MODULE_LOADING")
    return {b"EAGER": "eager", b"LAZY": "lazy"}.get(value.upper())


def alloc_conf_of(environment: bytes) -> str | None:
    """The settings of PyTorch's allocator; None where there are none, or too long to be any."""
    for name in ALLOC_CONF:
        value = _value(environment, name)
        text = value.decode("ascii", "replace")
        if value and len(value) <= LONGEST_SETTING and text.isprintable():
            return text
    return None


def torch_of(pid: int) -> str | None:
    """The release of PyTorch that a process has loaded; None where it has none, or may not be looked at."""
    library = _LIBRARY.search(_read(f"/proc/{pid}/maps", MOST_MAPS))
    if library is None:
        return None
    folder = os.fsdecode(library.group(1))
    match = _VERSION.search(_read(f"/proc/{pid}/root{folder}/version.py", MOST_VERSION))
    return match.group(1).decode("ascii") if match else None


def _value(environment: bytes, name: bytes) -> bytes:
    """A variable's value; nothing where it is not set."""
    for entry in environment.split(b"\0"):
        key, _, value = entry.partition(b"=")
        if key == name:
            return value
    return b""


def _read(path: str, most: int) -> bytes:
    """The first bytes of a plain file; nothing where it is none or may not be read. Never waits for a pipe's end."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return b""
        parts = []
        while most > 0:
            part = os.read(file, min(most, 1 << 16))
            if not part:
                break
            parts.append(part)
            most -= len(part)
        return b"".join(parts)
    except OSError:
        return b""
    finally:
        os.close(file)
