"""PyTorch's CUDA caching allocator as a pure simulation: no torch, no device, the same figures after every event.

The rules are those of PyTorch 2.13, c10/cuda/CUDACachingAllocator.cpp and c10/core/AllocatorConfig.h.
"""

from vramtui.estimators.allocator.caching import CachingAllocator
from vramtui.estimators.allocator.config import AllocatorConfig
from vramtui.estimators.allocator.failure import AllocatorOutOfMemoryError
from vramtui.estimators.allocator.layout import BlockView, SegmentView
from vramtui.estimators.allocator.replay import COLUMNS, AllocatorReplay, Event, Refusal, ReservedPeak, replay
from vramtui.estimators.allocator.stats import Stats

__all__ = [
    "COLUMNS",
    "AllocatorConfig",
    "AllocatorOutOfMemoryError",
    "AllocatorReplay",
    "BlockView",
    "CachingAllocator",
    "Event",
    "Refusal",
    "ReservedPeak",
    "SegmentView",
    "Stats",
    "replay",
]
