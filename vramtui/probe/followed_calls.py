"""What is computed on an emulated card of numbers that the host knows, and of these alone, the host computes as well.

Masks, labels and edges come from the host, so that how many places a mask has is known though no kernel runs: what
`x[mask]` holds, what `mask.sum()` says, what `labels.scatter_(1, classes, 1)` wrote. Code that is compiled is not
followed.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import inspect
from typing import Any

from .host_copies import COPY, FILL, HostCopies, is_small, part_of, root_of, version_of
from .import_hook import when_imported
from .reads import Reads

SEQUENCE, ITEM = 104, 24  # bytes to `tp_as_sequence` of a type, and there to `sq_item`
SENT = ("to", "cpu", "cuda")
SELECTED = ("__getitem__", "__setitem__", "masked_select", "nonzero")
_BOTH = (
    "abs", "add", "any", "all", "argmax", "argmin", "argsort", "bitwise_and", "bitwise_or", "ceil", "clamp", "clone",
    "count_nonzero", "cumsum", "diff", "div", "eq", "flatten", "flip", "floor", "floor_divide", "gather", "ge", "gt",
    "index_select", "isin", "le", "logical_and", "logical_not", "logical_or", "lt", "masked_fill", "max", "maximum",
    "mean", "min", "minimum", "mul", "ne", "neg", "prod", "reciprocal", "remainder", "repeat_interleave", "reshape",
    "roll", "round", "scatter", "sort", "sub", "sum", "take", "topk", "tril", "triu", "unbind", "where",
)  # fmt: skip
COMPUTED = (
    *_BOTH, "__add__", "__and__", "__eq__", "__ge__", "__gt__", "__invert__", "__le__", "__lt__", "__mod__", "__mul__",
    "__ne__", "__neg__", "__or__", "__radd__", "__rmul__", "__sub__", "__truediv__", "__xor__", "bool", "contiguous",
    "double", "float", "half", "int", "long", "repeat", "short", "type", "type_as", "view",
)  # fmt: skip
FUNCTIONS = (*_BOTH, "cat", "concat", "rsub", "stack")
WRITTEN = (
    "__iadd__", "__iand__", "__imul__", "__ior__", "__isub__", "__itruediv__", "__setitem__", "add_", "bitwise_and_",
    "bitwise_or_", "clamp_", "copy_", "div_", "fill_", "index_add_", "index_copy_", "index_fill_", "index_put_",
    "logical_and_", "logical_not_", "logical_or_", "masked_fill_", "mul_", "scatter_", "scatter_add_", "sub_", "zero_",
)  # fmt: skip
# What makes numbers that its arguments tell; the others of the kind fill a block with one.
MADE = ("arange", "as_tensor", "eye", "linspace", "tensor")
FILLED = ("full", "full_like", "ones", "ones_like", "zeros", "zeros_like")


class FollowedCalls:
    """What keeps copies and uses them: `begin` changes methods of tensors and functions of `torch` by name."""

    def __init__(self, torch: Any, reads: Reads, copies: HostCopies) -> None:
        self._torch, self._reads, self._copies, self._kind = torch, reads, copies, torch.Tensor
        self._is_compiling = copies.is_compiling
        self._methods: list[tuple[str, Any, Any]] = []

    def begin(self) -> None:
        """Keep copies from now on, and use them."""
        self._change(self._send, SENT)
        self._change(self._list, ("tolist",))
        self._change(self._select, SELECTED)
        self._change(self._compute, (*COMPUTED, "__getitem__", "nonzero"))
        self._change(self._compare, ("equal", "allclose"))
        self._change(self._write, WRITTEN)
        self._change(self._duplicate, ("__deepcopy__",))
        self._change(self._let_write, ("data_ptr",))
        hide_items(self._kind)
        self._change_functions()
        when_imported("torch._dynamo.trace_rules", self._list_methods)
        when_imported("torch._dynamo.callback", self._compile_plain)

    def within(self, act: Any) -> Any:
        """`act`, all of whose calls are followed, and of all that the host wrote to the card: what other ranks sent has
        no copy.
        """
        from torch.overrides import TorchFunctionMode

        calls = self

        class ByHost(TorchFunctionMode):
            """Passes each call on."""

            def __torch_function__(self, call: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
                named = named or {}
                there = [one for one in flat((arguments, tuple(named.values()))) if calls._copies.is_on_card(one)]
                is_sent = str(getattr(call, "__module__", "")).startswith("torch.distributed")
                if is_sent or not there or not all(map(is_small, there)):
                    return call(*arguments, **named)
                return calls._answer(call, arguments, named, there)

        @functools.wraps(act)
        def follow(*arguments: Any, **named: Any) -> Any:
            if self._is_compiling():
                return act(*arguments, **named)
            with ByHost():
                return act(*arguments, **named)

        return follow

    def _change(self, change: Any, names: tuple[str, ...]) -> None:
        for name in names:
            act = getattr(self._kind, name, None)
            if act is not None:
                changed = change(act)
                self._methods.append((name, act, changed))
                setattr(self._kind, name, changed)

    def _leave(self, *_: Any) -> None:
        """Let PyTorch's own methods stand: while code is compiled nothing is followed, and Dynamo knows those that a
        mode such as a default device passes on by their identity.
        """
        for name, act, _changed in reversed(self._methods):
            setattr(self._kind, name, act)
        hide_items(self._kind)

    def _follow(self, *_: Any) -> None:
        for name, _act, changed in self._methods:
            setattr(self._kind, name, changed)
        hide_items(self._kind)

    def _list_methods(self, rules: Any) -> None:
        self._leave()
        rules.get_tensor_method()  # which looks for them once (torch/_dynamo/trace_rules.py, 2.13)
        self._follow()

    def _compile_plain(self, callback: Any) -> None:
        callback.on_compile_start(self._leave)
        callback.on_compile_end(self._follow)

    def _change_functions(self) -> None:
        """Functions of `torch`, which `torch.jit.script` (torch/jit/_builtins.py, 2.13) and a default device
        (torch/utils/_device.py) know by their identity, compiled code by their names.
        """
        torch, builtins = self._torch, None
        if hasattr(torch, "jit"):
            device = importlib.import_module("torch.utils._device")
            device._device_constructors()  # noqa: SLF001 - PyTorch's own name for it; which looks for them once
            builtins = importlib.import_module("torch.jit._builtins")
        changes = dict.fromkeys(FUNCTIONS, self._compute)
        changes.update(dict.fromkeys(MADE + FILLED, self._make))
        changes.update(dict.fromkeys(("equal", "allclose"), self._compare))
        for name, change in changes.items():
            act = getattr(torch, name, None)
            if act is None:
                continue
            changed = change(act)
            changed.__module__, changed.__qualname__ = "torch", name  # a model that is pickled may hold it
            del changed.__wrapped__  # whose signature torch.fx would ask, and a function of C has none
            setattr(torch, name, changed)
            known = None if builtins is None else builtins._find_builtin(inspect.unwrap(act))  # noqa: SLF001 - as above
            if builtins is not None and known:
                builtins._register_builtin(changed, known)  # noqa: SLF001 - as above

    def _send(self, act: Any) -> Any:
        @functools.wraps(act)
        def send(tensor: Any, *arguments: Any, **named: Any) -> Any:
            answer = act(tensor, *arguments, **named)
            if self._is_compiling() or type(answer) is not self._kind or answer is tensor:
                return answer
            copy = self._copies.copy_of(tensor) if tensor.is_cuda else None
            if not answer.is_cuda and copy is not None:
                answer.copy_(copy)
            elif answer.is_cuda and is_small(answer) and (copy is not None or not tensor.is_cuda):
                self._copies.keep(answer, (tensor.clone() if copy is None else copy).to(answer.dtype))
            return answer

        return send

    def _duplicate(self, act: Any) -> Any:
        @functools.wraps(act)
        def duplicate(tensor: Any, memo: Any) -> Any:
            answer = act(tensor, memo)
            copy = self._copies.copy_of(tensor) if self._copies.is_on_card(tensor) else None
            if copy is not None and self._copies.is_on_card(answer):
                self._copies.keep(answer, copy.clone())
            return answer

        return duplicate

    def _list(self, act: Any) -> Any:
        @functools.wraps(act)
        def list_numbers(tensor: Any) -> Any:
            copy = None if self._is_compiling() or not self._copies.is_on_card(tensor) else self._copies.copy_of(tensor)
            return act(tensor if copy is None else copy)

        return list_numbers

    def _compute(self, act: Any) -> Any:
        @functools.wraps(act)
        def compute(*arguments: Any, **named: Any) -> Any:
            return self._answer(act, arguments, named)

        return compute

    def _compare(self, act: Any) -> Any:
        @functools.wraps(act)
        def compare(first: Any, second: Any, *arguments: Any, **named: Any) -> Any:
            pair = [self._copies.copy_of(one) for one in (first, second) if type(one) is self._kind]
            if self._is_compiling() or len(pair) < 2 or any(copy is None for copy in pair):
                pair = [first, second]
            return act(*pair, *arguments, **named)

        return compare

    def _make(self, act: Any) -> Any:
        """Numbers that are made on the card as the host says."""
        name = act.__name__

        @functools.wraps(act)
        def make(*arguments: Any, **named: Any) -> Any:
            answer = act(*arguments, **named)
            if self._is_compiling() or not self._copies.is_on_card(answer) or not is_small(answer):
                return answer
            if name in FILLED:
                value = arguments[1] if len(arguments) > 1 else named.get("fill_value")
                number = {"z": 0, "o": 1}.get(name[0], value)
                if isinstance(number, (bool, int, float)):
                    setattr(answer, FILL, (version_of(answer), number))
            else:
                try:
                    words = self._copies.on_host((arguments, {**named, "device": "cpu"}))
                    self._copies.keep(answer, act(*words[0], **words[1]))
                except Exception:  # one has no copy
                    return answer
            return answer

        return make

    def _answer(self, act: Any, arguments: Any, named: Any, within: Any = None) -> Any:
        """What `act` answers, with what the host computes of copies; `within` are the card's tensors among the
        arguments of a call of a function that is followed as a whole.
        """
        answer = act(*arguments, **named)
        parts = tuple(answer) if isinstance(answer, (tuple, list)) else (answer,)
        is_whole = within is not None
        if (
            not all(self._copies.is_on_card(one) and (is_whole or is_small(one)) for one in parts)
            or not self._copies.is_free()
        ):
            return answer
        try:
            words = self._copies.on_host((arguments, named), is_brought=is_whole)
            copy = act(*words[0], **words[1])
        except Exception:  # one has no copy, or the host does not compute this
            return answer
        copies = tuple(copy) if isinstance(answer, (tuple, list)) else (copy,)
        for at, one in enumerate(parts):
            known = copies[at]
            if known.is_cuda or known.shape != one.shape or known.dtype is not one.dtype:
                continue
            is_new = is_whole and not any(_is_view(one, other) for other in within)
            if is_new or one.numel() == 1:  # the job may read it, or send it to another rank
                self._copies.send(one.data, known)
            if is_small(one):
                self._copies.keep(one, known)
        return answer

    def _write(self, act: Any) -> Any:
        """What is written into a tensor whose numbers are known, or into all of one."""
        name = act.__name__

        @functools.wraps(act)
        def write(tensor: Any, *arguments: Any, **named: Any) -> Any:
            if (
                self._is_compiling()
                or not self._copies.is_on_card(tensor)
                or tensor.requires_grad
                or not is_small(tensor)
            ):
                return act(tensor, *arguments, **named)
            root = root_of(tensor)
            fill, copy = self._copies.fill_of(root), self._copies.own_copy(root)
            owner = root if copy is not None or fill is not None or root is tensor else tensor
            if owner is not root:
                copy = self._copies.own_copy(tensor)
            answer = act(tensor, *arguments, **named)
            is_filled = name in ("fill_", "zero_") and not any(type(one) is self._kind for one in arguments)
            if is_filled and owner is tensor:
                setattr(tensor, FILL, (version_of(tensor), arguments[0] if arguments else 0))
            elif self._copies.is_free() and not tensor.requires_grad:
                try:
                    words = self._copies.on_host((arguments, named))
                    if copy is None and (fill is not None or name == "copy_") and is_small(owner):
                        copy = self._copies.filled(owner.shape, fill or 0, owner.dtype)
                    act(part_of(tensor, owner, copy), *words[0], **words[1])
                except Exception:  # as above
                    for one in (tensor, owner):
                        one.__dict__.pop(COPY, None)
                    return answer
                self._copies.keep(owner, copy)
                if tensor.numel() == 1:
                    self._copies.send(tensor.data, part_of(tensor, owner, copy))
            return answer

        return write

    def _let_write(self, act: Any) -> Any:
        """Triton's kernels and others that are no operators ask for an address, and may write there."""

        @functools.wraps(act)
        def address(tensor: Any) -> Any:
            if not self._is_compiling() and self._copies.is_on_card(tensor):
                for one in (tensor, root_of(tensor)):
                    one.__dict__.pop(FILL, None)
            return act(tensor)

        return address

    def _select(self, act: Any) -> Any:
        @functools.wraps(act)
        def select(*arguments: Any, **named: Any) -> Any:
            copies = (
                []
                if self._is_compiling()
                else [self._copies.copy_of(one) for one in flat(arguments) if self._is_mask(one)]
            )
            if not copies or any(copy is None for copy in copies):
                return act(*arguments, **named)
            counts = [int(copy.sum()) for copy in copies]
            self._reads.know_next(counts)
            try:
                answer = act(*arguments, **named)
            finally:
                self._reads.know_next([])
            node = getattr(arguments[0] if answer is None else answer, "grad_fn", None)
            if node is not None:  # its backward pass selects the same places anew
                node.register_prehook(lambda _: self._reads.know_next(counts))
                node.register_hook(lambda *_: self._reads.know_next([]))
            return answer

        return select

    def _is_mask(self, one: Any) -> bool:
        return self._copies.is_on_card(one) and "bool" in str(one.dtype)


def _is_view(one: Any, other: Any) -> bool:
    """Whether they are of one storage, where what is known lies already."""
    return bool(one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr())


def flat(arguments: Any) -> Any:
    """Each argument, those within lists and tuples too."""
    for argument in arguments:
        if isinstance(argument, (list, tuple)):
            yield from flat(argument)
        else:
            yield argument


def hide_items(kind: Any) -> None:
    """Let a class whose `__getitem__` was changed be no sequence for C, as it was none before: of what is one
    `torch.tensor([scalar])` asks the length. Python has put a function for items into the class, where the type's own
    is one for keys (`slotdefs`, Objects/typeobject.c; offsets of Include/cpython/object.h, 3.8 to 3.14).
    """
    if object.__basicsize__ != 16:  # a build with other offsets: without the GIL, or for debugging
        return
    functions = ctypes.c_void_p.from_address(id(kind) + SEQUENCE).value
    if functions is not None:
        ctypes.c_void_p.from_address(functions + ITEM).value = None
    for one in type.__subclasses__(kind):
        hide_items(one)
