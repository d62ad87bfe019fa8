"""Compiles the driver once for each state of its sources, with the C compiler of the machine."""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import threading
from pathlib import Path

from vramtui.core.base.errors import UserError, os_reason

SOURCES = Path(__file__).with_name("c")
DRIVER, NVML = "libcuda.so.1", "libnvidia-ml.so.1"
FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-shared", "-pthread", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror")
NVML_PARTS = ("nvml.c", "card.c", "report.c")
LONGEST = 600  # seconds that a compiler may take


def libraries() -> dict[str, tuple[str, ...]]:
    return {NVML: NVML_PARTS, DRIVER: tuple(sorted(one.name for one in SOURCES.glob("*.c") if one.name != "nvml.c"))}


def source_key() -> str:
    texts = [path.read_bytes() for path in sorted(SOURCES.iterdir()) if path.suffix in {".c", ".h"}]
    return hashlib.sha256(b"\0".join([*texts, *(flag.encode() for flag in FLAGS)])).hexdigest()[:16]


def build(cache: Path) -> Path:
    """The folder that holds the compiled libraries: that of the wheel, or one below `cache`, made where it is missing.

    Raises:
        UserError: this is no Linux, there is no C compiler, it refuses the sources, or `cache` cannot be written.
    """
    if sys.platform != "linux":
        raise UserError("engine cuda runs only on Linux")
    prebuilt = SOURCES.with_name("prebuilt") / f"{platform.machine()}-{source_key()}"
    if (prebuilt / DRIVER).exists():
        return prebuilt
    compiler = os.environ.get("CC", "cc")
    # the compiler and the job work in other folders than this process, where HOME may be "."
    folder = cache.absolute() / f"driver-{source_key()}-{hashlib.sha256(compiler.encode()).hexdigest()[:8]}"
    if (folder / DRIVER).exists() and (folder / NVML).exists():
        return folder
    if shutil.which(compiler) is None:
        raise UserError(
            f"engine cuda compiles a small library and needs a C compiler; {compiler} was not found: install gcc or "
            "clang, or name one in CC"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for library, parts in libraries().items():
            unfinished = folder / f"{library}.{threading.get_native_id()}"
            command = [compiler, *FLAGS, f"-Wl,-soname,{library}", "-o", str(unfinished), *parts, "-ldl"]
            subprocess.run(  # noqa: S603 - the compiler that the person named, on our own files
                command, cwd=SOURCES, check=True, capture_output=True, text=True, timeout=LONGEST
            )
            unfinished.replace(folder / library)
    except subprocess.CalledProcessError as error:
        first = next((line for line in error.stderr.splitlines() if "error" in line), "it gave no reason")
        raise UserError(f"{compiler} does not compile the driver: {first}") from None
    except subprocess.TimeoutExpired:
        raise UserError(f"{compiler} did not compile the driver within {LONGEST} s") from None
    except OSError as error:
        raise UserError(f"{folder} cannot be written: {os_reason(error)}") from None
    return folder
