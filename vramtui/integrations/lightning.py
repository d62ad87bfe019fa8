"""A callback for Lightning: `Trainer(callbacks=[VramCallback(model, batch_size=8, sequence_length=2048)])`."""

from typing import Any

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:
    from pytorch_lightning.callbacks import Callback

from vramtui.integrations.guard import MemoryGuard, OnOverflow, precision_of


class VramCallback(Callback):  # type: ignore[misc] # Lightning's types are not looked at where it is missing
    """Predicts before the first step from the module's model and the trainer's precision, warns or stops, and logs
    `vram/predicted`, `vram/observed` and `vram/error` with every batch.

    Args:
        model: what `vramtui.estimate` takes; the LightningModule's `model` (with a Hugging Face config) by default.
        on_overflow: "warn", "stop" (OutOfMemoryPredicted before the first step) or "ignore".
        room: the card's memory in bytes; the current CUDA device's by default.
        predict: False logs what was observed and predicts nothing.
        settings: keys of a preset's `[run]`: `batch_size`, `sequence_length`, `optimizer` …
    """

    def __init__(
        self,
        model: object = None,
        on_overflow: OnOverflow = "warn",
        room: int | None = None,
        *,
        predict: bool = True,
        **settings: object,
    ) -> None:
        super().__init__()
        self.guard = MemoryGuard(on_overflow, room, predict=predict, **settings)
        self._model = model

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Predict the run before its first step."""
        words = str(trainer.precision)
        known: dict[str, object] = {
            "precision": precision_of(pl_module, bf16="bf16" in words, fp16="16" in words and "bf16" not in words),
            "gradient_accumulation_steps": trainer.accumulate_grad_batches,
            "max_grad_norm": trainer.gradient_clip_val or None,
        }
        model = self._model if self._model is not None else getattr(pl_module, "model", pl_module)
        self.guard.predict(model, known)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_others: Any) -> None:
        del trainer
        for name, value in self.guard.figures().items():
            pl_module.log(name, float(value))
