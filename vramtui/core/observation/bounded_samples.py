"""What a figure can be at most, whoever tells it, and a sample that somebody else made (recording, feed, another host,
Prometheus), without what no host has.

Drivers answer with garbage now and then, and no client may break of it: a source leaves out what lies beyond the
bounds, and says that the answer failed. Figures of other hosts have the same bounds. Texts are as long as a reader of
this machine makes them at most: what is shown has to be measured, and one of a megabyte would hold the screen. Every
reader of samples asks here.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import count
from typing import Any, Final, TypeVar

import msgspec

from vramtui.core.base.text import printable, shortened
from vramtui.core.base.units import LARGEST_SIZE
from vramtui.core.observation.readings import Absence, Ancestors, Gpu, Host, JobRank, Memory, Problem, Process, Sample

LONGEST_NAME: Final = 256  # characters: NVML's names have 96, a user's 32
LONGEST_PATH: Final = 4096  # PATH_MAX
LONGEST_COMMAND: Final = 1 << 16  # as much as is read of a command line here
LONGEST_SENTENCE: Final = 2000
MOST_PROBLEMS: Final = 200
MOST_TOLD: Final = 5  # figures that are named of those left out
MOST_PERCENT: Final = 1e6  # of processors: a host of ten thousand
LEFT_OUT: Final = "impossible figures"
CUT_SHORT: Final = "problems"

_TEXTS: Final[dict[type, dict[str, int]]] = {
    Sample: {"source": LONGEST_NAME},
    Host: {"name": LONGEST_NAME, "driver_version": LONGEST_NAME, "cuda_version": LONGEST_NAME},
    Gpu: dict.fromkeys(("uuid", "name", "pci_bus_id", "vendor", "mig_parent", "mig_profile"), LONGEST_NAME)
    | {"reason": LONGEST_SENTENCE},
    Process: {
        "user": LONGEST_NAME, "name": LONGEST_PATH, "command": LONGEST_COMMAND, "container": LONGEST_NAME,
    },
    JobRank: {"job": LONGEST_PATH, "launcher": LONGEST_NAME},
    Ancestors: {"command": LONGEST_COMMAND},
    Problem: {"where": LONGEST_NAME, "message": LONGEST_SENTENCE, "hint": LONGEST_SENTENCE},
}  # fmt: skip
_FIGURES: Final = tuple(
    name
    for name in Gpu.__struct_fields__
    if name not in _TEXTS[Gpu]
    and name not in {"absent", "index", "state", "memory", "processes", "processes_trusted", "throttle_reasons"}
    and name not in {"mig_used", "final_peaks"}
)
_SIZES: Final = ("used_memory", "peak_memory", "host_memory")
Read = TypeVar("Read", bound=msgspec.Struct)


def bounded(sample: Sample, before: Sample | None = None, left_out: Sequence[str] = ()) -> Sample:
    """`sample` without what no host says; the very same where there is nothing of that.

    GPUs and processes keep their places, by which a recording's next line speaks of them.

    Args:
        sample: as it was decoded.
        before: the one before it, as this gave it: what both share was looked at.
        left_out: what could not be read of it.
    """
    old = () if before is None else before.gpus
    changes = [*left_out]
    gpus = [
        gpu
        if place < len(old) and gpu is old[place]
        else _gpu(place, gpu, old[place] if place < len(old) else None, changes)
        for place, gpu in enumerate(sample.gpus[:MOST_DEVICES])
    ]
    _tell_apart(gpus, changes)
    # What is shared with the sample before was told of there, and what a recording left out by who wrote it.
    problems = _problems(sample.problems, changes, len(sample.gpus), stays=not changes)
    changed: dict[str, Any] = {}
    if any(one is not other for one, other in zip(gpus, sample.gpus, strict=False)) or len(gpus) < len(sample.gpus):
        changed["gpus"] = tuple(gpus)
    if problems != sample.problems:
        changed["problems"] = problems
    host = _cut(sample.host)
    if host.cpu_percent is not None and not 0 <= host.cpu_percent <= MOST_PERCENT:
        host = msgspec.structs.replace(host, cpu_percent=None)
    if host is not sample.host:
        changed["host"] = host
    return _cut(msgspec.structs.replace(sample, **changed) if changed else sample)


def _cut(read: Read) -> Read:
    """`read` with its texts no longer than anybody's."""
    changed = {
        name: shortened(text, most)
        for name, most in _TEXTS[type(read)].items()
        if (text := getattr(read, name)) is not None and len(text) > most
    }
    return msgspec.structs.replace(read, **changed) if changed else read


