"""This machine's GPUs through NVML, asked by ctypes."""

import threading

from vramtui.core.base.errors import SourceFailed
from vramtui.core.observation.readings import Problem, Source

PATIENCE = 2.0  # seconds for the driver to begin to talk


def open_here(_: Problem | None = None) -> Source:
    """Return NVML's source, open or about to be: who hangs is not waited for. SourceFailed if it cannot be used."""
    from vramtui.sources.nvml.source import NvmlSource  # noqa: PLC0415 - loads ctypes, which the demo does not need

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
    return source  # a driver that has not answered yet may still do so: the reader sees how long it takes
