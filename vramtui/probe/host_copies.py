"""Numbers of tensors on an emulated card that the host knows, and how many places an operator takes by them.

A copy goes with its tensor and the views of it, and is believed until something else is written into them.

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

from .guards import ANSWERED
from .import_hook import when_imported
from .reads import Reads

MOST = 1 << 20  # numbers of a tensor that the host computes with
COPY = "_vramtui_copy"  # the host's, with the tensor's version at that time
FILL = "_vramtui_fill"  # the number that a tensor was filled with, with that version: a kernel may have written since


class HostCopies:
    """Those of one process, of tensors on its card."""

    def __init__(self, torch: Any, reads: Reads) -> None:
        self._torch, self._reads, self._kind = torch, reads, torch.Tensor
        self._full: Any = getattr(torch, "full", None)
        self._copy = self._kind.copy_
        self.is_compiling = is_compiling(torch)

    def copy_of(self, tensor: Any) -> Any:
        """The host's copy of a tensor on the card, a tensor of the host itself; None where there is none."""
        if not tensor.is_cuda:
            return tensor
        copy = self.own_copy(tensor)
        if copy is not None:
            return copy
        root = root_of(tensor)
        copy = None if root is tensor else self.own_copy(root)
        try:
            return None if copy is None else part_of(tensor, root, copy)
        except (RuntimeError, ValueError):
            return None

    def own_copy(self, tensor: Any) -> Any:
        """The copy that a tensor was given itself; None where that is not what it holds any more."""
        version, copy = getattr(tensor, COPY, (None, None))
        return copy if copy is not None and version == version_of(tensor) else None

    def fill_of(self, tensor: Any) -> Any:
        """The number that all of a tensor was filled with; None where something was written since."""
        version, number = getattr(tensor, FILL, (None, None))
        return number if version == version_of(tensor) else None

    def filled(self, shape: Any, number: Any, dtype: Any) -> Any:
        """A tensor of the host that holds one number."""
        return self._full(shape, number, dtype=dtype, device="cpu")

    def send(self, tensor: Any, numbers: Any) -> None:
        """Copy to the card, without another word."""
        self._copy(tensor, numbers)

    def write(self, tensor: Any, numbers: Any) -> None:
        """Let a tensor on the card hold these numbers of the host."""
        if not self._torch.cuda.is_current_stream_capturing():
            self._copy(tensor, numbers)
            self.keep(tensor, numbers)

    def keep(self, tensor: Any, copy: Any) -> None:
        """Let a tensor have this copy, as it is now."""
        if not tensor.requires_grad:
            setattr(tensor, COPY, (version_of(tensor), copy))
            tensor.__dict__.pop(ANSWERED, None)

    def hand_over(self, tensor: Any) -> None:
        """Put what is known of a tensor on the card, where something else may be written now."""
        copy = self.copy_of(tensor)
        if copy is not None and self.is_free():
            self.send(tensor.data, copy)
        for one in (tensor, root_of(tensor)):
            one.__dict__.pop(COPY, None)
            one.__dict__.pop(FILL, None)

    def on_host(self, argument: Any, *, is_brought: bool = False) -> Any:
        """Arguments of a call with copies in place of the card's tensors; KeyError where one has none, or where all
        were only filled: what is known of these is what a kernel may have changed.

        Args:
            argument: several, in tuples, lists and dictionaries.
            is_brought: whether what has no copy is read from the card, where the host had written all of it.
        """
        fills = 0
        others = 0

        def bring(one: Any) -> Any:
            nonlocal fills, others
            if type(one) in (list, tuple):
                return type(one)(map(bring, one))
            if type(one) is dict:
                return {name: bring(each) for name, each in one.items()}
            if type(one) is not self._kind:
                return one
            copy = self.copy_of(one)
            if copy is None and is_brought:
                copy, is_known = self._reads.bring(one.cpu)
                copy = copy if is_known else None
            if copy is None:
                fill = self.fill_of(root_of(one))
                if fill is None:
                    raise KeyError
                fills += 1
                return self.filled((), fill, one.dtype).expand(one.shape)
            others += 1
            return copy

        brought = bring(argument)
        if fills and not others:
            raise KeyError
        return brought

    def is_on_card(self, one: Any) -> bool:
        """Whether it is a plain tensor of the card."""
        return type(one) is self._kind and bool(one.is_cuda)

    def is_free(self) -> bool:
        """Whether what the host computes now holds afterwards, and is nobody else's: no graph replays it."""
        return not self.is_compiling() and not self._torch.cuda.is_current_stream_capturing()


