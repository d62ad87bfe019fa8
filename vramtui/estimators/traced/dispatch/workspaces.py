"""cuBLAS workspaces: one per thread's handle and stream, taken at the first matrix product, never given back."""

import os
import threading

from vramtui.estimators.traced.accounting.memory import SimulatedMemory

_MIB = 1 << 20


def cublas_workspace_bytes(capability: tuple[int, int]) -> int:
    """What PyTorch 2.13 hands cuBLAS: 32 MiB from Hopper on, 8 MiB and 128 KiB before; CUBLAS_WORKSPACE_CONFIG wins."""
    config = os.environ.get("CUBLAS_WORKSPACE_CONFIG", "")
    numbers = [int(part) for part in config.split(":") if part.isdigit()]
    if numbers and len(numbers) % 2 == 0:
        return sum(size * count for size, count in zip(numbers[::2], numbers[1::2], strict=True)) * 1024
    return 32 * _MIB if capability >= (9, 0) else 4096 * 1024 * 2 + 16 * 1024 * 8


class Workspaces:
    """The workspaces that are held.

    Args:
        memory: where they are taken.
        capability: decides their size.
        separate_lt: PyTorch up to 2.11 keeps a further one of 1 MiB for cuBLASLt.
    """

    def __init__(self, memory: SimulatedMemory, capability: tuple[int, int], *, separate_lt: bool = False) -> None:
        self._memory = memory
        self._bytes = cublas_workspace_bytes(capability)
        self._separate_lt = separate_lt
        self._held: set[tuple[str, int, int]] = set()

    def cublas(self) -> None:
        """A handle is used by this thread on the current stream."""
        self._hold("cublas", self._bytes)

    def cublaslt(self) -> None:
        """A product with a fused bias is run by this thread on the current stream."""
        if self._separate_lt:
            self._hold("cublaslt", _MIB)
        else:
            self.cublas()

    def _hold(self, library: str, nbytes: int) -> None:
        key = (library, threading.get_ident(), self._memory.stream)
        if key not in self._held:
            self._held.add(key)
            self._memory.take(nbytes, "workspaces")
