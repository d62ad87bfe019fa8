"""cuBLAS workspaces: one per thread's handle and stream, taken at the first matrix product; or one for each product."""

import os
import threading

from vramtui.estimators.torch_facts.cublas import KEPT_BEFORE, SEPARATE_LT_WORKSPACE, UNIFIED, workspace_bytes
from vramtui.estimators.traced.accounting.memory import SimulatedMemory
from vramtui.estimators.traced.accounting.storages import StorageEntry


class Workspaces:
    """The workspaces that are held.

    Args:
        memory: where they are taken.
        capability: decides their size.
        release: of PyTorch, which decides whether they are kept.
    """

    def __init__(self, memory: SimulatedMemory, capability: tuple[int, int], release: tuple[int, int]) -> None:
        self._memory = memory
        self._capability = capability
        self._kept = release < KEPT_BEFORE
        self._held: dict[tuple[str, int, int], StorageEntry] = {}

    def cublas(self) -> None:
        """A handle is used by this thread on the current stream."""
        self._hold("cublas", None)

    def cublaslt(self) -> None:
        """A product with a fused bias is run by this thread on the current stream."""
        if os.environ.get(UNIFIED) == "0":
            self._hold("cublaslt", SEPARATE_LT_WORKSPACE)
        else:
            self.cublas()

    def clear(self) -> None:
        """Give all of them back."""
        for entry in self._held.values():
            self._memory.release(entry)
        self._held.clear()

    def _hold(self, library: str, nbytes: int | None) -> None:
        key = (library, threading.get_ident(), self._memory.stream)
        if key not in self._held:
            size = workspace_bytes(self._capability) if nbytes is None else nbytes
            entry = self._memory.take(size, "workspaces")
            if self._kept:
                self._held[key] = entry
            else:
                self._memory.release(entry)
