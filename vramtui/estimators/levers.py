"""What a person could change about a job to make it smaller, and what each change costs them."""

from collections.abc import Iterator
from typing import Any

import msgspec

from vramtui.core.workload import InferRun, TrainRun, Workload

# What a lever weighs in the choice of the cheapest set. The steps are wide, so that two levers of one sort never
# outweigh one of the next.
FREE = 1
SLOWER = 4
ROUGHER = 12
OTHER_RESULT = 40


class Lever(msgspec.Struct, frozen=True, kw_only=True):
    """One change.

    Attributes:
        name: what it is called in a table.
        changes: the values it sets, by dotted key as in a preset.
        weight: how dear it is beside other levers; only the order and the sums matter.
        cost: what one pays for it, in words.
    """

    name: str
    changes: dict[str, Any]
    weight: int
    cost: str


def levers_for(workload: Workload) -> tuple[Lever, ...]:
    """The changes that `workload` leaves room for, cheapest first."""
    run = workload.run
    offered: Iterator[Lever]
    if isinstance(run, TrainRun):
        offered = _training(run)
    elif isinstance(run, InferRun):
        offered = _inference(run)
    else:
        offered = iter(())
    return tuple(sorted(offered, key=lambda lever: lever.weight))


def _training(run: TrainRun) -> Iterator[Lever]:
    if run.attention == "eager":
        yield Lever(
            name="flash attention",
            changes={"run.attention": "flash"},
            weight=FREE,
            cost="nothing: the same result, mostly faster",
        )
    if run.optimizer_implementation == "foreach":
        yield Lever(
            name="fused optimizer",
            changes={"run.optimizer_implementation": "fused"},
            weight=FREE,
            cost="nothing: one kernel for each step, and no temporaries",
        )
    if run.checkpointing != "full":
        yield Lever(
            name="full checkpointing",
            changes={"run.checkpointing": "full"},
            weight=SLOWER,
            cost="about a third more time: every layer runs forward twice",
        )
    if run.batch_size > 1:
        yield Lever(
            name="one sequence at a time",
            changes={
                "run.batch_size": 1,
                "run.gradient_accumulation_steps": run.batch_size * run.gradient_accumulation_steps,
            },
            weight=SLOWER + 2,
            cost="slower: the same step from pieces too small to fill the card",
        )
    yield from _rougher_training(run)


def _rougher_training(run: TrainRun) -> Iterator[Lever]:
    """Levers after which the training is not quite, or not at all, the same."""
    if run.precision in {"fp32", "tf32"}:
        yield Lever(
            name="bf16 autocast",
            changes={"run.precision": "bf16-mixed"},
            weight=ROUGHER - 2,
            cost="matrix products in 16 bits; mostly faster",
        )
    if run.precision != "bf16" and run.lora is None:
        yield Lever(
            name="pure bf16",
            changes={"run.precision": "bf16"},
            weight=ROUGHER,
            cost="weights and moments keep 8 bits of mantissa: small updates are lost",
        )
    if run.lora is None:
        yield Lever(
            name="LoRA of rank 16",
            changes={
                "run.lora": {"rank": 16, "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"]},
                "run.precision": "bf16",
            },
            weight=OTHER_RESULT,
            cost="trains adapters beside frozen weights, not the model itself",
        )
    if run.sequence_length is not None and run.sequence_length > 1:
        yield _half_sequence(run.sequence_length)


def _inference(run: InferRun) -> Iterator[Lever]:
    if run.attention == "eager":
        yield Lever(
            name="flash attention",
            changes={"run.attention": "flash"},
            weight=FREE,
            cost="nothing: the same result, mostly faster",
        )
    if run.batch_size > 1:
        yield Lever(
            name="one sequence at a time",
            changes={"run.batch_size": 1},
            weight=SLOWER,
            cost="fewer answers a second",
        )
    if run.precision in {"fp32", "tf32"}:
        yield Lever(
            name="weights in bf16",
            changes={"run.precision": "bf16"},
            weight=ROUGHER,
            cost="8 bits of mantissa, as most models are published",
        )
    if run.sequence_length is not None and run.sequence_length > 1:
        yield _half_sequence(run.sequence_length)


def _half_sequence(length: int) -> Lever:
    return Lever(
        name="half the sequence",
        changes={"run.sequence_length": length // 2},
        weight=OTHER_RESULT - 10,
        cost=f"sees {length // 2:,} tokens at once instead of {length:,}",
    )
