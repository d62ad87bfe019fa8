"""cuBLAS workspaces: one per thread's handle and stream, taken at the first matrix product; or one for each product."""

import os
import threading

from vramtui.dryrun.fake.accounting.memory import SimulatedMemory
from vramtui.dryrun.fake.accounting.storages import StorageEntry
from vramtui.estimators.torch_facts.cublas import KEPT_BEFORE, UNIFIED, lt_workspace_bytes, workspace_bytes


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
        self._keeps = release < KEPT_BEFORE
        self._entries: dict[tuple[str, int, int], StorageEntry] = {}

    def cublas(self) -> None:
        """A handle is used by this thread on the current stream."""
        self._hold("cublas", workspace_bytes(self._capability))

    def cublaslt(self) -> None:
        """A product with a fused bias is run by this thread on the current stream."""
        if self._keeps:
            self.cublas()  # its handle is made, and the workspace with it
        if not self._keeps or os.environ.get(UNIFIED) == "0":
            self._hold("cublaslt", lt_workspace_bytes())

    def clear(self) -> None:
        """Give all of them back."""
        for entry in self._entries.values():
            self._memory.release(entry)
        self._entries.clear()

    def _hold(self, library: str, nbytes: int) -> None:
        key = (library, threading.get_ident(), self._memory.stream)
        if key not in self._entries:
            entry = self._memory.take(nbytes, "workspaces")
            if self._keeps:
                self._entries[key] = entry
            else:
                self._memory.release(entry)
