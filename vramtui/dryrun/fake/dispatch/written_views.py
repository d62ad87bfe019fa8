"""Views that were written into, and the memory that their gradients take on a card; writes that autograd counts.

After a write into a view autograd gives the view another node than the one that made it (`VariableHooks::grad_fn`,
torch/csrc/autograd/variable.cpp, PyTorch 2.13): `as_strided`, whose backward lays the gradient into zeros of the base's
size (`as_strided_backward`, torch/csrc/autograd/FunctionsManual.cpp). For tensors that Python dispatches, as fake ones
are, it runs the view's own function over again, whose backward is a view and takes nothing.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from vramtui.dryrun.fake.accounting.memory import SimulatedMemory
from vramtui.dryrun.fake.dispatch.accumulation import Accumulation
from vramtui.dryrun.fake.kernels.registry import by_operator

_NEW_ZEROS = torch.ops.aten.new_zeros.default
_WRITE = "torch::autograd::CopySlices"  # autograd's name for the node of a write into a view
# Of the operators on lists of tensors those that leave their counts of writes as they are, as all fused optimizers do:
# each was asked of PyTorch 2.13's CUDA build.
_UNCOUNTED = ("_foreach_zero_", "_foreach_lerp_.Scalar")


class WrittenViews:
    """Knows of each write its view's shape, by the number that autograd gives to the node of that write."""

    def __init__(self, memory: SimulatedMemory, accumulation: Accumulation) -> None:
        self._memory = memory
        self._accumulation = accumulation
        self._shapes: dict[int, torch.Size] = {}

    def note(self, func: Any, args: tuple[Any, ...]) -> None:
        """An operator runs whose graph is kept: remember the view that it writes into."""
        if func._schema.is_mutable and args and isinstance(args[0], torch.Tensor) and args[0]._is_view():
            self._shapes[torch._C._autograd._get_sequence_nr()] = args[0].shape

    def find(self, func: Any, args: tuple[Any, ...]) -> Callable[..., torch.Tensor] | None:
        """What lays a view into zeros that is the gradient of one that was written into; None of any other."""
        if not self._is_gradient(func, args):
            return None
        return partial(self._lay, args[0], self._accumulation.is_viewed_alone(func, args[0]))

    def _lay(self, gradient: torch.Tensor, alone: bool, view: torch.Tensor, dispatch: Any) -> torch.Tensor:
        """The view's values in zeros of the base's size. Autograd takes what is returned for a view of `gradient`, and
        keeps that as long: where nobody else holds it, its memory moves.
        """
        if alone and self._memory.lay_anew(gradient):
            return view
        laid: torch.Tensor = dispatch(_NEW_ZEROS, (view, list(view.shape)), {})
        return laid

    def _is_gradient(self, func: Any, args: tuple[Any, ...]) -> bool:
        """Whether a view that is being made goes back from one that was written into, to its base."""
        if not func.is_view or not self._shapes:
            return False
        node: Any = torch._C._current_autograd_node()
        if node is None or len(node.next_functions) != 1:
            return False
        write = node.next_functions[0][0]
        if write is None or write.name() != _WRITE:
            return False
        return bool(self._shapes.get(write._sequence_nr()) == args[0].shape)


def count_writes(func: Any, args: tuple[Any, ...]) -> None:
    """Count a write to each tensor of a list, as the card's kernels do; by it autograd knows that what it saved for the
    backward pass has been written into since.
    """
    if _counts_writes(func):
        torch.autograd.graph.increment_version(args[0])


@by_operator
def _counts_writes(func: Any) -> bool:
    name = str(func).removeprefix("aten.")
    return name.startswith("_foreach_") and func._schema.is_mutable and not name.startswith(_UNCOUNTED)
