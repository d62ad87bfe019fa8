"""Compilers, run as what they compile; what does not start on a card; kernels in CUDA's own language, which a trace
cannot run.
"""

from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.fx.experimental import proxy_tensor

from vramtui.core.base.errors import BeyondTraceError, UserError
from vramtui.estimators.torch_facts.compiled import measured_difference
from vramtui.estimators.traced.accounting.call_site import Whereabouts
from vramtui.estimators.traced.accounting.memory import SimulatedMemory
from vramtui.estimators.traced.device.patches import Patches, for_module
from vramtui.estimators.traced.loading.scripted import give_save

INDUCTOR = "inductor"  # what torch.compile takes where nobody names a backend
TENSORBOARD = "torch.utils.tensorboard.writer"
EXTENSIONS = "torch.utils.cpp_extension"  # loads setuptools


def install(patches: Patches, memory: SimulatedMemory, where: Whereabouts) -> None:
    """Run compiled code as it is written, and refuse kernels in CUDA."""
    _compile_nothing(patches, memory, where)
    _draw_no_graph(patches, memory, where)
    _script_what_compiles(patches, memory, where)
    _export_nothing(patches, memory, where)
    _follow_no_symbols(patches, memory, where)
    _build_nothing(patches, where)
    _record_nothing(patches)
    _refuse_fp8(patches, where)


def _refuse_fp8(patches: Patches, where: Whereabouts) -> None:
    """A product of fp8 does not start below capability 8.9 (aten/src/ATen/native/cuda, `_scaled_mm_allowed_device`)."""
    plain = torch._scaled_mm

    def multiply(*args: Any, **kwargs: Any) -> Any:
        capability = torch.cuda.get_device_capability()
        if capability < (8, 9):
            dotted = ".".join(map(str, capability))
            raise UserError(
                f"torch._scaled_mm at {where.user_line()} does not start on this card: products of fp8 need compute "
                f"capability 8.9, and it has {dotted}"
            )
        return plain(*args, **kwargs)

    patches.set(torch, "_scaled_mm", multiply)


def _compile_nothing(patches: Patches, memory: SimulatedMemory, where: Whereabouts) -> None:
    def compiled(model: Any = None, **options: Any) -> Any:
        if where.called_by_user():
            tell(options.get("backend", INDUCTOR))
        return eager if model is None else eager(model)

    def compile_module(model: Any, *_args: Any, **options: Any) -> None:
        if where.called_by_user():
            tell(options.get("backend", INDUCTOR))
        eager(model)

    def tell(backend: object) -> None:
        capability = torch.cuda.get_device_capability()
        # "Triton only supports devices of CUDA Capability >= 7.0" (torch/_dynamo/device_interface.py, PyTorch 2.13).
        if backend == INDUCTOR and capability < (7, 0):
            dotted = ".".join(map(str, capability))
            raise UserError(
                f"torch.compile at {where.user_line()} does not start on this card: Triton needs compute capability"
                f" 7.0, and it has {dotted}"
            )
        memory.warn(
            f"torch.compile at {where.user_line()} is run as eager code; what compiled code keeps and makes differs: "
            f"{measured_difference()}",
            better="compiled code",
        )

    def eager(model: Any) -> Any:
        if isinstance(model, torch.nn.Module):
            vars(model)["_orig_mod"] = model  # not as a child of itself
        return model

    patches.set(torch, "compile", compiled)
    patches.set(torch.nn.Module, "compile", compile_module)


def _draw_no_graph(patches: Patches, memory: SimulatedMemory, where: Whereabouts) -> None:
    """`torch.jit.trace` takes sizes for tensors, which fake ones have no answer for: the code is run once as it is."""
    inputs_of: WeakKeyDictionary[torch.nn.Module, Any] = WeakKeyDictionary()

    def traced(func: Any, example_inputs: Any = None, *_args: Any, **kwargs: Any) -> Any:
        memory.warn(
            f"torch.jit.trace at {where.user_line()} runs the code once and leaves it as it is; TorchScript may save "
            "more for backward",
            better="TorchScript",
        )
        run_once(func, example_inputs, kwargs.get("example_kwarg_inputs"))
        if isinstance(func, torch.nn.Module):
            inputs_of[func] = () if example_inputs is None else example_inputs
        if hasattr(func, "__dict__"):
            give_save(func)
        return func

    def add_graph(_writer: Any, model: Any, input_to_model: Any = (), *_args: Any, **_kwargs: Any) -> None:
        memory.warn(f"add_graph at {where.user_line()} runs the model once; no graph is written")
        training = model.training
        named = isinstance(input_to_model, (torch.Tensor, dict)) or input_to_model
        try:
            run_once(model.eval(), input_to_model if named else inputs_of.get(model, ()))
        finally:
            model.train(training)

    patches.set(torch.jit, "trace", traced)

    def patch(module: ModuleType) -> None:
        patches.set(module.SummaryWriter, "add_graph", add_graph)

    for_module(patches, TENSORBOARD, patch)


