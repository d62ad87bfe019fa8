"""The planner's answer about one variant, in sentences."""

from collections.abc import Sequence
from typing import Literal

from vramtui.app.plan.grid import Holds
from vramtui.app.plan.view import AdviceView, PlanSide, PlanView
from vramtui.core.base.text import printable
from vramtui.core.base.units import format_bytes
from vramtui.core.estimate.fits import Fit, FitVerdict, unknown_of
from vramtui.estimators.planner.planner import Edge

Tone = Literal["good", "tight", "bad", "plain", "dim"]
TONES: dict[FitVerdict, Tone] = {"fits": "good", "tight": "tight", "does not fit": "bad", "unknown": "tight"}
Sentence = tuple[Tone, str]
SIZES = {
    "run.batch_size": "batch",
    "run.sequence_length": "sequence",
    "run.max_num_seqs": "number of sequences",
    "run.max_model_len": "context",
}
NAMED = 4


def sentences(plan: PlanView) -> list[Sentence]:
    """Whether the cell under the cursor fits, how far one could go, what would make it fit, and which cards do."""
    side = plan.side
    if side is None or plan.device is None:
        return []
    told = [_verdict(side, plan.where.partition(",")[0], plan.device.total_memory)]
    if side.process is None or (side.answer is not None and side.answer.process is None):
        return told
    advice = plan.advice
    told += [("plain", _edge(edge)) for edge in advice.edges]
    told += [("plain", text) for text in _enough(advice)]
    told.append(_cards(advice, plan.tried))
    return told


def _verdict(side: PlanSide, where: str, room: int) -> Sentence:
    answer = side.answer
    if answer is not None and answer.process is None:
        return "bad", f"– not possible: {printable(answer.reason)}"
    process = side.process
    if process is None:
        return "dim", "… calculating"
    if answer is not None and answer.reason:
        return "bad", f"✗ does not start on {where}: {printable(answer.reason)}"
    estimate = side.estimate
    unknown = "" if side.workload is None else unknown_of(side.workload.model)
    error = estimate.error if estimate is not None else answer and answer.error
    fit = Fit(needs=process, has=room, error=error, unknown=unknown)
    return TONES[fit.verdict], fit.line(where)


def _edge(edge: Edge) -> str:
    name = SIZES.get(edge.key, edge.key)
    if edge.largest is None:
        return f"largest {name}: none, {edge.reason}"
    return f"largest {name}: {edge.largest:,} ({format_bytes(edge.process)}); {printable(edge.reason)}"


def _enough(advice: AdviceView) -> list[str]:
    """The cheapest changes that make it fit."""
    if advice.mitigations is None:
        return []
    if not advice.mitigations:
        return ["no set of changes makes it fit this card"]
    names = " and ".join(name for name, _ in advice.mitigations)
    several = len(advice.mitigations) > 1
    costs = "; ".join(f"{name}: {cost}" if several else cost for name, cost in advice.mitigations)
    return [f"cheapest to make it fit: {names}, then {format_bytes(advice.with_them)} ({costs})"]


def _cards(advice: AdviceView, tried: int) -> Sentence:
    if not advice.cards:
        if not advice.is_whole:
            return "dim", "checking which cards fit it …"
        return "plain", f"none of the {tried} known cards fits it"
    return "plain", f"cards that fit it, smallest first: {shortened_names(advice.cards)}"


def shortened_names(cards: Sequence[Holds], most: int = NAMED) -> str:
    """The first of some cards, and how many more there are."""
    named = ", ".join(f"{holds.card.name} {format_bytes(holds.card.total_memory)}" for holds in cards[:most])
    return f"{named} and {len(cards) - most} more" if len(cards) > most else named
