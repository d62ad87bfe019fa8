"""Presets from models as callers of the API give them: names, files, ids, tables, configs and modules."""

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.schema.preset import Preset, PresetFile
from vramtui.core.schema.workload import InferRun, ServeRun, TrainRun
from vramtui.models.specs.adapters import adapted_modules
from vramtui.presets.importers.derived import with_job_file
from vramtui.presets.library import PresetLibrary
from vramtui.presets.model_presets import preset_of
from vramtui.presets.named_presets import preset_asked
from vramtui.presets.overrides import apply_overrides
from vramtui.presets.schema import find_faults

RUNS: dict[str, type[TrainRun | InferRun | ServeRun]] = {"train": TrainRun, "infer": InferRun, "serve": ServeRun}
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
        preset_file = PresetFile(key=model.name, path="", bundled=False, preset=model)
    else:
        preset_file = model if isinstance(model, PresetFile) else _of_tables(model)
    require_text(job_file=job_file)
    if isinstance(job_file, (str, os.PathLike)):
        preset_file = with_job_file(preset_file, Path(os.fspath(job_file)), PresetLibrary())
    values = dict(_spelled(preset_file, settings))
    with option_words():
        preset = apply_overrides(preset_file.preset, [f"{key}={value}" for key, value in values.items()])
    return msgspec.structs.replace(preset_file, preset=preset)


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
        return PresetFile(key=preset.name, path="", bundled=False, preset=preset)
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
        key = head if "." in head or head in TABLES else f"run.{head}"
        yield from _flat(key, value)
    lora = settings.get("lora")
    if isinstance(lora, Mapping) and "target_modules" not in lora and adapted_modules(preset_file.preset.model):
        yield "run.lora.target_modules", _toml(adapted_modules(preset_file.preset.model))


def _flat(key: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield from _flat(f"{key}.{name}", part)
    elif value is not None:
        yield key, _toml(value)


def _toml(value: object) -> str:
    if isinstance(value, (list, tuple, set, frozenset)):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value) if isinstance(value, (str, bool, int, float)) else json.dumps(str(value))


def require_text(**given: object) -> None:
    """Check that each argument is text or a path, or None.

    Raises:
        UserError: one is neither.
    """
    for name, value in given.items():
        if value is not None and not isinstance(value, (str, os.PathLike)):
            raise UserError(f"{name} is {value!r}, of type {type(value).__name__}: give text")


@contextmanager
def option_words() -> Iterator[None]:
    """Reword errors about options of the command line for arguments."""
    try:
        yield
    except UserError as error:
        raise UserError(str(error).removeprefix("--set ").replace("--method ", "method ")) from None
