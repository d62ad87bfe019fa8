"""The file of a training program taken for a preset: its settings as a run, over the model that it names."""

from pathlib import Path

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.core.schema.preset import Preset, PresetFile
from vramtui.core.schema.workload import TrainRun
from vramtui.models.readers.bounded import path_text
from vramtui.models.stores.local_models import without_address
from vramtui.models.stores.resolve import is_repository
from vramtui.presets.importers.file_keys import MODEL_KEYS, NOT_MODELLED
from vramtui.presets.importers.job_files import JobFile, read_job_file
from vramtui.presets.importers.process_offers import MODEL_FILE, PRESET, draft_from_file, settings_of_files
from vramtui.presets.library import PresetLibrary
from vramtui.presets.named_presets import preset_named, preset_of_folder
from vramtui.presets.overrides import apply_overrides


def preset_of_job_file(path: Path, library: PresetLibrary, *, hub: bool = False) -> PresetFile:
    """The job that the file describes, with the model that it names.

    Args:
        path: the file.
        library: the presets that are known.
        hub: the network is asked for a model that is not on this machine.

    Raises:
        UserError: it cannot be read, or names no model that is known here, or the network fails.
    """
    file = read_job_file(path)
    if file.kind == "torchtune" and "optimizer._component_" not in file.values:
        raise UserError(f"{path_text(path)} names no optimizer, so it trains nothing: give its model's name instead")
    offers = draft_from_file(file, library)
    called = None
    values = {offer.key: offer.value for offer in offers}
    if MODEL_FILE in values:
        preset_file = preset_named(values[MODEL_FILE], library)
    elif hub and (named := _model_name(file)) is not None and is_repository(named):
        preset_file = preset_named(named, library, hub=True)
    elif (exact := _by_its_name(file, library)) is not None:
        preset_file = exact
    elif (called := _called_after(file, path.parent, library)) is not None:
        preset_file = called
    elif PRESET in values:
        preset_file = library.get(values[PRESET])
    else:
        raise UserError(f"{path_text(path)} {_unknown(file)}")
    notes = f"The run is what {path.name} says; the shapes are those of {preset_file.key}."
    if called is not None:
        notes += f" The folder {_model_name(file)} is taken for it by its name: it is not on this machine."
    if "run.sequence_length" not in values:
        notes += " It says no sequence length: the model's longest is taken."
    notes += "".join(
        f" {key} = {printable(file.values[key].lower()[:100])} is not modelled: counted as if the file did not say it."
        for key, words in NOT_MODELLED.items()
        if key in file.values and (not words or file.values[key].lower() in words)
    )
    preset = Preset(name=path.stem, notes=notes, model=preset_file.preset.model, run=TrainRun(sequence_length=None))
    return _with(PresetFile(key=path.stem, path=str(path), bundled=False, preset=preset), file, path, library)


def _model_name(file: JobFile) -> str | None:
    """The model's name or folder as the file gives it; of an address on huggingface.co the name."""
    return next((without_address(file.values[key]) for key in MODEL_KEYS if key in file.values), None)


def _by_its_name(file: JobFile, library: PresetLibrary) -> PresetFile | None:
    """The very model that the file names, in a local store or by what is known of the Hub's models."""
    named = _model_name(file)
    if named is None or not is_repository(named):
        return None
    try:
        return preset_named(named, library)
    except UserError:
        return None


def _called_after(file: JobFile, folder: Path, library: PresetLibrary) -> PresetFile | None:
    """The model that the folder is called after, of a file whose model lies where this machine has nothing."""
    named = _model_name(file)
    if named is None or is_repository(named):
        return None
    try:
        there = (folder / Path(named).expanduser()).exists()
    except (OSError, ValueError, RuntimeError):
        return None
    return None if there else preset_of_folder(named, library)


def _unknown(file: JobFile) -> str:
    """Why there is no model, and what to do."""
    named = _model_name(file)
    if named is None:
        return "names no model that is known here: give the model, and this file as job file"
    name = printable(named[:100])
    return f"names {name}, which is not known here: --hub asks for it, or give its config.json and this as --job-file"


def with_job_file(preset_file: PresetFile, path: Path, library: PresetLibrary) -> PresetFile:
    """The preset with what a file of accelerate, DeepSpeed or another training program says of its run.

    Raises:
        UserError: it cannot be read, or says what does not go with the preset.
    """
    file = read_job_file(path)
    return _with(preset_file, file, path, library)


def _with(preset_file: PresetFile, file: JobFile, path: Path, library: PresetLibrary) -> PresetFile:
    """The preset with what the file says, and what its program does where it says nothing."""
    values = [f"{key}={value}" for key, (value, _) in settings_of_files((file,), library).items() if value is not None]
    try:
        preset = apply_overrides(preset_file.preset, values)
    except UserError as error:
        raise UserError(f"{path_text(path)}: {str(error).removeprefix('--set ')}") from None
    return msgspec.structs.replace(preset_file, preset=preset)
