"""Values of small tensors, carried although tensors are fake: in mirrors, on the CPU.

Libraries branch on them: counters of optimizers, position ids, attention masks, random orders of samples. A mirror
belongs to a storage, so every view of it is known with it, and writing through one is seen through all. What follows
from constants is known; what follows from data is guessed as if the data held nothing remarkable (fractions are ones,
so that a loss can be divided by and its logarithm taken; integers are zeros). Of conditions over values that nobody
has, `any` is False and `all` holds, as in a healthy job: `isnan(x).any()`, `isfinite(x).all()`, the constraints of
torch.distributions. No guess ever tells the shape of a tensor. Places and counts have guesses of their own (`guesses`).
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from vramtui.dryrun.fake.accounting.memory import SimulatedMemory
from vramtui.dryrun.fake.accounting.storages import StorageBook, StorageEntry
from vramtui.dryrun.fake.dispatch import guesses
from vramtui.dryrun.fake.dispatch.endless_loops import EndlessLoops
from vramtui.dryrun.fake.dispatch.host import follows_from_host, is_real
from vramtui.dryrun.fake.kernels.registry import by_operator
from vramtui.probe import guards

CONDITION = (
    "bounded: the condition at {} depends on data; the way that does more work was taken, as far as that is known"
)
NOT_A_READ: Any = object()
OperatorCall = tuple[Any, tuple[Any, ...], dict[str, Any]]
_FINITE_CHECK = torch.ops.aten._amp_foreach_non_finite_check_and_unscale_.default
_ITEM = torch.ops.aten._local_scalar_dense.default
_COMPARISONS = (torch.ops.aten.equal.default, torch.ops.aten.allclose.default)
_HOLDS = {torch.ops.aten.any, torch.ops.aten.all, torch.ops.aten._is_all_true}
# What they give follows from a tensor's shape, not from its values.
_OF_A_SHAPE = {
    getattr(torch.ops.aten, name)
    for name in ("new_zeros", "new_ones", "new_full", "zeros_like", "ones_like", "full_like")
}
_MOST_INTEGERS = 1 << 16
_MOST_FLOATS = 1 << 10
_MOST_GUESSED = 1 << 6  # fractions that follow from data: code branches on a loss, hardly on a layer's result
LOOPS = EndlessLoops()


@contextlib.contextmanager
def plainly() -> Iterator[None]:
    """Without dispatch, and without the code's own modes: a default device of its would make tensors on a real card.

    For what the code reaches by a function of Python; inside an operator no such mode is on.
    """
    with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
        yield


def value_of(book: StorageBook, tensor: torch.Tensor) -> torch.Tensor | None:
    """A real tensor that shares `tensor`'s values; None where there are none. Only without dispatch."""
    entry = book.find(tensor)
    if entry is None or entry.mirror is None:
        return None
    out = torch.empty(0, dtype=tensor.dtype)
    return out.set_(entry.mirror, tensor.storage_offset(), tensor.size(), tensor.stride())


def certain_value(book: StorageBook, tensor: torch.Tensor) -> torch.Tensor | None:
    """A real tensor with `tensor`'s values, where they do not follow from data; None otherwise."""
    with plainly():
        if is_real(tensor):
            return tensor
        entry = book.find(tensor)
        return None if entry is None or entry.guessed else value_of(book, tensor)


def put(book: StorageBook, tensor: torch.Tensor, value: torch.Tensor) -> None:
    """Let `tensor` hold `value`, a real one of as many places, as another rank's message. Only without dispatch."""
    value = value.reshape(tensor.shape).to(tensor.dtype)
    entry = book.find(tensor)
    if is_real(tensor):
        tensor.detach().copy_(value)
    elif entry is not None and (entry.mirror is not None or _small(tensor)):
        if entry.mirror is None:
            entry.mirror = torch.UntypedStorage(max(entry.nbytes, tensor.element_size()))
        current = value_of(book, tensor)
        assert current is not None
        current.copy_(value)
        entry.guessed = False


def read(memory: SimulatedMemory, func: Any, args: tuple[Any, ...]) -> Any:
    """What an operator gives that answers with a number: NOT_A_READ for every other operator.

    `.item()` is a guess where there is no value; tensors that cannot be compared are alike if their shapes are.
    """
    book = memory.book
    if func in _COMPARISONS:
        with torch._C._DisableTorchDispatch():
            answer = _compute(book, (func, args, {}))[1]
            return args[0].shape == args[1].shape if answer is None else answer
    if func is not _ITEM:
        return NOT_A_READ
    tensor = args[0]
    with torch._C._DisableTorchDispatch():
        value = value_of(book, tensor) if isinstance(tensor, FakeTensor) else tensor
        if isinstance(tensor, FakeTensor) and (value is None or _is_guessed(book, tensor)):
            line = memory.user_line()
            memory.guesses_read.add(line)
            note_condition(memory, line)
            return LOOPS.answer(memory, (_guess(tensor.dtype) if value is None else value).item())
        assert value is not None
        return value.item()


