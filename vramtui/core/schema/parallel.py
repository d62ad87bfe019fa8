"""How a job is spread over several GPUs: the `[parallel]` table of a preset."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Ranks = Annotated[int, Meta(ge=1, le=2**20)]
Megabytes = Annotated[float, Meta(gt=0.0, le=2**20, extra={"unit": "MiB"})]


class Parallel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Ranks along each dimension; their product is the number of GPUs.

    Attributes:
        data: replicas that see different batches.
        strategy: what the replicas share: nothing but gradients (`ddp`), or with `zero` and `fsdp` the states that
            zero_stage says.
        zero_stage: 1 shares optimizer states, 2 gradients as well, 3 weights as well. FSDP2 is stage 3.
        tensor: ranks that each hold a part of every matrix (Shoeybi et al. 2019).
        sequence_parallel: norms and dropouts are split along the sequence over the tensor ranks (Korthikanti et al.).
        pipeline: ranks that each hold some layers, scheduled 1F1B.
        virtual_pipeline: stretches of layers that each pipeline rank holds (interleaved).
        context: ranks that each see a part of every sequence.
        expert: of the data ranks, how many share the experts of one model.
        bucket_cap_mb: size of DDP's gradient buckets in MiB.
        reshard_after_forward: FSDP2 gives a block's gathered weights back after its forward pass.
        cpu_offload: optimizer states stay in host memory (ZeRO-Offload).
    """

    data: Ranks = 1
    strategy: Literal["ddp", "zero", "fsdp"] = "ddp"
    zero_stage: Annotated[int, Meta(ge=0, le=3)] = 0
    tensor: Ranks = 1
    sequence_parallel: bool = False
    pipeline: Ranks = 1
    virtual_pipeline: Ranks = 1
    context: Ranks = 1
    expert: Ranks = 1
    bucket_cap_mb: Megabytes = 25.0
    reshard_after_forward: bool = True
    cpu_offload: bool = False

    @property
    def ranks(self) -> int:
        """GPUs in all."""
        return self.data * self.tensor * self.pipeline * self.context
