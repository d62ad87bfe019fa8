"""The out-of-memory message that counts in a log or a paste, whoever wrote it, and PyTorch's own."""

import re

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.units import MIB
from vramtui.core.observation.oom.elsewhere import ARRAYS, BLOCKS_AND_HOST, LIBRARIES, WITHOUT_FIGURES
from vramtui.core.observation.oom.messages import OomMessage, bytes_of, last, message_at, user_line, wording
from vramtui.core.observation.oom.report import OomReport
from vramtui.core.observation.oom.servers import SERVERS

_ASKED = wording(r"Tried to allocate SIZE")
_FIGURES = {
    "total": (wording(r"total capaci?ty of SIZE"), wording(r"SIZE total capacity")),
    "free": (wording(r"of which SIZE is free"), wording(r"SIZE free;")),
    "limit": (wording(r"SIZE allowed"),),
    "in_use": (wording(r"this process has SIZE memory in use"),),
    "allocated": (wording(r"SIZE is allocated by PyTorch"), wording(r"SIZE already allocated")),
    "graphs": (wording(r"with SIZE allocated in private pools"),),
    "unallocated": (wording(r"SIZE is reserved by PyTorch but unallocated"),),
    "reserved": (wording(r"SIZE reserved in total by PyTorch"), wording(r"SIZE cached\)")),
}
_PROCESS = wording(r"Process (\d{1,15}) has SIZE memory in use")
_GPU = re.compile(r"GPU (\d{1,15})")
_MPS = wording(r"MPS allocated: SIZE, other allocations: SIZE(?:, max allowed: SIZE)?\)\. Tried to allocate SIZE")
# cudaMallocAsync's (c10/cuda/CUDAMallocAsyncAllocator.cpp, PyTorch 2.x); its driver's pool has no part that is known.
_ASYNC = wording(
    r"Allocation on device (\d{1,15}) would exceed allowed memory\. \(out of memory\)"
    r" Currently allocated ?: SIZE Requested ?: SIZE Device limit ?: SIZE Free \(according to CUDA\) ?: SIZE"
    r"(?: PyTorch limit \(set by user-supplied memory fraction\) ?: SIZE)?"
)
_MPS_UNIT = re.compile(r"\b([KMG])B")

# NVML says "not available" as 2^64 - 1, which PyTorch prints as 17179869184.00 GiB; no process holds a PiB.
_MOST_PLAUSIBLE = 1 << 50


def _report(text: str, asked: "re.Match[str]") -> OomReport:
    message = message_at(text, asked.start())
    return _mps(message) or _cuda(message, bytes_of(asked[1]))


def _cuda(message: str, asked: int | None) -> OomReport:
    figures = {name: _first(message, wordings) for name, wordings in _FIGURES.items()}
    allocated, unallocated = figures["allocated"], figures["unallocated"]
    if unallocated is None and figures["reserved"] is not None and allocated is not None:
        unallocated = max(figures["reserved"] - allocated, 0)
    in_use, others = _processes(message, figures["in_use"], (allocated or 0) + (unallocated or 0))
    gpu = _GPU.search(message)
    return OomReport(
        gpu=None if gpu is None else int(gpu[1]),
        asked=asked,
        total=figures["total"],
        free=figures["free"],
        limit=figures["limit"],
        in_use=in_use,
        allocated=allocated,
        unallocated=unallocated,
        others=others,
        held={} if figures["graphs"] is None else {"in CUDA graphs' pools": figures["graphs"]},
    )


def _async(_: str, match: "re.Match[str]") -> OomReport:
    allocated, asked, total, free, limit = (None if size is None else bytes_of(size) for size in match.groups()[1:])
    return OomReport(
        gpu=int(match[1]),
        asked=asked,
        total=total,
        free=free,
        limit=limit if limit is not None and total is not None and limit < total else None,
        allocated=allocated,
    )


def _processes(message: str, own: int | None, reserved: int) -> tuple[int | None, dict[int, int]]:
    """What the process itself holds, and the others by pid.

    In a container with pids of its own, PyTorch cannot tell itself from the others (it compares NVML's pid with
    `getpid`): the one that holds at least what PyTorch has reserved, and the least more, is then itself.
    """
    sizes = {int(pid): bytes_of(size) for pid, size in _PROCESS.findall(message)}
    named = {pid: size for pid, size in sizes.items() if size is not None and size < _MOST_PLAUSIBLE}
    if "this process has" not in message and reserved:
        rounding = max(reserved // 100, MIB)
        itself = min((pid for pid in named if named[pid] >= reserved - rounding), key=lambda pid: named[pid], default=0)
        own = named.pop(itself, None)
    return (own if own is not None and own < _MOST_PLAUSIBLE else None), named


def _mps(message: str) -> OomReport | None:
    match = _MPS.search(message)
    if match is None:
        return None
    allocated, others, most, asked = (None if size is None else _mps_bytes(size) for size in match.groups())
    if allocated is None or most is None:
        return OomReport(asked=asked, allocated=allocated)
    free = max(most - allocated - (others or 0), 0)
    return OomReport(asked=asked, limit=most, free=free, allocated=allocated, unallocated=0, known_cause="room")


def _mps_bytes(size: str) -> int | None:
    return bytes_of(_MPS_UNIT.sub(r"\1iB", size))


def _first(text: str, wordings: tuple["re.Pattern[str]", ...]) -> int | None:
    return next((bytes_of(match[1]) for one in wordings if (match := one.search(text))), None)


PYTORCH = (OomMessage(_ASKED, _report), OomMessage(_ASYNC, _async))


# Messages with figures explain those behind them: NCCL's failure and the launcher's SIGKILL follow from an allocator's.
_BY_WEIGHT = ((*PYTORCH, *SERVERS, *ARRAYS), BLOCKS_AND_HOST, LIBRARIES, WITHOUT_FIGURES)
_NO_FAILURE = re.compile(r"The caller indicates that this is not a failure")
_ANY = re.compile(
    r"out of memory|RESOURCE_EXHAUSTED|Resource exhausted|OutOfMemoryError|OutOfDeviceMemory", re.IGNORECASE
)


def read_oom(text: str) -> OomReport:
    """The last out-of-memory message in a log or a paste; one with figures before one without.

    Raises:
        UserError: there is none.
    """
    for messages in _BY_WEIGHT:
        places = ((match, message) for message in messages if (match := last(message.pattern, text, len(text))))
        latest = max(places, key=lambda place: place[0].start(), default=None)
        if latest is not None:
            match, message = latest
            return msgspec.structs.replace(message.report(text, match), line=user_line(text[: match.start()]))
    if _NO_FAILURE.search(text):
        raise UserError("TensorFlow only warns here that it would go faster with more memory: nothing failed")
    if _ANY.search(text):
        return OomReport(program="the message")
    raise UserError(
        "no out-of-memory message is in this text; those of PyTorch, vLLM, SGLang, llama.cpp, JAX, TensorFlow, CuPy,"
        " CUDA's libraries and the kernel are known"
    )