def is_compiling(torch: Any) -> Any:
    """What tells whether code is being compiled, or written down by `make_fx`: what the host computed beside it, and
    copied to the card, would stand in the graph (get_proxy_mode, torch/fx/experimental/proxy_tensor.py, 2.13).
    """
    is_dynamo = torch.compiler.is_compiling
    kinds = getattr(getattr(torch, "_C", None), "_TorchDispatchModeKey", None)
    if kinds is None:
        return is_dynamo
    mode_of = torch._C._get_dispatch_mode  # noqa: SLF001 - PyTorch's own name for it
    earlier_of = torch._ops._get_dispatch_mode_pre_dispatch  # noqa: SLF001 - as above

    def ask() -> bool:
        return bool(is_dynamo() or mode_of(kinds.PROXY) is not None or earlier_of(kinds.PROXY) is not None)

    return ask


def root_of(tensor: Any) -> Any:
    """The tensor that it is a view of, or itself."""
    base = None if tensor.is_inference() else tensor._base  # noqa: SLF001 - PyTorch's own name for it
    return tensor if base is None else base


def part_of(tensor: Any, root: Any, copy: Any) -> Any:
    """The part of a root's copy that `tensor` is a view of; ValueError where they do not lie alike."""
    if root is tensor:
        return copy
    if copy.stride() != root.stride() or tensor.dtype is not root.dtype:
        raise ValueError
    offset = copy.storage_offset() + tensor.storage_offset() - root.storage_offset()
    return copy.as_strided(tensor.shape, tensor.stride(), offset)


def is_small(tensor: Any) -> bool:
    return tensor.numel() <= MOST and not tensor.is_complex()


def version_of(tensor: Any) -> int:
    return 0 if tensor.is_inference() else int(tensor._version)  # noqa: SLF001 - PyTorch's own name for it


CLASSES = "_vramtui_classes"  # on what `one_hot` gave: how many there are
PLACES = "_vramtui_places"  # on a mask: how many hold
_libraries: list[Any] = []  # of PyTorch, whose registrations end with them


def count_choices(torch: Any, reads: Reads, copies: HostCopies) -> None:
    """Answer what these operators of PyTorch's, and later of torchvision's, read of the card."""
    if not hasattr(torch.library, "get_kernel"):
        return
    for name, most in COUNTED.items():
        change(torch, f"aten::{name}", _count(reads, copies, most, functools.partial(_by_host, torch, name)))
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
        known: a host's copy of the first argument, and the others, to what the operator answers of them and how many
            places that are; None where that is not known.
    """

    def run(kernel: Any, keys: Any, *arguments: Any, **named: Any) -> Any:
        if reads.is_known_next:
            return kernel.call_boxed(keys, *arguments, **named)
        copy = copies.copy_of(arguments[0]) if known is not None else None
        if copy is None:
            reads.count_here(takes_all=True)
            places, numbers = most(*arguments, **named), ()
        else:
            places, numbers = known(copy, *arguments[1:], **named)
        reads.know_next([places])
        try:
            answer = kernel.call_boxed(keys, *arguments, **named)
        finally:
            reads.know_next([])
        for at, one in enumerate(answer if isinstance(answer, tuple) else (answer,)):
            if at < len(numbers):
                copies.write(one, numbers[at])
        return answer

    return run


def _by_host(torch: Any, name: str, *arguments: Any, **named: Any) -> tuple[int, tuple[Any, ...]]:
    """What an operator answers on the host, and how many places that are."""
    kind, _, overload = name.partition(".")
    answer = getattr(getattr(torch.ops.aten, kind), overload or "default")(*arguments, **named)
    answers = answer if isinstance(answer, tuple) else (answer,)
    return answers[0].shape[arguments[1] if "dim" in kind else 0], answers


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
    "nonzero": _likely,
    "_unique": _all,
    "_unique2": _all,
    "unique_consecutive": _all,
    "unique_dim": _along,
    "unique_dim_consecutive": _along,
    "repeat_interleave.Tensor": _all,
}
HISTOGRAMS = {
    "bincount": lambda copy, _=None, least=0: copy.bincount(minlength=least),
    "histc": lambda copy, *others: copy.double().histc(*others),
}
# Those that refuse a negative standard deviation.
CHECKED = ("normal.Tensor_Tensor", "normal.float_Tensor")
