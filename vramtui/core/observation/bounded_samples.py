"""Limits of a sample's figures, texts and lists, for sources and for samples of others (recording, feed, another host,
Prometheus).

Drivers sometimes answer with garbage. A source leaves out a figure beyond its limit and reports a failed answer; a
sample of others loses it here, with a problem that names it. Texts and lists are cut to what this program reads of its
own host.
"""

from collections import Counter
from itertools import count
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from vramtui.core.base.text import printable, shortened
from vramtui.core.base.units import LARGEST_SIZE
from vramtui.core.observation import readings

MOST_DEVICES: Final = 1024  # GPUs, or instances of one GPU
MOST_PROCESSES: Final = 1 << 16  # in one list of one device
MOST_PROBLEMS: Final = 200
MOST_NAMED: Final = 5  # of the figures that are left out
LEFT_OUT: Final = "impossible figures"
CUT_SHORT: Final = "problems"
NAME, PATH, COMMAND, SENTENCE = 256, 4096, 1 << 16, 2000  # characters: PATH_MAX, what is read of a command line

PERCENT: Final = (0, 100)
SIZE: Final = (0, LARGEST_SIZE)
RATE: Final = (0, 1e14)  # bytes a second
CPU: Final = (0, 1e6)  # per cent of all processors
# For each field the least and the most, some ten times what any device has; or a text's most characters.
_LIMITS: Final[dict[type, dict[str, tuple[float, float] | int]]] = {
    readings.Sample: {"source": NAME},
    readings.Host: {"name": NAME, "driver_version": NAME, "cuda_version": NAME, "cpu_percent": CPU},
    readings.Gpu: {
        **dict.fromkeys(("uuid", "name", "pci_bus_id", "vendor", "mig_parent", "mig_profile"), NAME),
        **dict.fromkeys(("utilization", "memory_utilization", "encoder_utilization", "decoder_utilization"), PERCENT),
        **dict.fromkeys(("nvlink_sent", "nvlink_received", "pcie_sent", "pcie_received"), RATE),
        "reason": SENTENCE, "temperature_celsius": (-100, 200), "power_watts": (0, 20_000),
        "power_limit_watts": (0, 20_000), "sm_clock_mhz": (0, 100_000), "memory_clock_mhz": (0, 100_000),
        "fan_percent": (0, 1000), "pcie_generation": (0, 100), "pcie_width": (0, 1000), "ecc_errors": SIZE,
        "memory_repairs": (0, 1 << 32), "mig_used": SIZE,
    },
    readings.Memory: dict.fromkeys(("total", "used", "reserved", "free"), SIZE),
    readings.Process: {
        **dict.fromkeys(("used_memory", "peak_memory", "host_memory"), SIZE), "cpu_percent": CPU, "sm_percent": PERCENT,
        "user": NAME, "name": PATH, "command": COMMAND, "container": NAME,
    },
    readings.JobRank: {"job": PATH, "launcher": NAME},
    readings.Ancestors: {"command": COMMAND},
    readings.Problem: {"where": NAME, "message": SENTENCE, "hint": SENTENCE},
}  # fmt: skip
Read = TypeVar("Read", bound=msgspec.Struct)


def is_possible(field: str, value: object) -> bool:
    """A metric of `core.observation.readings.Gpu` can have this value."""
    if field == "compute_capability":
        return isinstance(value, tuple) and len(value) == 2 and all(0 <= n < 1000 for n in value) and value[0] > 0
    if field in ("name", "uuid", "pci_bus_id"):
        return isinstance(value, str) and bool(value.strip())
    if field == "xid_errors":
        return isinstance(value, tuple) and len(value) <= 64 and all(0 <= xid.code <= 100_000 for xid in value)
    limits = _LIMITS[readings.Gpu].get(field)
    # NaN is neither below nor above anything.
    return not isinstance(limits, tuple) or (isinstance(value, int | float) and limits[0] <= value <= limits[1])


def is_size(value: int) -> bool:
    return 0 <= value <= LARGEST_SIZE


