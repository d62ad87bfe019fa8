"""Memory of NCCL outside PyTorch's allocator once ranks talk to each other."""

from vramtui.core.base.units import MIB
from vramtui.core.estimate.estimate import Part

# NVML's figure after the first collective less the figure before: 1.0 GiB on H100s (vLLM 0.19 with 2 and 4 tensor
# ranks, before the model is loaded), 1.45 GiB on an A100 (torch.distributed, before and after a barrier, which also
# loads kernels). Communicators after the first share its buffers' sizes but open fewer channels.
COMMUNICATORS, SPREAD = 1024 * MIB, 500 * MIB
MEASURED_ON = {(8, 0), (9, 0), (10, 0)}  # GPUs with NVSwitch; on the last it is taken as on the second
# Of it, where each communicator is counted by itself, on H100s: one of a single rank takes 494 MiB beside its streams
# (tests/golden/card/context_steps.json), and vLLM 0.19's logs say 0.48 GiB where experts have one of their own. With
# pipeline stages, which have one among two ranks, they say 0.92 GiB for it, its streams and NCCL's kernels.
FIRST_COMMUNICATOR, FURTHER_COMMUNICATOR = 780 * MIB, 490 * MIB
# Elsewhere vLLM says 0.20 to 0.39 GiB for all that lies outside torch, from before the communicators to after the first
# pass: 2 V100 (vllm#11251), 16 RTX 3090 (#14447), 2 RTX 4090 (#13061), 2 RTX 5090 (#14452).
ELSEWHERE, SPREAD_ELSEWHERE = 128 * MIB, 100 * MIB
SOURCE = "NVML before and after the first collective on H100 and A100; elsewhere vLLM's non_torch_memory"


def nccl_bytes(ranks: int, capability: tuple[int, int]) -> int:
    """Bytes of NCCL's buffers and channels; none for a single rank."""
    return 0 if ranks == 1 else COMMUNICATORS if capability in MEASURED_ON else ELSEWHERE


def nccl_part(ranks: int, capability: tuple[int, int], more: int = 0) -> Part:
    """NCCL's part of an estimate; `more` bytes beside it are counted with it."""
    size = nccl_bytes(ranks, capability) + more
    spread = SPREAD if capability in MEASURED_ON else SPREAD_ELSEWHERE
    return Part(
        name="nccl",
        line="other",
        bytes=size,
        at_peak=size,
        formula=f"communicators among {ranks:,} ranks, give or take {spread // MIB} MiB"
        + (f", and {more // MIB:,} MiB that the first pass sets up" if more else ""),
        source=SOURCE,
        lifetime="from the first collective to the end",
    )
