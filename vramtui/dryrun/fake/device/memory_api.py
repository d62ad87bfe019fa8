"""`torch.cuda.memory` as the code sees it: every figure comes from the simulated allocator.

`torch.cuda.memory_allocated`, `memory_summary` and the like are PyTorch's own; what they ask the C++ allocator for is
answered here (keys as in torch/csrc/cuda/Module.cpp, THCPModule_memoryStats, 2.13).
"""

from typing import Any

import torch
import torch.cuda.memory
from torch._subclasses.fake_tensor import FakeTensor

from vramtui.dryrun.fake.accounting.memory import SimulatedMemory
from vramtui.dryrun.fake.device.patches import Patches

Counters = dict[str, dict[str, int]]
_ACTIVE = "active_allocated"


def install(patches: Patches, memory: SimulatedMemory) -> None:
    """Replace what would ask the driver or the C++ allocator."""
    simulated = {
        "memory_stats_as_nested_dict": lambda *_args, **_kwargs: _nested(memory),
        "reset_peak_memory_stats": lambda *_args, **_kwargs: memory.reset_peaks(),
        "reset_max_memory_allocated": lambda *_args, **_kwargs: memory.reset_peaks(),
        "reset_max_memory_cached": lambda *_args, **_kwargs: memory.reset_peaks(),
        "reset_accumulated_memory_stats": lambda *_args, **_kwargs: None,
        "empty_cache": lambda: memory.allocator.empty_cache(),  # noqa: PLW0108 - it may be replaced by then
        "mem_get_info": lambda *_args, **_kwargs: _free_and_total(memory),
        "memory_snapshot": lambda *_args, **_kwargs: _segments(memory),
        "_snapshot": lambda *_args, **_kwargs: {"segments": _segments(memory), "device_traces": [[]]},
        "set_per_process_memory_fraction": lambda fraction, *_args, **_kwargs: memory.allocator.set_memory_fraction(
            fraction
        ),
        "get_per_process_memory_fraction": lambda *_args, **_kwargs: 1.0,
        "device_memory_used": lambda *_args, **_kwargs: memory.device.total_memory - memory.allocator.free_memory,
        "_set_allocator_settings": memory.reconfigure,
        "list_gpu_processes": lambda *_args, **_kwargs: "GPU:0\nno processes are running",
        "host_memory_stats": lambda: {},  # noqa: PIE807 - a type would lose the signature
        "get_allocator_backend": lambda: "native",
        "is_initialized": lambda: True,
    }
    for name, value in simulated.items():
        patches.set(torch.cuda.memory, name, value)
        if hasattr(torch.cuda, name):
            patches.set(torch.cuda, name, value)

    plain_resize: Any = torch.UntypedStorage.resize_
    plain_address, plain_storage_address = torch.Tensor.data_ptr, torch.UntypedStorage.data_ptr

    def resize_(storage: torch.UntypedStorage, size: int) -> Any:
        resized = plain_resize(storage, size)
        memory.resized(storage)
        return resized

    def data_ptr(tensor: torch.Tensor) -> int:
        if not isinstance(tensor, FakeTensor) or tensor.layout is not torch.strided:
            return plain_address(tensor)
        address = memory.book.address(tensor.untyped_storage())
        return address + int(tensor.storage_offset()) * tensor.element_size() if address else 0

    def storage_data_ptr(storage: torch.UntypedStorage) -> int:
        return memory.book.address(storage) if storage._cdata in memory.book.entries else plain_storage_address(storage)

    patches.set(torch.UntypedStorage, "resize_", resize_)
    patches.set(torch.Tensor, "data_ptr", data_ptr)
    patches.set(torch.UntypedStorage, "data_ptr", storage_data_ptr)


def _free_and_total(memory: SimulatedMemory) -> tuple[int, int]:
    total = memory.device.total_memory
    return memory.allocator.free_memory, total


def _nested(memory: SimulatedMemory) -> dict[str, Any]:
    """Both pools together under `all`; of each pool what is held now, its peaks being those now."""
    stats = memory.allocator.stats
    peaks = memory.peaks_since_reset()
    whole = {
        "allocation": (stats.allocations, stats.allocations),
        "segment": (stats.segments, peaks["segments"]),
        "active": (stats.active_blocks, stats.active_blocks),
        "inactive_split": (stats.inactive_split_blocks, stats.inactive_split_blocks),
        "allocated_bytes": (stats.allocated, peaks["allocated"]),
        "reserved_bytes": (stats.reserved, peaks["reserved"]),
        "active_bytes": (stats.active, peaks["active"]),
        "inactive_split_bytes": (stats.inactive_split, stats.inactive_split),
        "requested_bytes": (stats.requested, peaks["requested"]),
    }
    pools = {pool: _of_pool(memory, pool) for pool in ("small", "large")}
    nested: dict[str, Any] = {}
    for name, (current, peak) in whole.items():
        nested[name] = {"all": _counter(current, peak)} | {
            f"{pool}_pool": _counter(counters[name], counters[name]) for pool, counters in pools.items()
        }
    return nested | {
        "num_alloc_retries": stats.retries,
        "num_ooms": stats.ooms,
        "num_sync_all_streams": stats.retries,
        "num_device_alloc": stats.device_allocs,
        "num_device_free": stats.device_frees,
        "max_split_size": memory.allocator.config.max_split_size or -1,
        "oversize_allocations": _counter(0, 0),
        "oversize_segments": _counter(0, 0),
    }


def _counter(current: int, peak: int) -> dict[str, int]:
    return {"current": current, "peak": peak, "allocated": peak, "freed": peak - current}


def _of_pool(memory: SimulatedMemory, pool: str) -> dict[str, int]:
    segments = [segment for segment in memory.allocator.segments() if segment.pool == pool]
    blocks = [block for segment in segments for block in segment.blocks]
    allocated = [block for block in blocks if block.state == _ACTIVE]
    active = [block for block in blocks if block.state != "inactive"]
    split = [
        block
        for segment in segments
        if len(segment.blocks) > 1
        for block in segment.blocks
        if block.state == "inactive"
    ]
    return {
        "allocation": len(allocated),
        "segment": len(segments),
        "active": len(active),
        "inactive_split": len(split),
        "allocated_bytes": sum(block.size for block in allocated),
        "reserved_bytes": sum(segment.size for segment in segments),
        "active_bytes": sum(block.size for block in active),
        "inactive_split_bytes": sum(block.size for block in split),
        "requested_bytes": sum(block.requested for block in active),
    }


def _segments(memory: SimulatedMemory) -> list[dict[str, Any]]:
    """The segments as `torch.cuda.memory_snapshot` lists them, without frames."""
    return [
        {
            "device": 0,
            "address": segment.address,
            "total_size": segment.size,
            "allocated_size": sum(block.size for block in segment.blocks if block.state == _ACTIVE),
            "active_size": sum(block.size for block in segment.blocks if block.state != "inactive"),
            "requested_size": sum(block.requested for block in segment.blocks),
            "stream": segment.stream,
            "segment_type": segment.pool,
            "segment_pool_id": (0, 0),
            "is_expandable": segment.expandable,
            "frames": [],
            "blocks": [
                {
                    "address": block.address,
                    "size": block.size,
                    "requested_size": block.requested,
                    "state": block.state,
                    "frames": [],
                }
                for block in segment.blocks
            ],
        }
        for segment in memory.allocator.segments()
    ]
