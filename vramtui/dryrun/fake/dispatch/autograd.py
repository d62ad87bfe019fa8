"""Gradients that autograd adds or lays in place, and views that were written into."""

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from string import digits
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from vramtui.dryrun.fake import LISTS
from vramtui.dryrun.fake.accounting.memory import SimulatedMemory
from vramtui.dryrun.fake.device.device import SIM, inside
from vramtui.dryrun.fake.kernels import operator_of
from vramtui.dryrun.fake.kernels.layers import is_dense

# What lays a gradient into zeros, and what does so for plain tensors.
_IN_PLACE = {
    id(operator_of(name)): operator_of(name.replace(".", "_.") if "." in name else f"{name}_")
    for name in LISTS["into_zeros"]
}
_LAYS_PARTS = {f"{name}Backward" for name in LISTS["lays_parts"]}
_INDEX_PUT, _ADD, _VIEW = operator_of("index_put"), operator_of("add.Tensor"), operator_of("view")
_NEW_ZEROS = operator_of("new_zeros")
# Of the operators on lists of tensors those that leave their counts of writes as they are, as all fused optimizers do:
# each was asked of PyTorch 2.13's CUDA build.
_UNCOUNTED = ("_foreach_zero_", "_foreach_lerp_.Scalar")
Counts = dict[Any, tuple[int, int]]  # of a tensor and of its storage, by the operator that it is given to


def _counts(tensor: torch.Tensor) -> tuple[int, int]:
    counted: Any = tensor
    return counted._use_count(), torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)


class _Probe(TorchDispatchMode):
    """Reads how often a sole gradient is counted while an operator on it is being dispatched."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # torch's own
        self.seen: Counts = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in {_ADD, _VIEW, _INDEX_PUT} and torch._C._current_graph_task_id() != -1:
            self.seen[func] = _counts(args[0])
        with inside():
            return func(*args, **(kwargs or {}))


def measure_sole_owner(fake: Any) -> Counts:
    """The counts of a gradient that only the engine holds, by operator; under the mode `fake`, with no memory followed.

    In a thread of its own: each counts the nodes that it makes for autograd (torch/csrc/autograd/function.h, 2.13,
    `sequence_nr`), and by these numbers goes the order in which a backward through a backward runs.
    """
    probe = _Probe()

    def measure() -> None:
        with fake, probe:
            x = torch.empty(4, device=SIM, requires_grad=True)
            h = x * 2
            (h * 3).add_(h * 5).view(2, 2).mul(2).sum().backward()
            x[torch.empty(1, device=SIM, dtype=torch.long)].sum().backward()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(measure).result()
    return probe.seen


def _is_engines() -> bool:
    """Return whether the call is autograd's own, without a graph of its own."""
    if torch._C._current_graph_task_id() == -1 or torch.is_grad_enabled():
        return False
    caller = sys._getframe(2).f_back  # past this, the method that asks, and the mode
    return caller is None or caller.f_code.co_name == "_engine_run_backward"


class Accumulation:
    """Recognises the engine's additions, and knows of each write into a view that view's shape.

    The shapes are kept by the number that autograd gives to the node of a write.
    """

    def __init__(self, memory: SimulatedMemory, sole_owner: Counts) -> None:
        self._memory, self._sole = memory, sole_owner
        self.shapes: dict[int, torch.Size] = {}

    def into(self, func: Any, args: Any) -> torch.Tensor | None:
        """The gradient that is added into, or None when this is another operator or its memory is shared."""
        if func is not _ADD or not _is_engines():
            return None
        old, new = args[0], args[1]
        is_alike = isinstance(new, torch.Tensor) and old.dtype is new.dtype and old.shape == new.shape
        return old if is_alike and is_dense(old) and _counts(old) == self._sole[_ADD] else None

    def in_place(self, func: Any, args: Any) -> Any:
        """Give what lays a gradient into zeros of the engine for a `func` that copies them; else `func`."""
        there = _IN_PLACE.get(id(func))
        if there is None or not _is_engines():
            return func
        node: Any = torch._C._current_autograd_node()
        if node is None or node.name().rstrip(digits) not in _LAYS_PARTS:
            return func
        return there if _counts(args[0]) == self._sole.get(func, self._sole[_ADD]) else func

    def find_write(self, func: Any, args: tuple[Any, ...]) -> Callable[..., torch.Tensor] | None:
        """A function that lays the gradient of a view that was written into into zeros; None for other operators."""
        if not func.is_view or not self.shapes:
            return None
        node: Any = torch._C._current_autograd_node()
        if node is None or len(node.next_functions) != 1:
            return None
        write = node.next_functions[0][0]  # from whose view the gradient goes back to the base
        is_write = write is not None and write.name() == "torch::autograd::CopySlices"
        if not is_write or self.shapes.get(write._sequence_nr()) != args[0].shape:
            return None
        gradient = args[0]
        alone = _counts(gradient) == self._sole.get(func, self._sole[_ADD])

        def lay(view: torch.Tensor, dispatch: Any) -> torch.Tensor:
            """The view's values in zeros of the base's size; if only the engine holds it, its memory moves."""
            if alone and self._memory.lay_anew(gradient):
                return view
            return dispatch(_NEW_ZEROS, (view, list(view.shape)), {})  # type: ignore[no-any-return] # a tensor

        return lay


_counts_writes: dict[int, bool] = {}  # by the operator's id, as its hash is a function in Python


def count_writes(func: Any, args: tuple[Any, ...]) -> None:
    """Count a write to each tensor of a list, by which autograd knows what was saved for backward and changed since."""
    counts = _counts_writes.get(id(func))
    if counts is None:
        name = str(func).removeprefix("aten.")
        counts = name.startswith("_foreach_") and func._schema.is_mutable and not name.startswith(_UNCOUNTED)
        _counts_writes[id(func)] = counts
    if counts:
        torch.autograd.graph.increment_version(args[0])
