"""The GPU that a job finds, and `torch.cuda` as its code sees it: memory figures come from the simulation."""

import contextlib
import functools
import uuid
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
import torch.autograd.profiler
import torch.cuda.amp.common
import torch.cuda.memory
import torch.cuda.nvtx
import torch.cuda.profiler
import torch.cuda.random
import torch.cuda.streams
import torch.nn.parallel
import torch.profiler
from torch._subclasses.fake_tensor import FakeTensor
from typing_extensions import Self

from vramtui.dryrun.fake import LISTS
from vramtui.dryrun.fake.accounting.memory import SimulatedMemory
from vramtui.dryrun.fake.device.device import CUDA_DEVICE
from vramtui.dryrun.fake.device.patches import Patches
from vramtui.estimators.allocator.blocks import ALLOCATED, INACTIVE


def _always(value: Any) -> Any:
    return lambda *_args, **_kwargs: value


def install(patches: Patches, memory: SimulatedMemory, cards: int = 1) -> None:
    """Replace what would ask a driver; `cards` is how many the code finds; it uses the first."""
    card = memory.device
    properties = SimpleNamespace(
        name=card.name, major=card.capability[0], minor=card.capability[1], total_memory=card.total_memory,
        multi_processor_count=memory.limits.multiprocessors, max_threads_per_multi_processor=memory.limits.threads,
        warp_size=32, is_integrated=False, is_multi_gpu_board=False, regs_per_multiprocessor=65536,
        shared_memory_per_block=49152, L2_cache_size=50 << 20, gcnArchName="", uuid=uuid.UUID(int=0), pci_bus_id=0,
        pci_device_id=0, pci_domain_id=0,
    )  # fmt: skip
    cuda = torch.device("cuda")
    answers: tuple[tuple[Any, str, Any], ...] = (
        (torch.cuda, "init _lazy_init ipc_collect set_device set_sync_debug_mode manual_seed manual_seed_all", None),
        (torch.cuda, "seed seed_all set_rng_state set_rng_state_all", None),
        (torch.cuda, "utilization temperature power_draw clock_rate memory_usage current_device initial_seed", 0),
        (torch.cuda, "current_blas_handle get_sync_debug_mode", 0),
        (torch.cuda, "is_available is_initialized", True),
        (torch.cuda, "is_current_stream_capturing can_device_access_peer", False),
        (torch.cuda, "is_tf32_supported", card.capability >= (8, 0)),
        (torch.cuda, "device_count", cards),
        (torch.cuda, "get_device_name", card.name),
        (torch.cuda, "get_device_capability", card.capability),
        (torch.cuda, "get_device_properties", properties),
        (torch.cuda, "get_arch_list", [f"sm_{card.capability[0]}{card.capability[1]}"]),
        (torch.cuda, "cudart", type("CudaRuntime", (), {"__getattr__": _always(_always(0))})()),
        (torch.cuda.nvtx, "range_push range_pop range_start range_end mark", 0),
        (torch.cuda.profiler, "start stop init", None),
        (torch.backends.cuda, "is_built", True),
        (torch.backends.cudnn, "is_available", True),
        (torch.backends.cudnn, "version", 92000),
        (torch.cuda.amp.common, "amp_definitely_not_available", False),
        (torch.profiler, "supported_activities", {torch.profiler.ProfilerActivity.CPU}),
        (torch.accelerator, "current_accelerator", cuda),
        (torch.accelerator, "is_available", True),
        (torch.accelerator, "device_count", cards),
        (torch.accelerator, "current_device_index", 0),
        (torch.accelerator, "set_device_index", None),
    )
    for owner, names, answer in answers:
        for name in names.split():
            patches.set(owner, name, _always(answer))
    default = current = SimStream()
    default.stream_id = default.cuda_stream = 0

    def set_stream(stream: Any) -> None:
        nonlocal current
        current, memory.stream = stream, stream.stream_id

    @contextlib.contextmanager
    def stream_context(stream: Any) -> Iterator[None]:
        before = current
        set_stream(before if stream is None else stream)
        try:
            yield
        finally:
            set_stream(before)

    for owner, name, value in (
        (torch.cuda, "device", _SameDevice),
        (torch.cuda, "device_of", type("device_of", (_SameDevice,), {})),
        (torch.cuda, "default_generators", (_CardGenerator(),)),
        (torch.cuda, "get_rng_state", lambda *_args, **_kwargs: torch.zeros(16, dtype=torch.uint8)),
        (torch.cuda, "get_rng_state_all", lambda: [torch.zeros(16, dtype=torch.uint8)]),
        (torch.cuda, "synchronize", lambda *_args, **_kwargs: memory.allocator.synchronize()),
        (torch.cuda.streams, "Stream", SimStream),
        (torch, "Stream", SimStream),
        (torch.cuda.streams, "Event", SimEvent),
        (torch.version, "cuda", "13.0"),
        (torch, "Generator", _Generator),
        (torch.Tensor, "record_stream", lambda tensor, stream: memory.record_stream(tensor, stream)),  # noqa: PLW0108 - a bound method is not given the tensor
        (torch.accelerator, "device_index", lambda _device: contextlib.nullcontext()),
        (torch.cuda, "Stream", SimStream),
        (torch.cuda, "ExternalStream", lambda *_args, **_kwargs: SimStream()),
        (torch.cuda, "Event", SimEvent),
        (torch.cuda, "current_stream", lambda *_args, **_kwargs: current),
        (torch.cuda, "default_stream", _always(default)),
        (torch.cuda, "set_stream", set_stream),
        (torch.cuda, "stream", stream_context),
        (torch.cuda, "StreamContext", stream_context),
    ):
        patches.set(owner, name, value)
    # FSDP takes the type of its default mesh from here (torch/distributed/fsdp/_init_utils.py, 2.13).
    patches.set(torch._C, "_get_accelerator", _always(cuda))
    patches.set(torch._C, "_cuda_clearCublasWorkspaces", memory.workspaces.clear)
    # Answer the questions of PyTorch's own `torch.cuda.memory_allocated` and the like to the C++ allocator.

    def segments(*_args: Any, **_kwargs: Any) -> list[dict[str, Any]]:
        return [
            {
                "device": 0,
                "address": segment.address,
                "total_size": segment.size,
                "allocated_size": sum(block.size for block in segment.blocks if block.state == ALLOCATED),
                "active_size": sum(block.size for block in segment.blocks if block.state != INACTIVE),
                "requested_size": sum(block.requested for block in segment.blocks),
                "stream": segment.stream,
                "segment_type": segment.pool,
                "segment_pool_id": (0, 0),
                "is_expandable": segment.expandable,
                "frames": [],
                "blocks": [
                    {"address": at, "size": size, "requested_size": requested, "state": state, "frames": []}
                    for at, size, requested, state, _number in segment.blocks
                ],
            }
            for segment in memory.allocator.segments()
        ]

    for name, value in {
        "memory_stats_as_nested_dict": lambda *_args, **_kwargs: _nested(memory),
        **dict.fromkeys(
            ("reset_peak_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached"),
            lambda *_args, **_kwargs: memory.allocator.reset_peaks(),
        ),
        "empty_cache": lambda: memory.allocator.empty_cache(),  # noqa: PLW0108 - it may be replaced by then
        "mem_get_info": lambda *_args, **_kwargs: (memory.allocator.free_memory, memory.device.total_memory),
        "memory_snapshot": segments,
        "_snapshot": lambda *_args, **_kwargs: {"segments": segments(), "device_traces": [[]]},
        "set_per_process_memory_fraction": lambda fraction, *_, **__: memory.allocator.set_memory_fraction(fraction),
        "get_per_process_memory_fraction": _always(1.0),
        "device_memory_used": lambda *_args, **_kwargs: memory.device.total_memory - memory.allocator.free_memory,
        "_set_allocator_settings": memory.reconfigure,
        "list_gpu_processes": _always("GPU:0\nno processes are running"),
        "host_memory_stats": _always({}),
        "get_allocator_backend": _always("native"),
        "is_initialized": _always(True),
        **dict.fromkeys(("_record_memory_history", "_dump_snapshot", "reset_accumulated_memory_stats"), _always(None)),
    }.items():
        patches.set(torch.cuda.memory, name, value)
        if hasattr(torch.cuda, name):
            patches.set(torch.cuda, name, value)

    for name in torch.cuda.random.__all__:  # which libraries also call by its own module
        patches.set(torch.cuda.random, name, getattr(torch.cuda, name))

    @patches.around(torch.UntypedStorage, "resize_")
    def resize_(plain: Any, storage: torch.UntypedStorage, size: int) -> Any:
        resized = plain(storage, size)
        memory.resized(storage)
        return resized

    @patches.around(torch.Tensor, "data_ptr")
    def data_ptr(plain: Any, tensor: torch.Tensor) -> int:
        if not isinstance(tensor, FakeTensor) or tensor.layout is not torch.strided:
            return int(plain(tensor))
        address = memory.address(tensor.untyped_storage())
        return address + int(tensor.storage_offset()) * tensor.element_size() if address else 0

    @patches.around(torch.UntypedStorage, "data_ptr")
    def storage_data_ptr(plain: Any, storage: torch.UntypedStorage) -> int:
        return memory.address(storage) if storage._cdata in memory.entries else int(plain(storage))

    for name in ("current_stream", "set_stream", "synchronize", "empty_cache", "memory_allocated", "memory_reserved",
                 "max_memory_allocated", "max_memory_reserved", "reset_peak_memory_stats", "memory_stats"):  # fmt: skip
        patches.set(torch.accelerator, name, getattr(torch.cuda, name))
    # Split and join batches for `nn.DataParallel` (torch/csrc/cuda/comm.cpp, 2.13) on the one card that there is.

    def scatter(tensor: torch.Tensor, _devices: Any, sizes: Any, dim: int, streams: Any = None) -> tuple[Any, ...]:
        parts = tensor.split(sizes, dim) if sizes is not None else tensor.chunk(1, dim)
        with torch.cuda.stream(streams[0] if streams else None):
            return tuple(part.to("cuda") for part in parts)

    def gather(tensors: list[torch.Tensor], dim: int, _destination: Any = None) -> torch.Tensor:
        return torch.cat([tensor.unsqueeze(0) if tensor.dim() == 0 else tensor for tensor in tensors], dim)

    background = functools.cache(SimStream)
    patches.set(torch.nn.parallel._functions, "_get_stream", lambda device: background())  # noqa: ARG005 - its name
    patches.set(torch._C, "_scatter", scatter)
    patches.set(torch._C, "_gather", gather)
    patches.set(torch._C, "_broadcast", lambda tensor, _devices: (tensor.to("cuda"),))
    patches.set(torch._C, "_broadcast_coalesced", lambda tensors, *_args: [[one.to("cuda") for one in tensors]])
    # They profile the CPU only: there are no CUDA events to ask for.

    @patches.around(torch.autograd.profiler.profile, "__init__")
    def profile(plain: Any, profiler: Any, enabled: bool = True, **kwargs: Any) -> None:
        plain(profiler, enabled, **{key: kwargs[key] for key in kwargs if key not in {"use_cuda", "use_device"}})

    @patches.around(torch.profiler.profile, "__init__")
    def kineto(plain: Any, profiler: Any, *_activities: Any, use_cuda: Any = None, **kwargs: Any) -> None:  # noqa: ARG001 - as there
        # Either of the two holds every tensor weakly, and such a one cannot be moved in place.
        changed = {"activities": [torch.profiler.ProfilerActivity.CPU], "record_shapes": False, "profile_memory": False}
        plain(profiler, **kwargs | changed)

    patches.set(torch.cuda.profiler, "profile", contextlib.nullcontext)
    patches.set(torch.autograd.profiler, "emit_nvtx", lambda *_args, **_kwargs: contextlib.nullcontext())


