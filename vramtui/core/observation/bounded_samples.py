"""Limits of samples: drivers sometimes answer with garbage. A source takes a figure beyond its limit for a failed
answer; a sample of others (recording, feed, Prometheus) loses it here, with a problem that names it.
"""

import operator
from collections.abc import Callable
from itertools import count, islice
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
# For each figure the least and the most, some ten times what any device has, or what is true of a possible one.
_FIGURES: Final[dict[str, tuple[float, float] | Callable[[Any], bool]]] = {
    **dict.fromkeys(("total", "used", "reserved", "free", "used_memory", "peak_memory", "host_memory"), SIZE),
    **dict.fromkeys(("utilization", "memory_utilization", "encoder_utilization", "decoder_utilization"), PERCENT),
    **dict.fromkeys(("nvlink_sent", "nvlink_received", "pcie_sent", "pcie_received"), (0, 1e14)),
    "temperature_celsius": (-100, 200), "power_watts": (0, 20_000), "power_limit_watts": (0, 20_000),
    "sm_clock_mhz": (0, 100_000), "memory_clock_mhz": (0, 100_000), "fan_percent": (0, 1000),
    "pcie_generation": (0, 100), "pcie_width": (0, 1000), "ecc_errors": SIZE, "memory_repairs": (0, 1 << 32),
    "mig_used": SIZE, "sm_percent": PERCENT, "cpu_percent": (0, 1e6),  # of all processors
    "compute_capability": lambda pair: len(pair) == 2 and all(0 <= n < 1000 for n in pair) and pair[0] > 0,
    "xid_errors": lambda xids: len(xids) <= 64 and all(0 <= xid.code <= 100_000 for xid in xids),
}  # fmt: skip
# The most characters of texts that are not names.
_TEXTS: Final[dict[type, dict[str, int]]] = {
    readings.Process: {"name": PATH, "command": COMMAND, "alloc_conf": COMMAND}, readings.JobRank: {"job": PATH},
    readings.Gpu: {"reason": SENTENCE}, readings.Problem: {"message": SENTENCE, "hint": SENTENCE},
    readings.Ancestors: {"command": COMMAND},
}  # fmt: skip
Read = TypeVar("Read", bound=msgspec.Struct)


def is_possible(field: str, value: object) -> bool:
    """A metric of `core.observation.readings.Gpu` can have this value."""
    limits = _FIGURES.get(field)
    if callable(limits):
        return isinstance(value, tuple) and limits(value)
    if field in ("name", "uuid", "pci_bus_id"):
        return isinstance(value, str) and bool(value.strip())
    # NaN is neither below nor above anything.
    return not isinstance(limits, tuple) or (isinstance(value, int | float) and limits[0] <= value <= limits[1])


def bounded(sample: readings.Sample, before: readings.Sample | None = None) -> readings.Sample:
    """`sample` without impossible figures; the very same if there are none. GPUs and processes keep their places. What
    it shares with the sample `before`, as this function returned that, is not checked again.
    """
    old = () if before is None else before.gpus
    wrong, notes, seen = list[str](), list[tuple[str, str]](), set[int]()
    gpus = [
        gpu if place < len(old) and gpu is old[place] else _gpu(place, gpu, old[place : place + 1], wrong)
        for place, gpu in enumerate(sample.gpus[:MOST_DEVICES])
    ]
    # Rename all but the first of equal uuids, and of equal indices of GPUs (MIG instances have their GPU's).
    uuids = [gpu.uuid for gpu in gpus]
    if len(set(uuids)) < len(uuids):
        for place, uuid in enumerate(uuids):
            if same := uuids[:place].count(uuid):
                wrong.append(f"GPU {place} uuid of another GPU")
                gpus[place] = replace(gpus[place], uuid=f"{uuid} ({same + 1})")
    for place, card in enumerate(gpus):
        if card.mig_parent is not None or card.state != "ok":  # a lost GPU keeps the index that it had
            continue
        if card.index in seen:
            wrong.append(f"GPU {place} index of another GPU, {card.index}")
            taken = {gpu.index for gpu in gpus}
            free = next(index for index in count() if index not in taken)
            gpus[:] = [replace(gpu, index=free) if card.uuid in (gpu.uuid, gpu.mig_parent) else gpu for gpu in gpus]
        seen.add(card.index)
    problems = [_within(one, "", []) for one in sample.problems if one.where not in (LEFT_OUT, CUT_SHORT)]
    if len(problems) > MOST_PROBLEMS:
        notes.append((CUT_SHORT, f"and {len(problems) - MOST_PROBLEMS:,} more"))
    if len(sample.gpus) > MOST_DEVICES:
        notes.append((CUT_SHORT, f"{len(sample.gpus):,} GPUs are listed; {MOST_DEVICES:,} are shown"))
    if wrong:
        rest = f" and {len(wrong) - MOST_NAMED:,} more" if len(wrong) > MOST_NAMED else ""
        named = printable(shortened(f"{', '.join(wrong[:MOST_NAMED])}{rest}", SENTENCE))
        notes.append((LEFT_OUT, f"left out: {named}"))
    problems[MOST_PROBLEMS:] = [readings.Problem(where=where, message=message) for where, message in notes]
    if not wrong:  # changes since a sample with a problem keep it
        problems += [one for one in sample.problems if one.where == LEFT_OUT][:1]
    is_whole = len(gpus) == len(sample.gpus) and all(map(operator.is_, gpus, sample.gpus))
    changed: dict[str, Any] = {"gpus": sample.gpus if is_whole else tuple(gpus)}
    changed["problems"] = sample.problems if problems == list(sample.problems) else tuple(problems)
    return _within(sample, "", [], changed)


