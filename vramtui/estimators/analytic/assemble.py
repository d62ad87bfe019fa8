"""From moments to an Estimate: the fullest moment, the parts alive in it, and the timeline."""

import msgspec

from vramtui.core.base.units import format_bytes
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import USUAL_ERROR, Estimate, Moment, Part, Phase
from vramtui.core.estimate.ledger import CATEGORIES, Line, ledger_from_parts
from vramtui.core.schema.bounds import ModuleLoading
from vramtui.core.schema.workload import InferRun, Run, TrainRun
from vramtui.estimators.torch_facts.allocator_sizes import SEGMENT_ROUNDING
from vramtui.estimators.torch_facts.cards import cuda_context, cuda_context_bytes, cuda_context_spread

# Share of what is not weights, gradients or optimizer state that stays cached beyond the peak of allocated, as the
# median over recorded runs of transformers has it; benchmarks/accuracy.py prints how far it is off for each. Where
# blocks are run again in the backward pass more stays: each comes back in pieces that fit the holes less well.
CACHED_SHARE = 0.16
RECOMPUTED_SHARE = 0.3
ALWAYS = "from start to end"
LASTING: frozenset[Line] = frozenset({"weights", "gradients", "optimizer", "master_weights", "kv_cache", "workspaces"})


class Fact(msgspec.Struct, frozen=True):
    """What a part is, without how much of it is alive when. `bytes` is its own full size, where that is known."""

    line: Line
    formula: str
    source: str
    lifetime: str = ALWAYS
    bytes: int = 0
    count: int = 0

    def part(self, name: str, at_peak: int, most: int = 0) -> Part:
        """The part of that name; of its bytes `at_peak` are there at the peak, and `most` at some other moment."""
        return Part(
            name=name,
            line=self.line,
            bytes=max(self.bytes, at_peak, most),
            at_peak=at_peak,
            formula=self.formula,
            source=self.source,
            lifetime=self.lifetime,
            count=self.count,
        )


class Cached(msgspec.Struct, frozen=True):
    """What stays in the allocator's cache.

    Attributes:
        share: of what comes and goes, how much stays beyond the peak of allocated.
        aside: bytes beside that, on streams that share nothing with the others.
    """

    share: float = CACHED_SHARE
    aside: int = 0


USUAL_CACHE = Cached()


class MomentLog:
    """Named bytes at one moment after another. `end` marks the last moment of a phase."""

    def __init__(self) -> None:
        self.noted: list[tuple[Phase, int, dict[str, int], bool]] = []

    def note(self, phase: Phase, step: int, sizes: dict[str, int], *, end: bool = True) -> None:
        """At some moment of `phase` these parts are alive with these bytes."""
        self.noted.append((phase, step, sizes, end))

    def fullest(self) -> tuple[Phase, int, dict[str, int]]:
        """The moment that holds most; of equal ones the first."""
        phase, step, sizes, _ = max(self.noted, key=lambda moment: sum(moment[2].values()))
        return phase, step, sizes

    def largest(self) -> dict[str, int]:
        """The most that each name ever holds."""
        most: dict[str, int] = {}
        for _, _, sizes, _ in self.noted:
            for name, size in sizes.items():
                if size > most.get(name, 0):
                    most[name] = size
        return most


def assemble(
    moments: MomentLog,
    facts: dict[str, Fact],
    device: Device,
    assumptions: tuple[str, ...] = (),
    other: int = 0,
    *,
    cache: Cached = USUAL_CACHE,
) -> Estimate:
    """Put the estimate together.

    Args:
        moments: what is alive when, by name.
        facts: what each of those names is.
        device: the card.
        assumptions: what was taken for granted, in sentences.
        other: bytes outside the allocator.
        cache: what the allocator keeps of what was freed.
    """
    phase, step, sizes = moments.fullest()
    most = moments.largest()
    leaves = dict.fromkeys(CATEGORIES, 0)
    for name, size in sizes.items():
        line = facts[name].line
        if line in leaves:
            leaves[line] += size
    allocated = sum(leaves.values())
    timeline = _timeline(moments, facts, cache.share)
    # Segments stay when a moment that needed more of them is over, even if it was not the fullest.
    reserved = max(moment.peak_reserved or 0 for moment in timeline) + cache.aside
    context = cuda_context_bytes(device.capability)
    parts = [fact.part(name, sizes.get(name, 0), most[name]) for name, fact in facts.items() if most.get(name)]
    parts += _outer_parts(allocated, reserved, device, cache)
    return Estimate(
        method="analytic",
        parts=tuple(parts),
        ledger=ledger_from_parts(leaves, reserved=reserved, context=context, other=other),
        peak_phase=phase,
        peak_step=step,
        timeline=timeline,
        assumptions=assumptions,
        error=USUAL_ERROR,
    )


