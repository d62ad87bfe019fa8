"""Facts about a GPU: its streaming multiprocessors, how many threads each holds at once, and a CUDA context.

Counts stand in `core/estimate/cards.csv`, after NVIDIA's architecture whitepapers and product briefs
(`multiProcessorCount` of cudaGetDeviceProperties); threads are "maximum number of resident threads per SM" of the CUDA
programming guide's table of compute capabilities.
"""

import msgspec

from vramtui.core.base.units import MIB
from vramtui.core.estimate.devices import MULTIPROCESSORS, Device
from vramtui.core.schema.models import ModuleLoading


class CardLimits(msgspec.Struct, frozen=True):
    """Properties of a GPU that kernels depend on: compute capability, multiprocessors, and threads that each holds."""

    capability: tuple[int, int]
    multiprocessors: int
    threads: int


# For a card that is not known by name: multiprocessors and threads of the one most seen (8.6 is an RTX 3090, 12.0 an
# RTX 5090).
_BY_CAPABILITY = {
    (6, 0): (56, 2048), (6, 1): (28, 2048), (7, 0): (80, 2048), (7, 5): (40, 1024), (8, 0): (108, 2048),
    (8, 6): (82, 1536), (8, 7): (16, 1536), (8, 9): (128, 1536), (9, 0): (132, 2048), (10, 0): (148, 2048),
    (11, 0): (20, 1536), (12, 0): (170, 1536), (12, 1): (48, 1536),
}  # fmt: skip


def card_limits(device: Device) -> CardLimits:
    """Those of a card: counted for its name, else those of the card most seen with its compute capability.

    A capability that is not known is taken for the one before it.
    """
    known = [entry for entry in _BY_CAPABILITY if entry <= device.capability]
    count, threads = _BY_CAPABILITY[known[-1] if known else (6, 0)]
    return CardLimits(device.capability, MULTIPROCESSORS.get(device.name, count), threads)


# NVML's figure for the process less torch's reserved, after the first kernels, with lazy loading (the default since
# CUDA 11.7). Read from public runs: A100 0.47 GiB (torch 2.1), H100 0.51 GiB before and 0.75 after a forward pass
# (vLLM 0.19), RTX 4090 0.41–0.51, 24 GB Ampere cards 0.25–0.31, 16 GB Turing and Volta cards 0.24–0.34, 32 GB
# Blackwell cards 0.60. **Measured** on an H200 (torch 2.11, driver 580.159, `tests/golden/card`): 610 MiB after the
# first tensor, 676 after a product, 696 generating, 742 to 762 in 25 training jobs, 860 with cuSOLVER.
_MIB_BY_CAPABILITY = {
    (7, 0): (300, 100), (7, 5): (300, 100), (8, 0): (480, 100), (8, 6): (320, 100), (8, 9): (460, 100),
    (9, 0): (740, 130), (10, 0): (700, 200), (12, 0): (610, 150),
}  # fmt: skip

LAZY_SOURCE = "NVML's process memory less torch's reserved, public measurements"
# With every kernel of every library loaded at the start: CUDA_MODULE_LOADING=EAGER, CUDA before 11.7, and PyTorch
# before 1.13, which sets LAZY itself since (torch/cuda/__init__.py, pull request 86509). How much that is depends on
# the libraries' versions as well as on the card, so that each row reaches over those that were seen.
_EAGER_BY_CAPABILITY: dict[tuple[int, int], tuple[int, int, str]] = {
    (7, 0): (1180, 180, "Titan V with torch 1.3, V100 with torch of 2021 (pytorch#28394, transformers' documentation)"),
    (7, 5): (880, 220, "one reading: RTX 2080 Ti with torch 1.6 (pytorch#49877)"),
    (8, 0): (
        1370,
        460,
        "torch 2.1, 1.13, 1.10: 0.92, 0.90, 1.78 GiB (stas00/ml-engineering); GPUMemNet's MLPs: 1,430 MiB, any net",
    ),
    (8, 6): (1485, 370, "one reading: RTX 3090 with torch 1.7.1 (pytorch#49877)"),
    # tests/golden/card/context.json: 1,730 MiB after a product, 1,832 after AdamW, 2,048 with a convolution, 2,366 with
    # cuFFT and cuSOLVER too.
    (9, 0): (2040, 330, "one card: H200 with torch 2.11, CUDA 13.0 and driver 580.159"),
}
# What eager loading takes compared with lazy loading where both were measured: 2.3 times for an otherwise empty process
# (pytorch#86509: 666,632,192 B and 287,047,680 B), 1.9 to 3.8 times on the A100.
_EAGER_TIMES = (1.9, 3.8)
_EAGER_ELSEWHERE = "not measured on such a card; 1.9 to 3.8 times what lazy loading takes there, as on the A100"


class CudaContext(msgspec.Struct, frozen=True):
    """The context of a process on a card: its usual bytes, by how many it differs, and where that was seen."""

    bytes: int
    spread: int
    source: str


def cuda_context(capability: tuple[int, int], loading: ModuleLoading = "lazy") -> CudaContext:
    """The context on a card of this compute capability, with kernels loaded when first used, or all at the start."""
    known = [entry for entry in _MIB_BY_CAPABILITY if entry <= capability]
    usual, spread = _MIB_BY_CAPABILITY[known[-1] if known else (7, 0)]
    if loading == "lazy":
        return CudaContext(usual * MIB, spread * MIB, LAZY_SOURCE)
    measured = _EAGER_BY_CAPABILITY.get(capability)
    if measured is not None:
        usual, spread, source = measured
        return CudaContext(usual * MIB, spread * MIB, source)
    least, most = (int(usual * times) for times in _EAGER_TIMES)
    return CudaContext((least + most) // 2 * MIB, (most - least + 1) // 2 * MIB, _EAGER_ELSEWHERE)


def cuda_context_bytes(capability: tuple[int, int]) -> int:
    """The usual size of the context on a card of this compute capability, in bytes."""
    return cuda_context(capability).bytes


def cuda_context_spread(capability: tuple[int, int], loading: ModuleLoading = "lazy") -> int:
    """How far the context was seen to differ from that, up or down, in bytes."""
    return cuda_context(capability, loading).spread


def loaded_context_spread(capability: tuple[int, int]) -> int:
    """How far a context differs, in bytes, whose parts are counted as they are loaded (`dryrun/cuda/c/context.c`).

    The parts were measured on an H100 (`tests/golden/card/context_steps.json`). Of 23 jobs that trained there
    (`beside.json`) and 25 on an H200 the context was 742 to 762 MiB, where these parts add up to 740 to 760; one public
    UNet had 632, which they do not explain. Elsewhere they are taken in proportion.
    """
    return 25 * MIB if capability == (9, 0) else cuda_context_spread(capability)
