"""Unknown settings of a running job, and how far they can move its estimate: a guess is a range, never a prediction.

A setting is known where the command line, the job's file, the probe, its launcher or a person says it. What is left is
assumed. `range_of` estimates the least and the most that the assumed settings leave; only where both are near the
estimate itself is that compared with an observation.
"""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from vramtui.core.base.units import format_bytes
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import USUAL_ERROR, Estimate
from vramtui.core.schema.models import DiffusionTransformerModel, PipelineModel, TransformerModel, UNetModel
from vramtui.core.schema.preset import PresetFile
from vramtui.core.schema.workload import DIFFUSERS_MODULES, InferRun, Lora, TrainRun, Workload

Ask = Callable[[Workload, Device], Estimate | None]

# By how much of its total what is assumed may move an estimate that is still compared with an observation.
MOST_MOVED = 0.2
MOST_RANGE = 3  # the highest value over the lowest: a wider range says nothing
# What jobs have that say nothing: the range goes from the first to the second, or to the preset's own where that is
# further out; of sequences to the model's own length.
BATCHES, SEQUENCES = (1, 8), (512, 4096)
# What peft's LoraConfig has where nothing is said: rank 8, and of the usual decoders these layers
# (peft/tuners/lora/config.py and peft/utils/constants.py, 0.17).
USUAL_RANK, USUAL_MODULES = 8, ("q_proj", "v_proj")
DIFFUSERS_RANK = 4  # of its LoRA scripts, as train_dreambooth_lora_sdxl.py (58eb52c0, 2026-08-23)
_DOING = {"train": "training", "infer": "generation", "serve": "serving"}
_WORDS = {
    "model": "model (by its name)", "run.kind": "training or generation", "run.batch_size": "batch",
    "run.sequence_length": "sequence", "run.max_model_len": "context", "run.precision": "precision",
    "run.lora": "LoRA", "run.lora.rank": "rank", "run.lora.target_modules": "layers with adapters",
    "run.checkpointing": "checkpointing",
}  # fmt: skip


class Range(msgspec.Struct, frozen=True, kw_only=True):
    """The memory that a job may need by all that is known of it.

    Attributes:
        doing: `training`, `generation` or `serving`; both of the first two if unknown.
        assumed: keys of the settings that are not known.
        estimate: bytes of the process with the assumed values as the preset has them.
        lowest: bytes of the process with the least that the assumed settings leave.
        highest: with the most.
        weights: least and most bytes of the model's weights; None if no part of the estimate is that.
        total: bytes of the card.
    """

    doing: str
    assumed: tuple[str, ...]
    estimate: int
    lowest: int
    highest: int
    weights: tuple[int, int] | None
    total: int

    @property
    def is_prediction(self) -> bool:
        """Return whether the assumed settings move the total so little that the estimate can be compared."""
        near = (1 - MOST_MOVED) * self.estimate <= self.lowest and self.highest <= (1 + MOST_MOVED) * self.estimate
        return near and self.estimate <= self.total

    @property
    def may_alert(self) -> bool:
        """Return whether a job that holds more than the estimate holds more than what is assumed can explain."""
        return self.is_prediction and self.highest <= (1 + USUAL_ERROR) * self.estimate

    def is_refuted_by(self, observed: int) -> bool:
        """Return whether so many bytes are beyond the range. If the assumed settings move the estimate by less than its
        stated error, that is an alert instead.
        """
        return not self.may_alert and observed > (1 + USUAL_ERROR) * self.highest

    @property
    def is_answer(self) -> bool:
        """Return whether the range is narrow enough to tell anything."""
        return self.highest <= MOST_RANGE * self.lowest

    @property
    def sentence(self) -> str:
        """`training 25 to 44 GiB: LoRA is not on the command line`; of a wider range only why it is unknown."""
        moving = [key for key in self.assumed if key != "model"]
        why = f"{words_of(moving)} {'is' if len(moving) == 1 else 'are'} not on the command line"
        if not self.is_answer:
            return f"cannot be predicted: {why}"
        return f"{self.doing} {spanned(_gib(self.lowest), _gib(self.highest))}: {why}"

    def place_of(self, observed: int) -> str:
        if self.is_refuted_by(observed):
            return "above the range: another model, or another way to run it"
        return "below the range so far" if observed < self.lowest else "within the range"


def range_of(preset_file: PresetFile, device: Device, ask: Ask) -> Range | None:
    """The range of `preset_file`, matched to a job on `device`; None if nothing is assumed, or it cannot be estimated.

    Args:
        preset_file: the preset with what is known of the job.
        device: the card that it runs on.
        ask: estimates a workload; None for one that cannot be.
    """
    if not preset_file.assumed:
        return None
    workload = preset_file.preset.workload
    point = ask(workload, device)
    if point is None:
        return None
    corners = (_corner(workload, preset_file.assumed, device, ask, moved) for moved in (_least, _most))
    low, high = (one or (workload, point) for one in corners)
    kind = workload.run.__struct_config__.tag
    weights = [size for size in (low[1].ledger.weights, high[1].ledger.weights) if size]
    return Range(
        doing="generation or training" if "run.kind" in preset_file.assumed else _DOING[str(kind)],
        assumed=preset_file.assumed,
        estimate=point.process,
        lowest=min(low[1].process, point.process),
        highest=max(high[1].process, point.process),
        weights=(min(weights), max(weights)) if weights else None,
        total=device.total_memory,
    )


