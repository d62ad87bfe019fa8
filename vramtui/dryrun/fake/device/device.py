"""A device that stands in for CUDA: torch's spare backend key, on which fake tensors run forward and backward; and the
GPU's names in ordinary code: "cuda" for tensors and modules, and types as `torch.cuda.FloatTensor`.

Ordinary code says `"cuda"` and reads `"cuda"` back; beneath the dispatcher the device is called `SIM`. The
translation happens at two edges: `to_sim` on the way in, and the `device` property of fake tensors on the way out,
which gives torch's own kernels (they run while `inside` is held) the true one.
"""

import functools
import inspect
import threading
import types
from collections.abc import Iterable, Iterator
from typing import Any, cast

import torch
import torch._subclasses
from torch import _meta_registrations
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn.parameter import UninitializedBuffer, is_lazy
from torch.optim.optimizer import _foreach_supported_types as optimizer_types
from torch.utils import _device
from torch.utils._foreach_utils import _foreach_supported_types as foreach_types
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from vramtui.dryrun.fake import LISTS
from vramtui.dryrun.fake.device.patches import Patches

SIM = "simcuda"
CUDA_DEVICE = torch.device("cuda", 0)
_FAKE_FACTS = ("_fake_device", "fake_mode", "constant", "pytype", "dispatch_keys", "real_tensor")


class _Depth(threading.local):
    """How many dispatches this thread is in; above 0 torch's own code is reading, at 0 the user's.

    Autograd's threads read it too, and there `torch.tensor` would ask for a real card: the fake mode's word against
    that is one thread's only (torch/csrc/utils/tensor_new.cpp, `only_lift_cpu_tensors`).
    """

    value = 0

    def __init__(self) -> None:
        torch._C._set_only_lift_cpu_tensors(True)


_depth = _Depth()


class _BackendModule:
    """The module `torch.<backend>` that torch asks: what it has not itself is that of `torch.cuda`."""

    device_count = staticmethod(lambda: 1)
    get_amp_supported_dtype = staticmethod(lambda: [torch.float16, torch.bfloat16, torch.float32])

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.cuda, name)


class _Guard(torch._C._acc.DeviceGuard):
    """Tells autograd's threads which device they serve.

    They ask while an error of a node unwinds their stack, where a pending Python error would make the answer itself
    fail and end the process. Raising and catching another one clears it; `failures.Escape` has kept the first.
    """

    def type_(self) -> Any:
        try:
            _ = _depth.value
            raise AssertionError  # noqa: TRY301 - see above
        except BaseException:  # noqa: BLE001 - with an error pending even this `raise` fails, by another error
            return torch._C._autograd.DeviceType.PrivateUse1


class SimFakeMode(FakeTensorMode):
    """Fake tensors that never ask for a real device; nothing is compiled under them, so the wrapper that keeps
    compilers away from each operator is left out.

    All threads of the code share the mode, and each remembers for itself what was before it entered: a thread that
    ends would otherwise put back what another one noted.
    """

    __torch_dispatch__ = getattr(FakeTensorMode.__torch_dispatch__, "__wrapped__", FakeTensorMode.__torch_dispatch__)

    avoid_device_init = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __deepcopy__(self, _memo: dict[int, Any]) -> "SimFakeMode":
        return self

    @property
    def enter_stack(self) -> Any:
        """The modes that this thread has entered, instead of `FakeTensorMode`'s one list for all threads."""
        return self._of_thread.__dict__.setdefault("entered", [])

    @enter_stack.setter
    def enter_stack(self, _empty: list[Any]) -> None:
        self._of_thread = threading.local()


def to_sim(device: Any) -> Any:
    """The stand-in for `device` when that names a CUDA device; anything else is returned as it is."""
    device = named_device(device)
    if isinstance(device, torch.device) and device.type == "cuda":
        if device.index:
            raise RuntimeError(f"one device is simulated, and the code asks for cuda:{device.index}")
        return torch.device(SIM, 0)
    return device


