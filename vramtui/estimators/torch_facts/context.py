"""What a process holds on a card before and beside PyTorch's allocator: the CUDA context and loaded kernels."""

from vramtui.core.base.units import MIB

# NVML's figure for the process less torch's reserved, after the first kernels, with lazy loading (the default since
# CUDA 11.7). Read from public runs: A100 0.47 GiB (torch 2.1), H100 0.51 GiB before and 0.75 after a forward pass
# (vLLM 0.19), RTX 4090 0.41–0.51, 24 GB Ampere cards 0.25–0.31, 16 GB Turing and Volta cards 0.24–0.34, 32 GB
# Blackwell cards 0.60.
_MIB_BY_CAPABILITY: tuple[tuple[tuple[int, int], int, int], ...] = (
    ((7, 0), 300, 100),
    ((7, 5), 300, 100),
    ((8, 0), 480, 100),
    ((8, 6), 320, 100),
    ((8, 9), 460, 100),
    ((9, 0), 640, 130),
    ((10, 0), 700, 200),
    ((12, 0), 610, 150),
)


def cuda_context_bytes(capability: tuple[int, int]) -> int:
    """The usual size of the context on a card of this compute capability, in bytes."""
    return _entry(capability)[1] * MIB


def cuda_context_spread(capability: tuple[int, int]) -> int:
    """By how much, up or down, the context was seen to differ from that, in bytes."""
    return _entry(capability)[2] * MIB


def _entry(capability: tuple[int, int]) -> tuple[tuple[int, int], int, int]:
    known = [entry for entry in _MIB_BY_CAPABILITY if entry[0] <= capability]
    return known[-1] if known else _MIB_BY_CAPABILITY[0]
