"""The dispatch mode that sees every operator: runs it on fake tensors and gives its memory to the allocator."""

import contextlib
import functools
import math
import threading
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    in_kernel_invocation_manager,
)
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass_type

from vramtui.dryrun.fake import LISTS
from vramtui.dryrun.fake.accounting.memory import SimulatedMemory, StorageEntry
from vramtui.dryrun.fake.device.device import SIM, inside, is_sim, tensors_of, to_sim
from vramtui.dryrun.fake.device.patches import holding
from vramtui.dryrun.fake.dispatch.autograd import Accumulation, count_writes
from vramtui.dryrun.fake.dispatch.composites import MADE_OF_OTHERS, find_maker
from vramtui.dryrun.fake.failures import Escape, unfollowed
from vramtui.dryrun.fake.kernels import KERNELS, operator_of
from vramtui.dryrun.fake.kernels.copies import bounded
from vramtui.dryrun.values import MOST, ORDER, UnknownError

_UNSAFE = {id(operator_of(name)) for name in ("_unsafe_view", "_reshape_alias")}  # views, by another schema
_TO_COPY, _EMPTY, _ALIAS, _DEVICE, _IS_PINNED, _PACK, _MAKE_COO, _LEFT_ALIGNED = map(
    operator_of, ("_to_copy", "empty_strided", "alias", "prim::device", "is_pinned", "_pack_padded_sequence",
                  "_sparse_coo_tensor_with_dims_and_tensors", "_nested_tensor_from_mask_left_aligned")
)  # fmt: skip
_ITEM = operator_of("_local_scalar_dense")
_DRAWS = {"uniform_": "uniform_", "rand": "uniform_", "rand_like": "uniform_"}  # operators, and how the host draws
_DRAWS |= {"normal_": "normal_", "randn": "normal_", "randn_like": "normal_"}
MOST_DRAWN, AT_ONCE = 1 << 29, 1 << 20  # numbers, which take the host two seconds