def bounded(sample: readings.Sample, before: readings.Sample | None = None) -> readings.Sample:
    """`sample` without impossible figures; the very same if there are none. GPUs and processes keep their places. What
    it shares with the sample `before`, as this function returned that, is not checked again.
    """
    old = () if before is None else before.gpus
    wrong: list[str] = []
    gpus = [
        gpu if place < len(old) and gpu is old[place] else _gpu(place, gpu, old[place : place + 1], wrong)
        for place, gpu in enumerate(sample.gpus[:MOST_DEVICES])
    ]
    # Rename all but the first of equal uuids, and of equal indices of GPUs (MIG instances have their GPU's).
    if len({gpu.uuid for gpu in gpus}) < len(gpus):
        uuids: Counter[str] = Counter()
        for place, gpu in enumerate(gpus):
            uuids[gpu.uuid] += 1
            if uuids[gpu.uuid] > 1:
                wrong.append(f"GPU {place} uuid of another GPU")
                gpus[place] = replace(gpu, uuid=f"{gpu.uuid} ({uuids[gpu.uuid]})")
    taken = {gpu.index for gpu in gpus}
    seen: set[int] = set()
    for place, card in enumerate(gpus):
        if card.mig_parent is not None or card.state != "ok":  # a lost GPU keeps the index that it had
            continue
        if card.index in seen:
            wrong.append(f"GPU {place} index of another GPU, {card.index}")
            free = next(index for index in count() if index not in taken)
            gpus[:] = [replace(gpu, index=free) if card.uuid in (gpu.uuid, gpu.mig_parent) else gpu for gpu in gpus]
            taken.add(free)
        seen.add(card.index)
    problems = [_within(one, "", []) for one in sample.problems if one.where not in (LEFT_OUT, CUT_SHORT)]
    more, devices = len(problems) - MOST_PROBLEMS, len(sample.gpus)
    problems = problems[:MOST_PROBLEMS]
    if more > 0:
        problems.append(readings.Problem(where=CUT_SHORT, message=f"and {more:,} more"))
    if devices > MOST_DEVICES:
        problems.append(
            readings.Problem(where=CUT_SHORT, message=f"{devices:,} GPUs are listed; {MOST_DEVICES:,} are shown")
        )
    if wrong:
        rest = f" and {len(wrong) - MOST_NAMED:,} more" if len(wrong) > MOST_NAMED else ""
        named = printable(shortened(f"{', '.join(wrong[:MOST_NAMED])}{rest}", SENTENCE))
        problems.append(readings.Problem(where=LEFT_OUT, message=f"left out: {named}"))
    else:  # changes since a sample with a problem keep it
        problems += [one for one in sample.problems if one.where == LEFT_OUT][:1]
    changed: dict[str, Any] = {"host": _within(sample.host, "host", [])}
    if any(one is not other for one, other in zip(gpus, sample.gpus, strict=False)) or devices > MOST_DEVICES:
        changed["gpus"] = tuple(gpus)
    if problems != list(sample.problems):
        changed["problems"] = tuple(problems)
    return _within(sample, "", [], changed)


def _within(read: Read, where: str, wrong: list[str], changed: dict[str, Any] | None = None) -> Read:
    """`read` with its texts cut, and None for each figure beyond its limits, which `wrong` then names."""
    changed = changed or {}
    absent: dict[str, readings.Absence] = {}
    for name, limits in _LIMITS[type(read)].items():
        value = getattr(read, name)
        if value is None:
            continue
        if isinstance(limits, int):
            if len(value) > limits:
                changed[name] = shortened(value, limits)
        elif not limits[0] <= value <= limits[1]:
            wrong.append(f"{where} {name} {shortened(str(value), 40)}")
            changed[name] = None
            absent[name] = readings.Absence.FAILED
    if absent and isinstance(read, readings.Reading):
        changed["absent"] = {**changed.get("absent", read.absent), **absent}
    is_same = all(value is getattr(read, name) for name, value in changed.items())
    return read if is_same else replace(read, **changed)


def _gpu(place: int, gpu: readings.Gpu, old: tuple[readings.Gpu, ...], wrong: list[str]) -> readings.Gpu:
    where = f"GPU {place}"
    # A figure that was left out of the sample before may be there again; lists of unknown fields are cut.
    absent = {name: why for name, why in gpu.absent.items() if getattr(gpu, name, None) is None or name == "processes"}
    if len(absent) > 2 * len(readings.Gpu.__struct_fields__):
        absent = {name: why for name, why in absent.items() if name in readings.Gpu.__struct_fields__}
    changed: dict[str, Any] = {} if absent == gpu.absent else {"absent": absent}
    for name in ("compute_capability", "xid_errors"):
        value = getattr(gpu, name)
        if value is not None and not is_possible(name, value):
            wrong.append(f"{where} {name} {shortened(str(value), 40)}")
            changed |= {name: None, "absent": {**changed.get("absent", absent), name: readings.Absence.FAILED}}
    changed["memory"] = _within(gpu.memory, f"{where} memory", wrong)
    if gpu.memory.total == 0 and gpu.memory.used:
        wrong.append(f"{where} memory total 0")
        changed["memory"] = replace(changed["memory"], total=None)
    known = old[0].processes if old else ()
    if gpu.processes is not known:
        checked = {id(row) for row in known}
        rows = []
        for row in gpu.processes[:MOST_PROCESSES]:
            inner: dict[str, Any] = {}
            if id(row) in checked:
                rows.append(row)
                continue
            if row.rank is not None:
                inner["rank"] = _within(row.rank, "", [])
            if row.ancestors is not None:
                above = {"pids": row.ancestors.pids[:NAME]} if len(row.ancestors.pids) > NAME else {}
                inner["ancestors"] = _within(row.ancestors, "", [], above)
            rows.append(_within(row, f"{where} pid {row.pid}", wrong, inner))
        if len(rows) < len(gpu.processes) or any(a is not b for a, b in zip(rows, gpu.processes, strict=True)):
            changed["processes"] = tuple(rows)
    if not 0 <= gpu.index < MOST_DEVICES:
        wrong.append(f"{where} index {shortened(str(gpu.index), 40)}")
        changed["index"] = place
    if any(not is_size(size) for size in gpu.final_peaks.values()) or len(gpu.final_peaks) > MOST_PROCESSES:
        changed["final_peaks"] = {}
    reasons = gpu.throttle_reasons
    if reasons is not None and (len(reasons) > 64 or any(len(reason) > NAME for reason in reasons)):
        changed["throttle_reasons"] = tuple(shortened(reason, NAME) for reason in reasons[:64])
    return _within(gpu, where, wrong, changed)
