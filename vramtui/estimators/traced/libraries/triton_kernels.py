"""Kernels in Triton: a launch writes into the tensors that it is given, and takes nothing of its own.

Triton 3.x: `JITFunction.run` launches (triton/runtime/jit.py); `Autotuner` times each configuration the first time that
it sees a shape, with a buffer of 256 MiB to clear the card's cache (triton/testing.py, do_bench; the driver's
get_empty_cache_for_benchmark). A trace leaves the launch out and keeps that buffer.
"""

import importlib.util
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from vramtui.core.base.units import MIB
from vramtui.estimators.torch_facts.reduction import WARP
from vramtui.estimators.traced.accounting.memory import SimulatedMemory
from vramtui.estimators.traced.device.patches import Patches, for_module
from vramtui.estimators.traced.libraries import triton_stand_in

NOTE = "Triton kernels are not run: each writes into the tensors that it is given and takes no memory of its own"
CLEARED = 256 * MIB


def install(patches: Patches, memory: SimulatedMemory) -> None:
    """Take the launches out of Triton, now or when the code imports it."""

    def patch(module: ModuleType) -> None:
        patches.set(module.JITFunction, "run", launch)
        testing, runtime = (importlib.import_module(f"triton.{name}") for name in ("testing", "runtime.driver"))
        for name, timer in TIMERS.items():
            patches.set(testing, name, timer)
        runtime.driver.set_active(_driver(memory, _target(memory)))

    def launch(*_args: Any, **_kwargs: Any) -> None:
        memory.warn(NOTE)

    if importlib.util.find_spec("triton") is None:
        triton_stand_in.install(patches, launch, TIMERS, lambda: _driver(memory, _target(memory)))
    elif "triton.runtime.jit" in sys.modules:
        patch(sys.modules["triton.runtime.jit"])
    else:
        for_module(patches, "triton.testing", lambda _module: patch(sys.modules["triton.runtime.jit"]))


def time_nothing(kernel_call: Callable[[], Any], *_args: Any, quantiles: Any = None, **_kwargs: Any) -> Any:
    """A first call, in which what it calls may be tuned, and one beside the buffer that clears the card's cache.

    Every configuration is as fast as any other.
    """
    kernel_call()
    cleared = torch.empty(CLEARED // 4, dtype=torch.int, device="cuda")
    kernel_call()
    del cleared
    return [1.0] * len(quantiles) if quantiles else 1.0


def time_in_graph(kernel_call: Callable[[], Any], *_args: Any, quantiles: Any = None, **_kwargs: Any) -> Any:
    """Calls on a stream of its own, then in a graph; no cache is cleared (triton/testing.py, do_bench_cudagraph)."""
    with torch.cuda.stream(torch.cuda.Stream()):
        kernel_call()
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            kernel_call()
    return [1.0] * len(quantiles) if quantiles else 1.0


TIMERS = {"do_bench": time_nothing, "do_bench_cudagraph": time_in_graph}


def _target(memory: SimulatedMemory) -> SimpleNamespace:
    """The target that `triton.backends.compiler.GPUTarget` would name."""
    major, minor = memory.device.capability
    return SimpleNamespace(backend="cuda", arch=10 * major + minor, warp_size=WARP)


def _driver(memory: SimulatedMemory, target: Any) -> SimpleNamespace:
    """What libraries ask of Triton's driver."""
    limits = memory.device.limits
    asked = {
        "max_shared_mem": 232448,
        "max_num_regs": 65536,
        "multiprocessor_count": limits.multiprocessors,
        "warpSize": WARP,
        "sm_clock_rate": 0,
        "mem_clock_rate": 0,
        "mem_bus_width": 0,
    }
    return SimpleNamespace(
        get_current_device=lambda: 0,
        set_current_device=lambda _device: None,
        get_current_stream=lambda _device=0: 0,
        get_current_target=lambda: target,
        get_device_capability=lambda _device=0: memory.device.capability,
        get_active_torch_device=lambda: torch.device("cuda", 0),
        get_device_interface=lambda: torch.cuda,
        get_benchmarker=lambda: time_nothing,
        utils=SimpleNamespace(get_device_properties=lambda _device=0: asked),
    )