class _GeneratorType(type(torch.Generator)):  # type: ignore[misc] # its metaclass is plain `type`
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, torch._C.Generator)


class _Generator(metaclass=_GeneratorType):
    """`torch.Generator(device="cuda")` draws nothing here: one of the CPU stands in."""

    def __new__(cls, device: Any = "cpu") -> Any:
        return _CardGenerator() if torch.device(device).type == "cuda" else torch._C.Generator(device)


class _CardGenerator(torch._C.Generator):
    """One of the CPU that says it is the card's."""

    device = CUDA_DEVICE


class _SameDevice(contextlib.nullcontext[None]):
    def __init__(self, device: Any = None) -> None:
        super().__init__()
        self.idx, self.device = 0, device


class SimStream(contextlib.ExitStack):
    """A stream: a number the allocator keeps blocks apart by. Order has no effect on memory here."""

    count = 0
    wait_stream = wait_event = synchronize = _always(None)
    query, is_capturing = _always(True), _always(False)
    priority_range = staticmethod(lambda: (0, -5))  # the least and the greatest (torch/csrc/cuda/Stream.cpp)

    def __init__(self, device: Any = None, priority: int = 0, **_kwargs: Any) -> None:
        super().__init__()
        SimStream.count += 1
        self.device, self.priority = device or CUDA_DEVICE, priority
        self.stream_id = self.cuda_stream = SimStream.count

    def __enter__(self) -> Self:
        stream: Any = self
        self.enter_context(torch.cuda.stream(stream))
        return self

    def record_event(self, event: Any = None) -> Any:
        return event or SimEvent()


