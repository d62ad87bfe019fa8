"""This machine's GPUs through NVML, asked with `pynvml`."""

import threading

from vramtui.core.base.errors import SourceFailed
from vramtui.core.observation.readings import Problem, Source

PATIENCE = 2.0  # seconds for the driver to begin to talk


def open_here(_: Problem | None = None) -> Source:
    """Return NVML's source, open or about to be: a driver that hangs is not waited for. Raises SourceFailed if the
    library or its module cannot be used.
    """
    try:
        from vramtui.sources.nvml.source import NvmlSource  # noqa: PLC0415 - loads pynvml, which may not be the right one
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
    return source  # a driver that has not answered yet may still do so: the reader sees how long it takes
