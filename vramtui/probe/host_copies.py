"""Numbers that the host sent to an emulated card, and what is selected, compared and counted of them alone.

Masks, labels and edges come from the host, so that how many places a mask has is known though no kernel runs: what
`x[mask]` holds, what `mask.sum()` says. The host's copy goes with the tensor, and is believed until something is
written into it. Code that is compiled is not followed, nor are functions such as `torch.cat`.

Where values decide how many places an operator takes (`nonzero` and every mask, `unique`, `repeat_interleave`, NMS),
PyTorch reads that number from the card, where it would be zero, and a job seldom works with nothing: its maximum has no
value, its batch no rows. So it is what the host knows, else as many as there can be, as `vramtui trace` takes it, and
the read is counted. PyTorch's own kernels do the rest and take the memory that they take (`torch.library.get_kernel`,
since 2.10; older releases read zero).
"""

from __future__ import annotations

import functools
import warnings
from typing import Any

from .import_hook import when_imported
from .reads import Reads

MOST = 1 << 20  # whole numbers of a tensor that the host computes with
MOST_FRACTIONS = 1 << 14  # of others: rows of labels beside boxes, no pictures
COPY = "_vramtui_copy"  # the host's, with the tensor's version at that time
SENT = ("to", "cpu", "cuda")
SELECTED = ("__getitem__", "__setitem__", "masked_select", "nonzero")
COMPUTED = (
    "__add__", "__and__", "__eq__", "__ge__", "__gt__", "__invert__", "__le__", "__lt__", "__mul__", "__ne__", "__or__",
    "__sub__", "__xor__", "bool", "clone", "count_nonzero", "cumsum", "eq", "flatten", "ge", "gt", "int", "le",
    "logical_and", "logical_not", "logical_or", "long", "lt", "max", "min", "ne", "reshape", "sum", "unbind", "view",
)  # fmt: skip


