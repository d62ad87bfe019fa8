"""The reason why a trace stopped, in one sentence that names the operator and the user's line."""

import functools
import re
import socket
import sys
import traceback
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    UnsupportedOperatorException,
)
from torch.nn.parameter import is_lazy

from vramtui.core.base.errors import BeyondTraceError, UserError
from vramtui.dryrun.fake.accounting.phases import OF_NO_VALUE, guess_read_before, is_users
from vramtui.dryrun.fake.device.device import SIM
from vramtui.dryrun.fake.device.patches import Patches
from vramtui.dryrun.fake.device.unfollowed import NEEDS_CUDA

_MOST_ON_CPU = 1 << 26  # bytes of all arguments: more takes longer to run than an answer is worth
_OURS = str(Path(__file__).parents[2])
# PyTorch's own fake tensors: nothing reaches their insides without a trace (nested tensors ask for symbolic sizes).
_FAKES = str(Path(str(sys.modules[FakeTensor.__module__].__file__)).parent)
_SAME_WORDS = 5  # with which no two errors of different causes begin
_MISMATCH = "FakeTensorDeviceMismatchError"


class ErrorOwner(Enum):
    CODE = "the code's"
    TRACE = "the dry run's"
    VALUE = "a value's that the dry run does not compute"
    READ = "perhaps that of a constant that stood for a value"
    UNKNOWN = "unknown"


class OperatorCall:
    """A call that failed, by the shapes of what it was given; no tensor is kept alive by it."""

    def __init__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.func = func
        self._args = _shapes_of(args)
        self._kwargs = _shapes_of(kwargs)

    def fails_without_a_trace(self, error: BaseException) -> bool | None:
        """Return whether it fails on tensors that are not fake; None if that is unknown."""
        fails: bool | None = None
        with torch._C._DisableTorchDispatch():
            for device in ("meta", "cpu"):
                if device == "cpu" and _bytes(self._args) > _MOST_ON_CPU:
                    break
                try:
                    self.func(*_tensors(self._args, device), **_tensors(self._kwargs, device))
                except NotImplementedError:
                    continue
                except Exception as other:  # noqa: BLE001 - whatever it is, it fails
                    # A type is `Byte` here and `torch.uint8` there, `masked_fill` on a card `masked_fill_` on the CPU.
                    begins = [[word.strip("_") for word in str(one).split()[:_SAME_WORDS]] for one in (other, error)]
                    fails = fails is not False or begins[0] == begins[1]
                    continue
                if device == "cpu":
                    return False
                fails = False
        return fails


class _Shape:
    def __init__(self, tensor: torch.Tensor) -> None:
        self.size, self.stride, self.dtype = tuple(tensor.shape), tensor.stride(), tensor.dtype


def owner_of(error: BaseException, call: OperatorCall | None, *, is_guessed: bool) -> ErrorOwner:
    """Whose `error` is; `is_guessed`: values were guessed before it, on which it may hang."""
    if type(error).__name__ == _MISMATCH:
        return ErrorOwner.CODE
    if call is not None:
        fails = call.fails_without_a_trace(error)
        return ErrorOwner.UNKNOWN if fails is None else ErrorOwner.CODE if fails else ErrorOwner.TRACE
    frames = traceback.extract_tb(error.__traceback__)
    inside, is_asserted = frames[-1].filename if frames else "", isinstance(error, AssertionError)
    if inside.startswith(_FAKES) or (inside.startswith(_OURS) and not is_asserted):
        return ErrorOwner.TRACE
    if not is_guessed or isinstance(error, OF_NO_VALUE):  # shapes and devices are as on a GPU
        return ErrorOwner.CODE
    if is_asserted:
        return ErrorOwner.VALUE
    return ErrorOwner.CODE if not inside or is_users(inside) else ErrorOwner.UNKNOWN


