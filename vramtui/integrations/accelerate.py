"""A hook for loops with accelerate: `with vram_guard(accelerator, model, batch_size=8): train()`."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from vramtui.integrations.guard import MemoryGuard, OnOverflow, precision_of


@contextmanager
def vram_guard(
    accelerator: Any,
    model: Any,
    on_overflow: OnOverflow = "warn",
    room: int | None = None,
    *,
    predict: bool = True,
    **settings: object,
) -> Iterator[MemoryGuard]:
    """Predict before the block, and log `vram/predicted`, `vram/observed` and `vram/error` with the accelerator's
    trackers when it ends; `guard.figures()` tells them at any time.

    Args:
        accelerator: the Accelerator; its mixed precision and accumulation are part of the prediction.
        model: the model before or after `prepare`.
        on_overflow: "warn", "stop" (OutOfMemoryPredicted before the block) or "ignore".
        room: the card's memory in bytes; the current CUDA device's by default.
        predict: False logs what was observed and predicts nothing.
        settings: keys of a preset's `[run]`: `batch_size`, `sequence_length`, `optimizer` …

    Raises:
        OutOfMemoryPredicted: it does not fit, and `on_overflow` is "stop".
    """
    known: dict[str, object] = {"gradient_accumulation_steps": accelerator.gradient_accumulation_steps}
    inner = accelerator.unwrap_model(model) if hasattr(model, "parameters") else model
    if hasattr(inner, "parameters"):
        mixed = accelerator.mixed_precision
        known["precision"] = precision_of(inner, bf16=mixed == "bf16", fp16=mixed == "fp16")
    guard = MemoryGuard(on_overflow, room, predict=predict, **settings)
    guard.predict(inner, known)
    yield guard
    accelerator.log(guard.figures())
