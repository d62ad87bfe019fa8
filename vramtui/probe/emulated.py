"""What a job on an emulated card needs of its own torch: kernels do nothing there, so that results read as zeros, and
cuDNN does not start.
"""

import functools
from typing import Any


def prepare(torch: Any) -> None:
    """Take PyTorch's own convolutions and attention, and answer checks of results as a healthy job would."""
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
