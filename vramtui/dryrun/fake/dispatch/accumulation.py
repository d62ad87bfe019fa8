"""Gradients that meet at one tensor, and those of a part: autograd writes into what nobody else holds.

For fake tensors, which count as a subclass, the engine always adds out of place; here the sum is made as it is for
plain tensors (`can_accumulate_inplace` in torch/csrc/autograd/input_buffer.cpp). So are gradients of what takes a part
of a tensor (`areAnyTensorSubclassLike` in torch/csrc/autograd/FunctionsManual.cpp, index_backward, gather_backward,
value_selecting_reduction_backward, take_backward, and index_select's line of tools/autograd/derivatives.yaml), which
lay it into zeros.
"""

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from vramtui.dryrun.fake.device.device import SIM, inside
from vramtui.dryrun.fake.kernels.matmul import is_dense

_ATEN: Any = torch.ops.aten
# What lays a gradient into zeros, and what does so for plain tensors.
_IN_PLACE = {
    id(_ATEN.index_put.default): _ATEN.index_put_.default,
    id(_ATEN.index_add.default): _ATEN.index_add_.default,
    id(_ATEN.scatter_add.default): _ATEN.scatter_add_.default,
    id(_ATEN.scatter.src): _ATEN.scatter_.src,
    id(_ATEN.put.default): _ATEN.put_.default,
    id(_ATEN.sub.Tensor): _ATEN.sub_.Tensor,
    id(_ATEN.mul.Tensor): _ATEN.mul_.Tensor,
    id(_ATEN.div.Tensor): _ATEN.div_.Tensor,
}
# The nodes of autograd that do; others copy what they write into on purpose (index_reduce_backward, `put`'s own).
_LAYS_PARTS = {
    f"{name}Backward"
    for name in (
        "Index", "IndexSelect", "Gather", "Take", "Max", "Min", "Sort", "Topk", "Kthvalue", "Cummax", "Cummin", "Mode",
        "Median", "Nanmedian", "BinaryCrossEntropyWithLogits",
    )
}  # fmt: skip
_INDEX_PUT = _ATEN.index_put.default
_ADD = torch.ops.aten.add.Tensor
_VIEW = torch.ops.aten.view.default
_NUMBER = "0123456789"  # at the end of a node's name: which of an operator's forms it is
_ENGINE = "_engine_run_backward"


class SoleOwner(NamedTuple):
    """The counts of a gradient that only the engine holds: in an operator on it, in a view that `reshape` makes of it,
    by which autograd goes back through `view`, and in the `index_put` by which it goes back through an index.
    """

    called: tuple[int, int]
    reshaped: tuple[int, int]
    indexed: tuple[int, int]


def _counts(tensor: torch.Tensor) -> tuple[int, int]:
    counted: Any = tensor
    return counted._use_count(), torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)


class _Probe(TorchDispatchMode):
    """Reads how often a sole gradient is counted while an operator on it is being dispatched."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # torch's own
        self.seen: dict[Any, tuple[int, int]] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in {_ADD, _VIEW, _INDEX_PUT} and torch._C._current_graph_task_id() != -1:
            self.seen[func] = _counts(args[0])
        with inside():
            return func(*args, **(kwargs or {}))


_PROBE: Any = _Probe


def measure_sole_owner(fake: Any) -> SoleOwner:
    """The counts of a gradient that only the engine holds; under the mode `fake`, before memory is followed.

    In a thread of its own: each counts the nodes that it makes for autograd (torch/csrc/autograd/function.h, 2.13,
    `sequence_nr`), and by these numbers goes the order in which a backward through a backward runs.
    """
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(_measure, fake).result()


def _measure(fake: Any) -> SoleOwner:
    probe: Any = _PROBE()
    with fake, probe:
        x = torch.empty(4, device=SIM, requires_grad=True)
        h = x * 2
        (h * 3).add_(h * 5).view(2, 2).mul(2).sum().backward()
        x[torch.empty(1, device=SIM, dtype=torch.long)].sum().backward()
    return SoleOwner(probe.seen[_ADD], probe.seen[_VIEW], probe.seen[_INDEX_PUT])


def _is_engines(depth: int) -> bool:
    """Whether what is dispatched is autograd's own, which nobody goes back through; its frame is `depth` away."""
    if torch._C._current_graph_task_id() == -1 or torch.is_grad_enabled():
        return False
    caller = sys._getframe(depth).f_back
    return caller is None or caller.f_code.co_name == _ENGINE


class Accumulation:
    """Recognises the engine's additions.

    Args:
        sole_owner: the counts of a gradient nobody else holds.
    """

    def __init__(self, sole_owner: SoleOwner) -> None:
        self._sole = sole_owner

    def into(self, func: Any, args: Any, depth: int) -> torch.Tensor | None:
        """The gradient that is added into, or None when this is another operator or its memory is shared.

        Args:
            func: what is dispatched.
            args: what it is given.
            depth: how many frames the caller is away from the dispatcher's.
        """
        if func is not _ADD or not _is_engines(depth + 1):
            return None
        old, new = args[0], args[1]
        if not isinstance(new, torch.Tensor) or old.dtype is not new.dtype or old.shape != new.shape:
            return None
        return old if is_dense(old) and _counts(old) == self._sole.called else None

    def in_place(self, func: Any, args: Any, depth: int) -> Any:
        """Give what lays a gradient into zeros that the engine alone holds, for a `func` that copies them; else `func`.

        Args:
            func: what is dispatched.
            args: what it is given.
            depth: how many frames the caller is away from the dispatcher's.
        """
        there = _IN_PLACE.get(id(func))
        if there is None or not _is_engines(depth + 1):
            return func
        node: Any = torch._C._current_autograd_node()
        if node is None or node.name().rstrip(_NUMBER) not in _LAYS_PARTS:
            return func
        alone = self._sole.indexed if func is _INDEX_PUT else self._sole.called
        return there if _counts(args[0]) == alone else func

    def is_viewed_alone(self, func: Any, gradient: torch.Tensor) -> bool:
        """Whether nobody but the engine holds the gradient that `func` makes a view of."""
        return _counts(gradient) == (self._sole.reshaped if func is _VIEW else self._sole.called)
