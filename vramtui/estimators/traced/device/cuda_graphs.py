"""CUDA graphs and memory pools of the code's own: what they hold stands in PyTorch's own pool here."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from vramtui.estimators.traced.accounting.memory import SimulatedMemory
from vramtui.estimators.traced.device.device import CUDA_DEVICE
from vramtui.estimators.traced.device.patches import Patches


class SimGraph:
    """`torch.cuda.CUDAGraph`: what is captured has run once; its memory stays the graph's own as long as tensors do."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        self.device = CUDA_DEVICE

    def capture_begin(self, *_args: Any, **_kwargs: Any) -> None:
        """What follows simply runs."""

    def capture_end(self) -> None:
        """End a capture; what it captured has run already."""

    def replay(self) -> None:
        """Do nothing: a replay takes nothing from the allocator."""

    def reset(self) -> None:
        """Do nothing: a graph holds nothing."""

    def pool(self) -> tuple[int, int]:
        return 0, 0


class SimMemPool:
    """`torch.cuda.MemPool`: one of the code's own is as any other."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        self.id = 0, 1

    def snapshot(self, *_args: Any, **_kwargs: Any) -> list[Any]:
        return []


def install_graphs(patches: Patches, memory: SimulatedMemory) -> None:
    """Let captures run as plain code."""
    note = "CUDA graphs run once as plain code; the private memory pool of a capture is not modelled"

    streams: list[Any] = []  # that in which captures are which name none

    @contextlib.contextmanager
    def capture(_graph: Any, _pool: Any = None, stream: Any = None, **_kwargs: Any) -> Iterator[None]:
        """What is cached is given back first (torch/cuda/graphs.py, 2.13, `graph.__enter__`)."""
        memory.warn(note, better="the memory pool of CUDA graphs")
        torch.cuda.empty_cache()
        if stream is None and not streams:
            streams.append(torch.cuda.Stream())
        with torch.cuda.stream(streams[0] if stream is None else stream):
            yield

    @contextlib.contextmanager
    def in_pool(_pool: Any, *_args: Any, **_kwargs: Any) -> Iterator[None]:
        memory.warn("memory pools of the code's own are not kept apart from PyTorch's")
        yield

    patches.set(torch.cuda, "CUDAGraph", SimGraph)
    patches.set(torch.cuda, "graph", capture)
    patches.set(torch.cuda, "graph_pool_handle", lambda: (0, 0))
    for module in (torch.cuda, torch.cuda.memory):
        patches.set(module, "MemPool", SimMemPool)
        patches.set(module, "use_mem_pool", in_pool)
    patches.set(torch.cuda, "make_graphed_callables", lambda callables, *_args, **_kwargs: callables)
