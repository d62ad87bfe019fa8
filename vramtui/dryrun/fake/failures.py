"""The reason why a trace stopped, in one sentence that names the operator and the user's line; calls that stop it.

Compilers run as eager code, graphs and kernels are refused.
"""

import functools
import re
import socket
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    UnsupportedOperatorException,
)
from torch.nn.parameter import is_lazy
from torch.utils import _pytree as pytree

from vramtui.core.base.errors import BeyondTraceError, UserError
from vramtui.dryrun import shield
from vramtui.dryrun.fake import LISTS
from vramtui.dryrun.fake.accounting.memory import SimulatedMemory
from vramtui.dryrun.fake.device.device import SIM
from vramtui.dryrun.fake.device.patches import Patches
from vramtui.dryrun.reads import HEALTHY, decides
from vramtui.probe.import_hook import when_imported
from vramtui.probe.peak import is_own

NEEDS_CUDA = "it needs PyTorch's CUDA build"
# Public models cut to six blocks, trained in bf16 for two steps by the CUDA build of PyTorch 2.13 on a stubbed driver:
# pythia-410m −22 %, opt-125m −30, qwen2.5-0.5b −36, smollm2-135m −37, tinyllama-1.1b −7, roberta-base −1, bert −5,
# vit-base −6, resnet50 −5 (`tests/golden/stated.json`).
COMPILED = (
    "compiled training of 9 public models allocated -37% to -1% against eager training at its peak, -7% in the median"
)
_MOST_ON_CPU = 1 << 26  # bytes of all arguments: more takes longer to run than an answer is worth
_OURS = str(Path(__file__).parents[2])
# PyTorch's own fake tensors: nothing reaches their insides without a trace (nested tensors ask for symbolic sizes).
_FAKES = str(Path(str(sys.modules[FakeTensor.__module__].__file__)).parent)
_SAME_WORDS = 5  # with which no two errors of different causes begin
_LONGEST = 240
# A missing module or file, or an argument of another type: none of them hangs on what a tensor holds.
_OF_NO_VALUE = (ImportError, OSError, TypeError, NameError)
_NO_FAKE = re.compile(r"no fake impl registered for <CustomOpDef\(([^)]*)\)>")
_OTHER_CARD = re.compile(r"one device is simulated, and the code asks for cuda:(\d+)")
_SPARSE = re.compile(r"device type of values \(meta\)|Values and compressed tensor instance need")  # made on the host
_INTERNAL = re.compile(
    r"FakeTensor|fake tensor|not linked with support for|'torch._C' has no attribute"
    r"|PrivateUse1|data is not allocated yet|on device meta|__torch_dispatch__"
)
_ANOTHER_WAY = "use --engine cuda (PyTorch's CUDA build), or leave that line out"
_LIMIT = f"a limit of engine fake, not an error in the code; {_ANOTHER_WAY}"
_UNKNOWN = (
    f"engine fake computes no values; if the line works in a real run, this is a limit of engine fake: {_ANOTHER_WAY}"
)
_READ = (
    "engine fake computes no values, and this may depend on the value read at {}, which was replaced by a constant; if "
    f"it does, {_ANOTHER_WAY}"
)


def fails_without_a_trace(func: Any, given: Any, error: BaseException) -> bool | None:
    """Return whether an operator fails on tensors that are not fake, as it did in a trace; None if that is unknown.

    `given` are its positional and named arguments, whose tensors are on the meta device.
    """
    tensors = [leaf for leaf in pytree.tree_leaves(given) if isinstance(leaf, torch.Tensor)]
    if any(isinstance(tensor, FakeTensor) for tensor in tensors):
        return None

    def on(device: str, leaf: Any) -> Any:
        if isinstance(leaf, torch.device):
            return torch.device(device)
        if device == "meta":
            return leaf
        return torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device=device).zero_()

    fails: bool | None = None
    with torch._C._DisableTorchDispatch():
        for device in ("meta", "cpu") if sum(tensor.nbytes for tensor in tensors) <= _MOST_ON_CPU else ("meta",):
            args, kwargs = pytree.tree_map_only((torch.Tensor, torch.device), functools.partial(on, device), given)
            try:
                func(*args, **kwargs)
            except NotImplementedError:
                continue
            except Exception as other:  # noqa: BLE001 - whatever it is, it fails
                # A type is `Byte` here and `torch.uint8` there, `masked_fill` on a card `masked_fill_` on the CPU.
                begins = [[word.strip("_") for word in str(one).split()[:_SAME_WORDS]] for one in (other, error)]
                fails = fails is not False or begins[0] == begins[1]
            else:
                fails = False
    return fails


