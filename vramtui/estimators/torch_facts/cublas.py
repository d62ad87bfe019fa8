"""Workspaces of cuBLAS: taken from PyTorch's allocator, one for each thread's handle and stream, never given back.

From PyTorch 2.15 on each call takes its own and gives it back (seen on the CUDA builds of 2.12 to 2.15: a product of
matrices leaves a workspace allocated up to 2.14 and nothing in 2.15, whose peak has it still).

aten/src/ATen/cuda/CublasHandlePool.cpp (parseChosenWorkspaceSize, getCUDABlasLtWorkspaceSize) of PyTorch 2.13.
"""

import os
import re
from typing import NamedTuple

from vramtui.core.base.units import KIB, MIB

# cuBLAS's own `:4096:2:16:8`, and that of Hopper and of Blackwell with capability 10.x and 12.x; 11.0 (Jetson Thor) has
# the smaller one in 2.13. cuBLASLt, which adds a bias to a product, has its own up to PyTorch 2.11, if the variable
# below is 0, and from 2.15 on; in between it shares that of cuBLAS.
WORKSPACE, LARGE_WORKSPACE, LT_WORKSPACE = 4096 * 1024 * 2 + 16 * 1024 * 8, 4096 * 8 * 1024, MIB
LT_VARIABLE = "CUBLASLT_WORKSPACE_SIZE"
MOST_DIGITS = 10
UNIFIED = "TORCH_CUBLASLT_UNIFIED_WORKSPACE"
SOURCE = "PyTorch 2.13, aten/src/ATen/cuda/CublasHandlePool.cpp, getChosenWorkspaceSize"
PASSING_SOURCE = "PyTorch 2.15, its CUDA build: nothing stays allocated after a product, and its peak has a workspace"
KEPT_BEFORE = (2, 15)  # the first release that keeps none after a call
VARIABLE = "CUBLAS_WORKSPACE_CONFIG"
_PAIR = re.compile(r":([0-9]+):([0-9]+)")


class Workspace(NamedTuple):
    """A thread's workspace in bytes: `persistent` from its first matrix product on, or `passing`, within each product.

    Of products that add a bias on their way it is `fused` where it passes, and the persistent one elsewhere.
    """

    persistent: int = 0
    passing: int = 0
    fused: int = 0

    @property
    def bytes(self) -> int:
        return self.persistent + self.passing


NO_WORKSPACE = Workspace()


def lt_workspace_bytes() -> int:
    """Bytes of cuBLASLt's own workspace: KiB of `CUBLASLT_WORKSPACE_SIZE`, or 1 MiB."""
    size = os.environ.get(LT_VARIABLE, "")
    return int(size) * KIB if size.isdigit() and len(size) < MOST_DIGITS else LT_WORKSPACE


def workspace_of(capability: tuple[int, int], release: tuple[int, int]) -> Workspace:
    """The workspace of a thread that multiplies matrices, by compute capability and release."""
    size = workspace_bytes(capability)
    if release < KEPT_BEFORE:
        return Workspace(persistent=size)
    return Workspace(passing=size, fused=lt_workspace_bytes())


def workspace_bytes(capability: tuple[int, int], config: str | None = None) -> int:
    """Bytes of one workspace on a card of that compute capability, or of pairs `:SIZE:COUNT` of KiB and how many, as
    `CUBLAS_WORKSPACE_CONFIG` has them; one without a pair is passed over, as PyTorch does with a warning.
    """
    pairs = _PAIR.findall(os.environ.get(VARIABLE, "") if config is None else config)
    if pairs:
        return sum(int(size) * int(count) for size, count in pairs) * KIB
    return LARGE_WORKSPACE if capability == (9, 0) or capability[0] in (10, 12) else WORKSPACE