def _within(read: Read, where: str, wrong: list[str], changed: dict[str, Any] | None = None) -> Read:
    """`read` with its texts cut, and None for each figure beyond its limits, which `wrong` then names."""
    changed = changed or {}
    for name in read.__struct_fields__:
        value = getattr(read, name)
        if value is None or (isinstance(value, str) and len(value) <= NAME):
            continue
        if isinstance(value, str):
            changed[name] = shortened(value, _TEXTS.get(type(read), {}).get(name, NAME))
        elif name in _FIGURES and not is_possible(name, value):
            wrong.append(f"{where} {name} {shortened(str(value), 40)}")
            changed[name] = None
            if isinstance(read, readings.Reading):
                changed["absent"] = {**changed.get("absent", read.absent), name: readings.Absence.FAILED}
        elif isinstance(value, msgspec.Struct) and name not in changed:
            changed[name] = _within(value, f"{where} {name}", wrong)
        elif name in ("pids", "throttle_reasons"):
            cut = tuple(shortened(one, NAME) if isinstance(one, str) else one for one in value[:NAME])
            changed[name] = value if cut == value else cut
    is_same = all(value is getattr(read, name) for name, value in changed.items())
    return read if is_same else replace(read, **changed)


def _gpu(place: int, gpu: readings.Gpu, old: tuple[readings.Gpu, ...], wrong: list[str]) -> readings.Gpu:
    where = f"GPU {place}"
    # A figure that was left out of the sample before may be there again; lists of unknown fields are cut.
    listed = islice(gpu.absent.items(), NAME)
    absent = {name: why for name, why in listed if getattr(gpu, name, None) is None or name == "processes"}
    changed: dict[str, Any] = {} if absent == gpu.absent else {"absent": absent}
    changed["memory"] = _within(gpu.memory, f"{where} memory", wrong)
    if gpu.memory.total == 0 and gpu.memory.used:
        wrong.append(f"{where} memory total 0")
        changed["memory"] = replace(changed["memory"], total=None)
    known = old[0].processes if old else ()
    if gpu.processes is not known:
        checked = {id(row) for row in known}
        rows = tuple(
            row if id(row) in checked else _within(row, f"{where} pid {row.pid}", wrong)
            for row in gpu.processes[:MOST_PROCESSES]
        )
        if len(rows) < len(gpu.processes) or any(map(operator.is_not, rows, gpu.processes)):
            changed["processes"] = rows
    if not 0 <= gpu.index < MOST_DEVICES:
        wrong.append(f"{where} index {shortened(str(gpu.index), 40)}")
        changed["index"] = place
    if any(not is_possible("used", size) for size in gpu.final_peaks.values()) or len(gpu.final_peaks) > MOST_PROCESSES:
        changed["final_peaks"] = {}
    return _within(gpu, where, wrong, changed)
