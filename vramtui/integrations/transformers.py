"""A callback for transformers' Trainer: `VramCallback(sequence_length=2048).attach(trainer)`."""

from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from vramtui.integrations.guard import MemoryGuard, OnOverflow, precision_of
from vramtui.presets.importers.flags import OPTIMIZERS


class VramCallback(TrainerCallback):  # type: ignore[misc] # its types are not read: pyproject.toml
    """Predicts at the start from the arguments, warns or stops before the first step, and adds `vram/predicted`,
    `vram/observed` and `vram/error` to what the Trainer logs. Handed over in `callbacks=[…]` it stands behind those
    that send the logs away (W&B, MLflow, TensorBoard); `attach` puts it before them.

    Args:
        on_overflow: "warn", "stop" (OutOfMemoryPredicted before the first step) or "ignore".
        room: the card's memory in bytes; the current CUDA device's by default.
        predict: False logs what was observed and predicts nothing.
        settings: what the arguments do not say, such as `sequence_length`; keys of a preset's `[run]`.
    """

    def __init__(
        self, on_overflow: OnOverflow = "warn", room: int | None = None, *, predict: bool = True, **settings: object
    ) -> None:
        self.guard = MemoryGuard(on_overflow, room, predict=predict, **settings)

    def attach(self, trainer: Any) -> None:
        """Take part in `trainer`'s training, before all other callbacks."""
        trainer.callback_handler.callbacks.insert(0, self)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any
    ) -> None:
        """Predict the run before its first step."""
        del state, control
        self.guard.predict(others["model"], self._run(args, others["model"]))

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **_others: Any,
    ) -> None:
        del args, control
        figures = self.guard.figures()
        if logs is not None:
            logs.update(figures)
        if state.log_history:
            state.log_history[-1].update(figures)

    @staticmethod
    def _run(args: TrainingArguments, model: Any) -> dict[str, object]:
        known: dict[str, object] = {
            "batch_size": args.per_device_train_batch_size,
            "gradient_accumulation_steps": args.gradient_accumulation_steps,
            "precision": precision_of(model, bf16=bool(args.bf16), fp16=bool(args.fp16)),
            "checkpointing": "full" if args.gradient_checkpointing else "none",
            "max_grad_norm": args.max_grad_norm or None,
            "attention": {"eager": "eager"}.get(getattr(model.config, "_attn_implementation", ""), "flash"),
        }
        optimizer = str(getattr(args.optim, "value", args.optim)).lower()
        if optimizer in OPTIMIZERS:
            known["optimizer"] = OPTIMIZERS[optimizer]
            known["optimizer_implementation"] = "fused" if optimizer.endswith("_fused") else "foreach"
        return known
