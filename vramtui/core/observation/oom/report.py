"""An out-of-memory message: its figures, its cause, and the ways out."""

import re
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.units import GIB, MIB, format_bytes, parse_size

OomCause = Literal[
    "not enough memory", "larger than the GPU", "fragmentation", "another process", "refused", "outside", "host",
    "shared memory", "unknown",
]  # fmt: skip

DESKTOP = GIB  # a driver, a desktop and its browser hold up to about this much (reports of 0.4 to 0.9 GiB)
CONTEXT = GIB  # a CUDA context holds 0.2 to 0.8 GiB, which messages without the process's own total do not show
# Cached pieces of less than this in all are what any job leaves over.
LITTLE_CACHED = 256 * MIB
# cudaMalloc may refuse a request this close to what is free: segments are rounded up.
NEARLY_FULL = 64 * MIB


class Way(NamedTuple):
    """One way out: what to do, and the bytes that it frees if they are known."""

    text: str
    frees: int | None = None

    @property
    def line(self) -> str:
        """The way in one line, with what it frees."""
        return self.text + (f" (frees {size(self.frees)})" if self.frees else "")


class OomReport(msgspec.Struct, frozen=True, kw_only=True):
    """A message with the log around it. Sizes are bytes, None if the text does not state them.

    Attributes:
        program: who wrote it: `PyTorch`, `vLLM`, `llama.cpp`, `the kernel` …
        gpu: the device's number, as the process counts them. `gpu_name`: its model, if the log names it.
        rank: the rank that failed, if the log names it.
        asked: the allocation that failed. `asked_for`: what it was for.
        total: memory of the GPU. `free`: free memory on it.
        limit: the most that the process allowed itself.
        in_use: the whole process. `allocated`: PyTorch's tensors. `unallocated`: PyTorch's cache.
        others: other processes on the GPU by pid, with None for those whose size the driver did not report.
        held: what the program reports of its own memory: weights, KV cache, arguments …
        line: the deepest line of the user's own code, `FILE:LINE`.
        command: the job's command line, as far as the log states it.
        pool: for a server, the wanted number of tokens and the number that fits.
        setting: the environment variable of PyTorch's allocator that the message names.
        windows: whether the log is of Windows, whose driver moves memory to the host.
        known_cause: the cause, if the message has only one; otherwise it follows from the figures.
        headline: the sentence for the cause, if the message says more than the figures do.
        own_ways: the ways out that belong to this message; others follow from cause and program.
    """

    program: str = "PyTorch"
    gpu: int | None = None
    gpu_name: str = ""
    rank: int | None = None
    asked: int | None = None
    asked_for: str = ""
    total: int | None = None
    free: int | None = None
    limit: int | None = None
    in_use: int | None = None
    allocated: int | None = None
    unallocated: int | None = None
    others: dict[int, int | None] = {}
    held: dict[str, int] = {}
    line: str = ""
    command: str = ""
    pool: tuple[int, int] | None = None
    setting: str = "PYTORCH_CUDA_ALLOC_CONF"
    windows: bool = False
    known_cause: OomCause | None = None
    headline: str = ""
    own_ways: tuple[Way, ...] = ()

    @property
    def reserved(self) -> int | None:
        """Bytes that PyTorch took from the driver."""
        return None if self.allocated is None else self.allocated + (self.unallocated or 0)

    @property
    def others_hold(self) -> int | None:
        """Bytes of other processes: the GPU less free memory and this process, or the sum of those that are named."""
        named = [size for size in self.others.values() if size]
        if self.total is None or self.free is None:
            return sum(named) if named else None
        own = self.in_use
        if own is None and named and None not in self.others.values():
            return sum(named)
        if own is None and self.reserved is not None and self.unallocated is not None:
            own = self.reserved + CONTEXT
        if own is None:
            return sum(named) if named else None
        return max(self.total - self.free - own, sum(named), 0)

    @property
    def within_reach(self) -> int:
        """Free bytes of the GPU, or of the process's own limit if that is less."""
        free = self.free or 0
        if self.limit is not None and self.reserved is not None:
            free = min(free, max(self.limit - self.reserved, 0))
        return free

    @property
    def of_gpu_memory(self) -> bool:
        """True if GPU memory ran out; otherwise it was the host's memory or a block's."""
        return self.known_cause not in {"host", "shared memory"}

    @property
    def spills(self) -> bool:
        """True if more is allocated than the GPU has, as Windows' driver allows by using the host's memory."""
        return self.total is not None and self.allocated is not None and self.allocated > self.total

    @property
    def cause(self) -> OomCause:
        """The cause, by the arithmetic of the figures.

        Another process is the cause only if just its memory would have been enough and is more than a desktop takes;
        fragmentation only if just the cached memory would have been enough.
        """
        if self.known_cause is not None:
            return self.known_cause
        asked = self.asked
        if asked is None:
            return "unknown"
        if self.total is not None and asked > self.total:
            return "larger than the GPU"
        if self.spills:
            return "not enough memory"
        if self.free is not None and self.limit is None and self.free >= asked + NEARLY_FULL:
            return "refused"
        others, cached = self.others_hold or 0, self.unallocated or 0
        if others > DESKTOP and others >= asked and others > cached and self.limit is None:
            return "another process"
        if cached >= max(asked, LITTLE_CACHED):
            return "fragmentation"
        return "not enough memory" if self.free is not None or self.total is not None else "unknown"

    def cause_sentence(self) -> str:
        if self.headline:
            return self.headline
        wanted = f"{size(self.asked)}{f' ({self.asked_for})' if self.asked_for else ''}"
        match self.cause:
            case "larger than the GPU":
                likely = (
                    "; most likely attention scores (batch x heads x length² x bytes) or logits (tokens x vocabulary x"
                    " bytes): both grow with the sequence length"
                )
                return f"No batch size helps: one tensor of {wanted} is larger than the GPU ({size(self.total)})" + (
                    "" if self.asked_for else likely
                )
            case "refused":
                return f"Refused although there was room: {wanted} was requested and {size(self.free)} was free"
            case "fragmentation":
                return (
                    f"Fragmentation: {wanted} was requested and {size(self.unallocated)} is cached, in pieces that are"
                    " too small"
                )
            case "another process":
                count = len(self.others)
                who = f"{count} other processes hold" if count > 1 else "other processes hold"
                about = "" if self.in_use is not None or self.others else "about "
                return f"Another process: {wanted} was requested and {who} {about}{size(self.others_hold)} of the GPU"
            case "not enough memory":
                limit = "" if self.limit is None else f" within the process's own limit of {size(self.limit)}"
                short = max((self.asked or 0) - self.within_reach, 0)
                return f"Not enough memory: {wanted} was requested, {size(self.within_reach)} was free{limit}" + (
                    f", {size(short)} short" if short else ""
                )
            case _ if self.asked is None:
                return f"Out of GPU memory: {self.program} states neither the request nor the free memory"
            case _:
                return f"Out of GPU memory: {wanted} was requested; the message does not state the free memory"

    def numbers(self) -> str:
        """One line with the figures, empty if there are none."""
        parts = []
        if self.asked is not None and self.of_gpu_memory:
            parts.append(f"requested {size(self.asked)}")
        if self.total is not None:
            parts.append(f"GPU {size(self.total)}")
        if self.free is not None:
            parts.append(f"free {size(self.free)}")
        if self.limit is not None and self.of_gpu_memory:
            parts.append(f"limit {size(self.limit)}")
        own = [f"PyTorch's tensors {size(self.allocated)}"] if self.allocated is not None else []
        own += [f"cached {size(self.unallocated)}"] if self.unallocated is not None else []
        own += [f"{name} {size(count)}" for name, count in self.held.items()]
        if self.in_use is not None:
            parts.append(f"this process {size(self.in_use)}" + (f" ({', '.join(own)})" if own else ""))
        else:
            parts += own
        if self.others_hold is not None and (self.others or self.others_hold >= DESKTOP):
            pids = [str(pid) for pid in self.others][:4]
            which = f" (pid {', '.join(pids)}{' …' if len(self.others) > len(pids) else ''})" if pids else ""
            about = "" if self.in_use is not None or (self.others and None not in self.others.values()) else "about "
            parts.append(f"other processes {about}{size(self.others_hold)}{which}")
        return " · ".join(parts)


