"""Messages of the probe inside a training job, and their sum for one process.

Bytes are as PyTorch's allocator counts them. Everything here was written by another process: numbers are bounded,
texts are cut, and a text passes `vramtui.core.base.text.printable` before it is shown.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from vramtui.core.base.units import format_bytes
from vramtui.core.estimate.estimate import Ledger, Phase

FIRST_STEPS = 3  # every moment of these is kept: memory peaks in them for the first time
LATEST = 64  # moments kept beyond those

Count = Annotated[int, Meta(ge=0, lt=1 << 62)]
Index = Annotated[int, Meta(ge=0, lt=4096)]
Pid = Annotated[int, Meta(gt=0, lt=1 << 31)]
Time = Annotated[float, Meta(ge=0, lt=1e12)]
Text = Annotated[str, Meta(max_length=4096)]
ProbePhase = Literal["build", "input", "forward", "backward", "step"]
Sizes = Annotated[dict[Annotated[str, Meta(max_length=64)], Count], Meta(max_length=256)]


class HostBatches(msgspec.Struct, frozen=True, kw_only=True):
    """A loader and one batch of it.

    Attributes:
        workers: processes that fill its queue; 0 where it loads in the job's own.
        prefetch: batches that each worker keeps ahead.
        pinned: whether each batch is copied into page-locked memory.
        batch: bytes of a batch's tensors.
        locked: the same as page-locked memory takes them, each tensor in a power of two.
    """

    workers: Annotated[int, Meta(ge=0, lt=1 << 16)]
    prefetch: Annotated[int, Meta(ge=0, lt=1 << 16)]
    pinned: bool
    batch: Annotated[int, Meta(ge=0, lt=1 << 56)]
    locked: Annotated[int, Meta(ge=0, lt=1 << 56)]

    @property
    def sentence(self) -> str:
        """Describe it in bytes.

        The queue holds `prefetch_factor` batches a worker (torch/utils/data/dataloader.py,
        `_MultiProcessingDataLoaderIter._reset`); page-locked memory is taken in powers of two
        (aten/src/ATen/core/CachingHostAllocator.h: `PowerOf2Ceil`).
        """
        clauses = []
        if self.workers:
            ready = self.workers * self.prefetch
            several = "s keep" if self.workers > 1 else " keeps"
            clauses.append(
                f"{self.workers} worker{several} up to {ready} batches of {format_bytes(self.batch)} ready in the "
                f"host's shared memory, {format_bytes(ready * self.batch)} (prefetch_factor {self.prefetch} each), and "
                f"wait{'' if self.workers > 1 else 's'} once the queue is full"
            )
        if self.pinned:
            clauses.append(
                f"pin_memory copies each into page-locked memory, {format_bytes(self.locked)} in powers of two, from "
                "which the card reads directly"
            )
        return f"DataLoader: {'; '.join(clauses)}"


class ProbeDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A CUDA device as the job numbers it; `uuid` is the driver's, with or without its `GPU-`."""

    index: Index
    name: Text
    total_memory: Count
    capability: tuple[Index, Index]
    uuid: Annotated[str, Meta(max_length=64)] | None = None


class MemoryCounters(msgspec.Struct, frozen=True, kw_only=True):
    """`torch.cuda.memory_stats` of one device: bytes now and at their peaks, and how often the allocator failed."""

    index: Index
    allocated: Count | None = None
    allocated_peak: Count | None = None
    reserved: Count | None = None
    reserved_peak: Count | None = None
    num_alloc_retries: Count | None = None
    num_ooms: Count | None = None


class PhaseEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The end of one phase of one step on one device, in bytes.

    The phase's own peaks are known only when they were higher than all before; or else they are None.
    """

    at: Time
    phase: ProbePhase
    step: Count
    device: Index
    allocated: Count | None = None
    reserved: Count | None = None
    peak_allocated: Count | None = None
    peak_reserved: Count | None = None


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """Fields of every message: the format's version, the sender, and the time (seconds since the epoch)."""

    v: Literal[1]
    pid: Pid
    at: Time


class Hello(Message, frozen=True, kw_only=True, tag="hello"):
    """Who this is. `run` is the mark of the `vramtui run` that started it, `preset` the name or path it was given."""

    run: Text | None = None
    preset: Text | None = None
    command: Annotated[tuple[Text, ...], Meta(max_length=16)] = ()
    python: Text = ""
    torch: Text = ""
    devices: Annotated[tuple[ProbeDevice, ...], Meta(max_length=64)] = ()
    rank: Count | None = None


class Beat(Message, frozen=True, kw_only=True, tag="beat"):
    """How it is now.

    Attributes:
        phase: None in a step that is not watched, because that would cost it too much.
        parts: bytes by part, then by torch's name of the device.
        loaders: what DataLoaders with workers or pinned memory keep on the host.
    """

    phase: ProbePhase | None = None
    step: Count
    step_seconds: Time | None = None
    lost: Count = 0
    devices: Annotated[tuple[MemoryCounters, ...], Meta(max_length=64)] = ()
    parts: dict[Literal["weights", "gradients", "optimizer"], Sizes] = {}
    moments: Annotated[tuple[PhaseEnd, ...], Meta(max_length=1024)] = ()
    loaders: Annotated[tuple[HostBatches, ...], Meta(max_length=64)] = ()