def note_condition(memory: SimulatedMemory, line: str) -> None:
    """Say so in the result if a value that follows from data decides a condition at a line, as `file:line`."""
    path, _, number = line.rpartition(":")
    if number.isdigit() and guards.is_condition(path, int(number)):
        memory.bounded = True
        memory.warn(CONDITION.format(line))


def _is_guessed(book: StorageBook, tensor: torch.Tensor) -> bool:
    entry = book.find(tensor)
    return entry is not None and entry.guessed


def array_of(book: StorageBook, tensor: torch.Tensor) -> torch.Tensor:
    """A real tensor of `tensor`'s shape: with its values, or with guesses where there are none."""
    if not isinstance(tensor, FakeTensor):
        return tensor
    with plainly():
        value = value_of(book, tensor)
        return _guess(tensor.dtype).expand(tensor.shape) if value is None else value


def _guess(dtype: torch.dtype) -> torch.Tensor:
    return torch.full((), int(dtype.is_floating_point or dtype.is_complex), dtype=dtype)


@by_operator
def is_mutable(func: Any) -> bool:
    """Whether an operator writes into what it is given."""
    return bool(func._schema.is_mutable)


def propagate(book: StorageBook, fresh: list[tuple[torch.Tensor, StorageEntry]], call: OperatorCall, out: Any) -> None:
    """Carry the values of small tensors through an operator.

    Args:
        book: the storages.
        fresh: the outputs whose storages are new.
        call: the operator, its arguments and its keywords.
        out: what it gave.
    """
    func = call[0]
    mutable = is_mutable(func)
    if _keep_check(book, fresh, call):
        return
    small = [(tensor, entry) for tensor, entry in fresh if _small(tensor) or follows_from_host(book, call, tensor)]
    if not small and not mutable:
        return
    with torch._C._DisableTorchDispatch():
        substitution = _Substitution(book)
        values = substitution.of_call(call)
        if not (mutable or (values and substitution.certain)) and all(_is_unknown(tensor) for tensor, _entry in small):
            for _tensor, entry in small:
                entry.guessed = True
            return
        known, result = _computed(func, values, substitution)
        for tensor, entry in small:
            _keep_result(book, (tensor, entry), call, (out, result), known)
        if mutable and not known and call[0] is not _FINITE_CHECK:  # gradients are taken to be finite
            for tensor in written_tensors(call):
                owner = book.find(tensor)
                if owner is not None:
                    owner.guessed = True


def _keep_check(book: StorageBook, fresh: list[tuple[torch.Tensor, StorageEntry]], call: OperatorCall) -> bool:
    """Remember a check of numbers, and what is made of such checks only: all places are the same, whatever the size."""
    if len(fresh) != 1 or fresh[0][0].dtype is not torch.bool or not call[1]:
        return False
    holds = guesses.sound(call)
    tensors = [value for value in call[1] if isinstance(value, torch.Tensor)]
    given = [getattr(book.find(value), "holds", None) for value in tensors]
    if holds is None and given and call[0].overloadpacket in _HOLDS:
        holds = given[0]
    elif holds is None and given and None not in given:
        with torch._C._DisableTorchDispatch(), contextlib.suppress(RuntimeError, IndexError, TypeError):
            numbers = iter(given)
            one_each = [torch.tensor(next(numbers)) if isinstance(one, torch.Tensor) else one for one in call[1]]
            holds = bool(call[0](*one_each))
    if holds is None:
        return False
    tensor, entry = fresh[0]
    entry.holds = holds
    if _small(tensor):
        with torch._C._DisableTorchDispatch():
            _keep(book, tensor, entry, torch.tensor(holds).expand(tensor.shape))
    return True


