"""`torch.cuda` as the code sees it: one card of the chosen kind, whose memory figures come from the simulation."""

import contextlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
import torch.cuda.amp.common
import torch.cuda.nvtx

from vramtui.estimators.traced.accounting.memory import SimulatedMemory
from vramtui.estimators.traced.device.device import CUDA_DEVICE
from vramtui.estimators.traced.device.patches import Patches

_DRIVER_VERSION = 13000


def install(patches: Patches, memory: SimulatedMemory) -> None:
    """Replace what would ask a driver."""
    for name, value in {
        **_presence(memory),
        **_memory_figures(memory),
        **_randomness(),
        **_streams(memory),
    }.items():
        patches.set(torch.cuda, name, value)
    patches.set(torch.version, "cuda", "13.0")
    patches.set(torch.backends.cuda, "is_built", lambda: True)
    patches.set(torch.backends.cudnn, "is_available", lambda: True)
    patches.set(torch.backends.cudnn, "version", lambda: 92000)
    patches.set(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False)
    for name in ("range_push", "range_pop", "mark"):
        patches.set(torch.cuda.nvtx, name, lambda *_args, **_kwargs: 0)
    _accelerator(patches)
    patches.set(torch, "Generator", _Generator)
    patches.set(torch.Tensor, "record_stream", memory.record_stream)


class _GeneratorType(type(torch.Generator)):  # type: ignore[misc] # its metaclass is plain `type`
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, torch._C.Generator)


class _Generator(metaclass=_GeneratorType):
    """`torch.Generator(device="cuda")` draws nothing here: one of the CPU stands in."""

    def __new__(cls, device: Any = "cpu") -> Any:
        kind = torch.device(device).type
        return torch._C.Generator("cpu" if kind == "cuda" else device)


def _presence(memory: SimulatedMemory) -> dict[str, Any]:
    card = memory.device
    properties = SimpleNamespace(
        name=card.name,
        major=card.capability[0],
        minor=card.capability[1],
        total_memory=card.total_memory,
        multi_processor_count=card.limits.multiprocessors,
        max_threads_per_multi_processor=card.limits.threads,
        warp_size=32,
        is_integrated=False,
        is_multi_gpu_board=False,
        regs_per_multiprocessor=65536,
        shared_memory_per_block=49152,
        L2_cache_size=50 << 20,
        gcnArchName="",
    )
    nothing: Callable[..., None] = lambda *_args, **_kwargs: None  # noqa: E731 # a table of one-liners
    return {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "is_bf16_supported": lambda *_args, **_kwargs: card.capability >= (8, 0),
        "is_current_stream_capturing": lambda: False,
        "init": nothing,
        "_lazy_init": nothing,
        "ipc_collect": nothing,
        "set_device": nothing,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_name": lambda *_args: card.name,
        "get_device_capability": lambda *_args: card.capability,
        "get_device_properties": lambda *_args: properties,
        "get_arch_list": lambda: [f"sm_{card.capability[0]}{card.capability[1]}"],
        "can_device_access_peer": lambda *_args: False,
        "utilization": lambda *_args: 0,
        "device": _SameDevice,
        "device_of": _SameDevice,
    }


class _SameDevice(contextlib.nullcontext[None]):
    def __init__(self, device: Any = None) -> None:
        super().__init__()
        self.idx = 0
        self.device = device