class HostCopies:
    """Those of one process; `follow` changes the methods of tensors of the names above, and no function of `torch`:
    graphs of compiled code name those, and are kept by their names.
    """

    def __init__(self, torch: Any, reads: Reads) -> None:
        self._torch, self._reads, self._kind = torch, reads, torch.Tensor
        self._is_compiling = torch.compiler.is_compiling

    def follow(self) -> None:
        """Keep copies from now on, and use them."""
        self._change(self._send, SENT)
        self._change(self._list, ("tolist",))
        self._change(self._select, SELECTED)
        self._change(self._compute, (*COMPUTED, "__getitem__", "nonzero"))

    def follow_within(self, act: Any) -> Any:
        """`act`, all of whose calls are followed, functions of `torch` too, and of all that the host wrote to the card:
        what other ranks sent has no copy.
        """
        from torch.overrides import TorchFunctionMode

        copies = self

        class ByHost(TorchFunctionMode):
            """Passes each call on."""

            def __torch_function__(self, call: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
                named = named or {}
                there = [one for one in flat((arguments, tuple(named.values()))) if copies._is_on_card(one)]
                is_sent = str(getattr(call, "__module__", "")).startswith("torch.distributed")
                if is_sent or not there or not all(map(_is_small, there)):
                    return call(*arguments, **named)
                return copies._answer(call, arguments, named, there)

        @functools.wraps(act)
        def follow(*arguments: Any, **named: Any) -> Any:
            if self._is_compiling():
                return act(*arguments, **named)
            with ByHost():
                return act(*arguments, **named)

        return follow

    def _change(self, change: Any, names: tuple[str, ...]) -> None:
        for name in names:
            setattr(self._kind, name, change(getattr(self._kind, name)))

    def _send(self, act: Any) -> Any:
        @functools.wraps(act)
        def send(tensor: Any, *arguments: Any, **named: Any) -> Any:
            answer = act(tensor, *arguments, **named)
            if self._is_compiling() or type(answer) is not self._kind or answer is tensor:
                return answer
            copy = self.copy_of(tensor) if tensor.is_cuda else None
            if not answer.is_cuda and copy is not None:
                answer.copy_(copy)
            elif answer.is_cuda and _is_small(answer) and (copy is not None or not tensor.is_cuda):
                self._keep(answer, (tensor.clone() if copy is None else copy).to(answer.dtype))
            return answer

        return send

    def _list(self, act: Any) -> Any:
        @functools.wraps(act)
        def list_numbers(tensor: Any) -> Any:
            copy = None if self._is_compiling() or not self._is_on_card(tensor) else self.copy_of(tensor)
            return act(tensor if copy is None else copy)

        return list_numbers

    def _compute(self, act: Any) -> Any:
        @functools.wraps(act)
        def compute(*arguments: Any, **named: Any) -> Any:
            return self._answer(act, arguments, named)

        return compute

    def _answer(self, act: Any, arguments: Any, named: Any, within: Any = None) -> Any:
        """What `act` answers, with what the host computes of copies; `within` are the card's tensors among the
        arguments of a call of a function that is followed as a whole.
        """
        answer = act(*arguments, **named)
        parts = answer if type(answer) is tuple else (answer,)
        is_whole = within is not None
        if self._is_compiling() or not all(self._is_on_card(one) and (is_whole or _is_small(one)) for one in parts):
            return answer
        try:
            words = self._on_host(arguments, is_whole)
            more = {name: self._on_host(one, is_whole) for name, one in named.items()}
        except KeyError:
            return answer
        copy = act(*words, **more)
        copies = copy if type(answer) is tuple else (copy,)
        is_capturing = self._torch.cuda.is_current_stream_capturing()
        for at, one in enumerate(parts):
            known = copies[at]
            is_new = is_whole and not any(_is_view(one, other) for other in within)
            if (is_new or one.numel() == 1) and not is_capturing:  # the job may read it, or send it to another rank
                one.data.copy_(known)
            if _is_small(one) and not known.is_cuda:
                self._keep(one, known)
        return answer

    def _select(self, act: Any) -> Any:
        @functools.wraps(act)
        def select(*arguments: Any, **named: Any) -> Any:
            copies = (
                [] if self._is_compiling() else [self.copy_of(one) for one in flat(arguments) if self._is_mask(one)]
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

    def copy_of(self, tensor: Any) -> Any:
        """The host's copy of a tensor on the card, a tensor of the host itself; None where there is none."""
        if not tensor.is_cuda:
            return tensor
        version, copy = getattr(tensor, COPY, (None, None))
        return copy if copy is not None and version == _version(tensor) else None

    def write(self, tensor: Any, numbers: Any) -> None:
        """Let a tensor on the card hold these numbers of the host."""
        if not self._torch.cuda.is_current_stream_capturing():
            tensor.copy_(numbers)
            self._keep(tensor, numbers)

    def _keep(self, tensor: Any, copy: Any) -> None:
        if not tensor.requires_grad:
            setattr(tensor, COPY, (_version(tensor), copy))

    def _on_host(self, argument: Any, is_brought: bool) -> Any:
        """An argument with copies in place of the card's tensors; KeyError where one has none.

        Args:
            argument: of a call, or several.
            is_brought: whether what has no copy is read from the card, where the host had written all of it.
        """
        if type(argument) in (list, tuple):
            return type(argument)(self._on_host(one, is_brought) for one in argument)
        if type(argument) is not self._kind:
            return argument
        copy, is_known = self.copy_of(argument), True
        if copy is None and is_brought:
            copy, is_known = self._reads.bring(argument.cpu)
        if copy is None or not is_known:
            raise KeyError
        return copy

    def _is_on_card(self, one: Any) -> bool:
        return type(one) is self._kind and bool(one.is_cuda)

    def _is_mask(self, one: Any) -> bool:
        return self._is_on_card(one) and "bool" in str(one.dtype)


def _is_small(tensor: Any) -> bool:
    most = MOST_FRACTIONS if tensor.is_floating_point() else MOST
    return tensor.numel() <= most and not tensor.is_complex()


def _is_view(one: Any, other: Any) -> bool:
    """Whether they are of one storage, where what is known lies already."""
    return bool(one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr())


def _version(tensor: Any) -> int:
    return 0 if tensor.is_inference() else int(tensor._version)  # noqa: SLF001 - PyTorch's own name for it


def flat(arguments: Any) -> Any:
    """Each argument, those within lists and tuples too."""
    for argument in arguments:
        if isinstance(argument, (list, tuple)):
            yield from flat(argument)
        else:
            yield argument


CLASSES = "_vramtui_classes"  # on what `one_hot` gave: how many there are
PLACES = "_vramtui_places"  # on a mask: how many hold
_libraries: list[Any] = []  # of PyTorch, whose registrations end with them


def count_choices(torch: Any, reads: Reads, copies: HostCopies) -> None:
    """Answer what these operators of PyTorch's, and later of torchvision's, read of the card."""
    if not hasattr(torch.library, "get_kernel"):
        return
    for name, (most, known) in COUNTED.items():
        change(torch, f"aten::{name}", _count(reads, copies, most, known))
    change(torch, "aten::one_hot", _know_classes)
    for name, known in HISTOGRAMS.items():
        change(torch, f"aten::{name}", functools.partial(_share_places, reads, copies, known))
    change(torch, "aten::eq.Scalar", functools.partial(_know_places, copies))
    change(torch, "aten::any.dim", _pass_places)
    for name in CHECKED:
        change(torch, f"aten::{name}", functools.partial(_pass_checks, reads))
    when_imported(
        "torchvision.ops.boxes",
        lambda _: change(torch, "torchvision::nms", _count(reads, copies, _first_size, None)),
    )


def change(torch: Any, name: str, act: Any) -> None:
    """Let `act(kernel, keys, *arguments)` stand in the place of an operator's kernel of CUDA."""
    try:
        kernel = torch.library.get_kernel(name, "CUDA")
    except RuntimeError:  # not in this release, or no kernel of CUDA's
        return
    owner, _, rest = name.partition("::")
    library = torch.library.Library(owner, "IMPL")
    _libraries.append(library)
    with warnings.catch_warnings():  # that a kernel stood there
        warnings.simplefilter("ignore")
        library.impl(rest, functools.partial(act, kernel), "CUDA", with_keyset=True)


def _count(reads: Reads, copies: HostCopies, most: Any, known: Any) -> Any:
    """What runs a kernel whose reads are the number of places.

    Args:
        reads: the counts.
        copies: what the host sent.
        most: the arguments to as many places as there can be.
        known: a host's copy of the first argument, and the others, to how many there are; None where that is not known.
    """

    def run(kernel: Any, keys: Any, *arguments: Any, **named: Any) -> Any:
        if reads.is_known_next:
            return kernel.call_boxed(keys, *arguments, **named)
        copy = copies.copy_of(arguments[0]) if known is not None else None
        if copy is None:
            reads.count_here()
        reads.know_next([most(*arguments, **named) if copy is None else known(copy, *arguments[1:], **named)])
        try:
            return kernel.call_boxed(keys, *arguments, **named)
        finally:
            reads.know_next([])

    return run


def _pass_checks(reads: Reads, kernel: Any, keys: Any, *arguments: Any, **named: Any) -> Any:
    """Let a kernel's checks of its arguments hold: each reads one byte."""
    reads.know_next([0])
    try:
        return kernel.call_boxed(keys, *arguments, **named)
    finally:
        reads.know_next([])


def _all(tensor: Any, *_: Any, **_named: Any) -> int:
    return int(tensor.numel())


def _likely(tensor: Any) -> int:
    """All places, or what the operators below know of a mask: its share of a class, or what was compared."""
    base = None if tensor.is_inference() else tensor._base  # noqa: SLF001 - PyTorch's own name for it
    classes = getattr(tensor if base is None else base, CLASSES, 1)
    return int(getattr(tensor, PLACES, -(-tensor.numel() // classes)))


def _know_classes(kernel: Any, keys: Any, *arguments: Any, **named: Any) -> Any:
    """`one_hot`: each class has its share, as tokens have of a router's experts."""
    answer = kernel.call_boxed(keys, *arguments, **named)
    setattr(answer, CLASSES, answer.shape[-1])
    return answer


def _share_places(reads: Reads, copies: HostCopies, known: Any, kernel: Any, keys: Any, *arguments: Any) -> Any:
    """`bincount`, `histc` of whole numbers: what the host knows, else as many of each class, as of `one_hot`: by these
    counts a router's experts are handed their tokens.
    """
    tensor, *others = arguments
    copy = copies.copy_of(tensor)
    if copy is not None and copy.numel():
        reads.know_next([int(copy.min()), int(copy.max())])  # in this order (native/cuda/SummaryOps.cu, 2.13)
    try:
        answer = kernel.call_boxed(keys, *arguments)
    finally:
        reads.know_next([])
    if answer.is_floating_point() or not answer.numel():  # weights, or numbers that are no classes
        return answer
    if copy is None:
        reads.count_here()
        each, more = divmod(tensor.numel(), answer.numel())
        counts = answer.new_tensor([each + (at < more) for at in range(answer.numel())], device="cpu")
    else:
        counts = known(copy, *others).to(answer.dtype)
    copies.write(answer, counts)
    return answer


def _know_places(copies: HostCopies, kernel: Any, keys: Any, tensor: Any, other: Any) -> Any:
    """`classes == number`, of classes that were computed: zeros are all of class 0, and each other class has one."""
    answer = kernel.call_boxed(keys, tensor, other)
    if "int" in str(tensor.dtype) and copies.copy_of(tensor) is None:
        setattr(answer, PLACES, answer.numel() if other == 0 else min(answer.numel(), 1))
    return answer


def _pass_places(kernel: Any, keys: Any, tensor: Any, *arguments: Any, **named: Any) -> Any:
    answer = kernel.call_boxed(keys, tensor, *arguments, **named)
    if hasattr(tensor, PLACES):
        setattr(answer, PLACES, min(answer.numel(), getattr(tensor, PLACES)))
    return answer


def _first_size(tensor: Any, *_: Any, **_named: Any) -> int:
    return int(tensor.shape[0])


def _along(tensor: Any, dim: int, *_: Any, **_named: Any) -> int:
    return int(tensor.shape[dim])


COUNTED = {
    "nonzero": (_likely, lambda copy: int(copy.count_nonzero())),
    "_unique": (_all, lambda copy, *_, **_named: len(copy.unique())),
    "_unique2": (_all, lambda copy, *_, **_named: len(copy.unique())),
    "unique_consecutive": (_all, None),
    "unique_dim": (_along, lambda copy, dim, *_, **_named: copy.unique(dim=dim).shape[dim]),
    "unique_dim_consecutive": (_along, None),
    "repeat_interleave.Tensor": (_all, lambda copy, **_: int(copy.sum())),
}
HISTOGRAMS = {
    "bincount": lambda copy, _=None, least=0: copy.bincount(minlength=least),
    "histc": lambda copy, *others: copy.double().histc(*others),
}
# Those that refuse a negative standard deviation.
CHECKED = ("normal.Tensor_Tensor", "normal.float_Tensor")
