"""Which source sees this machine's GPUs."""

import threading
from shutil import which

from vramtui.core.errors import SourceFailed
from vramtui.core.readings import Problem
from vramtui.core.source import Source

PATIENCE = 2.0  # seconds for the driver to begin to talk


def pick_source() -> Source:
    """NVML where it can be talked to, else nvidia-smi; then every sample says why.

    Raises:
        SourceFailed: neither answers; says why each does not, and what to do.
    """
    try:
        return _nvml()
    except SourceFailed as error:
        first = error
    from vramtui.sources.nvidia_smi import PROGRAM, NvidiaSmiSource  # noqa: PLC0415 - only where it is needed

    because = Problem(where="NVML", message=f"{first.message} nvidia-smi is used instead.", hint=first.hint)
    second = NvidiaSmiSource(because=because)
    try:
        second.read()
    except SourceFailed as error:
        # A program that is there and fails knows more than that a library is missing.
        hints = (error.hint, first.hint) if which(PROGRAM) else (first.hint, error.hint)
        raise SourceFailed(f"{first.message} {error.message}", hints[0] or hints[1]) from error
    return second


def _nvml() -> Source:
    try:
        from vramtui.sources.nvml import NvmlSource  # noqa: PLC0415 - loads pynvml, which other sources do not need
    except (ImportError, AttributeError) as error:  # another package's `pynvml` lacks what this one has
        raise SourceFailed(
            f"The module pynvml of nvidia-ml-py cannot be used: {error}.",
            "Remove the package `pynvml` from this environment and install nvidia-ml-py again.",
        ) from error
    source = NvmlSource()
    failures: list[SourceFailed] = []

    def open_it() -> None:
        try:
            source.open()
        except SourceFailed as error:
            failures.append(error)

    thread = threading.Thread(target=open_it, name="vramtui-open", daemon=True)
    thread.start()
    thread.join(PATIENCE)
    if failures:
        raise failures[0]
    return source  # a driver that has not answered yet may still do so: whoever reads sees how long it takes
