"""What a host's own finished runs teach about constants that estimates take for granted, and estimates corrected by it.

Two constants are learned: how large the CUDA context is for a GPU and a driver (what the driver shows for the process
less what PyTorch has reserved, where a probe told that), and how much of what PyTorch reserves is cached (reserved over
allocated) for a kind of model and of run and the method that predicted it. A share corrects an estimate whose cached
memory is a share itself; what is simulated for the very job is nearer than the median of others, and keeps it.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.units import format_bytes
from vramtui.core.estimate.devices import card
from vramtui.core.estimate.estimate import Estimate, Part
from vramtui.core.estimate.ledger import Ledger, Line
from vramtui.core.runs.run import Run

SIMULATED, BY_SHARE = "simulated", "analytic"  # methods that differ in what they say is cached, and in nothing else
ENOUGH = 3  # runs; fewer say too little to correct anything by
SOURCE = "calibration: the finished runs in this host's history"


class Learned(msgspec.Struct, frozen=True, kw_only=True):
    """How often a constant was seen, its median and its extremes; `latest` is when it was seen last."""

    runs: int
    median: float
    lowest: float
    highest: float
    latest: float

    @property
    def enough(self) -> bool:
        """Whether there are runs enough to go by."""
        return self.runs >= ENOUGH


class ContextSize(msgspec.Struct, frozen=True, kw_only=True):
    """The CUDA context's bytes on one kind of GPU under one driver."""

    gpu_name: str
    driver: str
    seen: Learned


