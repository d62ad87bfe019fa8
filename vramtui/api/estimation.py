"""Estimates and fits from Python, and presets from models as callers give them: names, files, tables and modules."""

import json
import os
import re
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.units import format_bytes, parse_size
from vramtui.core.estimate.devices import DEFAULT_CARD, Device, card, chosen_device, on_card, size_note
from vramtui.core.estimate.estimate import TITLES, Estimate, Ledger, Part
from vramtui.core.estimate.fits import Fit, fit_on
from vramtui.core.schema.preset import Preset, PresetFile
from vramtui.estimators.analytic import ANALYTIC
from vramtui.estimators.methods import DEFAULT, estimates_by
from vramtui.estimators.planner.planner import Edge, Effect, Plan, Planner
from vramtui.models.specs.decoder import adapted_modules
from vramtui.presets.importers.derived import with_job_file
from vramtui.presets.library import PresetLibrary
from vramtui.presets.model_presets import preset_of
from vramtui.presets.named_presets import preset_asked
from vramtui.presets.overrides import apply_overrides
from vramtui.presets.schema import find_faults
from vramtui.presets.toml_text import value_text

TABLES = ("model", "parallel")
OWN_CODE = (
    "a torch module without a Hugging Face config is known by running it: vramtui.dry_run(step, model, optimizer) "
    "answers for it, with a function `step(model, optimizer)`"
)


def preset_for(model: object, settings: Mapping[str, object], job_file: object = None) -> PresetFile:
    """The preset of `model`, with the settings of a run over it.

    Args:
        model: a preset's name; the path of a preset, of a model's file or folder, or of a training program's YAML; a
            Hugging Face id; a preset's or a config.json's tables; a transformers config, or a model that has one
            (also inside of DataParallel or DistributedDataParallel).
        settings: values by the keys of `[run]`; `model` and `parallel` are tables of their own, and a dotted
            key names any value.
        job_file: a further file of accelerate, DeepSpeed or another training program, whose settings go first.

    Raises:
        UserError: there is no such model, or a setting is wrong.
    """
    if isinstance(model, (str, os.PathLike)):
        preset_file = preset_asked(os.fspath(model), PresetLibrary())
    elif isinstance(model, Preset):
        words = (f"precision={model.run.precision}",)
        preset_file = PresetFile(key=model.name, path="", bundled=False, preset=model, settings=words)
    else:
        preset_file = model if isinstance(model, PresetFile) else _of_tables(model)
    require_text(job_file=job_file)
    if isinstance(job_file, (str, os.PathLike)):
        preset_file = with_job_file(preset_file, Path(os.fspath(job_file)), PresetLibrary())
    stated = [f"{key}={value}" for key, value in dict(_spelled(preset_file, settings)).items()]
    with option_words():
        preset = apply_overrides(preset_file.preset, stated)
    return msgspec.structs.replace(preset_file, preset=preset, settings=(*preset_file.settings, *stated))


def _of_tables(model: object) -> PresetFile:
    """A preset's own tables, which have `model`; or else what a config.json says."""
    inner = getattr(model, "module", model)  # what DataParallel and DistributedDataParallel wrap
    tables = inner if hasattr(inner, "model_type") else getattr(inner, "config", inner)
    if hasattr(tables, "to_dict"):
        tables = tables.to_dict()
    if not isinstance(tables, Mapping):
        if hasattr(model, "named_parameters"):
            raise UserError(OWN_CODE)
        kind = "None" if model is None else f"a value of type {type(model).__name__}"
        raise UserError(f"{kind} is not a model: give a name, a path, an id, a table or a config")
    if isinstance(tables.get("model"), Mapping):
        whole = {"name": "unnamed", "run": {"kind": "infer"}, **tables}
        try:
            preset = msgspec.convert(whole, Preset)
        except msgspec.ValidationError as error:
            faults = find_faults(whole)
            raise UserError(faults[0].sentence if faults else str(error)) from None
        stated = tuple(f"{key}={value}" for key, value in whole["run"].items())
        return PresetFile(key=preset.name, path="", bundled=False, preset=preset, settings=stated)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(dict(tables), default=str), encoding="utf-8")
        try:
            preset = preset_of(path)
        except UserError as error:
            raise UserError(str(error).replace(str(path), "the config")) from None
    name = str(tables.get("_name_or_path") or tables.get("model_type") or "config")
    return PresetFile(key=name, path="", bundled=False, preset=msgspec.structs.replace(preset, name=name))