def _memory_figures(memory: SimulatedMemory) -> dict[str, Any]:
    allocator = memory.allocator

    def stats() -> Any:
        return allocator.stats

    def reset_peaks(*_args: Any) -> None:
        memory.note_peaks()
        allocator.reset_peaks()

    def memory_stats(*_args: Any) -> dict[str, int]:
        now = stats()
        return {
            "allocated_bytes.all.current": now.allocated,
            "allocated_bytes.all.peak": now.peak_allocated,
            "active_bytes.all.current": now.allocated,
            "active_bytes.all.peak": now.peak_allocated,
            "reserved_bytes.all.current": now.reserved,
            "reserved_bytes.all.peak": now.peak_reserved,
            "num_alloc_retries": getattr(now, "retries", 0),
            "num_ooms": getattr(now, "ooms", 0),
        }

    return {
        "memory_allocated": lambda *_args: stats().allocated,
        "memory_reserved": lambda *_args: stats().reserved,
        "memory_cached": lambda *_args: stats().reserved,
        "max_memory_allocated": lambda *_args: stats().peak_allocated,
        "max_memory_reserved": lambda *_args: stats().peak_reserved,
        "max_memory_cached": lambda *_args: stats().peak_reserved,
        "memory_stats": memory_stats,
        "memory_summary": lambda *_args, **_kwargs: str(memory_stats()),
        "mem_get_info": lambda *_args: (memory.device.total_memory - stats().reserved, memory.device.total_memory),
        "reset_peak_memory_stats": reset_peaks,
        "reset_max_memory_allocated": reset_peaks,
        "empty_cache": allocator.empty_cache,
        "synchronize": lambda *_args: allocator.synchronize(),
        "set_per_process_memory_fraction": lambda fraction, *_args: allocator.set_memory_fraction(fraction),
    }


def _randomness() -> dict[str, Any]:
    def get_rng_state(_device: Any = "cuda") -> torch.Tensor:
        return torch.zeros(16, dtype=torch.uint8)

    nothing: Callable[..., None] = lambda *_args, **_kwargs: None  # noqa: E731 # a table of one-liners
    return {
        "manual_seed": nothing,
        "manual_seed_all": nothing,
        "seed": nothing,
        "seed_all": nothing,
        "initial_seed": lambda: 0,
        "get_rng_state": get_rng_state,
        "get_rng_state_all": lambda: [get_rng_state()],
        "set_rng_state": nothing,
        "set_rng_state_all": nothing,
    }


class SimStream:
    """A stream: a number the allocator keeps blocks apart by."""

    made = 0

    def __init__(self, device: Any = None, priority: int = 0, **_kwargs: Any) -> None:
        SimStream.made += 1
        self.device = device or CUDA_DEVICE
        self.priority = priority
        self.stream_id = self.cuda_stream = SimStream.made

    def synchronize(self) -> None:
        """Nothing runs, so nothing is waited for."""

    def query(self) -> bool:
        return True

    def wait_stream(self, _stream: Any) -> None:
        """Order has no effect on memory here."""

    def wait_event(self, _event: Any) -> None:
        """As wait_stream."""

    def record_event(self, event: Any = None) -> Any:
        return event or SimEvent()


class SimEvent:
    """An event that has always just happened."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        self.device = CUDA_DEVICE

    def record(self, _stream: Any = None) -> None:
        """Nothing to mark."""

    def wait(self, _stream: Any = None) -> None:
        """Nothing to wait for."""

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def query(self) -> bool:
        return True

    def elapsed_time(self, _end: Any) -> float:
        return 0.0


def _streams(memory: SimulatedMemory) -> dict[str, Any]:
    default = SimStream()
    default.stream_id = default.cuda_stream = 0
    current = [default]

    def set_stream(stream: Any) -> None:
        current[0] = stream
        memory.stream = stream.stream_id

    @contextlib.contextmanager
    def stream_context(stream: Any) -> Iterator[None]:
        before = current[0]
        if stream is not None:
            set_stream(stream)
        try:
            yield
        finally:
            set_stream(before)

    return {
        "Stream": SimStream,
        "Event": SimEvent,
        "current_stream": lambda *_args: current[0],
        "default_stream": lambda *_args: default,
        "set_stream": set_stream,
        "stream": stream_context,
        "StreamContext": stream_context,
    }


def _accelerator(patches: Patches) -> None:
    accelerator = torch.accelerator
    patches.set(accelerator, "current_accelerator", lambda *_args, **_kwargs: torch.device("cuda"))
    patches.set(accelerator, "is_available", lambda: True)
    patches.set(accelerator, "device_count", lambda: 1)
    patches.set(accelerator, "current_device_index", lambda: 0)
    patches.set(accelerator, "synchronize", torch.cuda.synchronize)
    for name in ("empty_cache", "memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved",
                 "reset_peak_memory_stats", "memory_stats"):  # fmt: skip
        patches.set(accelerator, name, getattr(torch.cuda, name))
