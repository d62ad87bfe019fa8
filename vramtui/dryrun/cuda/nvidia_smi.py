"""`nvidia-smi` on an emulated card, as scripts ask it: queries of GPUs and of processes in CSV, `-L`, a list."""

import argparse
import ctypes
import sys
from collections.abc import Callable, Iterator, Sequence

from vramtui.agent.nvml import Nvml
from vramtui.core.base.units import MIB

UNKNOWN = "[N/A]"  # as the program itself writes what a card does not tell
UNITS = {**dict.fromkeys(("memory.total", "memory.used", "memory.free", "used_memory"), "MiB"), "utilization.gpu": "%"}
Handle = ctypes.c_void_p


def _capability(nvml: Nvml, handle: Handle) -> str:
    major, minor = ctypes.c_int(), ctypes.c_int()
    nvml.call("nvmlDeviceGetCudaComputeCapability", handle, ctypes.byref(major), ctypes.byref(minor))
    return f"{major.value}.{minor.value}"


# What the library of an emulated card answers.
GPU: dict[str, Callable[[Nvml, Handle], object]] = {
    "index": lambda nvml, handle: nvml.number("nvmlDeviceGetIndex", handle)[0],
    "name": lambda nvml, handle: nvml.text("nvmlDeviceGetName", handle),
    "uuid": lambda nvml, handle: nvml.text("nvmlDeviceGetUUID", handle),
    "count": lambda nvml, _: nvml.number("nvmlDeviceGetCount_v2")[0],
    "driver_version": lambda nvml, _: nvml.text("nvmlSystemGetDriverVersion"),
    "compute_cap": _capability,
    "memory.total": lambda nvml, handle: nvml.memory(handle)[0]["total"] // MIB,
    "memory.used": lambda nvml, handle: nvml.memory(handle)[0]["used"] // MIB,
    "memory.free": lambda nvml, handle: nvml.memory(handle)[0]["free"] // MIB,
}
SYNONYMS = {"gpu_name": "name", "gpu_uuid": "uuid", "gpu_bus_id": "pci.bus_id", "used_gpu_memory": "used_memory"}


def main(words: Sequence[str] | None = None) -> None:
    """Print what is asked for; what is not known here is `[N/A]`."""
    asked = argparse.ArgumentParser(prog="nvidia-smi", add_help=False, allow_abbrev=False)
    asked.add_argument("-L", "--list-gpus", action="store_true")
    asked.add_argument("-i", "--id")
    asked.add_argument("--query-gpu")
    asked.add_argument("--query-compute-apps")
    asked.add_argument("--format", default="csv")
    options, _ = asked.parse_known_args(words)
    nvml = Nvml()
    handles = [Handle() for _ in range(nvml.number("nvmlDeviceGetCount_v2")[0] or 0)]
    for index, handle in enumerate(handles):
        nvml.call("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(handle))
    if options.id is not None:
        handles = [one for one in handles if options.id in (_text(nvml, "index", one), _text(nvml, "uuid", one))]
    style = options.format.split(",")
    names = [name.strip() for name in (options.query_gpu or options.query_compute_apps or "").split(",")]
    if options.query_gpu:
        lines = _table(names, ([_text(nvml, name, handle) for name in names] for handle in handles), style)
    elif options.query_compute_apps:
        lines = _table(names, (row for handle in handles for row in _processes(nvml, names, handle)), style)
    else:
        form = "GPU {}: {} (UUID: {})" if options.list_gpus else "| {0:>3}  {1:30} | {3:>7}MiB / {4:>7}MiB |"
        shown = ("index", "name", "uuid", "memory.used", "memory.total")
        lines = (form.format(*(_text(nvml, name, handle) for name in shown)) for handle in handles)
    sys.stdout.writelines(f"{line}\n" for line in lines)


def _text(nvml: Nvml, name: str, handle: Handle) -> str:
    answer = GPU.get(SYNONYMS.get(name, name))
    value = None if answer is None else answer(nvml, handle)
    return UNKNOWN if value is None else str(value)


def _processes(nvml: Nvml, names: Sequence[str], handle: Handle) -> Iterator[list[str]]:
    for pid, (used, _, _) in nvml.processes(handle)[0].items():
        known = {"pid": str(pid), "used_memory": str((used or 0) // MIB)}
        yield [known.get(SYNONYMS.get(name, name)) or _text(nvml, name, handle) for name in names]


def _table(names: Sequence[str], rows: Iterator[list[str]], style: Sequence[str]) -> Iterator[str]:
    """Lines as `--format` asks: with their names unless `noheader`, with units unless `nounits`."""
    units = [UNITS.get(SYNONYMS.get(name, name), "") for name in names]
    if "noheader" not in style:
        yield ", ".join(f"{name} [{unit}]" if unit else name for name, unit in zip(names, units, strict=True))
    for row in rows:
        shown = zip(row, units, strict=True)
        yield ", ".join(text if "nounits" in style or not unit else f"{text} {unit}" for text, unit in shown)
