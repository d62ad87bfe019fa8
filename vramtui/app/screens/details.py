"""All that is known about the chosen row: its process and its GPU."""

import time

from textual.content import Content

from vramtui.app.screens.windows import TextWindow
from vramtui.app.state import Row, View
from vramtui.app.words import why
from vramtui.core.readings import Gpu, Process, Reading
from vramtui.core.text import printable
from vramtui.core.units import format_bytes, format_duration, format_percent

Facts = list[tuple[str, str]]


class Details(TextWindow):
    """The facts of the moment in which it was opened."""

    def __init__(self, view: View) -> None:
        super().__init__("Details", "arrows scroll · Esc closes")
        self._view = view

    def text(self) -> Content:
        """Process, then GPU."""
        row, sample = self._view.chosen, self._view.sample
        if sample is None or row is None:
            gpus = sample.gpus if sample is not None else ()
            return _assemble([_section(f"GPU {gpu.index}", gpu_facts(gpu)) for gpu in gpus])
        sections = []
        if row.process is not None:
            sections.append(_section(f"Process {row.process.pid}", process_facts(row, row.process, sample.taken_at)))
        sections.append(_section(f"GPU {row.gpu.index}", gpu_facts(row.gpu)))
        return _assemble(sections)


def _section(title: str, facts: Facts) -> tuple[str, Facts]:
    return title, facts


def _assemble(sections: list[tuple[str, Facts]]) -> Content:
    pieces: list[Content | tuple[str, str]] = []
    for title, facts in sections:
        pieces.append((f"{title}\n", "bold $primary"))
        pieces += [Content.assemble((f"  {name:<16}", "$muted"), f" {printable(value)}\n") for name, value in facts]
    return Content.assemble(*pieces) if pieces else Content("No GPU is listed.")


def process_facts(row: Row, process: Process, taken_at: float) -> Facts:
    """What there is to say about a process; `taken_at` in seconds since the epoch."""
    started = process.started_at
    facts = [
        ("command", process.command or process.name or why(process, "command")),
        ("user", process.user or why(process, "user")),
        ("state", f"{process.state}, type {process.type}" if row.gone_at is None else "exited"),
        ("memory now", format_bytes(row.now, 2) if row.now is not None else _unknown(row, process)),
        ("lifetime peak", f"{format_bytes(row.peak, 2)} (as sampled)" if row.peak is not None else "not known"),
        ("preset", row.preset or "none (m chooses one)"),
    ]
    if row.predicted is not None:
        facts.append(("predicted", f"{format_bytes(row.predicted, 2)} ({format_percent(row.fraction)})"))
    if started is not None:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(started))
        facts.append(("started", f"{when}, {format_duration(taken_at - started)} ago"))
    facts.append(("CPU", _value(process, "cpu_percent", "{:.1f} % of a core")))
    held = process.host_memory
    facts.append(("host memory", format_bytes(held, 2) if held is not None else why(process, "host_memory")))
    return facts


def _unknown(row: Row, process: Process) -> str:
    return "none any more" if row.kind == "exited" else why(process, "used_memory")


def gpu_facts(gpu: Gpu) -> Facts:
    """What there is to say about a GPU, and why where there is not."""
    memory = gpu.memory
    facts = [("name", gpu.name), ("uuid", gpu.uuid)]
    if gpu.state != "ok":
        facts.append(("state", f"{gpu.state}: {gpu.reason}"))
    facts += [
        ("memory", " · ".join(_memory_parts(gpu)) or why(gpu, "memory")),
        ("utilization", _value(gpu, "utilization", "{} %") + f", memory {_value(gpu, 'memory_utilization', '{} %')}"),
        ("power", _value(gpu, "power_watts", "{:.0f} W") + f", limit {_value(gpu, 'power_limit_watts', '{:.0f} W')}"),
        ("temperature", _value(gpu, "temperature_celsius", "{} °C")),
        ("clocks", f"SM {_value(gpu, 'sm_clock_mhz', '{} MHz')}, memory {_value(gpu, 'memory_clock_mhz', '{} MHz')}"),
        ("fan", _value(gpu, "fan_percent", "{} %")),
        ("PCIe", f"generation {_value(gpu, 'pcie_generation', '{}')}, width {_value(gpu, 'pcie_width', 'x{}')}"),
        ("ECC errors", _value(gpu, "ecc_errors", "{}")),
        ("throttled by", _throttle(gpu)),
    ]
    if gpu.compute_capability is not None:
        facts.append(("capability", ".".join(map(str, gpu.compute_capability))))
    if gpu.pci_bus_id:
        facts.append(("PCI bus", gpu.pci_bus_id))
    if gpu.mig_profile:
        facts.append(("MIG", f"{gpu.mig_profile} of {gpu.mig_parent}"))
    if memory.unified:
        facts.append(("unified", "its memory is the host's"))
    return facts


def _memory_parts(gpu: Gpu) -> list[str]:
    memory = gpu.memory
    parts = (("used", memory.used), ("driver", memory.reserved), ("free", memory.free), ("total", memory.total))
    return [f"{name} {format_bytes(count)}" for name, count in parts if count is not None]


def _throttle(gpu: Gpu) -> str:
    if gpu.throttle_reasons is None:
        return why(gpu, "throttle_reasons")
    return ", ".join(gpu.throttle_reasons) or "nothing"


def _value(reading: Reading, name: str, form: str) -> str:
    value = getattr(reading, name)
    return why(reading, name) if value is None else form.format(value)