class Escape:
    """Carries what an operator raised out of autograd's threads, which lose it on the way (see `device._Guard`)."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.call: tuple[Any, Any] | None = None

    def keep(self, error: BaseException, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Keep an error, and by their shapes the arguments of the operator that raised it."""

        def to_meta(tensor: torch.Tensor) -> torch.Tensor:
            if tensor.layout is not torch.strided or is_lazy(tensor):
                return tensor
            return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")

        with torch._C._DisableTorchDispatch():
            self.error, self.call = error, (func, pytree.tree_map_only(torch.Tensor, to_meta, (args, kwargs)))

    def install(self, patches: Patches) -> None:
        @patches.around(torch.autograd, "_engine_run_backward")
        def run(plain: Any, *args: Any, **kwargs: Any) -> Any:
            self.error = None
            try:
                return plain(*args, **kwargs)
            except SystemError:
                if self.error is None:
                    raise
                raise self.error from None


def unfollowed(what: str) -> BeyondTraceError:
    return BeyondTraceError(f"{what} cannot be followed on fake tensors: {NEEDS_CUDA}")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _place_of(error: BaseException, session: Any) -> str:
    """The innermost frame of the traceback that is the user's; in backward, the forward line that led there."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if is_own(frame.filename)]
    line = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else session.memory.where.last_line
    return f" at {line}" if line else ""


def out_of_memory(error: BaseException, session: Any) -> str | None:
    """A sentence that the card was too small, and where; None for any other error."""
    if not isinstance(error, torch.OutOfMemoryError):
        return None
    message = str(error).removeprefix("out of memory: ")
    return f"out of memory in {session.phases.now}{_place_of(error, session)}: {message}"


def in_words(error: BaseException, session: Any) -> UserError:
    place, text = _place_of(error, session), str(error)
    if isinstance(error, UserError):
        return error
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else f"1: {error.code}"
        return UserError(f"the job ended with {code}, so it is unknown whether it fits")
    if isinstance(error, KeyboardInterrupt):
        return UserError("the dry run was interrupted")
    if isinstance(error, (DataDependentOutputException, DynamicOutputShapeException)):
        return BeyondTraceError(
            f"{str(error.func).replace('aten.', 'torch.ops.aten.', 1)}{place} gives a shape or value that depends on "
            f"data, for which fake tensors know no bound: {NEEDS_CUDA}, or fixed sizes at that line"
        )
    unknown = _NO_FAKE.search(text)
    kernel = unknown[1] if unknown else str(error.func) if isinstance(error, UnsupportedOperatorException) else ""
    if kernel.startswith("aten."):
        return unfollowed(f"torch.ops.{kernel}{place}")
    if kernel:
        return BeyondTraceError(
            f"{kernel}{place} is not an operator of PyTorch, so its memory is unknown: a limit of engine fake. "
            "Register its shapes with torch.library.register_fake, or use --engine cuda"
        )
    if session.request.scratch and any(isinstance(one, socket.gaierror) for one in _causes(error)):
        return UserError(
            f"the code{place} asks for a host on the network, and a dry run has no network: {type(error).__name__}; "
            "--keep-files allows it, or download the files before"
        )
    if isinstance(error, EOFError) and text == "EOF when reading a line":  # of input() (Python/bltinmodule.c, 3.14)
        return UserError(
            f"the code{place} reads a line of standard input, which has ended; pipe the answer (echo ANSWER | vramtui "
            "dry-run …), or type it with --show-output"
        )
    if type(error).__name__.startswith("NVMLError") or str(getattr(error, "filename", "")).endswith("nvidia-smi"):
        return BeyondTraceError(
            f"the code{place} asks NVIDIA's driver about its GPUs (NVML, nvidia-smi), which engine fake does not have"
        )
    if asked := _OTHER_CARD.search(text):
        number, card = int(asked[1]) + 1, session.memory.device.name
        return UserError(
            f"the code{place} asks for GPU {number} (cuda:{asked[1]}), and fake tensors simulate one: {NEEDS_CUDA} and "
            f"--gpu {number}x{card}"
        )
    if _SPARSE.search(text):
        return unfollowed(f"the code{place} makes a sparse tensor, which")
    lines = [line for line in text.replace(f"{SIM}:0", "cuda:0").replace(SIM, "cuda").splitlines() if line.strip()]
    # A worker's or another rank's error is shown by its last line, any other by its first.
    first = (lines[-1] if lines[0].startswith("Caught ") else lines[0]).strip()[:_LONGEST] if lines else ""
    name = type(error).__name__.replace("FakeTensorDeviceMismatchError", "RuntimeError")
    text = f"{place}: {name}{': ' + first if first else ''}"
    escape = session.escape
    call = escape.call if any(one is escape.error for one in _causes(error)) else None
    why = _LIMIT if _INTERNAL.search(" ".join(lines)) else _limit_of(error, call, session.memory)
    if not why and not isinstance(error, _OF_NO_VALUE):
        codes = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)][::-1]
        codes = [code for code in codes if is_own(code.co_filename)]
        # What is counted in one function is divided by in another; a comprehension has its numbers from around it.
        depth = next((at for at, code in enumerate(codes, 1) if not code.co_name.startswith("<")), len(codes))
        failed = codes if isinstance(error, ZeroDivisionError) else codes[:depth]
        own = {f"{code.co_filename}:{line}" for code in failed for _, _, line in code.co_lines()}
        reads = [line for line in session.memory.guesses_read if line in own] or deciding_reads(session.memory)
        why = _READ.format(reads[-1]) if reads else ""
    return BeyondTraceError(f"the dry run stopped{text}; {why}") if why else UserError(f"the code failed{text}")


def open_reads(memory: Any) -> tuple[str, ...]:
    """The lines that read unknown values, but where PyTorch does that decides nothing by healthy ones."""
    reads = memory.guesses_read.items()
    return tuple(line for line, inside in reads if ":" in line and not inside.startswith(HEALTHY))


def deciding_reads(memory: Any) -> list[str]:
    """The lines that read unknown values by which the code may have gone another way."""
    places = ((line, *line.rpartition(":")) for line in open_reads(memory))
    return [line for line, path, _, number in places if decides(path, int(number), memory.guess_uses[line])]


def _limit_of(error: BaseException, call: tuple[Any, Any] | None, memory: Any) -> str:
    """Why an error may be the trace's; empty if it is the code's own."""
    if type(error).__name__ == "FakeTensorDeviceMismatchError":
        return ""
    if call is not None:
        fails = fails_without_a_trace(call[0], call[1], error)
        return _UNKNOWN if fails is None else "" if fails else _LIMIT
    # shield.py passes the code's calls on.
    files = [one.filename for one in traceback.extract_tb(error.__traceback__) if one.filename != shield.__file__]
    inside, is_asserted = files[-1] if files else "", isinstance(error, AssertionError)
    if inside.startswith(_FAKES) or (inside.startswith(_OURS) and not is_asserted):
        return _LIMIT
    # Without values that were guessed, shapes and devices are as on a GPU.
    if not (memory.guesses_read or memory.bounded) or isinstance(error, _OF_NO_VALUE):
        return ""
    return _UNKNOWN if is_asserted or (inside and not is_own(inside)) else ""


def install_refusals(patches: Patches, memory: SimulatedMemory) -> None:
    def refuse_below(least: tuple[int, int], name: str, what: str) -> None:
        if memory.device.capability < least:
            needed, has = (".".join(map(str, one)) for one in (least, memory.device.capability))
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

    patches.set(torch.nn.Module, "compile", lambda *_given, **options: run_eagerly("Module.compile", options))

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
        for path in LISTS["refused"][module.__name__]:
            *above, name = path.split(".")
            owner = functools.reduce(getattr, above, module)

            def refuse_call(*_args: Any, _called: str = f"{module.__name__}.{path}", **_kwargs: Any) -> Any:
                raise unfollowed(f"{_called} at {memory.user_line()}")

            is_class = isinstance(getattr(owner, name), type)  # which annotations of libraries need
            kind = type(name, (), {"__new__": staticmethod(refuse_call)})
            patches.set(owner, name, kind if is_class else refuse_call)

    for module_name in LISTS["refused"]:
        when_imported(module_name, refuse)