def _keep_result(
    book: StorageBook,
    fresh: tuple[torch.Tensor, StorageEntry],
    call: OperatorCall,
    given: tuple[Any, Any],
    known: bool,
) -> None:
    """Remember what a new tensor holds.

    Args:
        book: the storages.
        fresh: the tensor and its entry.
        call: the operator, its arguments and its keywords.
        given: what it gave, and the same of real tensors.
        known: whether that is certain.
    """
    tensor, entry = fresh
    out, result = given
    func = call[0]
    entry.below = guesses.below(book, call, out, tensor)
    value = _part_of_result(tensor, out, result)
    holds = None
    if not known and tensor.dtype is torch.bool and tensor.numel() > 1:
        value = torch.ones(tensor.shape, dtype=torch.bool)  # an unknown mask holds everywhere
    elif not known and guesses.counts(func) and call[1][0].dtype is torch.bool:
        holds = getattr(book.find(call[1][0]), "holds", None)
        value = torch.full(tensor.shape, 0 if holds is False else call[1][0].numel() // max(tensor.numel(), 1))
    order = None if known else guesses.places_of(call, out, tensor, computed=value is not None)
    _keep(book, tensor, entry, value if order is None else order)
    entry.guessed = not (known or holds is not None) or torch.Tag.nondeterministic_seeded in func.tags


def exact_result(book: StorageBook, call: OperatorCall) -> Any:
    """The operator's result on real tensors, if all that it reads is known for certain; None if not."""
    with torch._C._DisableTorchDispatch():
        known, result = _compute(book, call)
        return result if known else None


def _is_unknown(tensor: torch.Tensor) -> bool:
    """Whether `tensor` has more fractions than are guessed one by one."""
    return (tensor.dtype.is_floating_point or tensor.dtype.is_complex) and tensor.numel() > _MOST_GUESSED


def _small(tensor: torch.Tensor) -> bool:
    most = _MOST_FLOATS if tensor.dtype.is_floating_point or tensor.dtype.is_complex else _MOST_INTEGERS
    return tensor.numel() <= most


class _NoValueError(Exception):
    pass


@by_operator
def _is_of_a_shape(func: Any) -> bool:
    return func.overloadpacket in _OF_A_SHAPE


class _Substitution:
    """Replaces tensors by their values; remembers whether all of them were certain."""

    def __init__(self, book: StorageBook, *, or_zeros: bool = False) -> None:
        self._book = book
        self._or_zeros = or_zeros
        self.certain = True

    def of_call(self, call: OperatorCall) -> tuple[Any, Any] | None:
        """The arguments and keywords with values; None where one has none."""
        func, args, kwargs = call
        if not self._or_zeros and not _is_of_a_shape(func) and self._lacks_one(args):
            return None
        if _is_of_a_shape(func):
            args = (torch.empty(args[0].shape, dtype=args[0].dtype), *args[1:])
        try:
            return self.of(args), self.of(kwargs)
        except (_NoValueError, RuntimeError, TypeError):
            return None

    def _lacks_one(self, args: tuple[Any, ...]) -> bool:
        """Whether a tensor without values is among the arguments, before those of the others are looked at."""
        for value in args:
            if type(value) is FakeTensor:
                entry = self._book.find(value)
                if entry is None or entry.mirror is None:
                    return True
        return False

    def of(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, dict):
            return {key: self.of(item) for key, item in value.items() if key != "pin_memory"}
        if isinstance(value, (list, tuple)):
            return type(value)(self.of(item) for item in value)
        if isinstance(value, torch.device):
            return torch.device("cpu")
        return value

    def _tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        if is_real(tensor):
            return tensor
        entry = self._book.find(tensor)
        if entry is None or entry.mirror is None:
            if not self._or_zeros:
                raise _NoValueError
            self.certain = False
            return torch.zeros(tensor.shape, dtype=tensor.dtype)
        self.certain &= not entry.guessed
        value = value_of(self._book, tensor)
        assert value is not None
        return value


def _compute(book: StorageBook, call: OperatorCall) -> tuple[bool, Any]:
    """Whether the result is certain, and the result; None where it cannot be had."""
    substitution = _Substitution(book)
    return _computed(call[0], substitution.of_call(call), substitution)


def _computed(func: Any, values: tuple[Any, Any] | None, substitution: _Substitution) -> tuple[bool, Any]:
    """Compute `func` where the arguments' values are known; the first value says whether the answer is certain."""
    if values is None:
        return False, None
    try:
        return substitution.certain, func(*values[0], **values[1])
    except (RuntimeError, NotImplementedError, IndexError, ValueError, TypeError):
        return False, None  # none that the CPU's operator takes


def _part_of_result(tensor: torch.Tensor, out: Any, result: Any) -> torch.Tensor | None:
    """The part of `result` that stands where `tensor` stands in `out`."""
    outs = out if isinstance(out, (list, tuple)) else (out,)
    results = result if isinstance(result, (list, tuple)) else (result,)
    for fake, real in zip(outs, results, strict=False):
        if fake is tensor and isinstance(real, torch.Tensor) and real.shape == tensor.shape:
            return real
    return None


def _keep(book: StorageBook, tensor: torch.Tensor, entry: StorageEntry, value: torch.Tensor | None) -> None:
    entry.mirror = torch.UntypedStorage(max(entry.nbytes, tensor.element_size()))
    mirror = value_of(book, tensor)
    assert mirror is not None
    if value is not None:
        mirror.copy_(value)
    else:
        fraction = tensor.dtype.is_floating_point or tensor.dtype.is_complex
        mirror.fill_(1 if fraction or tensor.dtype is torch.bool else 0)


def written_tensors(call: OperatorCall) -> list[torch.Tensor]:
    """The tensors an operator writes to."""
    func, args, kwargs = call
    tensors: list[torch.Tensor] = []
    for i, argument in enumerate(func._schema.arguments):
        info = argument.alias_info
        if info is None or not info.is_write:
            continue
        value = args[i] if i < len(args) else kwargs.get(argument.name)
        tensors += [t for t in (value if isinstance(value, (list, tuple)) else (value,)) if isinstance(t, torch.Tensor)]
    return tensors
