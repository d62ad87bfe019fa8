"""Whether an error under a trace is the code's own, found out before anybody is blamed.

An operator that failed on fake tensors is asked again for tensors of the same shapes without a trace: on "meta", where
PyTorch checks shapes and types as it does on a card, or else on the CPU for small ones. What fails there too fails
without us. An error that no operator raised is the code's where no library stands between its line and the error.
"""

import traceback
from enum import Enum
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from vramtui.estimators.traced.accounting.call_site import is_users

_MOST_ON_CPU = 1 << 26  # bytes of all arguments: more takes longer to run than an answer is worth
_OURS = str(Path(__file__).parents[1])
# A missing module or file, or an argument of another type: none of them hangs on what a tensor holds.
_OF_NO_VALUE = (ImportError, OSError, TypeError, NameError)
_MISMATCH = "FakeTensorDeviceMismatchError"


class ErrorOwner(Enum):
    """Whose an error is."""

    CODE = "the code's"
    TRACE = "the trace's"
    VALUE = "a value's that the trace does not compute"
    UNKNOWN = "nobody knows whose"


class OperatorCall:
    """A call that failed, by the shapes of what it was given; no tensor is kept alive by it.

    Args:
        func: the operator.
        args, kwargs: what it was given.
    """

    def __init__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.func = func
        self._args = _shapes_of(args)
        self._kwargs = _shapes_of(kwargs)

    def fails_without_a_trace(self) -> bool | None:
        """Whether it fails on tensors that are not fake; None where it cannot be asked."""
        with torch._C._DisableTorchDispatch():
            for device in ("meta", "cpu"):
                if device == "cpu" and _bytes(self._args) > _MOST_ON_CPU:
                    return None
                try:
                    self.func(*_tensors(self._args, device), **_tensors(self._kwargs, device))
                except NotImplementedError:
                    continue
                except Exception:  # noqa: BLE001 - whatever it is, it fails
                    return True
                return False
        return None


class _Shape:
    """What a tensor is made anew from."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.size, self.stride, self.dtype = tuple(tensor.shape), tensor.stride(), tensor.dtype


def owner_of(error: BaseException, call: OperatorCall | None) -> ErrorOwner:
    """Whose `error` is.

    Args:
        error: what the code ended with.
        call: the operator that raised it; None where none did.
    """
    if type(error).__name__ == _MISMATCH:
        return ErrorOwner.CODE
    if call is not None:
        fails = call.fails_without_a_trace()
        return ErrorOwner.UNKNOWN if fails is None else ErrorOwner.CODE if fails else ErrorOwner.TRACE
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, AssertionError):
        return ErrorOwner.VALUE
    if frames and frames[-1].filename.startswith(_OURS):
        return ErrorOwner.TRACE
    if not frames or is_users(frames[-1].filename) or isinstance(error, _OF_NO_VALUE):
        return ErrorOwner.CODE
    return ErrorOwner.UNKNOWN


def _shapes_of(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return _Shape(value) if value.layout is torch.strided else value
    if isinstance(value, dict):
        return {key: _shapes_of(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_shapes_of(part) for part in value)
    return value


def _tensors(value: Any, device: str) -> Any:
    if isinstance(value, _Shape):
        return torch.zeros(0, dtype=value.dtype, device=device).new_empty_strided(value.size, value.stride).zero_()
    if isinstance(value, FakeTensor):
        raise NotImplementedError
    if isinstance(value, torch.device):
        return torch.device(device)
    if isinstance(value, dict):
        return {key: _tensors(part, device) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_tensors(part, device) for part in value)
    return value


def _bytes(value: Any) -> int:
    if isinstance(value, _Shape):
        return torch.Size(value.size).numel() * value.dtype.itemsize
    return sum(map(_bytes, value)) if isinstance(value, (list, tuple)) else 0
