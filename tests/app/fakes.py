"""Stand-ins for what the dashboard is given: an estimator with round figures, presets, a source of made samples."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from textual.notifications import Notification, SeverityLevel

from vramtui.app.app import Dashboard
from vramtui.app.services import StartOptions
from vramtui.core.base.errors import UserError
from vramtui.core.base.units import GIB, MIB
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate, Part, ledger_from_parts
from vramtui.core.observation.matcher import Candidate
from vramtui.core.observation.readings import Source
from vramtui.core.schema.models import TransformerModel
from vramtui.core.schema.preset import Match, Preset, PresetFile
from vramtui.core.schema.workload import InferRun, Lora, TrainRun, Workload
from vramtui.monitor.jobs import Presets
from vramtui.monitor.poller import Poller

FOR_EVER = 1e6  # seconds


class RoundEstimator:
    """15 GiB of weights, some adapters, and activations of a gigabyte for every 1024 tokens of the batch."""

    name = "analytic"

    def __init__(self) -> None:
        self.asked = 0

    def estimate(self, workload: Workload, device: Device) -> Estimate:
        del device
        self.asked += 1
        run = workload.run
        assert isinstance(run, TrainRun | InferRun)
        if run.sequence_length == 1536:
            raise UserError("model.max_position_embeddings = 1024 is shorter than run.sequence_length = 1536")
        trains = isinstance(run, TrainRun)
        tokens = run.batch_size * (run.sequence_length or 1024)
        ledger = ledger_from_parts(
            {
                "weights": 15 * GIB,
                "gradients": 320 * MIB if trains else 0,
                "optimizer": 640 * MIB if trains else 0,
                "activations": tokens * (11 * MIB // 4) if trains else 0,
                "kv_cache": 0 if trains else tokens * MIB,
                "workspaces": 32 * MIB,
            },
            reserved=16 * GIB + tokens * (11 * MIB // 4 if trains else MIB) + 512 * MIB,
            context=524 * MIB,
        )
        part = Part(
            name="all",
            line="weights",
            bytes=0,
            at_peak=0,
            formula="round figures",
            source="this test",
            lifetime="always",
        )
        return Estimate(
            method=self.name,
            parts=(part,),
            ledger=ledger,
            peak_phase="step" if trains else "decode",
            peak_step=0 if trains else None,
        )


MODEL = TransformerModel(hidden_size=4096, num_hidden_layers=32, num_attention_heads=32, vocab_size=128256)
LORA = Lora(rank=16, target_modules=("q_proj", "k_proj", "v_proj"))
PRESETS = (
    PresetFile(
        key="llama-3.1-8b-lora",
        path="presets/llama/llama-3.1-8b-lora.toml",
        bundled=True,
        preset=Preset(
            name="Llama 3.1 8B · LoRA",
            notes="QKV adapters, one card.",
            model=MODEL,
            run=TrainRun(batch_size=4, sequence_length=4096, lora=LORA),
            match=Match(all=(("train.py",), ("Llama-3.1-8B",), ("--lora",))),
        ),
    ),
    PresetFile(
        key="qwen2.5-7b-serve",
        path="presets/qwen/qwen2.5-7b-serve.toml",
        bundled=True,
        preset=Preset(
            name="Qwen 2.5 7B · inference",
            notes="Sixteen sequences [at once].",
            model=MODEL,
            run=InferRun(batch_size=16, sequence_length=1024),
        ),
    ),
)


class FixedPresets(dict[str, PresetFile]):
    def __init__(self, presets: Sequence[PresetFile] = PRESETS) -> None:
        super().__init__((found.key, found) for found in presets)
        self.problems = ()

    def find(self, key: str) -> PresetFile | None:
        return self.get(key)

    def candidates(self) -> tuple[Candidate, ...]:
        return tuple(Candidate(key, one.bundled, one.preset.match) for key, one in self.items() if one.preset.match)


class Unstarted(Poller):
    def start(self) -> None:
        """There is nothing to read."""


class Announcing(Dashboard):
    """A dashboard of which a test can read what it said.

    Attributes:
        announced: every notice since they were cleared, in its order.
    """

    def __init__(self, source: Source, presets: Presets, **given: Any) -> None:
        self.announced: list[Notification] = []
        names = {field.name for field in fields(StartOptions)} & given.keys()
        start = StartOptions(**{name: given.pop(name) for name in names if given[name] is not None})
        super().__init__(source, presets, start=start, **{n: value for n, value in given.items() if n not in names})

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = True,
    ) -> None:
        del timeout
        self.announced.append(Notification(message, title, severity, FOR_EVER, markup=markup))
        super().notify(message, title=title, severity=severity, timeout=FOR_EVER, markup=markup)

    def clear_notifications(self) -> None:
        self.announced.clear()
        super().clear_notifications()


class Still(Announcing):
    def __init__(self, source: Source, presets: Presets, **given: Any) -> None:
        super().__init__(source, presets, **given)
        self.poller = Unstarted(source, 1.0, lambda _result: None)