def _spelled(preset_file: PresetFile, settings: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Each setting by its dotted key, `run.kind` first, values as TOML has them."""
    kind = settings.get("kind")
    if kind is not None:
        yield "run.kind", str(kind)
    for name, value in settings.items():
        if value is None or name == "kind":
            continue
        head = name.replace("__", ".")
        yield from _flat(head if "." in head or head in TABLES else f"run.{head}", value)
    lora = settings.get("lora")
    if isinstance(lora, Mapping) and "target_modules" not in lora and adapted_modules(preset_file.preset.model):
        yield "run.lora.target_modules", value_text(adapted_modules(preset_file.preset.model))


def _flat(key: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield from _flat(f"{key}.{name}", part)
    elif value is not None:
        yield key, value_text([*value] if isinstance(value, (set, frozenset)) else value)


def require_text(**given: object) -> None:
    """Check that each argument is text or a path, or None. Raises UserError if one is neither."""
    for name, value in given.items():
        if value is not None and not isinstance(value, (str, os.PathLike)):
            raise UserError(f"{name} is {value!r}, of type {type(value).__name__}: give text")


@contextmanager
def option_words() -> Iterator[None]:
    """Reword errors about options of the command line for arguments."""
    try:
        yield
    except UserError as error:
        raise UserError(re.sub("--(set|vary) |--(?=method )", "", str(error))) from None


class JobEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of one process of a job; bytes throughout.

    Attributes:
        preset: the model and the run that were estimated.
        device: the card.
        estimate: the estimator's whole answer.
    """

    preset: PresetFile
    device: Device
    estimate: Estimate
    _is_asked: bool
    """A card or a memory was named, so there is a verdict."""

    @property
    def allocated(self) -> int:
        """Peak of `torch.cuda.memory_allocated`."""
        return self.estimate.allocated

    @property
    def reserved(self) -> int | None:
        """Peak of `torch.cuda.memory_reserved`; None if the method does not give it."""
        return self.estimate.reserved

    @property
    def process(self) -> int:
        """Peak of the process as nvidia-smi shows it."""
        return self.estimate.process

    @property
    def parts(self) -> tuple[Part, ...]:
        """Every part with its bytes, arithmetic and source; `at_peak` sums to `process`."""
        return self.estimate.parts

    @property
    def ledger(self) -> Ledger:
        """The parts by category, and the totals."""
        return self.estimate.ledger

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Assumptions, a sentence each."""
        notes = self.preset.preset.notes if not self.preset.bundled else ""
        return (*filter(None, (notes,)), *self.estimate.assumptions)

    @property
    def spare(self) -> int | None:
        """Bytes that the card has left, negative when they are too few; None when no card was named."""
        return None if self.fit is None else self.fit.spare

    @property
    def fits(self) -> bool | None:
        """True if the whole process fits the GPU's memory; None if no GPU was named, or it is unknown."""
        return None if self.fit is None or self.fit.unknown else self.fit.is_enough

    @property
    def fit(self) -> Fit | None:
        """The verdict, with its sentence; None when no card was named."""
        return None if not self._is_asked else fit_on(self.estimate, self.preset.preset.workload, self.device)

    def to_dict(self) -> dict[str, object]:
        """The document that `vramtui estimate --json` prints, with this one answer in `estimates`."""
        from vramtui.records.estimate_document import estimate_document  # noqa: PLC0415 - only if it is asked for

        return estimate_document(self.preset, [self.estimate], self.device if self._is_asked else None)

    def __str__(self) -> str:
        """The totals and the parts, a line each."""
        lines = [f"{self.preset.key}:{self._verdict() or f' {format_bytes(self.process)}'}"]
        width = max(len(part.name) for part in self.parts)
        lines += [
            f"  {part.name:<{width}}  {format_bytes(part.at_peak):>10}  {part.formula}"
            for part in sorted(self.parts, key=lambda part: -part.at_peak)
            if part.at_peak
        ]
        return "\n".join(lines)

    def __repr__(self) -> str:
        """The first line of the estimate's text, in brackets."""
        return f"<JobEstimate {str(self).partition(chr(10))[0]}>"

    def _verdict(self) -> str:
        return "" if self.fit is None else f" {self.fit.line(self.device.name)}"

    def _repr_html_(self) -> str:
        """The notebook's view: the totals and each part with its arithmetic."""
        from vramtui.records.export.html import table, tag, text  # noqa: PLC0415 - only a notebook asks

        rows = [
            (
                text(part.name),
                text(TITLES[part.line]),
                format_bytes(part.at_peak),
                text(part.formula),
                text(part.source),
            )
            for part in sorted(self.parts, key=lambda part: -part.at_peak)
        ]
        totals = (("allocated", self.allocated), ("reserved", self.reserved), ("process", self.process))
        sizes = ", ".join(f"{name} {format_bytes(size)}" for name, size in totals)
        title = tag("p", tag("strong", text(self.preset.key)), text(f": {sizes}{self._verdict()}"))
        return title + table(("Part", "Line", "At the peak", "Arithmetic", "Source"), rows, numbers=(2,))


class FitReport(msgspec.Struct, frozen=True, kw_only=True):
    """How large a job may be on a card, and what single changes would do.

    Attributes:
        preset: the model and the run.
        device: the card.
        plan: the planner's whole answer.
    """

    preset: PresetFile
    device: Device
    plan: Plan
    _planner: Planner

    @property
    def fits(self) -> bool:
        """True if it fits as it is."""
        return self.plan.fits

    @property
    def process(self) -> int:
        """Bytes of the process as it is."""
        return self.plan.process

    def __repr__(self) -> str:
        """The preset's key and the verdict, in brackets."""
        return f"<FitReport {self.preset.key}: {self.plan.fit.line(self.device.name)}>"

    @property
    def changes(self) -> tuple[Effect, ...]:
        """The bytes that each single change would free, and its cost."""
        return self.plan.effects

    def largest(self, key: str = "batch_size") -> int | None:
        """The largest value of a run's whole number that fits, exact: one more does not. None when not even 1 fits.

        Raises:
            UserError: the run has no whole number of that name.
        """
        return self.edge(key).largest

    def edge(self, key: str = "batch_size") -> Edge:
        """The largest value with the bytes at it, the bytes at one more, and why one more does not do.

        Raises:
            UserError: as `largest`.
        """
        require_text(key=key)
        with option_words():
            return self._planner.edge(key if "." in key else f"run.{key}")


def estimate(
    model: object,
    *,
    gpu: str | None = None,
    memory: str | int | None = None,
    method: str | None = None,
    job_file: str | os.PathLike[str] | None = None,
    **settings: object,
) -> JobEstimate:
    """Estimate the memory of a job.

    Args:
        model: a preset's name; the path of a preset, of a model's file or folder, or of a training program's YAML; a
            Hugging Face id; a preset's or a config.json's tables; a transformers config, or a model that has one.
        gpu: the card to fit, such as `"A100-80GB"`; an H100 by default.
        memory: the memory to fit instead of the card's own: bytes, or text such as `"24GiB"`.
        method: `analytic`, `simulated`, `rules:ID` or `traced`; by default `simulated` if it can follow the job (one
            card), else `analytic`.
        job_file: a file of accelerate, DeepSpeed or another training program, whose settings go first.
        settings: a run's values by their keys in a preset: `kind`, `batch_size`, `sequence_length`, `precision`,
            `optimizer`, `lora=` with its own table …; `parallel=` and `model=` take tables.

    Raises:
        UserError: the model, the card or a setting is not known; the sentence names the nearest.

    >>> import vramtui
    >>> est = vramtui.estimate("gpt2-124m", batch_size=4, gpu="A100-80GB")
    >>> est.fits, est.process > est.reserved > est.allocated
    (True, True)
    >>> sum(part.at_peak for part in est.parts) == est.process
    True
    """
    require_text(method=method)
    device = device_of(gpu, memory)
    preset_file = on_card(preset_for(model, settings, job_file), device)
    with option_words():
        answers = estimates_by(method, preset_file.preset.workload, device)
    if len(answers) != 1:
        raise UserError(
            f"method {method} gives {len(answers)} answers; name one of them: {', '.join(m.method for m in answers)}"
        )
    return JobEstimate(
        preset=preset_file, device=device, estimate=answers[0], _is_asked=gpu is not None or memory is not None
    )


def fit(
    model: object,
    *,
    gpu: str | None = None,
    memory: str | int | None = None,
    gpus: int = 1,
    job_file: str | os.PathLike[str] | None = None,
    **settings: object,
) -> FitReport:
    """How large a job may be on a card; the arguments are those of `estimate`.

    Args:
        model: as in `estimate`.
        gpu: the card; this or `memory` is needed.
        memory: its memory.
        gpus: how many such cards could share the job.
        job_file: as in `estimate`.
        settings: as in `estimate`.

    Raises:
        UserError: as `estimate`; or neither a card nor a memory was named.

    >>> import vramtui
    >>> vramtui.fit("gpt2-124m", memory="8GiB").largest("batch_size") < vramtui.fit("gpt2-124m", gpu="H100").largest()
    True
    """
    if gpu is None and memory is None:
        raise UserError('say what it has to fit: gpu="H200", or memory="24GiB"')
    device = device_of(gpu, memory)
    preset_file = on_card(preset_for(model, settings, job_file), device)
    planner = Planner(ANALYTIC, preset_file.preset.workload, device, gpus, exact=DEFAULT)
    return FitReport(preset=preset_file, device=device, plan=planner.plan(), _planner=planner)


def device_of(gpu: str | None, memory: str | int | None) -> Device:
    """The card with that name, with that memory.

    Raises:
        UserError: it is unknown, or the memory is not greater than 0.
    """
    require_text(gpu=gpu)
    if memory is None:
        device = chosen_device(gpu, None)
        if note := size_note(gpu, device):
            warnings.warn(note, stacklevel=3)  # the line of the caller's that names it
        return device
    device = card(gpu or DEFAULT_CARD)
    if type(memory) not in (int, str):
        raise UserError(f"memory is {memory!r}, of type {type(memory).__name__}: give bytes, or text like 24GiB")
    size = parse_size(memory) if isinstance(memory, str) else memory
    if size <= 0:
        raise UserError(f"memory {memory} must be greater than 0")
    name = device.name if gpu else f"a card of {format_bytes(size)}"
    return msgspec.structs.replace(device, name=name, total_memory=size)
