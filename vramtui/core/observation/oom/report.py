"""What an out-of-memory message comes to: its figures, its cause, and the sentences that tell it."""

from collections.abc import Iterator
from typing import Literal

import msgspec

from vramtui.core.base.units import MIB, format_bytes

OomCause = Literal["room", "fragmentation", "neighbour", "refused", "outside", "host", "shared memory", "unknown"]

# What is left over below this many bytes is the driver's own, and the rounding of the message's figures.
SMALLEST_NEIGHBOUR = 256 * MIB
# Cached pieces of less than this many bytes in all are no more than what any job leaves over.
LITTLE_CACHED = 256 * MIB


class OomReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a message says; bytes throughout, None where it does not say it.

    Attributes:
        program: who wrote it: `PyTorch`, `vLLM`, `llama.cpp`, `the kernel` …
        gpu: the device's number, as the process counts them.
        asked: the allocation that failed. `asked_for`: what it was to hold, where the program says it.
        total: the card. `free`: what nobody held of it.
        limit: what the process may hold at most, where it has set itself a limit.
        in_use: the whole process.
        allocated: PyTorch's own. `unallocated`: what it reserved besides.
        others: other processes on the card, by pid, where PyTorch names them.
        held: what the program says its own memory holds: weights, KV cache, arguments …
        line: the user's own line that asked, `FILE:LINE`.
        pool: of a server, the tokens wanted and those that fit its KV cache.
        known_cause: the cause, where the message is of one only; else it follows from the figures.
        own_sentences: what happened and what to do, in sentences, where the message is of one cause only.
    """

    program: str = "PyTorch"
    gpu: int | None = None
    asked: int | None = None
    asked_for: str = ""
    total: int | None = None
    free: int | None = None
    limit: int | None = None
    in_use: int | None = None
    allocated: int | None = None
    unallocated: int | None = None
    others: dict[int, int] = {}
    held: dict[str, int] = {}
    line: str = ""
    pool: tuple[int, int] | None = None
    known_cause: OomCause | None = None
    own_sentences: tuple[str, ...] = ()

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
    def outside(self) -> int | None:
        """Bytes of the card that PyTorch's memory of this process does not hold: its context, a desktop, others."""
        if self.total is None or self.free is None or self.allocated is None:
            return None
        return self.total - self.free - self.allocated - (self.unallocated or 0)

    @property
    def is_full(self) -> bool:
        """Whether the card is full although a few cached pieces together would have been enough."""
        if self.free is None or self.asked is None or self.free >= self.asked or self.limit is not None:
            return False
        return (self.unallocated or 0) < LITTLE_CACHED and (self.outside or 0) >= SMALLEST_NEIGHBOUR

    @property
    def within_reach(self) -> int:
        """Bytes that were free or cached: of the card, or of the process's own limit where that is nearer."""
        free = self.free or 0
        if self.limit is not None and self.allocated is not None:
            free = min(free, max(self.limit - self.allocated - (self.unallocated or 0), 0))
        return free + (self.unallocated or 0)

    @property
    def of_gpu_memory(self) -> bool:
        """False where it was the host's memory that ran out, or a block's."""
        return self.known_cause not in {"host", "shared memory"}

    @property
    def cause(self) -> OomCause:
        """`refused` where the card had the room and yet the driver gave none; fragmentation where free and cached bytes
        together would have been enough; a neighbour where those of other processes with them would; else want of room.
        """
        if self.known_cause is not None:
            return self.known_cause
        if self.asked is None:
            return "unknown"
        if self.free is not None and self.free >= self.asked and self.limit is None:
            return "refused"
        if self.unallocated and self.within_reach >= self.asked and not self.is_full:
            return "fragmentation"
        if self.others_hold and self.within_reach + self.others_hold >= self.asked:
            return "neighbour"
        return "room" if self.free is not None or self.total is not None else "unknown"

    def sentences(self) -> Iterator[str]:
        """What happened and what to do, the cause first."""
        if self.own_sentences:
            yield from self.own_sentences
            return
        yield self._cause_sentence()
        if self.cause == "fragmentation":
            yield "Try PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: cached pieces can then be joined."
        if self.cause == "neighbour" or (self.cause == "fragmentation" and self.others_hold):
            yield "`vramtui run --when-fits -- COMMAND` waits for a GPU with room; `vramtui ps` shows who holds what."
        if self.cause == "refused":
            yield (
                "Another process may have freed its memory in between; on Windows the page file may be too small,"
                " which limits what the GPU gives out as well."
            )
        if self.total is not None and self.allocated is not None and self.allocated > self.total:
            yield (
                f"More is allocated than the card has: the driver keeps {_size(self.allocated - self.total)} or more in"
                " the host's memory, as Windows' driver does."
            )

    def _cause_sentence(self) -> str:
        asked, reach = _size(self.asked), _size(self.within_reach)
        wanted = f"{asked} was asked for{f' ({self.asked_for})' if self.asked_for else ''}"
        match self.cause:
            case "refused":
                sentence = f"Refused with room left: {wanted} while {_size(self.free)} of the card was free"
            case "fragmentation":
                sentence = f"Fragmentation: {wanted} while {reach} was free or cached, in pieces that are too small"
            case "neighbour":
                sentence = f"A neighbour: {wanted}, and other processes hold {_size(self.others_hold)} of the card"
            case "room":
                if self.is_full and self.within_reach >= (self.asked or 0):
                    own = _size((self.allocated or 0) + (self.unallocated or 0))
                    return (
                        f"The card is full: {wanted}; this process's PyTorch holds {own} of {_size(self.total)}, and"
                        f" about {_size(self.outside)} lie outside it (its context, a desktop, other processes)"
                    )
                limit = "" if self.limit is None else f" within the process's own limit of {_size(self.limit)}"
                short = "" if self.asked is None else f": {_size(max(self.asked - self.within_reach, 0))} short"
                sentence = f"Not enough room: {wanted}, {reach} was free or cached{limit}{short}"
            case _ if self.asked is None:
                sentence = f"Out of memory: {self.program} says neither what was asked for nor what was free"
            case _:
                sentence = f"Out of memory: {wanted}; the message does not say what was free"
        return sentence


def _size(count: int | None) -> str:
    return format_bytes(count, 2)