def cached_share(run: TrainRun) -> float:
    """How much of what comes and goes in a training job stays cached beyond the peak of allocated."""
    return RECOMPUTED_SHARE if run.checkpointing in {"full", "selective-ops"} else CACHED_SHARE


def reserved_for(allocated: int, transient: int, share: float) -> int:
    """Bytes in segments when `allocated` peaks, `passing` of which come and go."""
    return -(-(allocated + int(transient * share)) // SEGMENT_ROUNDING) * SEGMENT_ROUNDING


def _outer_parts(allocated: int, reserved: int, device: Device, cache: Cached) -> list[Part]:
    copies = f"; {cache.aside:,} B of copies between ranks, on streams of their own" if cache.aside else ""
    cached = Fact(
        "cached",
        f"{cache.share:.0%} of what comes and goes, in segments of 2 MiB{copies}",
        "median over recorded PyTorch runs; the caching allocator keeps freed blocks",
        "from the first peak on",
    )
    return [cached.part("cached", reserved - allocated), context_part(device, "the whole run")]


def context_part(device: Device, lifetime: str) -> Part:
    """The CUDA context where kernels are loaded when first used."""
    size, (major, minor) = cuda_context_bytes(device.capability), device.capability
    context = Fact(
        "context",
        f"{format_bytes(size, 0)} on capability {major}.{minor}, give or take "
        f"{format_bytes(cuda_context_spread(device.capability), 0)}",
        "NVML's process memory less torch's reserved, public measurements",
        lifetime,
    )
    return context.part("cuda context", size)


def _timeline(moments: MomentLog, facts: dict[str, Fact], share: float) -> tuple[Moment, ...]:
    """One Moment per phase and step: what is held at its end, and the phase's own peak. Reserved never shrinks."""
    rows: list[Moment] = []
    reserved = peak = 0
    for phase, step, sizes, end in moments.noted:
        lines = dict.fromkeys(CATEGORIES, 0)
        for name, size in sizes.items():
            lines[facts[name].line] += size  # type: ignore[index] # moments hold only the allocator's parts
        total = sum(lines.values())
        peak = max(peak, total)
        transient = sum(size for line, size in lines.items() if line not in LASTING)
        reserved = max(reserved, reserved_for(total, transient, share))
        if end:
            rows.append(
                Moment(
                    phase=phase,
                    step=step,
                    allocated=total,
                    reserved=reserved,
                    peak_allocated=peak,
                    peak_reserved=reserved,
                    categories={line: size for line, size in lines.items() if size},
                )
            )
            peak = total
    return tuple(rows)


def loading_of(run: Run) -> ModuleLoading:
    """How the job loads kernels; servers load them when first used, as their images set it."""
    return run.module_loading if isinstance(run, (TrainRun, InferRun)) else "lazy"


def with_module_loading(estimate: Estimate, run: Run, device: Device) -> Estimate:
    """`estimate`, which counts the context of lazy loading, with the one that the job has."""
    if loading_of(run) == "lazy":
        return estimate
    context, lazy = cuda_context(device.capability, "eager"), estimate.ledger.context or 0
    major, minor = device.capability
    formula = (
        f"{format_bytes(context.bytes, 0)} with every kernel loaded at the start (run.module_loading = eager) on "
        f"capability {major}.{minor}, give or take {format_bytes(context.spread, 0)}; {format_bytes(lazy, 0)} with "
        "kernels loaded when first used"
    )
    parts = tuple(
        msgspec.structs.replace(
            part, bytes=context.bytes, at_peak=context.bytes, formula=formula, source=context.source
        )
        if part.line == "context"
        else part
        for part in estimate.parts
    )
    ledger = msgspec.structs.replace(
        estimate.ledger, context=context.bytes, process=estimate.process + context.bytes - lazy
    )
    return msgspec.structs.replace(estimate, parts=parts, ledger=ledger)
