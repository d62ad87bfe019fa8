"""Extension modules of mamba-ssm and causal-conv1d, which need a CUDA compiler to be built and a card to run.

Their Python side runs as it is (it installs without a compiler); what it calls is here, with the tensors that the C++
side allocates: `selective_scan_fwd` and `selective_scan_bwd` of csrc/selective_scan/selective_scan.cpp in mamba-ssm
2.3. causal-conv1d's own (1.5 and later, csrc/causal_conv1d.cpp) writes into what Python has allocated for it. They
stand in also where the real ones are installed, as those would read the memory of fake tensors.
"""

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from vramtui.estimators.traced.accounting.memory import SimulatedMemory
from vramtui.estimators.traced.device.patches import Patches

NOTE = "{} is not run: it takes the memory that its C++ code allocates"
CHUNK = 2048  # tokens whose last states the forward pass keeps
_VARIABLE = 3  # dimensions of B and C from which they depend on the token


def install(patches: Patches, memory: SimulatedMemory) -> None:
    """Answer the imports of `KERNELS` before anything else does."""
    finder = KernelFinder(lambda name: memory.warn(NOTE.format(name), better=f"kernels of {name}"))
    patches.set(sys, "meta_path", [finder, *sys.meta_path])


def scan_forward(u: Any, delta: Any, a: Any, _b: Any, _c: Any, _d: Any, z: Any, *_rest: Any) -> list[Any]:
    """U and delta: [batch, width, tokens]; a: [width, states]. The output, states at the end of each chunk, and the
    gated output where there is a gate.
    """
    batch, width, tokens = u.shape
    gated = [] if z is None else [torch.empty_like(z)]
    out = torch.empty_like(delta)
    states = torch.empty(batch, width, -(-tokens // CHUNK), 2 * a.shape[1], device=u.device, dtype=a.dtype)
    return [out, states, *gated]


def scan_backward(*given: Any) -> list[Any]:
    """Gradients of each of u, delta, A, B, C, D, the bias and the gate, given those, the output's gradient, states, the
    output, memory for the gate's gradient, and two settings. Those of B and C are added up in fp32 where they depend on
    the token.
    """
    u, delta, a, b, c, d, z, bias, _grad, _states, out, dz, _softplus, recompute = given
    gated = [torch.empty_like(z) if dz is None else dz] if z is not None else []
    again = [torch.empty_like(out)] if recompute else []
    of_u, of_delta, of_a = torch.empty_like(u), torch.empty_like(delta), torch.zeros_like(a)
    of_b, of_c = (
        torch.zeros_like(x, dtype=torch.float32) if x.dim() >= _VARIABLE else torch.zeros_like(x) for x in (b, c)
    )
    of_d, of_bias = (None if x is None else torch.zeros_like(x) for x in (d, bias))
    return [of_u, of_delta, of_a, of_b.to(b.dtype), of_c.to(c.dtype), of_d, of_bias, *gated, *again]


def write_in_place(*_args: Any) -> None:
    """A kernel that takes no memory of its own."""


KERNELS: dict[str, dict[str, Callable[..., Any]]] = {
    "selective_scan_cuda": {"fwd": scan_forward, "bwd": scan_backward},
    "causal_conv1d_cuda": dict.fromkeys(
        ("causal_conv1d_fwd", "causal_conv1d_bwd", "causal_conv1d_update"), write_in_place
    ),
}


class KernelFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives the modules of KERNELS."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell

    def find_spec(self, fullname: str, *_place: object) -> importlib.machinery.ModuleSpec | None:
        """A spec for one of them."""
        return importlib.machinery.ModuleSpec(fullname, self) if fullname in KERNELS else None

    def exec_module(self, module: ModuleType) -> None:
        """Put the kernels' stand-ins into the module."""
        vars(module).update(KERNELS[module.__name__])
        self._tell(module.__name__)