def size(count: int | None) -> str:
    return format_bytes(count, 2)


_SIZE = r"(\d[\d.,]{0,30} ?(?:[KMGT]i?B|[Bb]ytes|B))"
_MOST = 4096  # more than the longest message there is: PyTorch's own is about 700 characters


Fields = Callable[[str, "re.Match[str]"], dict[str, Any]]


class OomMessage(NamedTuple):
    """How a message is found, and its report by its log and match: `fields` adds to what it always states."""

    pattern: "re.Pattern[str]"
    program: str
    cause: OomCause | None
    fields: Fields

    def report(self, log: str, match: "re.Match[str]") -> OomReport:
        fields: dict[str, Any] = {"program": self.program, "known_cause": self.cause, **self.fields(log, match)}
        ways = (Way(way) if isinstance(way, str) else way for way in fields.pop("own_ways", ()))
        return OomReport(**fields, own_ways=tuple(ways))


class OomMessages(list[OomMessage]):
    """Messages whose last one in a log counts."""

    def reads(
        self, pattern: "re.Pattern[str]", program: str = "PyTorch", cause: OomCause | None = "not enough memory"
    ) -> Callable[[Fields], Fields]:
        """Add a message of a program, whose figures and sentences the decorated function reads from its log."""

        def add(fields: Fields) -> Fields:
            self.append(OomMessage(pattern, program, cause, fields))
            return fields

        return add

    def states(self, pattern: "re.Pattern[str]", program: str, cause: OomCause, headline: str, *ways: str) -> None:
        """Add a message that states only that memory ran out."""
        self.reads(pattern, program, cause)(lambda _log, _match: {"headline": headline, "own_ways": ways})


def wording(text: str) -> "re.Pattern[str]":
    """A message as a pattern: `SIZE` takes a number and its unit, and a space any white space."""
    return re.compile(text.replace(" ?", r"\s*").replace(" ", r"\s+").replace("SIZE", _SIZE))


def message_at(text: str, start: int) -> str:
    """The message around a place: from the begin of its line to the next empty one."""
    begin = max(text.rfind("\n", 0, start), start - _MOST, 0)
    return text[begin : start + _MOST].partition("\n\n")[0]


def bytes_of(text: str) -> int | None:
    """The bytes of `3.00 GiB`, `7406166528 bytes` or `2,147,483,648 bytes`; None if it is not a size."""
    try:
        return parse_size(re.sub(r"\s*[Bb]ytes", "", text.replace(",", "")))
    except UserError:
        return None


def gib(number: str) -> int:
    """The bytes of a number that its message calls GiB, or GB and means GiB, as vLLM and SGLang do."""
    return round(float(number) * GIB)


def last(pattern: "re.Pattern[str]", text: str, end: int) -> "re.Match[str] | None":
    match = None
    for match in pattern.finditer(text, 0, end):  # noqa: B007 - the last one is what is wanted
        pass
    return match
