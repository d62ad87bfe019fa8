"""`nvidia-smi` on an emulated card, as scripts ask it: queries of GPUs and of processes in CSV, `-L`, a list."""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pynvml

from vramtui.core.base.units import MIB

UNKNOWN = "[N/A]"  # as the program itself writes what a card does not tell
UNITS = {**dict.fromkeys(("memory.total", "memory.used", "memory.free", "used_memory"), "MiB"), "utilization.gpu": "%"}
Handle = Any
GPU: dict[str, Callable[[Handle], object]] = {
    "index": pynvml.nvmlDeviceGetIndex,
    "name": pynvml.nvmlDeviceGetName,
    "uuid": pynvml.nvmlDeviceGetUUID,
    "count": lambda _: pynvml.nvmlDeviceGetCount(),
    "driver_version": lambda _: pynvml.nvmlSystemGetDriverVersion(),
    "pci.bus_id": lambda handle: pynvml.nvmlDeviceGetPciInfo(handle).busId,
    "compute_cap": lambda handle: "{}.{}".format(*pynvml.nvmlDeviceGetCudaComputeCapability(handle)),
    "memory.total": lambda handle: pynvml.nvmlDeviceGetMemoryInfo(handle).total // MIB,
    "memory.used": lambda handle: pynvml.nvmlDeviceGetMemoryInfo(handle).used // MIB,
    "memory.free": lambda handle: pynvml.nvmlDeviceGetMemoryInfo(handle).free // MIB,
    "utilization.gpu": lambda handle: pynvml.nvmlDeviceGetUtilizationRates(handle).gpu,
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
    pynvml.nvmlInit()
    every = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
    handles = [handle for handle in every if options.id in (None, _text("index", handle), _text("uuid", handle))]
    style = options.format.split(",")
    names = [name.strip() for name in (options.query_gpu or options.query_compute_apps or "").split(",")]
    if options.query_gpu:
        lines = _table(names, ([_text(name, handle) for name in names] for handle in handles), style)
    elif options.query_compute_apps:
        lines = _table(names, (row for handle in handles for row in _processes(names, handle)), style)
    else:
        form = "GPU {}: {} (UUID: {})" if options.list_gpus else "| {0:>3}  {1:30} | {3:>7}MiB / {4:>7}MiB |"
        shown = ("index", "name", "uuid", "memory.used", "memory.total")
        lines = (form.format(*(_text(name, handle) for name in shown)) for handle in handles)
    sys.stdout.writelines(f"{line}\n" for line in lines)


def _text(name: str, handle: Handle) -> str:
    try:
        value = GPU[SYNONYMS.get(name, name)](handle)
    except (KeyError, pynvml.NVMLError):
        return UNKNOWN
    return value.decode() if isinstance(value, bytes) else str(value)


def _processes(names: Sequence[str], handle: Handle) -> Iterator[list[str]]:
    for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle):
        known = {"pid": str(process.pid), "used_memory": str((process.usedGpuMemory or 0) // MIB)}
        yield [known.get(SYNONYMS.get(name, name)) or _text(name, handle) for name in names]


def _table(names: Sequence[str], rows: Iterator[list[str]], style: Sequence[str]) -> Iterator[str]:
    """Lines as `--format` asks: with their names unless `noheader`, with units unless `nounits`."""
    units = [UNITS.get(SYNONYMS.get(name, name), "") for name in names]
    if "noheader" not in style:
        yield ", ".join(f"{name} [{unit}]" if unit else name for name, unit in zip(names, units, strict=True))
    for row in rows:
        shown = zip(row, units, strict=True)
        yield ", ".join(text if "nounits" in style or not unit else f"{text} {unit}" for text, unit in shown)