class SimEvent:
    device = CUDA_DEVICE
    record = wait = synchronize = _always(None)
    query, elapsed_time = _always(True), _always(0.0)

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        """Take the options of any event."""


def _nested(memory: SimulatedMemory) -> dict[str, Any]:
    """Counters of THCPModule_memoryStats (torch/csrc/cuda/Module.cpp, 2.13); peaks of a pool are its values now."""

    def counter(current: int, peak: int) -> dict[str, int]:
        return {"current": current, "peak": peak, "allocated": peak, "freed": peak - current}

    stats, pools = memory.allocator.stats, {"small": Counter[str](), "large": Counter[str]()}
    for segment in memory.allocator.segments():
        counts, is_split = pools[segment.pool], len(segment.blocks) > 1
        counts.update(segment=1, reserved_bytes=segment.size)
        for block in segment.blocks:
            if block.state == INACTIVE:
                counts.update(inactive_split=is_split, inactive_split_bytes=is_split * block.size)
            else:
                counts.update(active=1, active_bytes=block.size, requested_bytes=block.requested)
            if block.state == ALLOCATED:
                counts.update(allocation=1, allocated_bytes=block.size)
    peaks = {"segment": stats.peak_segments} | {
        f"{name}_bytes": getattr(stats, f"peak_{name}") for name in ("allocated", "reserved", "active", "requested")
    }
    nested: dict[str, Any] = {}
    for name in LISTS["counted"]:
        current = sum(counts[name] for counts in pools.values())
        nested[name] = {"all": counter(current, peaks.get(name, current))} | {
            f"{pool}_pool": counter(counts[name], counts[name]) for pool, counts in pools.items()
        }
    return nested | {
        **dict.fromkeys(("num_alloc_retries", "num_sync_all_streams"), stats.retries),
        "num_ooms": stats.ooms,
        "num_device_alloc": stats.device_allocs,
        "num_device_free": stats.device_frees,
        "max_split_size": memory.allocator.config.max_split_size or -1,
        **dict.fromkeys(("oversize_allocations", "oversize_segments"), counter(0, 0)),
    }
