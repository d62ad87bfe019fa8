"""How data-parallel ranks divide weights, gradients and optimizer states between them."""

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.schema.workload import Parallel
from vramtui.estimators.analytic.ops.moe import EXPERTS
from vramtui.estimators.analytic.tape.replay import TapeStage
from vramtui.estimators.analytic.tape.tape import Node
from vramtui.estimators.torch_facts.allocator_sizes import rounded
from vramtui.models.spec import Parameter

Kind = Literal["alone", "ddp", "zero", "fsdp"]
ZERO_SOURCE = "Rajbhandari et al. 2020, ZeRO (arXiv 1910.02054); DeepSpeed, docs/_pages/config-json.md"
FSDP_SOURCE = "PyTorch, torch/distributed/fsdp/_fully_shard"


class Sharing(msgspec.Struct, frozen=True, kw_only=True):
    """Who shares what.

    Attributes:
        stage: 1 divides optimizer states, 2 gradients as well, 3 weights as well.
        ranks: over how many ranks; `expert_ranks` for experts, which fewer ranks hold copies of.
        experts: ranks among which each layer's experts are dealt out.
    """

    kind: Kind
    stage: int
    ranks: int
    expert_ranks: int
    experts: int = 1

    def of(self, module: str) -> int:
        """Ranks that divide the tensors of a module."""
        return self.expert_ranks if module.startswith("experts_") else self.ranks


def sharing_of(parallel: Parallel) -> Sharing:
    """What data and context ranks share; a zero_stage without a strategy means ZeRO, FSDP means stage 3."""
    stage, strategy = parallel.zero_stage, parallel.strategy
    if strategy == "fsdp" and stage not in {0, 3}:
        raise UserError(f"parallel.zero_stage = {stage}: FSDP2 shares weights as well, which is stage 3")
    if strategy == "fsdp":
        stage = 3
    ranks = parallel.data * parallel.context
    kind: Kind = "alone" if ranks == 1 else "fsdp" if strategy == "fsdp" else "zero" if stage else "ddp"
    return Sharing(
        kind=kind,
        stage=stage if ranks > 1 else 0,
        ranks=ranks,
        expert_ranks=max(1, ranks // parallel.expert),
        experts=parallel.expert,
    )


def sharded(tensors: Iterable[Parameter], sharing: Sharing) -> tuple[Parameter, ...]:
    """One rank's rows of every tensor, rounded up."""
    return tuple(
        msgspec.structs.replace(tensor, shape=(-(-tensor.shape[0] // sharing.of(tensor.module)), *tensor.shape[1:]))
        for tensor in tensors
    )


def share_gradients(stages: Sequence[TapeStage], sharing: Sharing) -> None:
    """Leave of the gradients on the tapes what stays with this rank: its experts', and from stage 2 on its own rows."""
    for node in _nodes(stages):
        routed = any(tensor.storage.group == EXPERTS for tensor in node.outs)
        ranks = sharing.experts if routed else 1
        if sharing.stage >= 2:
            ranks *= sharing.expert_ranks if routed else sharing.ranks
        if node.grad_bytes and ranks > 1:
            node.set_gradient(rounded(-(-node.grad_bytes // ranks)))


def _nodes(stages: Sequence[TapeStage]) -> list[Node]:
    """Every operator once, though a tape may stand in several stages."""
    tapes = {id(stage.tape): stage.tape for stage in stages}
    return [node for tape in tapes.values() for node in tape.nodes]
