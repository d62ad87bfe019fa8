"""cuBLAS workspaces: taken from PyTorch's allocator, one for each thread's handle that multiplies matrices."""

DEFAULT = 4096 * 1024 * 2 + 16 * 1024 * 8
HOPPER = 4096 * 8 * 1024
SOURCE = "PyTorch, aten/src/ATen/cuda/CublasHandlePool.cpp, getChosenWorkspaceSize"


def workspace_bytes(capability: tuple[int, int]) -> int:
    """Bytes of one workspace: 32 MiB from compute capability 9.0, 8 519 680 before."""
    return HOPPER if capability >= (9, 0) else DEFAULT
