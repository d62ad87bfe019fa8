"""A host that goes wrong, and what a person sees of it: `vramtui ps`, and the panels of the dashboard."""

import ctypes
import io
import json
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pynvml

from tests.fuzz.pictures import lines_of, rows_of, view_of
from tests.stub.build import LIBRARY, build
from tests.stub.nvidia_smi import card, install
from tests.stub.world import FOR_EVER, MEMORY_CALLS, MIB, PROCESS_CALLS, StubGpu, StubMig, StubProcess, World
from vramtui.agent.processes import HOST_NAMESPACE
from vramtui.app.help.dialog import problems_of
from vramtui.app.watch.gpu_panel import GpuPanel
from vramtui.core.base.errors import SourceFailed
from vramtui.core.observation.readings import Sample
from vramtui.sources.host import host
from vramtui.sources.nvml.source import NvmlSource

GIB = 1 << 30
PID = (1 << 22) - 3  # that nobody has, as the next one
PATIENCE = 3.0  # seconds a card is waited for; a quarter of that where another one hangs
FOOT = "NOW, PEAK and PREDICTED"
CALLS = {
    "memory": MEMORY_CALLS,
    "processes": PROCESS_CALLS,
    "graphics": tuple(call for call in PROCESS_CALLS if "Graphics" in call),
}
SMI_CARD = {"name": "NVIDIA A", "memory.total": "81920", "memory.used": "1024", "memory.free": "80261"}
Fault = dict[str, Any]


def usual_world() -> World:
    first = StubGpu(name="NVIDIA A", total=80 * GIB, reserved=GIB, used=3 * GIB + 512 * MIB)
    first.processes = [StubProcess(PID, 2 * GIB), StubProcess(PID + 1, GIB)]
    return World([first, StubGpu(name="NVIDIA B", total=80 * GIB, reserved=GIB, used=0)])


def change_world(world: World, changes: dict[str, Any]) -> World:
    world.init = changes.get("init", world.init)
    if "gpus" in changes:
        world.gpus = [StubGpu()] * changes["gpus"]
        return world
    first = world.gpus[0]
    for gpu in world.gpus if "all" in changes else (first,):
        gpu.fail(
            changes.get("code", 0), *(call for name in changes.get("calls", ()) for call in CALLS.get(name, (name,)))
        )
    first.hangs.update(dict.fromkeys(changes.get("hang", ()), FOR_EVER))
    for name, value in changes.get("put", {}).items():
        setattr(first, name, None if value == "none" else value)
    if "many" in changes:
        first.processes = [StubProcess(PID - number, MIB) for number in range(changes["many"])]
    first.processes = (
        [StubProcess(*row) for row in changes.get("processes", ())] if "processes" in changes else first.processes
    )
    first.migs = [StubMig(*row) for row in changes.get("migs", ())]
    if "clear" in changes:
        first.faults.clear()
    return world


class Seen:
    def __init__(self, code: int | None = None) -> None:
        self.lines: list[str] = []
        self.code = code

    def take(self, text: str) -> None:
        self.lines += [line for line in map(_plain, text.split("\n")) if line and not line.startswith(FOOT)]


def look(fault: Fault, folder: Path) -> Seen:
    with surroundings(fault, folder) as path:
        return _in_the_dashboard(fault, path) if fault.get("where") == "dashboard" else _in_ps()


def _in_ps() -> Seen:
    from vramtui.cli.common.exit_codes import exit_on_user_error  # noqa: PLC0415 - the table alone needs no commands
    from vramtui.cli.ps import ps  # noqa: PLC0415 - as above

    seen, out, complaints = Seen(0), io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(complaints):
        try:
            with exit_on_user_error():
                ps()
        except SystemExit as left:
            seen.code = int(left.code or 0)
    seen.take(f"{out.getvalue()}\n{complaints.getvalue()}")
    return seen


def _in_the_dashboard(fault: Fault, path: Path) -> Seen:
    now = [1000.0]

    def clock() -> float:
        return now[0]

    source = NvmlSource(clock=clock, monotonic=clock, timeout=PATIENCE)
    seen, samples = Seen(), list[Sample]()
    try:
        samples.append(source.read())
        if "then" in fault:
            change_world(change_world(usual_world(), fault["world"]), fault["then"]).write(path)
            now[0] += 10
            samples.append(source.read())
    except SourceFailed as failure:
        seen.take(f"source: {failure.message} {failure.hint}")
    finally:
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
    """The stand-in library and program in the place of NVIDIA's; gives the file of the library's world."""
    path, programs, said = folder / "world", folder / "bin", folder / "smi.json"
    programs.mkdir(parents=True, exist_ok=True)
    environment = {
        "VRAMTUI_STUB_STATE": str(path),
        "VRAMTUI_STUB_SMI": str(said),
        "VRAMTUI_CONFIG_DIR": str(folder),
        "PATH": str(programs),
    }
    if "smi" in fault:
        install(programs)
        environment["PATH"] += os.pathsep + os.environ["PATH"]
        smi = dict(fault["smi"])
        gpus = [{**card(0), **SMI_CARD, **smi.pop("card")}] if "card" in smi else []
        said.write_text(json.dumps({"gpus": gpus, **smi}))
    # Before PATH is emptied, in which a compiler is looked for.
    library = build(fault.get("variant", "current")) / LIBRARY if "world" in fault else None
    with ExitStack() as stack:
        stack.enter_context(patch.dict(os.environ, environment))
        stack.enter_context(patch.object(host, "own_namespace", lambda: fault.get("namespace", HOST_NAMESPACE)))
        stack.enter_context(patch.object(pynvml, "_nvmlGetFunctionPointer_cache", {}))
        if library is None:
            stack.enter_context(patch.object(pynvml, "nvmlLib", None))
            missing = pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)
            stack.enter_context(patch.object(pynvml, "_LoadNvmlLibrary", side_effect=missing))
            yield path
            return
        change_world(usual_world(), fault["world"]).write(path)
        stack.enter_context(patch.object(pynvml, "nvmlLib", ctypes.CDLL(str(library))))
        try:
            yield path
        finally:
            World().write(path)  # what still hangs in the library comes back


def _plain(line: str) -> str:
    line = re.sub("▐[^▌]*▌", "▐▌", re.sub("[─━]{2,}", "", line))
    return re.sub(r"\s+", " ", line).strip(" │")
