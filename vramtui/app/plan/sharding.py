"""GPUs and sharding as values of an axis: how a job would be spread over so many cards."""

from typing import Any

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.schema.decoder_models import TransformerModel
from vramtui.core.schema.workload import Parallel, TrainRun, Workload
from vramtui.estimators.planner.mitigations import ONE_MACHINE

AS_IS = "as is"
STATES = {"DDP": ("ddp", 0), "ZeRO-1": ("zero", 1), "ZeRO-2": ("zero", 2), "ZeRO-3": ("zero", 3), "FSDP": ("fsdp", 3)}
# Cards of one machine, which have the fast links that tensor parallelism needs.
TENSOR, TENSOR_SEQUENCE, TENSOR_ZERO, PIPELINE, CONTEXT = "tensor", "tensor+seq", "tensor+ZeRO-1", "pipeline", "context"


def schemes_for(workload: Workload) -> tuple[str, ...]:
    """The ways of sharing that this kind of model and run can be asked about; the present one first."""
    splits = isinstance(workload.model, TransformerModel)
    if not isinstance(workload.run, TrainRun):
        return (AS_IS, TENSOR, PIPELINE) if splits else (AS_IS,)
    whole = (TENSOR, TENSOR_SEQUENCE, TENSOR_ZERO, PIPELINE, CONTEXT) if splits else ()
    return (AS_IS, *STATES, *whole)


def shared(workload: Workload, scheme: str, gpus: int | None, cards: int) -> Parallel | None:
    """The `[parallel]` table of `workload` under `scheme`.

    Args:
        workload: what is spread.
        scheme: one of `schemes_for`.
        gpus: over how many; None where the axis of GPUs is not varied.
        cards: how many there would be then, for any other scheme than the present one.

    Raises:
        UserError: so many GPUs cannot be shared so.
    """
    former = workload.parallel
    if scheme == AS_IS:
        return former if gpus is None else _scaled(workload, gpus)
    alone = msgspec.structs.replace(
        former or Parallel(),
        data=1,
        strategy="ddp",
        zero_stage=0,
        tensor=1,
        sequence_parallel=False,
        pipeline=1,
        virtual_pipeline=1,
        context=1,
        expert=1,
    )
    count = cards if gpus is None else gpus
    if count == 1:
        return None if former is None else alone
    return msgspec.structs.replace(alone, **_split(scheme, count))


def _split(scheme: str, count: int) -> dict[str, Any]:
    """What `scheme` sets."""
    if scheme in STATES:
        strategy, stage = STATES[scheme]
        return {"data": count, "strategy": strategy, "zero_stage": stage}
    if scheme == TENSOR_ZERO:
        tensor = min(ONE_MACHINE, count)
        if count % tensor:
            raise UserError(f"{count} GPUs are no whole number of groups of {tensor}")
        return {"tensor": tensor, "data": count // tensor, "strategy": "zero", "zero_stage": 1}
    if scheme in {PIPELINE, CONTEXT}:
        return {scheme: count}
    return {"tensor": count, "sequence_parallel": scheme == TENSOR_SEQUENCE}


def _scaled(workload: Workload, gpus: int) -> Parallel | None:
    """The present way of sharing over more or fewer GPUs: more replicas in training, thinner slices in answering."""
    former = workload.parallel or Parallel()
    if gpus == former.ranks:
        return workload.parallel
    name = "data"
    if not isinstance(workload.run, TrainRun):
        name = "pipeline" if former.pipeline > 1 and former.tensor == 1 else "tensor"
    others = former.ranks // getattr(former, name)
    if gpus % others:
        raise UserError(f"{gpus} GPUs are no whole number of groups of {others}, which share one replica now")
    return msgspec.structs.replace(former, **{name: gpus // others})
