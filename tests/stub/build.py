"""Compiles the stand-in for NVIDIA's management library: `build()` gives the folder to put in LD_LIBRARY_PATH."""

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_name("nvml_stub.c")
LIBRARY = "libnvidia-ml.so.1"
VARIANTS: dict[str, tuple[str, ...]] = {
    "current": (),
    "old": ("-DWITHOUT_V2",),  # a driver from before the v2 and v3 calls
}


def build(variant: str = "current") -> Path:
    """The folder that holds the compiled library; compiled once for each state of its source.

    Args:
        variant: `current`, or `old` for a driver that lacks the v2 and v3 calls.

    Raises:
        subprocess.CalledProcessError: the C compiler (`CC`, or cc) refused it.
    """
    flags = VARIANTS[variant]
    compiler = os.environ.get("CC", "cc")
    key = hashlib.sha256("\0".join((SOURCE.read_text(), compiler, *flags)).encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"vramtui-stub-{os.getuid()}" / f"{variant}-{key}"
    library = folder / LIBRARY
    if library.exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / f"{LIBRARY}.{os.getpid()}"
    warnings = ("-Wall", "-Wextra", "-Wno-format-truncation", "-Wno-restrict")
    options = ("-std=gnu11", "-O1", "-fPIC", "-shared", "-pthread", f"-Wl,-soname,{LIBRARY}")
    subprocess.run([compiler, *options, *warnings, *flags, "-o", str(made), str(SOURCE)], check=True)
    made.replace(library)
    return folder
