"""Memory of NCCL outside PyTorch's allocator once ranks talk to each other."""

from vramtui.core.base.units import MIB
from vramtui.core.estimate.estimate import Part

# NVML's figure after the first collective less the figure before: 1.0 GiB on H100s (vLLM 0.19 with 2 and 4 tensor
# ranks, before the model is loaded), 1.45 GiB on an A100 (torch.distributed, before and after a barrier, which also
# loads kernels). Communicators after the first share its buffers' sizes but open fewer channels.
COMMUNICATORS = 1024 * MIB
# Of it, where each communicator is counted by itself, on H100s: one of a rank alone takes 494 MiB beside its streams
# (tests/golden/card/context_steps.json), and vLLM 0.19's logs say 0.48 GiB where experts have one of their own. With
# pipeline stages, which have one among two ranks, they say 0.92 GiB for it, its streams and NCCL's kernels.
FIRST_COMMUNICATOR, FURTHER_COMMUNICATOR = 780 * MIB, 490 * MIB
SPREAD = 500 * MIB
SOURCE = "NVML before and after the first collective, public measurements on H100 and A100"


def nccl_bytes(ranks: int) -> int:
    """Bytes of NCCL's buffers and channels; none for a rank alone."""
    return COMMUNICATORS if ranks > 1 else 0


def nccl_part(ranks: int, more: int = 0) -> Part:
    """NCCL's part of an estimate; `more` bytes beside it are counted with it."""
    size = nccl_bytes(ranks) + more
    return Part(
        name="nccl",
        line="other",
        bytes=size,
        at_peak=size,
        formula=f"communicators among {ranks:,} ranks, give or take {SPREAD // MIB} MiB"
        + (f", and {more // MIB:,} MiB that the first pass sets up" if more else ""),
        source=SOURCE,
        lifetime="from the first collective to the end",
    )