def _script_what_compiles(patches: Patches, memory: SimulatedMemory, where: Whereabouts) -> None:
    """`torch.jit.script` compiles calls of torch by their identity (torch/jit/_builtins.py, 2.13), which what stands in
    for some of them has not: what does not compile is run as the Python that it is.
    """
    plain = torch.jit.script

    def script(obj: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return plain(obj, *args, **kwargs)
        except Exception:  # noqa: BLE001 - of many kinds, by what is asked of the source
            if where.called_by_user():
                memory.warn(
                    f"torch.jit.script at {where.user_line()} is run as the Python that it is; TorchScript may save "
                    "more for backward",
                    better="TorchScript",
                )
            return obj

    patches.set(torch.jit, "script", script)


class ExportedAsItIs:
    """What stands for a `torch.export.ExportedProgram`: its `module` is the code itself."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model

    def module(self, *_args: Any, **_kwargs: Any) -> torch.nn.Module:
        """What was exported."""
        return self._model

    def run_decompositions(self, *_args: Any, **_kwargs: Any) -> "ExportedAsItIs":
        """Return the program unchanged: there is no graph to decompose."""
        return self

    def __getattr__(self, name: str) -> Any:
        raise BeyondTraceError(
            f"torch.export makes no graph in a trace, so that what it gives has no {name}: a limit of the trace"
        )


def _export_nothing(patches: Patches, memory: SimulatedMemory, where: Whereabouts) -> None:
    """`torch.export` follows the code on fake tensors of its own (torch/export/_trace.py, 2.13), which take no memory,
    and which do not stand the device that stands in for the card: what it gives is the code as it is. `torch.onnx` uses
    it, or with `dynamo=False` runs the code once.
    """

    def export(mod: torch.nn.Module, *_args: Any, **_kwargs: Any) -> ExportedAsItIs:
        memory.warn(f"torch.export at {where.user_line()} makes no graph: what it gives is run as the code that it is")
        return ExportedAsItIs(mod)

    def export_onnx(model: Any, args: Any = (), *_rest: Any, dynamo: bool = True, **_kwargs: Any) -> None:
        memory.warn(f"torch.onnx.export at {where.user_line()} writes no file")
        if not dynamo:
            with torch.no_grad():
                run_once(model, args)

    patches.set(torch.export, "export", export)
    patches.set(torch.export, "save", lambda *_args, **_kwargs: None)
    for_module(patches, "torch.onnx", lambda module: patches.set(module, "export", export_onnx))


def _follow_no_symbols(patches: Patches, memory: SimulatedMemory, where: Whereabouts) -> None:
    """A graph of symbolic sizes needs fake tensors that have some (torch/fx/experimental/proxy_tensor.py, 2.13): what
    is given is a graph of one call of the code itself, which is right for every size.
    """
    plain = proxy_tensor.make_fx

    def make_fx(f: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("tracing_mode", "real") == "real":
            return plain(f, *args, **kwargs)

        def make(*inputs: Any) -> torch.fx.GraphModule:
            memory.warn(f"make_fx at {where.user_line()} makes no graph: what it gives is run as the code that it is")
            graph = torch.fx.Graph()
            graph.output(graph.call_function(f, tuple(graph.placeholder(f"arg{i}") for i in range(len(inputs)))))
            return torch.fx.GraphModule({}, graph)

        return make

    patches.set(proxy_tensor, "make_fx", make_fx)


def run_once(model: Any, inputs: Any, named: dict[str, Any] | None = None) -> None:
    """Run the model once, as torch.jit.trace does (torch/jit/_trace.py, 2.13: a tensor or a dict is one argument)."""
    model(*((inputs,) if isinstance(inputs, (torch.Tensor, dict)) else inputs or ()), **named or {})


def _build_nothing(patches: Patches, where: Whereabouts) -> None:
    def build(*_args: Any, **_kwargs: Any) -> Any:
        raise BeyondTraceError(
            f"a CUDA kernel of the code's own is built at {where.user_line()}: a trace cannot run it, so switch to the "
            "code's way without it if it has one"
        )

    def patch(module: ModuleType) -> None:
        for name in ("load", "load_inline"):
            patches.set(module, name, build)

    for_module(patches, EXTENSIONS, patch)


def _record_nothing(patches: Patches) -> None:
    """Record no history of the driver's memory."""
    nothing = lambda *_args, **_kwargs: None  # noqa: E731 # one for all
    for name in ("_record_memory_history", "_dump_snapshot"):
        patches.set(torch.cuda.memory, name, nothing)