def _gpu(place: int, gpu: Gpu, old: Gpu | None, changes: list[str]) -> Gpu:
    changed = _figures(gpu, place, changes)
    memory = _memory(gpu.memory, f"GPU {place} memory", changes)
    if memory is not gpu.memory:
        changed["memory"] = memory
    processes = _processes(gpu.processes, () if old is None else old.processes, f"GPU {place}", changes)
    if processes is not gpu.processes:
        changed["processes"] = processes
    if not 0 <= gpu.index < MOST_DEVICES:
        changes.append(f"GPU {place} index {_number(gpu.index)}")
        changed["index"] = place
    if gpu.mig_used is not None and not is_size(gpu.mig_used):
        changed["mig_used"] = None
    if any(not is_size(size) for size in gpu.final_peaks.values()) or len(gpu.final_peaks) > MOST_PROCESSES:
        changed["final_peaks"] = {}
    reasons = gpu.throttle_reasons
    if reasons is not None and (len(reasons) > len(_FIGURES) or any(len(reason) > LONGEST_NAME for reason in reasons)):
        changed["throttle_reasons"] = tuple(shortened(reason, LONGEST_NAME) for reason in reasons[: len(_FIGURES)])
    return _cut(msgspec.structs.replace(gpu, **changed) if changed else gpu)


def _figures(gpu: Gpu, place: int, changes: list[str]) -> dict[str, Any]:
    """The metrics that are left out, and why each is."""
    # A figure that was left out of the sample before may be there again.
    absent = {name: why for name, why in gpu.absent.items() if name not in _FIGURES or getattr(gpu, name) is None}
    if len(absent) > 2 * len(Gpu.__struct_fields__):
        absent = {name: why for name, why in absent.items() if name in Gpu.__struct_fields__}
    changed: dict[str, Any] = {}
    for name in _FIGURES:
        value = getattr(gpu, name)
        if value is not None and not is_possible(name, value):
            changes.append(f"GPU {place} {name} {_number(value)}")
            changed[name], absent[name] = None, Absence.FAILED
    return changed if absent == gpu.absent else changed | {"absent": absent}


def _memory(memory: Memory, where: str, changes: list[str]) -> Memory:
    sizes = {name: getattr(memory, name) for name in ("total", "used", "reserved", "free")}
    wrong = {name: size for name, size in sizes.items() if size is not None and not is_size(size)}
    if sizes["total"] == 0 and sizes["used"]:
        wrong["total"] = 0
    changes += [f"{where} {name} {_number(size)}" for name, size in wrong.items()]
    return msgspec.structs.replace(memory, **dict.fromkeys(wrong)) if wrong else memory


def _processes(
    rows: tuple[Process, ...], old: tuple[Process, ...], where: str, changes: list[str]
) -> tuple[Process, ...]:
    if rows is old:
        return rows
    seen = {id(row) for row in old}
    bounded_rows = [row if id(row) in seen else _process(row, where, changes) for row in rows[:MOST_PROCESSES]]
    is_same = len(bounded_rows) == len(rows) and all(
        one is other for one, other in zip(bounded_rows, rows, strict=True)
    )
    return rows if is_same else tuple(bounded_rows)


def _process(row: Process, where: str, changes: list[str]) -> Process:
    changed: dict[str, Any] = {}
    for name in _SIZES:
        size = getattr(row, name)
        if size is not None and not is_size(size):
            changes.append(f"{where} pid {row.pid} {name} {_number(size)}")
            changed |= {name: None, "absent": {**changed.get("absent", row.absent), name: Absence.FAILED}}
    if row.cpu_percent is not None and not 0 <= row.cpu_percent <= MOST_PERCENT:
        changed["cpu_percent"] = None
    if row.sm_percent is not None and not 0 <= row.sm_percent <= 100:
        changed["sm_percent"] = None
    if row.rank is not None and (rank := _cut(row.rank)) is not row.rank:
        changed["rank"] = rank
    if row.ancestors is not None:
        above = _cut(row.ancestors)
        if len(above.pids) > LONGEST_NAME:
            above = msgspec.structs.replace(above, pids=above.pids[:LONGEST_NAME])
        if above is not row.ancestors:
            changed["ancestors"] = above
    return _cut(msgspec.structs.replace(row, **changed) if changed else row)


