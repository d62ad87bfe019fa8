"""The common part of the callbacks: predict at the start, stop or warn if it does not fit, and report what was held."""

import warnings
from collections.abc import Mapping
from typing import Any, Literal

import torch

from vramtui.api.estimation import JobEstimate, estimate
from vramtui.core.base.errors import Error, UserError
from vramtui.core.base.units import format_bytes

OnOverflow = Literal["warn", "stop", "ignore"]


class OutOfMemoryPredicted(Error, RuntimeError):  # noqa: N818 - a public name, which changes within a major version only by additions
    """The job would not fit its GPU; raised before the first optimizer step."""


class MemoryGuard:
    """One process's prediction, and what PyTorch holds; bytes throughout.

    Args:
        on_overflow: what to do if the prediction is over the GPU's memory.
        room: the GPU's memory; by default that of the current CUDA device. None: nothing can overflow.
        predict: False only reports what was observed.
        settings: a run's values as in `vramtui.estimate`; they win over the trainer's arguments.
    """

    def __init__(
        self, on_overflow: OnOverflow = "warn", room: int | None = None, *, predict: bool = True, **settings: object
    ) -> None:
        self.predicted: JobEstimate | None = None
        self._predicts = predict
        self._on_overflow = on_overflow
        self._room = room
        self._settings = settings

    def predict(self, model: object, training: Mapping[str, object]) -> None:
        """Estimate the job that a trainer is about to run.

        Raises:
            OutOfMemoryPredicted: it does not fit, and `on_overflow` is "stop".
        """
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
            if self._room is None:
                self._room = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
        if not self._predicts:
            return
        try:
            settings: dict[str, Any] = {"kind": "train", **training, **self._settings}
            self.predicted = estimate(model, memory=self._room, **settings)
        except UserError as error:
            warnings.warn(f"vramtui predicts nothing for this job: {error}", stacklevel=2)
            return
        spare = self.predicted.spare
        if spare is None or spare >= 0 or self._on_overflow == "ignore":
            return
        size = format_bytes(self.predicted.process)
        sentence = f"vramtui predicts a peak of {size}, {format_bytes(-spare)} more than the card has"
        if self._on_overflow == "stop":
            raise OutOfMemoryPredicted(f"{sentence}; vramtui.fit(...) shows what would fit")
        warnings.warn(sentence, stacklevel=2)

    def figures(self) -> dict[str, float]:
        """`vram/predicted`, `vram/observed` (peaks of reserved memory, bytes), `vram/allocated` (peak of allocated
        memory, bytes) and `vram/error`, as far as known.
        """
        predicted = None if self.predicted is None else self.predicted.reserved
        known: dict[str, float | None] = {"vram/predicted": predicted}
        if torch.cuda.is_available():
            observed = known["vram/observed"] = torch.cuda.max_memory_reserved()
            known["vram/allocated"] = torch.cuda.max_memory_allocated()
            if predicted and observed:
                known["vram/error"] = predicted / observed - 1
        return {name: value for name, value in known.items() if value is not None}


def precision_of(model: Any, *, bf16: bool, fp16: bool) -> str:
    """The precision of a job by its autocast and the type of its weights."""
    dtype = next((parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()), torch.float32)
    if dtype in {torch.bfloat16, torch.float16}:
        return "bf16" if dtype == torch.bfloat16 else "fp16"
    return "bf16-mixed" if bf16 else "fp16-mixed" if fp16 else "fp32"