class OutOfMemory(Message, frozen=True, kw_only=True, tag="oom"):
    """The allocator gave up: what was asked for, what the driver had free, and what PyTorch held, in bytes.

    `limit` is what the process may hold at most, where it has set itself a limit.
    """

    device: Index
    asked: Count
    free: Count | None = None
    limit: Count | None = None
    allocated: Count | None = None
    reserved: Count | None = None
    phase: ProbePhase | None = None
    step: Count


class End(Message, frozen=True, kw_only=True, tag="end"):
    """The last message of a process, with the exception that ends it, if one does."""

    error: Text | None = None
    message: Text = ""
    out_of_memory: bool = False


AnyMessage = Hello | Beat | OutOfMemory | End


class ObservedJob(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one process has reported so far.

    Attributes:
        hello: who it is; None when that message was lost.
        beat: the latest.
        peaks: the most that each counter of a device ever said, by the device's index.
        parts: the most that each part took, by part and device.
        moments: the ends of phases: all of the first steps, and the latest.
        ooms: how often the allocator gave up, each time.
        end: its last words; `gone` when the connection ended, with or without them.
    """

    pid: int
    hello: Hello | None = None
    beat: Beat | None = None
    peaks: dict[int, MemoryCounters] = {}
    parts: dict[str, dict[str, int]] = {}
    moments: tuple[PhaseEnd, ...] = ()
    ooms: tuple[OutOfMemory, ...] = ()
    end: End | None = None
    gone: bool = False

    def heard(self, message: AnyMessage) -> "ObservedJob":
        """The job after one more of its messages."""
        if isinstance(message, Hello):
            return msgspec.structs.replace(self, hello=message)
        if isinstance(message, OutOfMemory):
            return msgspec.structs.replace(self, ooms=(*self.ooms, message)[-LATEST:])
        if isinstance(message, End):
            return msgspec.structs.replace(self, end=message)
        peaks = dict(self.peaks)
        for counters in message.devices:
            before = peaks.get(counters.index, counters)
            pairs = ((name, getattr(before, name), getattr(counters, name)) for name in counters.__struct_fields__)
            highest = {name: a if b is None else b if a is None else max(a, b) for name, a, b in pairs}
            peaks[counters.index] = MemoryCounters(**highest)
        parts = {part: dict(sizes) for part, sizes in self.parts.items()}
        for part, sizes in message.parts.items():
            most = parts.setdefault(part, {})
            for device, size in sizes.items():
                most[device] = max(size, most.get(device, 0))
        moments = latest_moments(self.moments, message.moments)
        return msgspec.structs.replace(self, beat=message, peaks=peaks, parts=parts, moments=moments)

    def ledger(self, device: int) -> Ledger:
        """The observed side for one device: parts where they are known, and the peaks of the allocator's totals.

        Memory beyond weights, gradients and optimizer is called activations: from outside of the job's own code nothing
        else is known of it.
        """
        peak = self.peaks.get(device, MemoryCounters(index=device))
        sizes = {part: self.parts.get(part, {}).get(f"cuda:{device}") for part in ("weights", "gradients", "optimizer")}
        rest = None
        if peak.allocated_peak is not None and sizes["weights"] is not None:
            rest = max(0, peak.allocated_peak - sum(size or 0 for size in sizes.values()))
        cached = None
        if peak.reserved_peak is not None and peak.allocated_peak is not None:
            cached = max(0, peak.reserved_peak - peak.allocated_peak)
        return Ledger(
            weights=sizes["weights"],
            gradients=sizes["gradients"],
            optimizer=sizes["optimizer"],
            activations=rest,
            allocated=peak.allocated_peak,
            cached=cached,
            reserved=peak.reserved_peak,
        )

    @property
    def is_complete(self) -> bool:
        """Return whether nothing can have happened since it last reported: it runs, or said its last words."""
        return self.end is not None or not self.gone

    def ledger_beside(self, device: int, process: int | None) -> Ledger:
        """`ledger` and the most that the driver showed of the process, in bytes.

        What lies beyond reserved is the context, but where the job was gone before its last words (a signal,
        `os._exit`): its allocator may have grown since its last report. A process line below reserved came too early
        and says nothing of the peak.
        """
        ledger = self.ledger(device)
        if process is None or process < (ledger.reserved or 0):
            return ledger
        context = process - ledger.reserved if self.is_complete and ledger.reserved is not None else None
        return msgspec.structs.replace(ledger, process=process, context=context)

    def phase_ends(self, device: int, step: int) -> dict[Phase, PhaseEnd]:
        return {end.phase: end for end in self.moments if end.device == device and end.step == step}


def latest_moments(known: tuple[PhaseEnd, ...], more: tuple[PhaseEnd, ...]) -> tuple[PhaseEnd, ...]:
    """Ends of phases to keep: all of the first steps, the latest, and of those between the one of the highest peak."""
    every = (*known, *more)
    first = [end for end in every if end.step < FIRST_STEPS][: LATEST * FIRST_STEPS]
    later = [end for end in every if end.step >= FIRST_STEPS]
    highest = max(later[:-LATEST], key=lambda end: end.peak_allocated or 0, default=None)
    return (*first, *([highest] if highest and highest.peak_allocated else ()), *later[-LATEST:])


_decoder: "msgspec.json.Decoder[AnyMessage]" = msgspec.json.Decoder(AnyMessage)


def decode_message(data: bytes) -> AnyMessage:
    """One message of a probe.

    Raises:
        msgspec.DecodeError: it is none (UnicodeDecodeError is one, too).
    """
    return _decoder.decode(data)