def named_device(device: Any) -> Any:
    """The device that a name or a number stands for; anything else is returned as it is."""
    if isinstance(device, int) and not isinstance(device, bool):
        return torch.device("cuda", device)
    return torch.device(device) if isinstance(device, str) else device


def is_sim(tensor: Any) -> bool:
    return isinstance(tensor, FakeTensor) and tensor._fake_device.type == SIM


def tensors_of(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors_of(value)


class inside:  # noqa: N801 - it is used as contextlib's own managers are
    """While held, fake tensors tell their true device: torch's kernels are reading."""

    def __enter__(self) -> None:
        _depth.value += 1

    def __exit__(self, *_error: object) -> None:
        _depth.value -= 1


def move_in_place(target: torch.Tensor, source: torch.Tensor) -> None:
    """Give `target`, whoever holds it, the memory, dtype and device of `source`, as `target.data = source` does.

    Setting `.data` across devices is refused between fake tensors, so what the two objects point to is exchanged.
    """
    source = source.detach()
    source.requires_grad_(target.requires_grad)
    torch._C._swap_tensor_impl(target, source)
    if isinstance(target, FakeTensor) and isinstance(source, FakeTensor):
        target._fake_device, source._fake_device = source._fake_device, target._fake_device
    elif isinstance(target, FakeTensor) is not isinstance(source, FakeTensor):
        # A real parameter becomes a fake one or the other way; what the code has hung on the object stays there.
        is_parameter, fake = (
            isinstance(target, torch.nn.Parameter),
            source if isinstance(source, FakeTensor) else target,
        )
        facts = {name: value for name, value in vars(source).items() if name not in vars(target)}
        facts |= {name: value for name, value in vars(fake).items() if name in _FAKE_FACTS}
        kind = fake_kind(type(target)) if fake is source else torch.nn.Parameter if is_parameter else type(source)
        target.__class__, source.__class__ = kind, type(target)  # the two layouts are the same
        vars(target).update(facts)
        vars(source).update(facts)
        if is_parameter:
            target._is_param = True  # what isinstance(…, Parameter) goes by
    elif is_traceable_wrapper_subclass(target) and type(target) is type(source):
        # A DTensor keeps its parts outside its implementation, in slots or attributes.
        for name in (*getattr(type(source), "__slots__", ()), *vars(source)):
            if hasattr(source, name) and name != "_is_param":
                setattr(target, name, getattr(source, name))


class _FakeOfKind(FakeTensor):
    """A fake tensor whose class is the code's own, which functions of torch then give back."""


# torch/csrc/autograd/python_variable.cpp (2.13) gives none to whatever has a dispatch.
_FakeOfKind.__torch_function__ = inspect.getattr_static(torch.Tensor, "__torch_function__")  # type: ignore[method-assign] # see above


@functools.cache
def fake_kind(kind: type) -> type:
    """The class of fake tensors for `kind`; it is also `kind` if that is a library's own."""
    if issubclass(kind, FakeTensor):
        return kind
    if kind in {torch.Tensor, torch.nn.Parameter}:
        return FakeTensor
    names = {"__module__": kind.__module__}
    faked: Any = types.new_class(kind.__name__, (kind, _FakeOfKind), exec_body=lambda body: body.update(names))
    faked.__torch_function__ = inspect.getattr_static(kind, "__torch_function__")
    return cast("type", faked)


def _shown_device(tensor: FakeTensor) -> torch.device:
    if tensor.fake_mode.in_kernel_invocation and _depth.value:
        return torch.device("meta")
    device: torch.device = tensor._fake_device
    return CUDA_DEVICE if device.type == SIM and not _depth.value else device


@functools.cache
def register() -> None:
    _setup_privateuseone_for_python_backend(SIM, backend_module=_BackendModule(), device_guard=_Guard())
    FakeTensor.device = property(_shown_device)  # type: ignore[assignment,method-assign] # a property, as there


# Constructors that ask the driver which card "cuda" is (torch/csrc/utils/tensor_new.cpp, 2.13: `Tensor::to` of what
# they made on the host); with an index they do not ask.
_FROM_DATA = ("as_tensor", "asarray", "tensor")


def install(patches: Patches) -> None:
    @patches.around(torch.Tensor, "to")
    def to(plain: Any, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], (str, int, torch.device)):
            args = (to_sim(args[0]), *args[1:])
        if kwargs.get("device") is not None:
            kwargs["device"] = to_sim(kwargs["device"])
        if issubclass(type(tensor), UninitializedBuffer):
            return _moved_buffer(tensor, *torch._C._nn._parse_to(*args, **kwargs)[:2])
        return plain(tensor, *args, **kwargs)

    def cuda(
        tensor: torch.Tensor, device: Any = None, non_blocking: bool = False, memory_format: Any = torch.preserve_format
    ) -> torch.Tensor:
        return tensor.to("cuda" if device is None else device, non_blocking=non_blocking, memory_format=memory_format)

    patches.set(torch.Tensor, "cuda", cuda)
    patches.set(torch.Tensor, "pin_memory", lambda self, *_args, **_kwargs: self)
    # The plain ones, which a default device is looked up for.
    constructors = frozenset(_device._device_constructors())
    patches.set(_device, "_device_constructors", lambda: constructors)

    @patches.around(torch, *_FROM_DATA)
    def construct(plain: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("device") is not None:
            kwargs["device"] = _with_index(kwargs["device"])
        try:
            return plain(*args, **kwargs)
        except NotImplementedError:  # C++ reads the tensors in a list itself, past what reads values in a trace
            if not (args and isinstance(args[0], (list, tuple))):
                raise
            return plain(_numbers(args[0]), *args[1:], **kwargs)

    @patches.around(_device.DeviceContext, "__init__")
    def init(plain: Any, context: Any, device: Any) -> None:
        plain(context, _with_index(device))

    # Assigning `.data` goes across devices and dtypes on real tensors; on fake ones it is refused.
    plain_data: Any = torch._C.TensorBase.data

    def assign(tensor: torch.Tensor, value: torch.Tensor) -> None:
        kinds = [(isinstance(one, FakeTensor), getattr(one, "_fake_device", None)) for one in (tensor, value)]
        if kinds[0] == kinds[1]:
            # The tensor stays the one into which autograd puts its gradient, as in PyTorch: FSDP relies on that.
            plain_data.__set__(tensor, value)
        else:
            _replace(tensor, lambda _old: value)

    patches.set(torch.Tensor, "data", property(plain_data.__get__, assign))
    plain_new_fake, make_subclass = FakeTensor.__new__, torch.Tensor._make_subclass

    def make(kind: Any, *args: Any, **kwargs: Any) -> Any:
        """`type(parameter)(tensor, requires_grad=...)`, as libraries that load weights say it, is a Parameter."""
        if len(args) == 1 and isinstance(args[0], torch.Tensor) and kwargs.keys() <= {"requires_grad"}:
            return torch.nn.Parameter(args[0], **kwargs)
        return plain_new_fake(kind, *args, **kwargs)

    def make_fake(kind: Any, data: torch.Tensor, require_grad: bool = False, **kwargs: Any) -> Any:
        if not isinstance(data, FakeTensor):
            return make_subclass(kind, data, require_grad, **kwargs)
        parameter = data.detach().requires_grad_(require_grad)
        parameter.__class__ = fake_kind(kind)
        if issubclass(kind, torch.nn.Parameter):
            parameter._is_param = True  # as in torch's Parameter
        return parameter

    patches.set(FakeTensor, "__new__", staticmethod(make))
    patches.set(torch.Tensor, "_make_subclass", staticmethod(make_fake))

    @patches.around(torch.Tensor, "as_subclass")
    def as_subclass(plain: Any, tensor: torch.Tensor, cls: Any) -> Any:
        if not isinstance(tensor, FakeTensor):
            return plain(tensor, cls)
        with torch._C.DisableTorchFunctionSubclass():
            alias: torch.Tensor = torch.ops.aten.alias.default(tensor)
        alias.__class__ = fake_kind(cls)
        return alias

    @patches.around(torch.Tensor, "__deepcopy__")
    def deepcopy(plain: Any, tensor: torch.Tensor, memo: dict[Any, Any]) -> Any:
        """Copy a parameter as `Parameter.__deepcopy__` does, and of other tensors the storage that views share."""
        if not isinstance(tensor, FakeTensor) or id(tensor) in memo or not tensor.is_leaf:
            return plain(tensor, memo)
        if isinstance(tensor, torch.nn.Parameter):
            kind: Any = type(tensor)
            with torch.no_grad():
                copied = tensor.data.clone(memory_format=torch.preserve_format)
            memo[id(tensor)] = kind(copied, requires_grad=tensor.requires_grad)
            return memo[id(tensor)]
        storages, storage = memo.setdefault("torch", {}), tensor.untyped_storage()
        if storage._cdata not in storages and tensor.layout is torch.strided and storage.nbytes():
            whole = tensor.detach().as_strided((storage.nbytes() // tensor.element_size(),), (1,), 0)
            storages[storage._cdata] = whole.clone().untyped_storage()
        return plain(tensor, memo)

    # Let parameters without a shape be moved and given one, which torch/nn/parameter.py refuses by name.
    lazy: Any = vars(torch.nn.parameter)["UninitializedTensorMixin"]
    allowed = [*lazy._allowed_methods, torch.Tensor.to, torch.Tensor.cuda, torch.Tensor.untyped_storage]
    patches.set(lazy, "_allowed_methods", allowed)
    for name, dtype in (("half", torch.half), ("float", torch.float), ("double", torch.double)):
        patches.set(UninitializedBuffer, name, lambda buffer, dtype=dtype: _moved_buffer(buffer, None, dtype))

    @patches.around(lazy, "materialize")
    def materialize(plain: Any, tensor: Any, shape: Any, device: Any = None, dtype: Any = None) -> None:
        if not isinstance(tensor, FakeTensor):
            plain(tensor, shape, device, dtype)
            return
        empty = tensor.data
        value = torch.empty(shape, device=device or empty.device, dtype=dtype or empty.dtype)
        tensor.__class__ = FakeTensor  # as what it becomes, Parameter or Tensor, is in a trace
        tensor.data = value

    # Let the types of `torch.cuda` be the default type, and what `Tensor.type` takes and tells.
    for name, dtype in _TYPES.items():
        patches.set(torch.cuda, name, _OfCard(name, (), {"dtype": dtype, "is_cuda": True}))
    plain_new = torch.Tensor.__new__
    default_types: list[_OfCard] = []

    def by_name(kind: Any) -> Any:
        name = kind.removeprefix("torch.cuda.") if isinstance(kind, str) and kind.startswith("torch.cuda.") else ""
        return getattr(torch.cuda, name) if name in _TYPES else kind

    def make_default(kind: Any, *given: Any, **kwargs: Any) -> Any:
        """`torch.Tensor(...)` makes one of the default type (torch/csrc/utils/tensor_new.cpp, `base_tensor_ctor`)."""
        if default_types and kind is torch.Tensor and not kwargs:
            return default_types[0](*given)
        return plain_new(kind, *given, **kwargs)

    @patches.around(torch, "set_default_tensor_type")
    def set_default_tensor_type(plain: Any, t: Any) -> None:
        kind = by_name(t)
        default_types.clear()
        if not isinstance(kind, _OfCard):
            torch.set_default_device("cpu")
            plain(kind)
            return
        default_types.append(kind)
        if "__new__" not in vars(torch.Tensor):
            patches.set(torch.Tensor, "__new__", staticmethod(make_default))
        torch.set_default_dtype(kind.dtype)
        torch.set_default_device("cuda")

    @patches.around(torch.Tensor, "type")
    def type_of(plain: Any, tensor: torch.Tensor, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
        kind = by_name(dtype)
        if isinstance(kind, _OfCard):
            return tensor.to("cuda", kind.dtype, non_blocking=non_blocking)
        if kind is None and tensor.is_cuda and tensor.dtype in _NAMES:
            return f"torch.cuda.{_NAMES[tensor.dtype]}"
        return plain(tensor, kind, non_blocking, **kwargs)

    @patches.around(_meta_registrations, "device_hint")
    def device_hint(plain: Any, tensor: torch.Tensor) -> str:
        """Some functions for shapes ask whether a tensor is of "cuda" (torch/_meta_registrations.py, 2.13)."""
        named: str = plain(tensor)
        return "cuda" if named == SIM else named

    def is_cuda(tensor: torch.Tensor) -> bool:
        return is_sim(tensor) if isinstance(tensor, FakeTensor) else tensor.device.type in ("cuda", SIM)

    patches.set(torch.Tensor, "is_cuda", property(is_cuda))
    patches.set(torch.Tensor, "is_pinned", lambda _self, *_args, **_kwargs: False)
    patches.set(torch.nn.Module, "_apply", _apply)
    # Libraries ask it whether they are being compiled.
    patches.set(torch._subclasses, "FakeTensor", type("NoTensor", (), {}))
    for kinds in (optimizer_types, foreach_types):
        if FakeTensor not in kinds:
            kinds.append(FakeTensor)


def _moved_buffer(buffer: Any, device: torch.device | None, dtype: torch.dtype | None) -> Any:
    """A buffer without a shape elsewhere: it is no Parameter, so that no fake tensor stands in for it."""
    empty, make = buffer.data, cast("Any", UninitializedBuffer)
    return make(device=device or empty.device, dtype=dtype or empty.dtype, persistent=vars(buffer)["persistent"])


def _numbers(data: Any) -> Any:
    """A nested list whose tensors of one place are read; PyTorch takes no others in a list."""
    if isinstance(data, (list, tuple)):
        return [_numbers(one) for one in data]
    return data.item() if isinstance(data, torch.Tensor) and data.numel() == 1 else data


def _with_index(device: Any) -> Any:
    """The card, where `device` names it in any way; anything else as it is."""
    named = named_device(device)
    return CUDA_DEVICE if isinstance(named, torch.device) and named == torch.device("cuda") else named


def _apply(module: torch.nn.Module, fn: Any, recurse: bool = True) -> torch.nn.Module:
    """`Module._apply` as it is for real tensors: parameters keep their identity; children, own ones, buffers."""
    if recurse:
        for child in module.children():
            child._apply(fn)
    for name, param in module._parameters.items():
        if param is not None:
            _replace(param, fn)
            if isinstance(module, torch.jit.ScriptModule):
                module._parameters[name] = param  # TorchScript holds what the object has pointed to until now
            if param.grad is not None:
                _replace(param.grad, fn)
    for name, buffer in module._buffers.items():
        if buffer is not None:
            module._buffers[name] = fn(buffer)
    return module


def _replace(tensor: torch.Tensor, fn: Any) -> None:
    with torch.no_grad():
        applied = fn(tensor.data if is_lazy(tensor) else tensor)  # one without a shape refuses most functions
    if applied is not tensor:
        grad, tensor.grad = tensor.grad, None
        move_in_place(tensor, applied)
        if grad is None or (grad.shape == tensor.shape and grad.dtype == tensor.dtype and grad.device == tensor.device):
            tensor.grad = grad


_TYPES = {name: getattr(torch, dtype) for name, dtype in LISTS["types"].items()}
_NAMES = {dtype: name for name, dtype in _TYPES.items()}


class _OfCard(type):
    dtype: torch.dtype

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, torch.Tensor) and instance.is_cuda and instance.dtype is cls.dtype

    def __call__(cls, *given: Any) -> Any:
        if len(given) == 1 and isinstance(given[0], torch.Tensor):
            return given[0].detach()
        if len(given) == 1 and not isinstance(given[0], (int, torch.Size)):
            return torch.tensor(given[0], dtype=cls.dtype, device="cuda")
        sizes = given[0] if given and isinstance(given[0], torch.Size) else given
        return torch.empty(tuple(sizes) or (0,), dtype=cls.dtype, device="cuda")
