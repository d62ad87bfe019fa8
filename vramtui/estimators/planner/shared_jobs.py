"""A job over several cards: training by FSDP, answers by tensor parallel, or by the other where that alone fits."""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimator
from vramtui.core.schema.workload import Parallel, TrainRun, Workload
from vramtui.estimators.planner.card_table import can_share, over_fsdp
from vramtui.estimators.planner.grid import answer_for
from vramtui.estimators.planner.planner import FitResult

FSDP, TENSOR = "FSDP", "tensor parallel"


class SharedJob(NamedTuple):
    """One way to spread a job: `FSDP`, `tensor parallel` or nothing, over how many cards, and what each holds then."""

    way: str
    cards: int
    workload: Workload
    answer: FitResult

    @property
    def settings(self) -> str:
        """The options that shard a job so, as one would type them."""
        return f"--set parallel.tensor={self.cards}" if self.way == TENSOR else f"--fsdp {self.cards}"

    @property
    def words(self) -> str:
        """`FSDP over 4`; empty where it is on one card."""
        return f"{self.way} over {self.cards}" if self.way else ""


def shared_job(
    estimator: Estimator, workload: Workload, device: Device, cards: int, *, linked: bool = True
) -> SharedJob | None:
    """How to spread a job that no preset spreads yet over so many cards; None where it cannot be.

    Of the ways that fit it is the usual one: torchrun's FSDP for training, where each card has its own batch, else
    tensor parallel. Where none fits it is the usual one of those that can be estimated.

    Args:
        estimator: what answers.
        workload: the job, on one card.
        device: each of the cards.
        cards: how many.
        linked: they are in one machine, as tensor parallel has it.
    """
    if cards == 1:
        return SharedJob("", 1, workload, answer_for(estimator, workload, device))
    ways = (
        SharedJob(way, cards, spread, answer_for(estimator, spread, device))
        for way, spread in _ways(workload, cards)
        if linked or way == FSDP
    )
    known = [one for one in ways if one.answer.process is not None]
    usual = FSDP if isinstance(workload.run, TrainRun) else TENSOR
    return min(known, key=lambda one: (not one.answer.fits, one.way != usual), default=None)


def _ways(workload: Workload, cards: int) -> Iterator[tuple[str, Workload]]:
    if can_share(workload):
        yield FSDP, over_fsdp(workload, cards)
    if (workload.parallel or Parallel()).ranks == 1:
        former = workload.parallel or Parallel()
        yield TENSOR, msgspec.structs.replace(workload, parallel=msgspec.structs.replace(former, tensor=cards))
