"""The callbacks beside real training on the CPU: the loss stays as it is to the last bit, and figures are logged."""

import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.loaded_once import Module
from vramtui.core.base.errors import Error

pytestmark = pytest.mark.torch
torch, transformers = Module("torch"), Module("transformers")

LLAMA = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2,
    "intermediate_size": 64, "vocab_size": 50, "max_position_embeddings": 32,
}  # fmt: skip
TOKENS = [{"input_ids": [number % 50] * 16, "labels": [number % 50] * 16} for number in range(8)]


def model() -> Any:
    torch.manual_seed(7)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA))


def train(folder: Path, *callbacks: Any) -> tuple[list[float], list[dict[str, float]]]:
    sent: list[dict[str, float]] = []

    class Reporter(transformers.TrainerCallback):  # type: ignore[misc,name-defined] # transformers ships no types
        def on_log(self, *_told: Any, logs: dict[str, float], **_more: Any) -> None:
            sent.append(dict(logs))

    arguments = transformers.TrainingArguments(
        output_dir=str(folder), per_device_train_batch_size=2, max_steps=4, logging_steps=1, save_strategy="no",
        report_to=[], use_cpu=True, disable_tqdm=True, seed=1,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the libraries' own making
        trainer = transformers.Trainer(model(), arguments, train_dataset=TOKENS, callbacks=[Reporter()])
        for callback in callbacks:
            callback.attach(trainer)
        trainer.train()
    return [entry["loss"] for entry in sent if "loss" in entry], sent


def test_the_trainer_with_and_without(tmp_path: Path) -> None:
    pytest.importorskip("accelerate", reason="the Trainer needs accelerate, which is not installed")
    from vramtui.integrations.transformers import VramCallback  # noqa: PLC0415 - needs transformers

    callback = VramCallback(sequence_length=16)
    losses, history = train(tmp_path, callback)
    assert losses == train(tmp_path)[0]
    assert {entry["vram/predicted"] for entry in history if "loss" in entry} == {callback.guard.predicted.reserved}


def test_the_trainer_stops_before_the_first_step(tmp_path: Path) -> None:
    pytest.importorskip("accelerate", reason="the Trainer needs accelerate, which is not installed")
    from vramtui.integrations.guard import OutOfMemoryPredicted  # noqa: PLC0415 - needs torch
    from vramtui.integrations.transformers import VramCallback  # noqa: PLC0415 - needs transformers

    assert issubclass(OutOfMemoryPredicted, Error)
    with pytest.raises(OutOfMemoryPredicted, match="more than the card has"):
        train(tmp_path, VramCallback("stop", room=1 << 20, sequence_length=16))


def test_what_was_observed_is_logged_without_a_prediction(monkeypatch: pytest.MonkeyPatch) -> None:
    from vramtui.integrations.guard import MemoryGuard  # noqa: PLC0415 - needs torch

    guard = MemoryGuard("stop", room=1, predict=False)
    guard.predict(model(), {})
    assert (guard.predicted, guard.figures()) == (None, {})
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda: 20)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 10)
    assert guard.figures() == {"vram/observed": 20, "vram/allocated": 10}


def test_the_arguments_are_the_run() -> None:
    from vramtui.integrations.transformers import VramCallback  # noqa: PLC0415 - needs transformers

    arguments: Any = SimpleNamespace(
        per_device_train_batch_size=3, gradient_accumulation_steps=2, bf16=True, fp16=False,
        gradient_checkpointing=True, max_grad_norm=1.0, optim=SimpleNamespace(value="adamw_torch_fused"),
    )  # fmt: skip
    callback = VramCallback("ignore", sequence_length=16)
    nothing: Any = None
    callback.on_train_begin(arguments, nothing, nothing, model=model())
    made = callback.guard.predicted
    run = made.preset.preset.run
    assert (run.batch_size, run.precision, run.checkpointing) == (3, "bf16-mixed", "full")
    logs: dict[str, float] = {"loss": 1.0}
    state: Any = SimpleNamespace(log_history=[{"loss": 1.0}])
    callback.on_log(arguments, state, nothing, logs=logs)
    assert logs["vram/predicted"] == made.reserved


def test_lightning_with_and_without(tmp_path: Path) -> None:
    lightning = pytest.importorskip("pytorch_lightning", reason="Lightning is not installed")
    from vramtui.integrations.lightning import VramCallback  # noqa: PLC0415 - needs Lightning

    class Module(lightning.LightningModule):  # type: ignore[misc,name-defined] # it may not be installed
        def __init__(self) -> None:
            super().__init__()
            self.model = model()
            self.losses: list[float] = []

        def training_step(self, batch: Any, _number: int) -> Any:
            loss = self.model(**batch).loss
            self.losses.append(loss.item())
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters())

    def losses(*callbacks: Any) -> list[float]:
        batches = [{name: torch.tensor([value]) for name, value in entry.items()} for entry in TOKENS[:3]]
        module = Module()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the libraries' own making
            trainer = lightning.Trainer(
                max_steps=3, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
                enable_model_summary=False, default_root_dir=tmp_path, callbacks=list(callbacks),
            )  # fmt: skip
            trainer.fit(module, torch.utils.data.DataLoader(batches, batch_size=None))
        return module.losses

    callback = VramCallback(batch_size=1, sequence_length=16)
    assert losses(callback) == losses()
    assert callback.guard.predicted is not None


def test_a_model_that_is_not_known_is_a_warning() -> None:
    from vramtui.integrations.guard import MemoryGuard  # noqa: PLC0415 - needs torch

    with pytest.warns(UserWarning, match="predicts nothing for this job"):
        MemoryGuard().predict(torch.nn.Linear(1, 1), {})
