"""What a job on an emulated card needs of its own torch: kernels do nothing there, so that results read as zeros, and
cuDNN does not start.
"""

import functools
import os
from typing import Any

from . import place
from .reads import Reads, read_ones


def prepare(torch: Any) -> Reads:
    """Take PyTorch's own convolutions and attention, answer checks of results as in a healthy job, count reads."""
    torch.backends.cudnn.enabled = False
    choose = getattr(torch.backends.cuda, "enable_cudnn_sdp", None)
    if choose is not None:
        choose(False)
    asked_by_distributions = "_is_all_true"
    if hasattr(torch, asked_by_distributions):
        setattr(torch, asked_by_distributions, _true_on_card(torch, getattr(torch, asked_by_distributions)))
    for owner in (torch.Tensor, torch):
        owner.all = _true_on_card(torch, owner.all)
        owner.allclose = _holds_on_card(owner.allclose)
        owner.equal = _holds_on_card(owner.equal)
    _know_objects(torch)
    reads = Reads(torch)
    if os.environ.get(place.VALUES) == "ones":
        read_ones(torch, reads)
    reads.begin()
    return reads


OBJECTS = (
    "all_gather_object",
    "broadcast_object_list",
    "gather_object",
    "recv_object_list",
    "scatter_object_list",
    "send_object_list",
)


def _know_objects(torch: Any) -> None:
    """Compute by the host with sizes and bytes of the objects that ranks send each other: they are known."""
    if not torch.distributed.is_available():
        return
    from torch.distributed import distributed_c10d
    from torch.overrides import TorchFunctionMode

    class ByHost(TorchFunctionMode):
        """What is computed of whole numbers on the card is computed by the host as well, and written there."""

        def __torch_function__(self, call: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
            named = named or {}
            is_sent = getattr(call, "__module__", None) == distributed_c10d.__name__
            if is_sent or not any(type(one) is torch.Tensor and one.is_cuda for one in _flat(arguments)):
                return call(*arguments, **named)
            known = call(*_on_host(torch, arguments), **named)
            answer = call(*arguments, **named)
            if type(answer) is torch.Tensor and answer.is_cuda:
                answer.copy_(known)
            return answer

    for name in OBJECTS:
        act = getattr(distributed_c10d, name, None)
        if act is not None:
            known = _within(ByHost, act)
            setattr(distributed_c10d, name, known)
            setattr(torch.distributed, name, known)


def _within(mode: Any, act: Any) -> Any:
    @functools.wraps(act)
    def acted(*arguments: Any, **named: Any) -> Any:
        with mode():
            return act(*arguments, **named)

    return acted


def _flat(arguments: Any) -> Any:
    for one in arguments:
        if isinstance(one, (list, tuple)):
            yield from _flat(one)
        else:
            yield one


def _on_host(torch: Any, arguments: Any) -> Any:
    """The arguments with copies of what lies on the card."""
    return [
        _on_host(torch, one)
        if isinstance(one, (list, tuple))
        else one.cpu()
        if type(one) is torch.Tensor and one.is_cuda
        else one
        for one in arguments
    ]


def _true_on_card(torch: Any, check: Any) -> Any:
    """`all` whose answer is true where it was computed on the card; what `any` asks reads as zero, which is false."""
    true = torch.ones((), dtype=torch.bool)
    is_compiling = torch.compiler.is_compiling

    @functools.wraps(check)
    def checked(*arguments: Any, **named: Any) -> Any:
        answer = check(*arguments, **named)
        if not is_compiling() and type(answer) is torch.Tensor and answer.is_cuda and answer.dtype is torch.bool:
            with torch.no_grad():
                answer.copy_(true.expand(answer.shape))
        return answer

    return checked


def _holds_on_card(check: Any) -> Any:
    """A comparison that holds where both are on the card."""

    @functools.wraps(check)
    def compared(first: Any, second: Any, *arguments: Any, **named: Any) -> Any:
        held = check(first, second, *arguments, **named)
        return held or (bool(getattr(first, "is_cuda", False)) and first.shape == second.shape)

    return compared
