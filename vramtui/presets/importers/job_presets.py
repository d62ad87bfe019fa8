"""A training program's file as a preset: its settings as a run, over the model that it names."""

import re
from contextlib import suppress
from pathlib import Path

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.file_limits import TRAINING
from vramtui.core.base.text import printable
from vramtui.core.schema.preset import Preset, PresetFile
from vramtui.core.schema.workload import TrainRun
from vramtui.models.named_files import exists, is_plain_file
from vramtui.models.readers.bounded import path_text, read_plain
from vramtui.models.stores.local_models import without_address
from vramtui.models.stores.resolve import is_repository
from vramtui.presets.importers.flags import FILE_KEYS, MODEL_KEYS
from vramtui.presets.importers.job_files import JobFile, not_modelled, not_read, read_job_file, read_tables
from vramtui.presets.importers.pasted import command_in, is_command, service_in
from vramtui.presets.importers.process_offers import MODEL_FILE, PRESET, draft_from_file, settings_of_files
from vramtui.presets.library import PresetLibrary
from vramtui.presets.named_presets import COMPOSED, SCRIPTS, preset_named, preset_of_folder
from vramtui.presets.overrides import apply_overrides


def preset_of_job(text: str, library: PresetLibrary, *, hub: bool = False) -> PresetFile:
    """Return the preset of a training program's YAML, a compose file (with `:SERVICE` if it serves several models), a
    batch script or a command; else of a preset's or model's name.

    Raises:
        UserError: there is none, or it does not state a job that is known.
    """
    from vramtui.presets.importers.derived import preset_of_command  # noqa: PLC0415 - only for commands

    file, service = COMPOSED.fullmatch(text), ""
    if file is not None:
        text, service = file[1], file[2] or ""
        path = Path(text)
        tables = read_tables(path, text)
        if isinstance(tables.get("services"), dict):
            return preset_of_command(service_in(tables, printable(path.name), service), hub=hub)
        return preset_of_job_file(path, library, hub=hub)
    if text.endswith(SCRIPTS) and is_plain_file(Path(text)):
        script = read_plain(Path(text), TRAINING, text).decode("utf-8", "replace")
        return preset_of_command(command_in(script), hub=hub)
    if is_command(text) and text not in library and not exists(text):
        return preset_of_command(command_in(text), hub=hub)
    return preset_named(text, library, hub=hub)


def preset_of_job_file(path: Path, library: PresetLibrary, *, hub: bool = False) -> PresetFile:
    """Return the job that the file describes, with the model that it names.

    Raises:
        UserError: it cannot be read, or names no model that is known here, or the network fails.
    """
    file = read_job_file(path)
    if file.kind == "torchtune" and "optimizer._component_" not in file.values:
        raise UserError(f"{path_text(path)} names no optimizer, so it trains nothing: give its model's name instead")
    values = {offer.key: offer.value for offer in draft_from_file(file, library)}
    # The model's name or folder; of an address on huggingface.co the name.
    named = next((without_address(file.values[key]) for key in MODEL_KEYS if key in file.values), None)
    is_name = named is not None and is_repository(named)
    called_after = False
    preset_file: PresetFile | None = None
    if MODEL_FILE in values:
        preset_file = preset_named(values[MODEL_FILE], library)
    elif hub and is_name and named is not None:
        preset_file = preset_named(named, library, hub=True)
    elif named is not None:
        try:
            if is_name:
                preset_file = preset_named(named, library)
            elif not (path.parent / Path(named).expanduser()).exists():  # a folder of another machine
                preset_file = preset_of_folder(named, library)
                called_after = preset_file is not None
        except (UserError, OSError, ValueError, RuntimeError):
            preset_file = None
    if preset_file is None and file.kind == "torchtune" and "." in file.values.get("model._component_", ""):
        # A recipe's model by its builder: torchtune.models.llama3_1.lora_llama3_1_8b.
        builder = re.sub("^(q?lora)_", "", file.values["model._component_"].rpartition(".")[2]).replace("_", " ")
        with suppress(UserError):
            preset_file = preset_named(builder, library)
    if preset_file is None and PRESET in values:
        preset_file = library.get(values[PRESET])
    if preset_file is None:
        if named is None:
            raise UserError(
                f"{path_text(path)} names no model that is known here: give the model, and this file as job file"
            )
        raise UserError(
            f"{path_text(path)} names {printable(named[:100])}, which is not known here: --hub asks for it, or give "
            "its config.json and this as --job-file"
        )
    notes = f"The run is what {path.name} says; the shapes are those of {preset_file.key}."
    if called_after:
        notes += f" The folder {named} is taken for it by its name: it is not on this machine."
    if "run.sequence_length" not in values:
        notes += " It says no sequence length: the model's longest is taken."
    preset = Preset(name=path.stem, notes=notes, model=preset_file.preset.model, run=TrainRun(sequence_length=None))
    return _with(PresetFile(key=path.stem, path=str(path), bundled=False, preset=preset), file, path, library)


def with_job_file(preset_file: PresetFile, path: Path, library: PresetLibrary) -> PresetFile:
    """Return the preset with the settings of a file of accelerate, DeepSpeed or another training program.

    Raises:
        UserError: it cannot be read, or does not fit the preset.
    """
    return _with(preset_file, read_job_file(path), path, library)


def _with(preset_file: PresetFile, file: JobFile, path: Path, library: PresetLibrary) -> PresetFile:
    """The preset with the settings of the file and of those that it names beside it, and its program's defaults."""
    files, note = [file], ""
    name = next((name for key in FILE_KEYS if (name := file.values.get(key, "")).endswith(".json")), "")
    try:
        files += [read_job_file(path.parent / name, name)] if name else []
    except UserError as error:
        note = f"{error}."
    values = [f"{key}={value}" for key, (value, _) in settings_of_files(files, library).items() if value is not None]
    try:
        preset = apply_overrides(preset_file.preset, values)
    except UserError as error:
        raise UserError(f"{path_text(path)}: {str(error).removeprefix('--set ')}") from None
    words = (preset.notes, note, *map(not_read, files), *map(not_modelled, files))
    preset = msgspec.structs.replace(preset, notes=" ".join(filter(None, words)))
    return msgspec.structs.replace(preset_file, preset=preset)