class CachedShare(msgspec.Struct, frozen=True, kw_only=True):
    """Reserved over allocated at their peaks, for runs of one kind of model that one method predicted."""

    method: str
    model_kind: str
    run_kind: str
    seen: Learned


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the runs of `host` teach."""

    host: str
    contexts: tuple[ContextSize, ...] = ()
    shares: tuple[CachedShare, ...] = ()

    @property
    def usable(self) -> int:
        """How many constants are known well enough to go by."""
        return sum(one.seen.enough for one in self.contexts) + sum(one.seen.enough for one in self.shares)

    def context(self, gpu_name: str, driver: str | None = None) -> ContextSize | None:
        """What is known well enough of a GPU; without a driver, of the one that ran last."""
        known = (
            one
            for one in self.contexts
            if one.seen.enough and _same_card(one.gpu_name, gpu_name) and driver in (None, one.driver)
        )
        return max(known, key=lambda one: one.seen.latest, default=None)

    def share(self, method: str, model_kind: str, run_kind: str) -> CachedShare | None:
        """What is known well enough of such runs."""
        wanted = (method, model_kind, run_kind)
        shares = (one for one in self.shares if (one.method, one.model_kind, one.run_kind) == wanted)
        return next((one for one in shares if one.seen.enough), None)


def calibrate(runs: Iterable[Run], host: str) -> Calibration:
    """What the finished runs on `host` teach, also where they are still too few to go by."""
    contexts: dict[tuple[str, str], list[tuple[float, float]]] = {}
    shares: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    for run in runs:
        if run.host != host or not run.finished:
            continue
        size, share = _context_of(run), _share_of(run)
        driver = run.versions.get("driver")
        if size is not None and driver:
            contexts.setdefault((run.gpu_name, driver), []).append((run.started_at, size))
        if share is not None and run.method and run.model_kind:
            method = BY_SHARE if run.method == SIMULATED else run.method
            shares.setdefault((method, run.model_kind, run.run_kind), []).append((run.started_at, share))
    return Calibration(
        host=host,
        contexts=tuple(
            ContextSize(gpu_name=name, driver=driver, seen=_learned(seen))
            for (name, driver), seen in sorted(contexts.items())
        ),
        shares=tuple(
            CachedShare(method=method, model_kind=kind, run_kind=run_kind, seen=_learned(seen))
            for (method, kind, run_kind), seen in sorted(shares.items())
        ),
    )


def calibrated(estimate: Estimate, context: ContextSize | None, share: CachedShare | None) -> Estimate:
    """`estimate` with its context and its cached memory as they were learned; itself where there is nothing to correct.

    Weights, activations and all else that is allocated stay as predicted, and so does the timeline.
    """
    ledger = estimate.ledger
    if ledger.allocated is None or ledger.reserved is None or estimate.method == SIMULATED:
        share = None
    if ledger.reserved is None or ledger.context is None:
        context = None
    if context is None and share is None:
        return estimate
    changes = dict(_changed_lines(ledger, context, share))
    parts = [part for part in estimate.parts if part.line not in changes]
    parts += [_part(line, size, context, share) for line, size in changes.items()]
    return msgspec.structs.replace(
        estimate,
        ledger=_with(ledger, changes),
        parts=tuple(parts),
        assumptions=(*estimate.assumptions, *sentences(context, share)),
    )


def sentences(context: ContextSize | None, share: CachedShare | None) -> Iterator[str]:
    """What was corrected and by what, a sentence each."""
    if context is not None:
        yield f"calibrated with {context_words(context)}"
    if share is not None:
        yield f"calibrated with {share_words(share)}"


def context_words(context: ContextSize) -> str:
    """`5 runs on this host: context 504.0 MiB (498.0 MiB–512.0 MiB)`."""
    seen = context.seen
    low, high = format_bytes(round(seen.lowest)), format_bytes(round(seen.highest))
    return f"{_count(seen)} on this host: context {format_bytes(round(seen.median))} ({low}–{high})"


def share_words(share: CachedShare) -> str:
    """`4 runs on this host: reserved 1.12 × allocated (1.08–1.19)`."""
    seen = share.seen
    return f"{_count(seen)} on this host: reserved {seen.median:.2f} × allocated ({seen.lowest:.2f}–{seen.highest:.2f})"


def _count(seen: Learned) -> str:
    return f"{seen.runs} run{'s' if seen.runs != 1 else ''}"


def _context_of(run: Run) -> int | None:
    """Bytes of the context; a run with other libraries' memory, as NCCL's, does not tell them apart, and one that was
    gone before it had told all of reserved has none.
    """
    seen = run.observed
    return seen.context or None if run.peak_how == "probe" and not run.predicted.other else None


def _share_of(run: Run) -> float | None:
    seen = run.observed
    if not seen.allocated or seen.reserved is None or seen.reserved < seen.allocated:
        return None
    return seen.reserved / seen.allocated


def _learned(seen: Sequence[tuple[float, float]]) -> Learned:
    from statistics import median  # noqa: PLC0415 - a host with runs alone needs it

    values = [value for _, value in seen]
    return Learned(
        runs=len(values),
        median=median(values),
        lowest=min(values),
        highest=max(values),
        latest=max(at for at, _ in seen),
    )


def _changed_lines(
    ledger: Ledger, context: ContextSize | None, share: CachedShare | None
) -> Iterator[tuple[Line, int]]:
    if share is not None and ledger.allocated is not None:
        yield "cached", max(0, round(ledger.allocated * share.seen.median) - ledger.allocated)
    if context is not None:
        yield "context", round(context.seen.median)


def _with(ledger: Ledger, changes: dict[Line, int]) -> Ledger:
    """The Ledger with some of its lines changed and the totals above them summed anew."""
    lines = {"cached": ledger.cached, "context": ledger.context, **changes}
    reserved = ledger.reserved if "cached" not in changes else (ledger.allocated or 0) + (lines["cached"] or 0)
    process = (reserved or 0) + (lines["context"] or 0) + (ledger.other or 0)
    return msgspec.structs.replace(ledger, **lines, reserved=reserved, process=process)


def _part(line: Line, size: int, context: ContextSize | None, share: CachedShare | None) -> Part:
    words = context_words(context) if line == "context" and context else share_words(share) if share else ""
    return Part(
        name=f"{line} (calibrated)",
        line=line,
        bytes=size,
        at_peak=size,
        formula=f"median of {words}",
        source=SOURCE,
        lifetime="as long as the process" if line == "context" else "from the first peak on",
    )


def _same_card(one: str, other: str) -> bool:
    """Whether two names, the driver's or people's, are of one kind of card."""
    if one == other:
        return True
    try:
        return card(one) == card(other)
    except UserError:
        return False
