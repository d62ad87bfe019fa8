"""cuBLAS workspaces: one per thread's handle and stream, taken at the first matrix product, never given back."""

import threading

from vramtui.estimators.torch_facts.cublas import SEPARATE_LT_WORKSPACE, workspace_bytes
from vramtui.estimators.traced.accounting.memory import SimulatedMemory


class Workspaces:
    """The workspaces that are held.

    Args:
        memory: where they are taken.
        capability: decides their size.
        separate_lt: PyTorch up to 2.11 keeps a further one of 1 MiB for cuBLASLt.
    """

    def __init__(self, memory: SimulatedMemory, capability: tuple[int, int], *, separate_lt: bool = False) -> None:
        self._memory = memory
        self._bytes = workspace_bytes(capability)
        self._separate_lt = separate_lt
        self._held: set[tuple[str, int, int]] = set()

    def cublas(self) -> None:
        """A handle is used by this thread on the current stream."""
        self._hold("cublas", self._bytes)

    def cublaslt(self) -> None:
        """A product with a fused bias is run by this thread on the current stream."""
        if self._separate_lt:
            self._hold("cublaslt", SEPARATE_LT_WORKSPACE)
        else:
            self.cublas()

    def _hold(self, library: str, nbytes: int) -> None:
        key = (library, threading.get_ident(), self._memory.stream)
        if key not in self._held:
            self._held.add(key)
            self._memory.take(nbytes, "workspaces")
