"""Names of the GPU in ordinary code: "cuda" for tensors and modules, and types as `torch.cuda.FloatTensor`."""

from typing import Any

import torch
import torch._subclasses
from torch import _meta_registrations
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.parameter import UninitializedBuffer, is_lazy
from torch.optim.optimizer import _foreach_supported_types as optimizer_types
from torch.utils import _device
from torch.utils._foreach_utils import _foreach_supported_types as foreach_types

from vramtui.dryrun.fake.device.device import CUDA_DEVICE, SIM, fake_kind, is_sim, move_in_place, to_sim
from vramtui.dryrun.fake.device.patches import Patches

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
        target = "cuda" if device is None else device
        return tensor.to(target, non_blocking=non_blocking, memory_format=memory_format)

    patches.set(torch.Tensor, "cuda", cuda)
    patches.set(torch.Tensor, "pin_memory", lambda self, *_args, **_kwargs: self)
    # The plain ones, which a default device is looked up for.
    constructors = frozenset(_device._device_constructors())
    patches.set(_device, "_device_constructors", lambda: constructors)

    @patches.around(torch, *_FROM_DATA)
    def construct(plain: Any, *args: Any, **kwargs: Any) -> Any:
        """Give "cuda" its index wherever a tensor is made of data."""
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

    def make_fake(kind: Any, data: torch.Tensor, require_grad: bool = False, **kwargs: Any) -> torch.Tensor:
        """Tensors of a library's own class, over fake ones."""
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

    _install_types(patches)

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
    for types in (optimizer_types, foreach_types):
        if FakeTensor not in types:
            types.append(FakeTensor)


def _install_types(patches: Patches) -> None:
    """Let the types of `torch.cuda` be the default type, and what `Tensor.type` takes and tells."""
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


def _moved_buffer(buffer: Any, device: torch.device | None, dtype: torch.dtype | None) -> torch.Tensor:
    """A buffer without a shape elsewhere: it is no Parameter, so that no fake tensor stands in for it."""
    empty = buffer.data
    make: Any = UninitializedBuffer
    moved: torch.Tensor = make(
        device=device or empty.device, dtype=dtype or empty.dtype, persistent=vars(buffer)["persistent"]
    )
    return moved


def _numbers(data: Any) -> Any:
    """A nested list whose tensors of one place are read; PyTorch takes no others in a list."""
    if isinstance(data, (list, tuple)):
        return [_numbers(one) for one in data]
    return data.item() if isinstance(data, torch.Tensor) and data.numel() == 1 else data


def _with_index(device: Any) -> Any:
    """The card, where `device` names it in any way; anything else as it is."""
    named = torch.device(device) if isinstance(device, str) else device
    if isinstance(named, int) and not isinstance(named, bool):
        named = torch.device("cuda", named)
    return CUDA_DEVICE if isinstance(named, torch.device) and named == torch.device("cuda") else named


def _apply(module: torch.nn.Module, fn: Any, recurse: bool = True) -> torch.nn.Module:
    """`Module._apply` as it is for real tensors: parameters keep their identity; children, own ones, buffers."""
    if recurse:
        for child in module.children():
            child._apply(fn)
    for name, param in module._parameters.items():
        if param is None:
            continue
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
        grad = tensor.grad
        tensor.grad = None
        move_in_place(tensor, applied)
        if grad is None or (grad.shape == tensor.shape and grad.dtype == tensor.dtype and grad.device == tensor.device):
            tensor.grad = grad


_TYPES = {
    "FloatTensor": torch.float32, "DoubleTensor": torch.float64, "HalfTensor": torch.float16,
    "BFloat16Tensor": torch.bfloat16, "ByteTensor": torch.uint8, "CharTensor": torch.int8, "ShortTensor": torch.int16,
    "IntTensor": torch.int32, "LongTensor": torch.int64, "BoolTensor": torch.bool,
}  # fmt: skip
_NAMES = {dtype: name for name, dtype in _TYPES.items()}


class _OfCard(type):
    dtype: torch.dtype

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, torch.Tensor) and instance.is_cuda and instance.dtype is cls.dtype

    def __call__(cls, *given: Any) -> Any:
        """Make a tensor of these sizes, or with the values in a list."""
        if len(given) == 1 and isinstance(given[0], torch.Tensor):
            return given[0].detach()
        if len(given) == 1 and not isinstance(given[0], (int, torch.Size)):
            return torch.tensor(given[0], dtype=cls.dtype, device="cuda")
        sizes = given[0] if given and isinstance(given[0], torch.Size) else given
        return torch.empty(tuple(sizes) or (0,), dtype=cls.dtype, device="cuda")
