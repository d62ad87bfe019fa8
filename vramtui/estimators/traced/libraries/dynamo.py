"""`torch._dynamo`, which every fake tensor mode, optimizer and checkpoint imports and next to no trace uses.

They ask its settings (torch/_subclasses/fake_tensor.py), where a tensor comes from (meta_utils.py beside it, which
passes that on to symbols alone), to be left alone where code is compiled (torch/_compile.py,
torch/utils/checkpoint.py), and to break a graph that nobody draws (torch/optim/optimizer.py; all of PyTorch 2.13). In a
trace nothing is compiled, and the whole takes a second of the processor to import: it is imported as soon as anything
else of it is asked for, without the trace's modes and replacements.
"""

import functools
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import threading
import weakref
from collections.abc import Sequence
from types import FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from vramtui.estimators.traced.device.patches import Patches

NAME = "torch._dynamo"
# Modules that need none of the others; transformers imports the second one (5.0, masking_utils.py).
_ALONE = {f"{NAME}.config", f"{NAME}._trace_wrapped_higher_order_op"}
_SOURCE = f"{NAME}.source"
_SOURCES = (
    "AttrSource", "CallMethodItemSource", "ConstantSource", "EphemeralSource", "FloatTensorSource", "RandomValueSource",
)  # fmt: skip
_OF_MODULES = {*vars(ModuleType("")), "__file__", "__path__", "config"}
_MARK = "__dynamo_disable"  # where torch._compile keeps what `disable` gave for a function


def install(patches: Patches) -> None:
    """Put the module in its place, unless it is imported already. It stays there after a trace.

    Importing it takes back `patches` for so long: it tells functions of torch apart by their identity.
    """
    known = sys.modules.get(NAME)
    if known is not None:
        if type(known) is LazyDynamo:
            known.patches = patches
        return
    spec = importlib.util.find_spec(NAME)
    if spec is None or spec.loader is None:
        return
    module = LazyDynamo(spec, patches)
    sys.modules[NAME] = module
    torch._dynamo = module
    sys.meta_path.insert(0, _Submodules(module))


class LazyDynamo(ModuleType):
    """The module itself, not yet run.

    Args:
        spec: where it is.
        patches: what the trace has replaced.
    """

    def __init__(self, spec: importlib.machinery.ModuleSpec, patches: Patches) -> None:
        super().__init__(spec.name)
        self.patches = patches
        self.__spec__, self.__loader__, self.__file__ = spec, spec.loader, spec.origin
        self.__path__ = list(spec.submodule_search_locations or ())
        self.__package__ = spec.name
        self._left_alone: weakref.WeakSet[FunctionType] = weakref.WeakSet()
        self._one_at_a_time = threading.RLock()
        self.graph_break = self.reset = lambda *_args, **_kwargs: None  # there is no graph
        self.allow_in_graph = self.assume_constant_result = self.disable

    def disable(self, fn: Any = None, *args: Any, **kwargs: Any) -> Any:
        """A function is itself: nothing is compiled that it could be kept from."""
        if type(fn) is FunctionType:
            self._left_alone.add(fn)
        if type(fn) in {FunctionType, MethodType}:
            return fn
        if fn is None:
            return lambda fn: self.disable(fn, *args, **kwargs)
        self.run()
        return self.disable(fn, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return self.of_module(self.__name__, name)

    def of_module(self, module: str, name: str) -> Any:
        """What is asked of a module that is not there yet."""
        if name.startswith("__") and name.endswith("__") and name != "__all__":
            raise AttributeError(name)
        self.run()
        return getattr(sys.modules[module], name)

    def run(self) -> None:
        """Import it after all."""
        with self._one_at_a_time:
            if type(self) is not LazyDynamo:
                return
            patches, left_alone = self.patches, self._left_alone
            self.__class__ = ModuleType  # type: ignore[assignment] # as importlib.util.LazyLoader does
            for name in vars(self).keys() - _OF_MODULES:
                del self.__dict__[name]
            stand_in = sys.modules.pop(_SOURCE, None)
            assert self.__spec__ is not None
            assert self.__spec__.loader is not None
            with patches.suspended(), torch._C.DisableTorchFunction(), _disable_current_modes():
                self.__spec__.loader.exec_module(self)
            if stand_in is not None:
                del vars(stand_in)["__getattr__"]
                vars(stand_in).update(vars(sys.modules[_SOURCE]))
            for fn in left_alone:
                if getattr(fn, _MARK, None) is fn:
                    delattr(fn, _MARK)


class _Source:
    """Where a tensor comes from, which is asked where its sizes are symbols."""

    def __init__(self, *_args: Any) -> None:
        pass


class _Submodules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """An import of a part imports the whole first, as it would have been."""

    def __init__(self, whole: LazyDynamo) -> None:
        self._whole = whole
        self._spec: Any = None

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not fullname.startswith(f"{NAME}.") or fullname in _ALONE or type(self._whole) is not LazyDynamo:
            return None
        if fullname != _SOURCE:
            self._whole.run()
            if fullname not in sys.modules:
                return None
        return importlib.machinery.ModuleSpec(fullname, self)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """What is imported by now; or what stands for the sources of tensors."""
        if spec.name not in sys.modules:
            self._spec, module = spec, ModuleType(spec.name)
            vars(module).update(dict.fromkeys(_SOURCES, _Source))
            vars(module)["__getattr__"] = functools.partial(self._whole.of_module, _SOURCE)
            return module
        self._spec = sys.modules[spec.name].__spec__
        return sys.modules[spec.name]

    def exec_module(self, module: ModuleType) -> None:
        """Restore the spec of a module that has run already, as the import gave it another one."""
        module.__spec__ = self._spec
