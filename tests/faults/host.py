"""A host that goes wrong, and what a person sees of it: `vramtui ps`, and the panels of the dashboard."""

import ctypes
import io
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pynvml

from tests.fuzz.pictures import lines_of, rows_of, view_of
from tests.stub.build import LIBRARY, build
from tests.stub.nvidia_smi import install
from tests.stub.world import World
from vramtui.agent.processes import HOST_NAMESPACE
from vramtui.app.help.dialog import problems_of
from vramtui.app.watch.gpu_panel import GpuPanel
from vramtui.core.base.errors import SourceFailed
from vramtui.core.observation.readings import Sample
from vramtui.sources.host import host
from vramtui.sources.nvidia_smi import NvidiaSmiSource
from vramtui.sources.nvml.source import NvmlSource

CONTAINER = "pid:[4026532000]"
PATIENCE = 3.0  # seconds a card is waited for; a quarter of that where another one hangs
FOOT = "NOW, PEAK and PREDICTED"


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong.

    Attributes:
        name: what it is, in a few words.
        world: the host behind NVML; None where NVML cannot be talked to at all.
        smi: what the stand-in nvidia-smi answers; None where there is no such program.
        then: what changes after the first look; the dashboard is looked at after the second.
        where: `ps`, or `dashboard`.
        variant: of the stand-in library.
        namespace: the pid namespace that the program is in.
    """

    name: str
    world: Callable[[], World] | None = None
    smi: dict[str, Any] | None = None
    then: Callable[[World], None] | None = None
    where: str = "ps"
    variant: str = "current"
    namespace: str = HOST_NAMESPACE


@dataclass
class Seen:
    """What came of it: every line, in order, with single spaces."""

    lines: list[str] = field(default_factory=list)
    code: int = 0

    def take(self, text: str) -> None:
        """More lines."""
        self.lines += [line for line in map(_plain, text.split("\n")) if line and not line.startswith(FOOT)]


def look(fault: Fault, folder: Path) -> Seen:
    """Bring the fault about and look at it."""
    with surroundings(fault, folder) as path:
        return _in_the_dashboard(fault, path) if fault.where == "dashboard" else _in_ps()


def _in_ps() -> Seen:
    from vramtui.cli.ps import ps  # noqa: PLC0415 - loads the command line, which the table alone does not need

    seen, out, complaints = Seen(), io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(complaints):
        try:
            ps()
        except SystemExit as left:
            seen.code = int(left.code or 0)
    seen.take(out.getvalue())
    seen.take(complaints.getvalue())
    return seen


def _in_the_dashboard(fault: Fault, path: Path) -> Seen:
    now = [1000.0]

    def clock() -> float:
        return now[0]

    smi = fault.world is None
    source = NvidiaSmiSource(clock=clock) if smi else NvmlSource(clock=clock, monotonic=clock, timeout=PATIENCE)
    seen, samples = Seen(), list[Sample]()
    try:
        samples.append(source.read())
        if fault.then is not None and fault.world is not None:
            world = fault.world()
            fault.then(world)
            world.write(path)
            now[0] += 10
            samples.append(source.read())
    except SourceFailed as failure:
        seen.take(f"source: {failure.message} {failure.hint}")
    finally:
        if not smi:
            source.close()
    if samples:
        view = view_of(samples)
        for line in (*lines_of(GpuPanel(), view), *rows_of(view)):
            seen.take(line)
        for where, message, hint in problems_of(view):
            seen.take(f"{where}: {message} → {hint}")
    return seen


@contextmanager
def surroundings(fault: Fault, folder: Path) -> Iterator[Path]:
    path, programs, said = folder / "world", folder / "bin", folder / "smi.json"
    programs.mkdir(parents=True, exist_ok=True)
    environment = {
        "VRAMTUI_STUB_STATE": str(path),
        "VRAMTUI_STUB_SMI": str(said),
        "VRAMTUI_CONFIG_DIR": str(folder),
        "PATH": str(programs),
    }
    if fault.smi is not None:
        install(programs)
        environment["PATH"] += os.pathsep + os.environ["PATH"]
        said.write_text(json.dumps(fault.smi))
    # Before PATH is emptied, in which a compiler is looked for.
    library = None if fault.world is None else build(fault.variant) / LIBRARY
    with ExitStack() as stack:
        stack.enter_context(patch.dict(os.environ, environment))
        stack.enter_context(patch.object(host, "own_namespace", lambda: fault.namespace))
        stack.enter_context(patch.object(pynvml, "_nvmlGetFunctionPointer_cache", {}))
        if fault.world is None:
            stack.enter_context(patch.object(pynvml, "nvmlLib", None))
            missing = pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)
            stack.enter_context(patch.object(pynvml, "_LoadNvmlLibrary", side_effect=missing))
            yield path
            return
        world = fault.world()
        world.write(path)
        stack.enter_context(patch.object(pynvml, "nvmlLib", ctypes.CDLL(str(library))))
        try:
            yield path
        finally:
            World().write(path)  # what still hangs in the library comes back


def _plain(line: str) -> str:
    line = re.sub("▐[^▌]*▌", "▐▌", re.sub("[─━]{2,}", "", line))
    return re.sub(r"\s+", " ", line).strip(" │")
