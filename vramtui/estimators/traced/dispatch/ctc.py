"""`ctc_loss` as torch takes it apart on a CUDA device: lengths as plain numbers, read back from the device if need be.

Fake tensors would go another way, on which lengths that stay on the CPU meet losses that do not
(ATen/native/LossCTC.cpp, ctc_loss and ctc_loss_impl).
"""

from typing import Any

import torch

from vramtui.estimators.traced.accounting.memory import SimulatedMemory
from vramtui.estimators.traced.device.patches import Patches
from vramtui.estimators.traced.dispatch import values

CUDNN_NOTE = (
    "CTC loss over targets in one row of 32-bit integers may run in cuDNN, whose workspace is not known; the plain "
    "kernel's is counted"
)
_MEAN, _SUM = 1, 2
_ARGUMENTS = ("input_lengths", "target_lengths", "blank", "reduction", "zero_infinity")
_DEFAULTS = {"blank": 0, "reduction": _MEAN, "zero_infinity": False}
_HALF = (torch.float16, torch.bfloat16)


def install(patches: Patches, memory: SimulatedMemory) -> None:
    """Steer `torch.ctc_loss`, which `CTCLoss` calls; what lies on the CPU is left to torch."""
    plain = torch.ctc_loss

    def ctc_loss(log_probs: torch.Tensor, targets: torch.Tensor, *rest: Any, **named: Any) -> Any:
        if log_probs.device.type == "cpu":
            return plain(log_probs, targets, *rest, **named)
        given = _DEFAULTS | dict(zip(_ARGUMENTS, rest, strict=False)) | named
        blank, forgiving = given["blank"], given["zero_infinity"]
        if not blank and targets.dim() == 1 and targets.dtype is torch.int32:
            memory.warn(CUDNN_NOTE)
        if log_probs.dtype in _HALF and torch.is_autocast_enabled(log_probs.device.type):
            log_probs = log_probs.float()
        alone = log_probs.dim() == 2
        batched = log_probs.unsqueeze(1) if alone else log_probs
        time, batch = batched.shape[:2]
        steps = _numbers(memory, given["input_lengths"], batch, time)
        lengths = _numbers(memory, given["target_lengths"], batch, _longest(targets, batch))
        loss: Any = torch.ops.aten._ctc_loss.default(batched, targets, steps, lengths, blank, forgiving)[0]
        if forgiving:
            loss = torch.where(loss == torch.inf, torch.zeros((), dtype=loss.dtype, device=loss.device), loss)
        if given["reduction"] == _MEAN:
            return (loss / torch.tensor(lengths, dtype=loss.dtype, device=loss.device).clamp_min(1)).mean()
        if given["reduction"] == _SUM:
            return loss.sum()
        return loss.squeeze(0) if alone else loss

    patches.set(torch, "ctc_loss", ctc_loss)


def _longest(targets: torch.Tensor, batch: int) -> int:
    """What a target can be long at most where its length is not known."""
    return targets.shape[-1] if targets.dim() == 2 else targets.numel() // max(batch, 1)


def _numbers(memory: SimulatedMemory, lengths: Any, batch: int, most: int) -> list[int]:
    """Lengths as numbers; where they follow from data, as long as they can be."""
    if not isinstance(lengths, torch.Tensor):
        return [int(length) for length in lengths]
    known = values.certain_value(memory.book, lengths)
    return [most] * batch if known is None else [int(length) for length in known.reshape(-1)]
