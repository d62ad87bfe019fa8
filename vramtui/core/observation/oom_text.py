"""Out-of-memory messages of PyTorch, vLLM and XLA, read back into figures, and told apart by their cause.

The wordings are those of PyTorch 1.x to 2.13 (c10/cuda/CUDACachingAllocator.cpp; "capacty" was its spelling in 2.1 and
2.2), vLLM 0.2 to 0.9 and jaxlib 0.1 to 0.4.
"""

import re
from collections.abc import Iterator
from typing import Literal

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.units import MIB, format_bytes, parse_size

OomCause = Literal["room", "fragmentation", "neighbour", "unknown"]
_SIZE = r"([\d.]+ ?(?:[KMGT]iB|[Bb]ytes|B))"


def _any(*wordings: str) -> tuple["re.Pattern[str]", ...]:
    return tuple(re.compile(wording.replace("SIZE", _SIZE)) for wording in wordings)


_ASKED = _any(
    r"[Tt]ried to allocate SIZE",
    r"[Oo]ut\s+of memory (?:while )?(?:trying to allocate|allocating) SIZE",
    r"Failed to allocate request for SIZE",
)
_FIGURES = {
    "total": _any(r"total capaci?ty of SIZE", r"SIZE total capacity"),
    "free": _any(r"of which SIZE is free", r"SIZE free;", r"Free memory on device \(SIZE"),
    "in_use": _any(r"this process has SIZE memory in use"),
    "allocated": _any(r"SIZE is allocated by PyTorch", r"SIZE already allocated"),
    "unallocated": _any(r"SIZE is reserved by PyTorch but unallocated"),
    "reserved": _any(r"SIZE reserved in total by PyTorch", r"SIZE cached\)"),
}
_OTHER = re.compile(rf"Process (\d+) has {_SIZE} memory in use")
_GPU = re.compile(r"GPU (\d+)")
_FRAME = re.compile(r'File "([^"\n]+)", line (\d+)')
_LIBRARY = ("site-packages", "dist-packages", "/lib/python", "<frozen")
_POOL = re.compile(r"max seq len \((\d+)\) is larger than the maximum number of tokens.*?KV cache \((\d+)\)", re.DOTALL)
_NO_BLOCKS = "No available memory for the cache blocks"
_STARTS = re.compile(
    r"out of memory|CUDA out of memory|RESOURCE_EXHAUSTED|Resource exhausted|OutOfMemoryError", re.IGNORECASE
)


# What is left over below this many bytes is the driver's own, and the rounding of the message's figures.
SMALLEST_NEIGHBOUR = 256 * MIB


class OomReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a message says; bytes throughout, None where it does not say it.

    Attributes:
        gpu: the device's number, as the process counts them.
        asked: the allocation that failed.
        total: the card. `free`: what nobody held of it.
        in_use: the whole process.
        allocated: PyTorch's own. `unallocated`: what it reserved besides.
        others: other processes on the card, by pid, where PyTorch names them.
        line: the user's own line that asked, `FILE:LINE`.
        pool: of a server, the tokens wanted and those that fit its KV cache.
    """

    gpu: int | None = None
    asked: int | None = None
    total: int | None = None
    free: int | None = None
    in_use: int | None = None
    allocated: int | None = None
    unallocated: int | None = None
    others: dict[int, int] = {}
    line: str = ""
    pool: tuple[int, int] | None = None

    @property
    def others_hold(self) -> int | None:
        """Bytes of the card that other processes hold, named or not."""
        if self.others:
            return sum(self.others.values())
        if self.total is None or self.free is None or self.in_use is None:
            return None
        rest = self.total - self.free - self.in_use
        return rest if rest >= SMALLEST_NEIGHBOUR else 0

    @property
    def cause(self) -> OomCause:
        """Fragmentation where free and cached bytes together would have been enough; a neighbour where those of other
        processes with them would; else want of room.
        """
        if self.pool is not None:
            return "room"
        if self.asked is None:
            return "unknown"
        own = (self.free or 0) + (self.unallocated or 0)
        if self.unallocated and own >= self.asked:
            return "fragmentation"
        if self.others_hold and own + self.others_hold >= self.asked:
            return "neighbour"
        return "room" if self.free is not None or self.total is not None else "unknown"

    def sentences(self) -> Iterator[str]:
        """What happened and what to do, the cause first."""
        yield self._cause_sentence()
        if self.cause == "fragmentation":
            yield "Try PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: cached pieces can then be joined."
        elif self.cause == "neighbour":
            yield "`vramtui run --when-fits -- COMMAND` waits for a GPU with room; `vramtui ps` shows who holds what."

    def _cause_sentence(self) -> str:
        if self.pool is not None:
            wanted, fits = self.pool
            return (
                f"Not enough room: the KV cache holds {fits:,} tokens, and a sequence may be {wanted:,};"
                f" --max-model-len {fits} fits"
            )
        asked = format_bytes(self.asked, 2)
        own = (self.free or 0) + (self.unallocated or 0)
        if self.cause == "fragmentation":
            return (
                f"Fragmentation: {asked} was asked for while {format_bytes(own, 2)} was free or cached, in pieces that"
                " are too small"
            )
        if self.cause == "neighbour":
            held = format_bytes(self.others_hold, 2)
            return f"A neighbour: {asked} was asked for, and other processes hold {held} of the card"
        if self.cause == "room":
            short = "" if self.asked is None else f": {format_bytes(max(self.asked - own, 0), 2)} short"
            return f"Not enough room: {asked} was asked for, {format_bytes(own, 2)} was free or cached{short}"
        return f"Out of memory: {asked} was asked for; the message does not say what was free"


def read_oom(text: str) -> OomReport:
    """The last out-of-memory message in a log or a paste.

    Raises:
        UserError: there is none.
    """
    pool = _POOL.search(text)
    if pool is not None:
        return OomReport(pool=(int(pool[1]), int(pool[2])), line=_line_before(text, pool.start()))
    asked = max(
        (found for wording in _ASKED for found in wording.finditer(text)), key=lambda m: m.start(), default=None
    )
    if asked is None and _NO_BLOCKS not in text and not _STARTS.search(text):
        raise UserError("no out-of-memory message of PyTorch, vLLM or XLA is in this text")
    if asked is None:
        return OomReport()
    # A traceback's paths may name sizes too: only the message itself is read, up to the next empty line.
    message = text[max(text.rfind("\n", 0, asked.start()), 0) :].partition("\n\n")[0]
    said = {name: _first(message, wordings) for name, wordings in _FIGURES.items()}
    reserved, allocated, unallocated = said["reserved"], said["allocated"], said["unallocated"]
    if unallocated is None and reserved is not None and allocated is not None:
        unallocated = max(reserved - allocated, 0)
    gpu = _GPU.search(message)
    return OomReport(
        total=said["total"],
        free=said["free"],
        in_use=said["in_use"],
        allocated=allocated,
        unallocated=unallocated,
        gpu=None if gpu is None else int(gpu[1]),
        asked=_bytes(asked[1]),
        others={int(pid): _bytes(size) or 0 for pid, size in _OTHER.findall(message)},
        line=_line_before(text, asked.start()),
    )


def _first(text: str, wordings: tuple["re.Pattern[str]", ...]) -> int | None:
    return next((_bytes(found[1]) for wording in wordings if (found := wording.search(text))), None)


def _bytes(text: str) -> int | None:
    try:
        return parse_size(re.sub(r" ?[Bb]ytes", "", text))
    except UserError:
        return None


def _line_before(text: str, end: int) -> str:
    """The innermost line of a traceback that is in no library; the innermost of all where every one is."""
    frames = _FRAME.findall(text[:end])
    own = [frame for frame in frames if not any(part in frame[0] for part in _LIBRARY)]
    path, number = (own or frames or [("", "")])[-1]
    return f"{path}:{number}" if path else ""
