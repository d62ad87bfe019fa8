"""A finished trace as an Estimate, so that it stands beside the other estimators."""

from typing import Any, cast

from vramtui.core.estimate import Estimate, Moment, Part, Phase
from vramtui.core.ledger import CATEGORIES, Category, Ledger
from vramtui.estimators.traced.results import TraceResult

_PHASES: dict[str, Phase] = {"model": "build", "optimizer": "build"}
_TITLES = {"kv_cache": "KV cache"}


def to_estimate(result: TraceResult) -> Estimate:
    """The three totals, what is held at the peak of allocated, and the timeline."""
    at_peak = {category: result.peak_categories.get(category, 0) for category in CATEGORIES}
    cached = result.peak_reserved - result.peak_allocated
    ledger = Ledger(
        **cast(dict[str, Any], at_peak),
        allocated=result.peak_allocated,
        cached=cached,
        reserved=result.peak_reserved,
        context=result.context,
        other=0,
        process=result.process,
    )
    return Estimate(
        method="traced",
        parts=(*_parts(result), *_outer(cached, result.context)),
        ledger=ledger,
        peak_phase=_phase(result.peak_phase),
        peak_step=result.peak_step if result.peak_step >= 0 else None,
        timeline=tuple(
            Moment(
                phase=_phase(row.phase),
                step=row.step,
                allocated=row.allocated,
                reserved=row.reserved,
                peak_allocated=row.peak_allocated,
                peak_reserved=row.peak_reserved,
                categories=row.categories,
            )
            for row in result.timeline
        ),
        assumptions=(f"run on fake tensors by PyTorch {result.torch} as on {result.device}", *result.warnings),
    )


def _phase(name: str) -> Phase:
    return _PHASES.get(name, cast(Phase, name))


def _parts(result: TraceResult) -> list[Part]:
    return [
        Part(
            name=_TITLES.get(category, category),
            line=cast(Category, category),
            bytes=nbytes,
            at_peak=nbytes,
            formula="the sum of the allocator's blocks",
            source=f"PyTorch {result.torch}, run on fake tensors",
            lifetime=f"alive when allocated peaks, in {result.peak_phase}",
        )
        for category, nbytes in result.peak_categories.items()
        if nbytes
    ]


def _outer(cached: int, context: int) -> list[Part]:
    return [
        Part(
            name="cached by the allocator",
            line="cached",
            bytes=cached,
            at_peak=cached,
            formula="peak of reserved - peak of allocated",
            source="the simulated allocator",
            lifetime="kept for reuse",
        ),
        Part(
            name="CUDA context",
            line="context",
            bytes=context,
            at_peak=context,
            formula="the usual size on this capability",
            source="measured contexts by compute capability",
            lifetime="from the first use of the card on",
        ),
    ]