def spanned(low: str, high: str) -> str:
    """Two sizes as `25 to 44 GiB`; equal ones as one."""
    number, _, unit = low.rpartition(" ")
    return high if low == high else f"{number if high.endswith(f' {unit}') else low} to {high}"


def words_of(keys: Iterable[str]) -> str:
    """Settings in words: `batch, sequence and LoRA`."""
    words = [_WORDS.get(key, key.rpartition(".")[2].replace("_", " ")) for key in keys]
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def values_of(preset_file: PresetFile) -> tuple[str, ...]:
    """The assumed settings of a job, each with its value: `sequence 2048`, `no LoRA`."""
    return tuple(_value(key, preset_file.preset.workload) for key in preset_file.assumed)


def settings_of(preset_file: PresetFile) -> tuple[str, ...]:
    """The assumed settings, the choice of the model left out."""
    return tuple(_value(key, preset_file.preset.workload) for key in preset_file.assumed if key != "model")


def with_usual_adapters(workload: Workload) -> Workload:
    """`workload` with peft's or diffusers' usual adapters; as it is where its layers have other names."""
    model, run = workload.model, workload.run
    if isinstance(model, UNetModel | DiffusionTransformerModel | PipelineModel):
        lora = Lora(rank=DIFFUSERS_RANK, target_modules=DIFFUSERS_MODULES)
    elif isinstance(model, TransformerModel) and model.kv_lora_rank is None:
        lora = Lora(rank=USUAL_RANK, target_modules=("qkv_proj",) if model.fused_qkv else USUAL_MODULES)
    else:
        return workload
    adapted = msgspec.structs.replace(run, lora=lora) if isinstance(run, TrainRun) else run
    return msgspec.structs.replace(workload, run=adapted)


def _value(key: str, workload: Workload) -> str:
    run: Any = workload.run
    if key == "model":
        return _WORDS[key]
    if key == "run.kind":
        return _DOING[str(run.__struct_config__.tag)]
    if key == "run.lora":
        return "no LoRA" if getattr(run, "lora", None) is None else f"LoRA of rank {run.lora.rank}"
    if key == "run.lora.target_modules":
        return f"adapters on {', '.join(run.lora.target_modules)}"
    value: Any = run
    for name in key.split(".")[1:]:
        value = getattr(value, name, None)
    return f"the server's own {_WORDS.get(key, key)}" if value is None else f"{_WORDS.get(key, key)} {value}"


def _corner(
    workload: Workload, keys: tuple[str, ...], device: Device, ask: Ask, moved: "Callable[[Workload, str], Workload]"
) -> tuple[Workload, Estimate] | None:
    """The workload with all of `keys` moved one way, and its estimate; without those that cannot be moved together."""
    every = workload
    for key in keys:
        every = moved(every, key)
    estimate = ask(every, device)
    if estimate is not None:
        return every, estimate
    best: tuple[Workload, Estimate] | None = None
    for key in keys:
        tried = moved(workload if best is None else best[0], key)
        one = ask(tried, device)
        best = best if one is None else (tried, one)
    return best


def _least(workload: Workload, key: str) -> Workload:
    """`workload` with the least that one setting may be."""
    run: Any = workload.run
    if key == "run.lora":
        return workload if getattr(run, "lora", None) else with_usual_adapters(workload)
    own: Any = getattr(run, key.removeprefix("run."), None)
    if key == "run.batch_size":
        return _with(workload, batch_size=BATCHES[0])
    if key == "run.max_model_len":  # of earlier releases of llama.cpp and Ollama; newer ones follow the GPU
        return _with(workload, max_model_len=SEQUENCES[1])
    if key == "run.sequence_length" and own is not None:
        return _with(workload, sequence_length=min(own, SEQUENCES[0]))
    if key == "run.precision":
        return workload if run.precision in ("bf16", "fp16") else _with(workload, precision="bf16")
    return _with(workload, checkpointing="full") if key == "run.checkpointing" else workload


def _most(workload: Workload, key: str) -> Workload:
    """`workload` with the most that one setting may be."""
    run: Any = workload.run
    own: Any = getattr(run, key.removeprefix("run."), None)
    if key == "run.kind" and isinstance(run, InferRun):
        trains = TrainRun(batch_size=run.batch_size, sequence_length=run.sequence_length)
        return msgspec.structs.replace(workload, run=trains)
    if key == "run.batch_size":
        return _with(workload, batch_size=max(own, BATCHES[1]))
    if key == "run.sequence_length" and own is not None:
        longest = getattr(workload.model, "max_position_embeddings", None) or SEQUENCES[1]
        return _with(workload, sequence_length=max(own, min(longest, SEQUENCES[1])))
    if key == "run.max_model_len":
        return _with(workload, max_model_len=None)
    values: dict[str, dict[str, Any]] = {
        "run.lora": {"lora": None, "quantization": None},
        "run.checkpointing": {"checkpointing": "none"},
    }
    if getattr(run, "quantization", None) is None:
        values["run.precision"] = {"precision": "fp32"}
    return _with(workload, **values.get(key, {}))


def _with(workload: Workload, **values: Any) -> Workload:  # noqa: ANN401 - values of any field of a run
    run: Any = msgspec.structs.replace(workload.run, **values)
    return msgspec.structs.replace(workload, run=run)


def _gib(size: int) -> str:
    """A size in whole GiB, where it is that much."""
    text = format_bytes(size)
    number, _, unit = text.partition(" ")
    return f"{float(number):.0f} {unit}" if float(number) >= 10 else text
