"""A device that stands in for CUDA: torch's spare backend key, on which fake tensors run forward and backward.

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
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

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

    def device_count(self) -> int:
        return 1

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16, torch.float32]

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.cuda, name)


class _PendingError(Exception):
    """Raised to be caught."""


class _Guard(torch._C._acc.DeviceGuard):
    """Tells autograd's threads which device they serve.

    They ask while an error of a node unwinds their stack, where a pending Python error would make the answer itself
    fail and end the process. Raising and catching another one clears it; `failures.Escape` has kept the first.
    """

    def type_(self) -> Any:
        try:
            _ = _depth.value
            raise _PendingError  # noqa: TRY301 - see above
        except BaseException:  # noqa: BLE001 - with an error pending even this `raise` fails, by another error
            return torch._C._autograd.DeviceType.PrivateUse1


class SimFakeMode(FakeTensorMode):
    """Fake tensors that never ask for a real device; nothing is compiled under them, so the wrapper that keeps
    compilers away from each operator is left out.

    All threads of the code share the mode, and each remembers for itself what was before it entered: a thread that
    ends would otherwise put back what another one noted.
    """

    __torch_dispatch__ = getattr(FakeTensorMode.__torch_dispatch__, "__wrapped__", FakeTensorMode.__torch_dispatch__)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __deepcopy__(self, _memo: dict[int, Any]) -> "SimFakeMode":
        return self

    @property
    def avoid_device_init(self) -> bool:
        return True

    @property
    def enter_stack(self) -> list[Any]:
        """The modes that this thread has entered, instead of `FakeTensorMode`'s one list for all threads."""
        entered: list[Any] = self._of_thread.__dict__.setdefault("entered", [])
        return entered

    @enter_stack.setter
    def enter_stack(self, _empty: list[Any]) -> None:
        self._of_thread = threading.local()


def to_sim(device: Any) -> Any:
    """The stand-in for `device` when that names a CUDA device; anything else is returned as it is."""
    if device is None:
        return None
    if isinstance(device, int) and not isinstance(device, bool):
        device = torch.device("cuda", device)
    elif isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, torch.device) and device.type == "cuda":
        if device.index:
            raise RuntimeError(f"one device is simulated, and the code asks for cuda:{device.index}")
        return torch.device(SIM, 0)
    return device


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
        _exchange_kinds(target, source)
    elif is_traceable_wrapper_subclass(target) and type(target) is type(source):
        # A DTensor keeps its parts outside its implementation, in slots or attributes.
        for name in (*getattr(type(source), "__slots__", ()), *vars(source)):
            if hasattr(source, name) and name != "_is_param":
                setattr(target, name, getattr(source, name))


def _exchange_kinds(target: torch.Tensor, source: torch.Tensor) -> None:
    """A real parameter becomes a fake one or the other way; what the code has hung on the object stays there."""
    is_parameter = isinstance(target, torch.nn.Parameter)
    facts = {name: value for name, value in vars(source).items() if name not in vars(target)}
    for tensor in (source, target):
        if isinstance(tensor, FakeTensor):
            facts |= {name: value for name, value in vars(tensor).items() if name in _FAKE_FACTS}
    kinds = fake_kind(type(target)) if isinstance(source, FakeTensor) else type(source), type(target)
    target.__class__, source.__class__ = kinds  # the two layouts are the same
    if is_parameter and not isinstance(target, FakeTensor):
        target.__class__ = torch.nn.Parameter
    vars(target).update(facts)
    vars(source).update(facts)
    if is_parameter:
        target._is_param = True  # what isinstance(…, Parameter) goes by


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
    faked: Any = types.new_class(
        kind.__name__, (kind, _FakeOfKind), exec_body=lambda names: names.update(__module__=kind.__module__)
    )
    faked.__torch_function__ = inspect.getattr_static(kind, "__torch_function__")
    return cast("type", faked)


def _shown_device(tensor: FakeTensor) -> torch.device:
    if tensor.fake_mode.in_kernel_invocation and _depth.value:
        return torch.device("meta")
    device: torch.device = tensor._fake_device
    return CUDA_DEVICE if device.type == SIM and not _depth.value else device


@functools.cache
def register() -> None:
    """Set the stand-in up, once per process and before any tensor is made."""
    _setup_privateuseone_for_python_backend(SIM, backend_module=_BackendModule(), device_guard=_Guard())
    FakeTensor.device = property(_shown_device)  # type: ignore[assignment,method-assign] # a property, as there