def quick_view(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of a view operator for a fake tensor without a constant; NotImplemented for anything else. Raises
    RuntimeError as the operator itself does, for sizes that do not fit.
    """
    tensor = args[0] if args else None
    if not (func.is_view or id(func) in _UNSAFE) or not isinstance(tensor, FakeTensor) or tensor.constant is not None:
        return NotImplemented
    mode, device = tensor.fake_mode, tensor._fake_device
    with in_kernel_invocation_manager(mode):
        view = func(*args, **kwargs)
    with torch._C._DisableTorchDispatch():
        if isinstance(view, torch.Tensor):
            return FakeTensor(mode, view, device)
        return type(view)(FakeTensor(mode, part, device) for part in view)


class Call:
    """One operator on its way, as a kernel's rule sees it: the operator, and what it was given."""

    def __init__(self, memory: SimulatedMemory, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.memory, self.func, self.args, self.kwargs = memory, func, args, kwargs
        self._scratch: list[StorageEntry] = []

    def argument(self, name: str) -> Any:
        """The argument of this name in the operator's schema, or its default; None if there is none."""
        for at, one in enumerate(self.func._schema.arguments):
            if one.name == name:
                return self.args[at] if at < len(self.args) else self.kwargs.get(name, one.default_value)
        return None

    def run(self) -> Any:
        """Run the operator on fake tensors; its new storages are allocated in the order of its outputs."""
        return self.take(self.untracked())

    def untracked(self) -> Any:
        """Run the operator; the rule allocates what it returns, through `take`."""
        view = quick_view(self.func, self.args, self.kwargs)
        if view is not NotImplemented:
            return view
        try:
            return self.func(*self.args, **self.kwargs)
        except (DynamicOutputShapeException, DataDependentOutputException):
            bound = self._size_by_values()
            if bound is NotImplemented:
                raise
            return bound
        except (AssertionError, IndexError) as error:
            # Shape functions in Python assert what kernels in C++ refuse.
            is_pythons = isinstance(error, AssertionError) or str(error).startswith(("list ", "tuple "))
            raise (RuntimeError(str(error)) if is_pythons else error) from None

    def _size_by_values(self) -> Any:
        """Give a result whose size depends on values its size by known ones, by guesses, or at its bound."""
        memory, func = self.memory, self.func
        # Lengths stay on the host, and their results would all go to the GPU.
        tensors = list(tensors_of((*self.args, *self.kwargs.values())))
        has_places = any(getattr(memory.find(one), "places", None) is not None for one in tensors[:1])
        if func is not _PACK and not has_places and all(one.numel() <= MOST for one in tensors):
            with contextlib.suppress(UnknownError):
                real, is_guess, _ = memory.values.compute(func, self.args, self.kwargs)
                if is_guess == ORDER:
                    memory.bound(next(tensors_of((real,))).numel(), func)
                if is_guess in {0, ORDER} or not memory.values.holds:
                    device = next(tensors_of(self.args)).device
                    return pytree.tree_map_only(torch.Tensor, lambda one: _EMPTY(
                        one.size(), one.stride(), dtype=one.dtype, device=device), real)  # fmt: skip
        if str(func._schema.returns[0].type) == "bool":
            return False  # `Values.follow` compares shapes
        return bounded(self)

    def take(self, out: Any) -> Any:
        for tensor in tensors_of((out,)):
            self.memory.see(tensor)
        return out

    def scratch(self, *sizes: int) -> Any:
        """Take memory that the kernel gives back when it ends, or earlier through `drop`: a piece of each size."""
        taken = [self.memory.take(nbytes, "temporaries") for nbytes in sizes]
        self._scratch += taken
        return taken[0] if len(taken) == 1 else taken

    def copy(self, *tensors: torch.Tensor, form: torch.memory_format = torch.contiguous_format) -> list[StorageEntry]:
        """Take memory for a copy of each tensor that is not laid out as the kernel reads it (`expect_contiguous`)."""
        return [self.scratch(tensor.nbytes) for tensor in tensors if not tensor.is_contiguous(memory_format=form)]

    def drop(self, *entries: StorageEntry) -> None:
        for entry in entries:
            self._scratch.remove(entry)
            self.memory.release(entry)

    def end(self) -> None:
        """Give back what is left, the youngest first, as C++ scopes do."""
        while self._scratch:
            self.memory.release(self._scratch.pop())


class _ReentryState(threading.local):
    on = False  # a wrapper subclass is re-dispatched: the next operator is to be left to the kind of its tensors
    shapes_only = False  # operators only tell the shape of a result, on tensors of the whole, and take no memory


class MemoryMode(TorchDispatchMode):
    supports_higher_order_operators = True

    def __init__(self, memory: SimulatedMemory, accumulation: Accumulation, escape: Escape) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # torch's own
        self.memory, self._accumulation, self._escape = memory, accumulation, escape
        self._one_at_a_time, self._drawn = threading.RLock(), 0
        self._reentry = _ReentryState()
        self.shapes_only = functools.partial(holding, self._reentry, "shapes_only")

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Skip Dynamo: nothing is compiled under this mode, and being wrapped against it costs time and frames."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is _DEVICE and isinstance(args[0], FakeTensor) and not args[0].fake_mode.in_kernel_invocation:
            return args[0]._fake_device  # C++ asks several times an operator
        if func is _IS_PINNED:  # C++ asks only for what it has pinned itself (torch/csrc/distributed/c10d/reducer.cpp)
            return True
        kwargs = dict(kwargs) if kwargs else {}
        if isinstance(func, torch._ops.HigherOrderOperator):  # as `run_with_rng_state`, torch/_prims/rng_prims.py
            if (kernel := func.py_kernels.get(torch._C.DispatchKey.CUDA)) is None:
                raise unfollowed(f"{func} at {self.memory.user_line()}")
            with self:
                return kernel(*args, **kwargs)
        kwargs.pop("pin_memory", None)  # pinned memory is the host's
        if kwargs.get("device") is not None:
            kwargs["device"] = to_sim(kwargs["device"])
        if self._reentry.shapes_only:
            with inside():
                return func(*args, **kwargs)
        if any(map(is_traceable_wrapper_subclass_type, types)):  # as a DTensor, whose parts come here again
            if self._reentry.on:
                self._reentry.on = False
                return NotImplemented
            with self, holding(self._reentry, "on"):
                return func(*args, **kwargs)
        if (old := self._accumulation.into(func, args)) is not None:
            self.memory.values.forget(old)
            return old
        func = self._accumulation.in_place(func, args)
        first = args[0] if args else None
        is_inference = torch.is_inference_mode_enabled() or (isinstance(first, torch.Tensor) and first.is_inference())
        made_by = find_maker(func) if is_inference or (func in MADE_OF_OTHERS and _on_card(args, kwargs)) else None
        if made_by is not None:  # its operators come here
            with self:
                return func._op_dk(made_by, *args, **kwargs)
        lay = self._accumulation.find_write(func, args)
        # Threads that load weights side by side share one fake mode, whose flags are the process's.
        with self._one_at_a_time, inside():
            try:
                out = self._dispatch(func, args, kwargs)
                return out if lay is None else lay(out, self._dispatch)
            except BaseException as error:
                self._escape.keep(error, func, args, kwargs)
                raise

    def _dispatch(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        device = kwargs.get("device")
        if (
            func is _TO_COPY
            and device is not None
            and device.type == args[0].device.type != "cpu"
            and kwargs.get("dtype") in (None, args[0].dtype)
            and kwargs.get("memory_format") is None
        ):
            return _ALIAS(args[0])  # it is there already
        is_sparse = func is _MAKE_COO or any(
            isinstance(one, torch.Tensor) and one.layout not in {torch.strided, torch.jagged} for one in args
        )
        if is_sparse and _on_card(args, kwargs):
            raise unfollowed(f"{func} at {self.memory.user_line() or 'backward'} works on a sparse tensor, which")
        values = self.memory.values
        if is_sparse or stays_real(func, args, kwargs):
            with torch._C._DisableTorchDispatch():
                if values.guessed_on_host:
                    return values.follow(func, args, kwargs, functools.partial(func, *args, **kwargs), values)
                return func(*args, **kwargs)
        if args and is_unread(args[0]) and not func._schema.is_mutable:  # else fake tensors of it are computed first
            args = tuple(
                _EMPTY(one.size(), one.stride(), dtype=one.dtype, device="cpu") if is_unread(one) else one
                for one in args
            )
        if func is _ITEM:
            return values.item(args[0])
        if torch.is_grad_enabled():
            self.memory.where.remember()
            if func._schema.is_mutable and args and isinstance(args[0], torch.Tensor) and args[0]._is_view():
                self._accumulation.shapes[torch._C._autograd._get_sequence_nr()] = args[0].shape
        self.memory.operator = func
        run = functools.partial(self._run, func, args, kwargs)
        # The alignment of a nested tensor is answered by its rule, whatever the mask is.
        return run() if func is _LEFT_ALIGNED else values.follow(func, args, kwargs, run, values)

    def _run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        call, kernel = Call(self.memory, func, args, kwargs), KERNELS.get(id(func))
        try:
            out = call.run() if kernel is None or not _on_card(args, kwargs) else kernel(call)
        finally:
            call.end()
        count_writes(func, args)
        draw = _DRAWS.get(func.overloadpacket.__name__)
        if draw and out.device.type == "cpu" and self._drawn < MOST_DRAWN:
            self._drawn += (size := out.numel())
            parts = [AT_ONCE] * (size // AT_ONCE - 1)  # with the last one, as fewer than 16 are drawn another way
            with torch._C._DisableTorchDispatch():  # batches that are drawn later are the real job's then
                for part in (*parts, size - sum(parts)):
                    getattr(torch.empty(part, dtype=out.dtype), draw)(generator=kwargs.get("generator"))
        return out


def _on_card(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return getattr(kwargs.get("device"), "type", "") == SIM or any(map(is_sim, tensors_of((*args, *kwargs.values()))))


MOST_INTEGERS = 1 << 24
MOST_FRACTIONS = 1 << 10
_MOST_READ = 1 << 22  # images and data sets of some MB are worked on as they are; larger fractions become fake
_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool)
_SIZED_ANEW = {"new_empty", "new_empty_strided", "new_zeros", "new_ones", "new_full"}


def is_unread(value: Any) -> bool:
    """Return whether a value is a tensor of the host, as of a checkpoint, that is larger than what is worked on."""
    is_real = type(value) in {torch.Tensor, torch.nn.Parameter} and value.device.type == "cpu"
    return is_real and value.layout is torch.strided and bool(value.numel() > _MOST_READ)


def stays_real(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether an operator works on so little of the host's that its values are computed."""
    device = kwargs.get("device")
    if (device is not None and device.type != "cpu") or (args and type(args[0]) is FakeTensor):
        return False
    name, given = func.overloadpacket.__name__, list(tensors_of((*args, *kwargs.values()) if kwargs else args))
    if any(isinstance(tensor, FakeTensor) for tensor in given):
        return False
    if given and name in _SIZED_ANEW and len(args) > 1 and math.prod(map(int, args[1])) <= MOST_FRACTIONS:
        # It makes few elements of a tensor's type, however many that has, as a deep copy begins.
        return bool(args[0].device.type == "cpu")
    for tensor in given:
        most = MOST_INTEGERS if tensor.dtype in _INTEGERS else MOST_FRACTIONS if name in LISTS["heavy"] else _MOST_READ
        is_host = tensor.device.type == "cpu" and tensor.layout is torch.strided
        if not is_host or not (func.is_view or tensor.numel() <= most):
            return False
    if given:
        return True
    # A factory without a tensor stays if it makes integers, or few fractions.
    if func.namespace != "aten" or not any(argument.name == "device" for argument in func._schema.arguments):
        return False
    if name in {"randperm", "arange"}:
        return 0 <= max((abs(value) for value in args if isinstance(value, (int, float))), default=-1) <= MOST_INTEGERS
    dtype, lists = kwargs.get("dtype"), [value for value in args if isinstance(value, (list, tuple))]
    is_sized = bool(args) and isinstance(args[0], (list, tuple))
    elements = math.prod(map(int, lists[0])) if is_sized or (lists and name == "randint") else 1
    is_whole = name == "randint" or (name == "full" and len(args) > 1 and isinstance(args[1], int))
    if dtype in _INTEGERS or (dtype is None and is_whole):
        return elements <= MOST_INTEGERS
    return elements <= MOST_FRACTIONS and (is_sized or name == "scalar_tensor")