def _tell_apart(gpus: list[Gpu], changes: list[str]) -> None:
    """Two devices of one uuid would be selected together and have each other's processes; two cards of one index would
    look alike. MIG instances have their card's index.
    """
    if len({gpu.uuid for gpu in gpus}) < len(gpus):
        _name_apart(gpus, changes)
    taken = {gpu.index for gpu in gpus}
    seen: set[int] = set()
    for place, card in enumerate(gpus):
        if card.mig_parent is not None or card.state != "ok":  # a card that is gone keeps the index that it had
            continue
        if card.index in seen:
            changes.append(f"GPU {place} index of another GPU, {card.index}")
            free = next(index for index in count() if index not in taken)
            gpus[:] = [
                msgspec.structs.replace(gpu, index=free) if card.uuid in (gpu.uuid, gpu.mig_parent) else gpu
                for gpu in gpus
            ]
            taken.add(free)
        seen.add(card.index)


def _name_apart(gpus: list[Gpu], changes: list[str]) -> None:
    seen: Counter[str] = Counter()
    for place, gpu in enumerate(gpus):
        seen[gpu.uuid] += 1
        if seen[gpu.uuid] > 1:
            changes.append(f"GPU {place} uuid of another GPU")
            gpus[place] = msgspec.structs.replace(gpu, uuid=f"{gpu.uuid} ({seen[gpu.uuid]})")


def _problems(problems: tuple[Problem, ...], changes: list[str], devices: int, *, stays: bool) -> tuple[Problem, ...]:
    """What the other side says, cut short, and behind it what was left out here or, where that `stays`, before."""
    if not changes and devices <= MOST_DEVICES and not problems:
        return problems
    before = [problem for problem in problems if problem.where == LEFT_OUT and stays]
    shortened = [_cut(problem) for problem in problems if problem.where not in (LEFT_OUT, CUT_SHORT)]
    problems_kept = shortened[:MOST_PROBLEMS]
    if len(shortened) > MOST_PROBLEMS:
        problems_kept.append(Problem(where=CUT_SHORT, message=f"and {len(shortened) - MOST_PROBLEMS:,} more"))
    if devices > MOST_DEVICES:
        problems_kept.append(
            Problem(where=CUT_SHORT, message=f"{devices:,} GPUs are listed; {MOST_DEVICES:,} are shown")
        )
    problems_kept += before[:1]
    if changes:
        problems_kept.append(Problem(where=LEFT_OUT, message=f"left out: {_join_first(changes)}"))
    return problems if problems_kept == list(problems) else tuple(problems_kept)


def _join_first(changes: list[str]) -> str:
    more = f" and {len(changes) - MOST_TOLD:,} more" if len(changes) > MOST_TOLD else ""
    return printable(shortened(f"{', '.join(changes[:MOST_TOLD])}{more}", LONGEST_SENTENCE))


def _number(value: object) -> str:
    return shortened(str(value), 40)


MOST_DEVICES: Final = 1024  # cards, or instances of one card
MOST_PROCESSES: Final = 1 << 16  # in one list of one device
# Least and most, some ten times what any device has.
_LIMITS: Final[dict[str, tuple[float, float]]] = {
    "utilization": (0, 100),
    "memory_utilization": (0, 100),
    "temperature_celsius": (-100, 200),
    "power_watts": (0, 20_000),
    "power_limit_watts": (0, 20_000),
    "sm_clock_mhz": (0, 100_000),
    "memory_clock_mhz": (0, 100_000),
    "fan_percent": (0, 1000),
    "pcie_generation": (0, 100),
    "pcie_width": (0, 1000),
    "ecc_errors": (0, LARGEST_SIZE),
    "encoder_utilization": (0, 100),
    "decoder_utilization": (0, 100),
    **dict.fromkeys(("nvlink_sent", "nvlink_received", "pcie_sent", "pcie_received"), (0, 1e14)),  # bytes a second
    "memory_repairs": (0, 1 << 32),
}
MOST_XIDS: Final = 64
LARGEST_XID: Final = 100_000


def is_possible(field: str, value: object) -> bool:
    """Whether a metric of `core.observation.readings.Gpu` can have this value; what has no limit can have any."""
    if field == "compute_capability":
        if not isinstance(value, tuple) or len(value) != 2:
            return False
        return all(0 <= part < 1000 for part in value) and value[0] > 0
    if field in ("name", "uuid", "pci_bus_id"):
        return isinstance(value, str) and bool(value.strip())
    if field == "xid_errors":
        return isinstance(value, tuple) and len(value) <= MOST_XIDS and all(0 <= x.code <= LARGEST_XID for x in value)
    limits = _LIMITS.get(field)
    # Not a number is neither below nor above anything.
    return limits is None or (isinstance(value, int | float) and limits[0] <= value <= limits[1])


def is_size(value: int) -> bool:
    """Whether this can be a size in bytes."""
    return 0 <= value <= LARGEST_SIZE
