"""Calls that fake tensors cannot follow: compilers run as eager code, graphs and kernels are refused."""

import functools
from types import ModuleType
from typing import Any

import torch

from vramtui.core.base.errors import BeyondTraceError, UserError
from vramtui.dryrun.fake.accounting.memory import SimulatedMemory
from vramtui.dryrun.fake.device.patches import Patches
from vramtui.probe.import_hook import when_imported

NEEDS_CUDA = "it needs PyTorch's CUDA build"
# Public models cut to six blocks, trained in bf16 for two steps by the CUDA build of PyTorch 2.13 on a stubbed driver:
# pythia-410m −22 %, opt-125m −30, qwen2.5-0.5b −36, smollm2-135m −37, tinyllama-1.1b −7, roberta-base −1, bert −5,
# vit-base −6, resnet50 −5 (`tests/golden/stated.json`).
COMPILED = (
    "compiled training of 9 public models allocated -37% to -1% against eager training at its peak, -7% in the median"
)
_REFUSED = {
    "torch.cuda": ("CUDAGraph", "graph", "make_graphed_callables", "MemPool", "use_mem_pool"),
    "torch.jit": ("trace", "save"),
    "torch.export": ("export",),
    "torch.onnx": ("export",),
    "torch.utils.cpp_extension": ("load", "load_inline"),
    "triton.runtime.jit": ("JITFunction.run",),
}


def install(patches: Patches, memory: SimulatedMemory) -> None:
    def refuse_below(least: tuple[int, int], name: str, what: str) -> None:
        needed, has = (".".join(map(str, one)) for one in (least, memory.device.capability))
        if memory.device.capability < least:
            raise UserError(
                f"{name} at {memory.user_line()} does not start on this card: {what} needs compute capability {needed},"
                f" and it has {has}"
            )

    def run_eagerly(name: str, options: dict[str, Any]) -> None:
        if options.get("backend", "inductor") == "inductor":  # torch/_dynamo/device_interface.py, PyTorch 2.13
            refuse_below((7, 0), name, "Triton")
        memory.bounded = True
        memory.warn(
            f"bounded: {name} at {memory.user_line()} runs as eager code; what compiled code keeps differs: "
            f"{COMPILED}; for the compiled figure {NEEDS_CUDA}"
        )

    @patches.around(torch, "compile")
    def compiled(_plain: Any, model: Any = None, **options: Any) -> Any:
        run_eagerly("torch.compile", options)
        if isinstance(model, torch.nn.Module):
            vars(model)["_orig_mod"] = model  # not as a child of itself
        return (lambda function: function) if model is None else model

    @patches.around(torch.nn.Module, "compile")
    def compile_module(_plain: Any, _model: Any, *_args: Any, **options: Any) -> None:
        run_eagerly("Module.compile", options)

    @patches.around(torch, "_scaled_mm")
    def scaled_mm(plain: Any, *args: Any, **kwargs: Any) -> Any:
        refuse_below((8, 9), "torch._scaled_mm", "a product of fp8")  # ATen/native/cuda, `_scaled_mm_allowed_device`
        return plain(*args, **kwargs)

    @patches.around(torch.jit, "script")
    def script(plain: Any, obj: Any, *args: Any, **kwargs: Any) -> Any:
        """TorchScript knows functions of torch by their identity, which those replaced here have lost."""
        try:
            return plain(obj, *args, **kwargs)
        except Exception:  # noqa: BLE001 - of many kinds, by what is asked of the source
            return obj

    def refuse(module: ModuleType) -> None:
        for path in _REFUSED[module.__name__]:
            *above, name = path.split(".")
            owner = functools.reduce(getattr, above, module)

            def refuse_call(*_args: Any, _called: str = f"{module.__name__}.{path}", **_kwargs: Any) -> Any:
                raise BeyondTraceError(
                    f"{_called} at {memory.user_line()} cannot be followed on fake tensors: {NEEDS_CUDA}"
                )

            is_class = isinstance(getattr(owner, name), type)  # which annotations of libraries need
            kind = type(name, (), {"__new__": staticmethod(refuse_call)})
            patches.set(owner, name, kind if is_class else refuse_call)

    for module_name in _REFUSED:
        when_imported(module_name, refuse)
