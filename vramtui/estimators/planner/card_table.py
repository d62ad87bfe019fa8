"""Which card a job needs: on each the verdict, what is left, the largest size, and over how many it could be shared."""

from collections.abc import Iterable, Iterator

import msgspec

from vramtui.core.base.units import GIB, UNKNOWN, format_gib
from vramtui.core.estimate.devices import CARD_GROUPS, CARDS, CardGroup, Device, group_of
from vramtui.core.estimate.estimate import Estimator
from vramtui.core.estimate.fits import Fit, unknown_of
from vramtui.core.schema.encoder_models import PipelineModel
from vramtui.core.schema.workload import Parallel, TrainRun, Workload, own_length
from vramtui.estimators.planner.grid import answer_for
from vramtui.estimators.planner.keys import usual_key
from vramtui.estimators.planner.planner import LENGTHS, Correction, FitResult, Planner

# Over so many cards FSDP is tried: one machine has at most eight that are linked, two machines sixteen.
FSDP = (1, 2, 4, 8, 16)
FSDP_NOTE = f"FSDP: the fewest of {', '.join(map(str, FSDP))} such cards that hold it when they share it"
LARGEST_TITLES = {"run.batch_size": "max batch", "run.max_num_seqs": "max seqs", "run.max_model_len": "context"}
"""What the column of the largest value of a key is called."""


class CardFit(msgspec.Struct, frozen=True, kw_only=True):
    """One job on one card.

    Attributes:
        card: the card.
        group: who it is sold to.
        fit: the verdict; None where it cannot be estimated, which `reason` says.
        key: of which number `largest` is the most that fits: as in a preset, `run.batch_size`.
        largest: None where not even 1 fits; `is_quick` where a nearer method may find one more or less.
        own: the longest sequence that the model was made for, where it says.
        fsdp: over how few of `FSDP` cards it fits with FSDP; None where not over so many, or where it is not asked.
    """

    card: Device
    group: CardGroup
    fit: Fit | None
    key: str
    largest: int | None = None
    is_quick: bool = False
    fsdp: int | None = None
    reason: str = ""
    own: int | None = None

    @property
    def spare_label(self) -> str:
        """What is left, in a table: `✓ 10.3 GiB`, `✗ −3.5 GiB`."""
        if self.fit is None:
            return f"{UNKNOWN} not possible"
        size = abs(self.fit.spare)
        spare = f"{'−' if self.fit.spare < 0 else ''}{format_gib(size, 1 if size >= GIB // 10 else 2)} GiB"
        return f"{self.fit.sign} {'too large' if self.fit.refused else spare}"

    @property
    def fsdp_label(self) -> str:
        """`fsdp` in a table."""
        return UNKNOWN if self.fsdp is None else str(self.fsdp)

    @property
    def largest_label(self) -> str:
        """`largest` in a table: `>131,072` where the model's own length ends before the memory does, `≈9` of a quick
        figure.
        """
        if self.largest is None:
            return UNKNOWN
        beyond = self.own is not None and self.key in LENGTHS and self.largest > self.own
        return f">{self.own:,}" if beyond else f"{'≈' if self.is_quick else ''}{self.largest:,}"


def known_cards() -> tuple[Device, ...]:
    """Every card that has a name: data centre first, and in each group the smallest first."""
    return tuple(
        sorted(
            CARDS.values(),
            key=lambda card: (CARD_GROUPS.index(group_of(card.name)), card.total_memory, card.name),
        )
    )


def card_fits(
    estimator: Estimator, workload: Workload, cards: Iterable[Device], exact: Estimator | None = None
) -> Iterator[CardFit]:
    """The job on each of `cards`, one at a step.

    Args:
        estimator: what is asked of each card.
        workload: the job as it is.
        cards: as many as are wanted.
        exact: what may take a hundred times as long, and says what the job needs; the largest size is one of
            `estimator`'s, moved by what `exact` differs by. None where there is none.
    """
    key = usual_key(workload)
    for card, answer in answers_on(exact or estimator, workload, cards):
        group = group_of(card.name)
        if answer.process is None:
            yield CardFit(card=card, group=group, fit=None, key=key, reason=answer.reason)
            continue
        fit = Fit(
            needs=answer.process,
            has=card.total_memory,
            error=answer.error,
            refused=bool(answer.reason) and not answer.fits,
            note=answer.reason,
            unknown=unknown_of(workload.model),
        )
        quick = answer_for(estimator, workload, card).process
        correction = None if quick in {None, answer.process} else Correction(answer.process, quick or answer.process)
        yield CardFit(
            card=card,
            group=group,
            fit=fit,
            key=key,
            largest=Planner(estimator, workload, card).edge(key, correction).largest,
            is_quick=correction is not None,
            fsdp=_fewest(estimator, workload, card, alone=answer) if can_share(workload) else None,
            reason=answer.reason,
            own=own_length(workload),
        )


def answers_on(estimator: Estimator, workload: Workload, cards: Iterable[Device]) -> Iterator[tuple[Device, FitResult]]:
    """Each of `cards` with what the job needs there."""
    for card in cards:
        yield card, answer_for(estimator, workload, card)


def can_share(workload: Workload) -> bool:
    """Whether FSDP is a question: a training job that is not spread in another way already, nor a pipeline's."""
    parallel = workload.parallel or Parallel()
    if isinstance(workload.model, PipelineModel):
        return False
    return isinstance(workload.run, TrainRun) and parallel.ranks == parallel.data


def over_fsdp(workload: Workload, cards: int) -> Workload:
    """The job with parameters, gradients and optimizer states shared over so many cards by FSDP."""
    former = workload.parallel or Parallel()
    if cards == 1 and workload.parallel is None:
        return workload
    shared = msgspec.structs.replace(former, data=cards, strategy="fsdp", zero_stage=3)
    return msgspec.structs.replace(workload, parallel=shared)


def _fewest(estimator: Estimator, workload: Workload, card: Device, alone: FitResult) -> int | None:
    if alone.fits:
        return 1
    shared = (count for count in FSDP if count > 1)
    return next((count for count in shared if answer_for(estimator, over_fsdp(workload, count), card).fits), None)