def _shapes_of(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return _Shape(value) if value.layout is torch.strided and not is_lazy(value) else value
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


_LONGEST = 240
_NOTHING_TYPED = "EOF when reading a line"  # what Python's input() says (Python/bltinmodule.c, 3.10 to 3.14)
_ANOTHER_WAY = "use --engine cuda (PyTorch's CUDA build), or leave that line out"
_NO_FAKE = re.compile(r"no fake impl registered for <CustomOpDef\(([^)]*)\)>")
# What installs a package of kernels on a machine that has no card.
_WITHOUT_A_CARD = {
    "bitsandbytes": "pip install bitsandbytes",
    "liger_kernel": "pip install --no-deps liger-kernel",
    "mamba_ssm": "MAMBA_SKIP_CUDA_BUILD=TRUE pip install --no-deps --no-build-isolation mamba-ssm",
    "causal_conv1d": "CAUSAL_CONV1D_SKIP_CUDA_BUILD=TRUE pip install --no-deps --no-build-isolation causal-conv1d",
}
SENTENCES = {
    ErrorOwner.CODE: "the code failed{place}: {error}",
    ErrorOwner.TRACE: (
        f"the dry run stopped{{place}}: {{error}}; a limit of engine fake, not an error in the code; {_ANOTHER_WAY}"
    ),
    ErrorOwner.VALUE: (
        "the dry run stopped{place}: {error}; engine fake computes no values, and this condition may depend on one: "
        f"PYTHONOPTIMIZE=1 skips assertions, or {_ANOTHER_WAY}"
    ),
    ErrorOwner.READ: (
        "the dry run stopped{place}: {error}; engine fake computes no values, and this may depend on the value read at "
        f"{{read}}, which was replaced by a constant; if it does, {_ANOTHER_WAY}"
    ),
    ErrorOwner.UNKNOWN: (
        "the dry run stopped{place}: {error}; a library raised this for tensors without values. If the line works in a "
        f"real run, this is a limit of engine fake: {_ANOTHER_WAY}"
    ),
}
_OTHER_CARD = re.compile(r"one device is simulated, and the code asks for cuda:(\d+)")
_SPARSE = re.compile(r"device type of values \(meta\)|Values and compressed tensor instance need")  # made on the host
_INTERNAL = re.compile(
    r"FakeTensor|fake tensor|not linked with support for|'torch._C' has no attribute"
    r"|PrivateUse1|data is not allocated yet|on device meta|__torch_dispatch__"
)


class Escape:
    """Carries what an operator raised out of autograd's threads, which lose it on the way (see `device._Guard`)."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self._call: OperatorCall | None = None

    def keep(self, error: BaseException, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.error, self._call = error, OperatorCall(func, args, kwargs)

    def call_of(self, error: BaseException) -> OperatorCall | None:
        """The operator that raised `error`, or an error that `error` was made from; or None."""
        return self._call if any(one is self.error for one in _causes(error)) else None

    def install(self, patches: Patches) -> None:
        plain = vars(torch.autograd)["_engine_run_backward"]

        @functools.wraps(plain)
        def run(*args: Any, **kwargs: Any) -> Any:
            self.error = None
            try:
                return plain(*args, **kwargs)
            except SystemError:
                if self.error is None:
                    raise
                raise self.error from None

        patches.set(torch.autograd, "_engine_run_backward", run)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def out_of_memory(error: BaseException, session: Any) -> str | None:
    """A sentence that the card was too small, and where; None for any other error."""
    if not isinstance(error, torch.OutOfMemoryError):
        return None
    line = _user_line(error, session)
    message = str(error).removeprefix("out of memory: ")
    return f"out of memory in {session.phases.now}{f' at {line}' if line else ''}: {message}"


def in_words(error: BaseException, session: Any) -> UserError:
    if isinstance(error, UserError):
        return error
    if isinstance(error, SystemExit):
        return UserError(f"the code ended itself with exit code {error.code}")
    line = _user_line(error, session)
    place = f" at {line}" if line else ""
    if isinstance(error, (DataDependentOutputException, DynamicOutputShapeException)):
        return BeyondTraceError(
            f"{str(error.func).replace('aten.', 'torch.ops.aten.', 1)}{place} gives a shape or value that depends on "
            f"data, for which fake tensors know no bound: {NEEDS_CUDA}, or fixed sizes at that line"
        )
    unknown = _NO_FAKE.search(str(error))
    kernel = unknown[1] if unknown else ""
    if isinstance(error, UnsupportedOperatorException):
        kernel = str(error.func)
        if error.func.namespace == "aten":
            name = kernel.replace("aten.", "torch.ops.aten.", 1)
            return BeyondTraceError(f"{name}{place} cannot be followed on fake tensors: {NEEDS_CUDA}")
    if kernel:
        return BeyondTraceError(
            f"{kernel}{place} is not an operator of PyTorch, so its memory is unknown: a limit of engine fake. "
            "Register its shapes with torch.library.register_fake, or use --engine cuda"
        )
    return _other(error, place, session)


def _other(error: BaseException, place: str, session: Any) -> UserError:
    if isinstance(error, KeyboardInterrupt):
        return UserError("the dry run was interrupted")
    if session.shielded and any(isinstance(one, socket.gaierror) for one in _causes(error)):
        return UserError(
            f"the code{place} asks for a host on the network, and a dry run has no network: {type(error).__name__}; "
            "--keep-files allows it, or download the files before"
        )
    if isinstance(error, EOFError) and str(error) == _NOTHING_TYPED:
        return UserError(
            f"the code{place} reads a line of standard input, which has ended; pipe the answer (echo ANSWER | vramtui "
            "dry-run …), or type it with --show-output"
        )
    if type(error).__name__.startswith("NVMLError") or (
        isinstance(error, FileNotFoundError) and Path(str(error.filename)).name == "nvidia-smi"
    ):
        return BeyondTraceError(
            f"the code{place} asks NVIDIA's driver about its GPUs (NVML, nvidia-smi), which engine fake does not have"
        )
    if asked := _OTHER_CARD.search(str(error)):
        number, card = int(asked[1]) + 1, session.memory.device.name
        return UserError(
            f"the code{place} asks for GPU {number} (cuda:{asked[1]}), and fake tensors simulate one: {NEEDS_CUDA} and "
            f"--gpu {number}x{card}"
        )
    if _SPARSE.search(str(error)):
        return BeyondTraceError(
            f"the code{place} makes a sparse tensor, which cannot be followed on fake tensors: {NEEDS_CUDA}"
        )
    package = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if package in _WITHOUT_A_CARD:
        return UserError(
            f"the code{place} imports {package}, which is not installed here; a dry run needs its Python code, "
            f"which installs without a GPU: {_WITHOUT_A_CARD[package]}"
        )
    text = str(error).replace(f"{SIM}:0", "cuda:0").replace(SIM, "cuda").strip()
    lines = [line for line in text.splitlines() if line.strip()]
    # A worker's or another rank's error is told by its last line, any other by its first.
    first = (lines[-1] if lines[0].startswith("Caught ") else lines[0])[:_LONGEST] if lines else ""
    name = type(error).__name__.replace("FakeTensorDeviceMismatchError", "RuntimeError")
    call = session.escape.call_of(error)
    is_guessed = bool(session.memory.guesses_read or session.memory.bounded)
    owner = ErrorOwner.TRACE if _INTERNAL.search(text) else owner_of(error, call, is_guessed=is_guessed)
    read = guess_read_before(error, session.memory, by_operator=call is not None) if owner is ErrorOwner.CODE else ""
    owner = ErrorOwner.READ if read else owner
    kind = UserError if owner is ErrorOwner.CODE else BeyondTraceError
    return kind(SENTENCES[owner].format(place=place, error=f"{name}{': ' + first if first else ''}", read=read))


def _user_line(error: BaseException, session: Any) -> str:
    """The innermost frame of the traceback that is the user's; in backward, the forward line that led there."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if is_users(frame.filename):
            return f"{frame.filename}:{frame.lineno}"
    return str(session.where.last_line)
