"""A preset for a process that none was written for: derived from the model that its command line or folder names.

Files are read as far as the reader of model files goes, and only those that this user may read; nothing is executed.
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.core.schema.preset import DERIVED, Match, Preset, PresetFile
from vramtui.core.schema.workload import InferRun, Run, ServeRun, TrainRun
from vramtui.models.named_files import exists
from vramtui.models.stores.local_models import LocalModel, find_model, without_address
from vramtui.presets.importers.command_lines import CommandLine, Option, read_command_line
from vramtui.presets.importers.command_values import with_command
from vramtui.presets.importers.file_offers import files_of, with_models_of
from vramtui.presets.importers.flags import SERVERS
from vramtui.presets.importers.job_files import JobFile
from vramtui.presets.importers.process_files import PROC, JobPlace, place_of, starters_of
from vramtui.presets.importers.process_offers import (
    family_of,
    match_words,
    model_named,
    run_kind,
    settings_of_files,
)
from vramtui.presets.library import PresetLibrary
from vramtui.presets.model_presets import preset_of
from vramtui.presets.named_presets import preset_known, preset_of_folder
from vramtui.presets.overrides import apply_overrides

MOST_WORDS = 64  # of a command line that are tried as a model's path
_PATH_STARTS = ("/", ".", "~")
_SUFFIXES = (".gguf", ".safetensors", "config.json")


def derive(pid: int, command: str, proc: Path = PROC) -> PresetFile | None:
    """The preset that a running process amounts to; None where nothing that it names is a model this user may read.

    Args:
        pid: of the process, on this host.
        command: its command line.
        proc: where the system keeps its processes.
    """
    for process, text in ((pid, command), *starters_of(pid, command, proc)):
        preset_file = derived_preset(text, place_of(process, text, proc))
        if preset_file is not None:
            return preset_file
    return None


def derived_preset(command: str, place: JobPlace | None) -> PresetFile | None:
    """The preset of a process that was started so, in that place: its model from the first of its files that is one, or
    from a name on the Hub that a bundled preset describes; its run from its flags.

    Args:
        command: its command line.
        place: where its files are; None where this user may not look, as with the jobs of others.
    """
    files = files_of(command, place.find)[0] if place is not None else ()
    line = with_models_of(read_command_line(command), files)
    family = family_of(line)
    if family == "tensorrt-llm":
        return None
    kind = run_kind(line, family)
    option = model_named(line, family)
    for named in _candidates(line, option):
        try:
            model = _find_local(named.value, place) if place is not None else None
            preset = None if model is None else preset_of(model.path, model.name)
        except (UserError, OSError):
            model = preset = None
        if model is None:
            model, preset = _find_known(named.value, place, is_model=named is option)
        if model is not None and preset is not None:
            title = (model.name or preset.name).rpartition("/")[2]
            others = [file for file in files if file.name != named.value]
            run = _run(preset.run, kind.value if kind else "train" if others else "infer", family)
            preset = msgspec.structs.replace(preset, name=title, run=run, match=_rule(line, named))
            preset_file = PresetFile(
                key=f"{DERIVED}{printable(title)}", path=str(model.path), bundled=True, preset=preset
            )
            preset_file = with_command(_with_files(preset_file, files), command)
            return _describe(preset_file, model, named, is_kind_known=bool(kind or others))
    return None


def _with_files(preset_file: PresetFile, files: tuple[JobFile, ...]) -> PresetFile:
    """`preset_file` with what the files of its training program say of the run, and where each key is from; as it
    is where that does not go with the model.
    """
    if not files or not isinstance(preset_file.preset.run, TrainRun):
        return preset_file
    settings = {
        key: one
        for key, one in settings_of_files(files, PresetLibrary()).items()
        if key.split(".")[0] in ("run", "parallel") and key != "run.kind"
    }
    values = [f"{key}={value}" for key, (value, _) in settings.items() if value is not None]
    try:
        preset = apply_overrides(preset_file.preset, values)
    except UserError:
        return preset_file
    return msgspec.structs.replace(preset_file, preset=preset, known=tuple(known for _, known in settings.values()))


def _find_local(name: str, place: JobPlace) -> LocalModel | None:
    path = place.find(name)
    if exists(path):
        return find_model(str(path))
    return None if name.startswith(_PATH_STARTS) else find_model(name, place.environ or None, place.folder)


def _find_known(name: str, place: JobPlace | None, *, is_model: bool) -> tuple[LocalModel | None, Preset | None]:
    """The model that the Hub has under `name`, or that a folder is called after whose files cannot be read.

    Args:
        name: of an option, or a word of the command line.
        place: of the process; None where this user may not look.
        is_model: the option says that it names a model; a folder of another purpose may be called after one.
    """
    library = PresetLibrary()
    by_folder = _is_path(name)
    if by_folder:
        seen = not is_model or (place is not None and _may_read(place.find(name)))
        preset_file = None if seen else preset_of_folder(name, library)
        store = f"the folder's name, {name}, whose files cannot be read"
    elif place is not None and exists(place.find(name)):
        return None, None
    else:
        preset_file, store = preset_known(name, library), "the bundled models"
    if preset_file is None:
        return None, None
    assumed = by_folder or ("/" in preset_file.key and "/" not in name)  # whose model of that name was not said
    return LocalModel(
        name=preset_file.key, path=Path(preset_file.path), store=store, assumed=assumed
    ), preset_file.preset


def _is_path(name: str) -> bool:
    return name.startswith(_PATH_STARTS) or without_address(name).count("/") > 1


def _may_read(folder: Path) -> bool:
    """Whether this user sees what a folder holds: then it is no model, or one that is not known."""
    try:
        return folder.is_file() or any(True for _ in folder.iterdir())
    except OSError:
        return False


def _candidates(line: CommandLine, option: Option | None) -> Iterator[Option]:
    """What may name the model, the surest first: its option, a word that is a model's file or folder, the folder."""
    if option is not None:
        yield option
    for word in line.words[1:MOST_WORDS]:
        if word.endswith(_SUFFIXES) or ("/" in word and not word.startswith("-") and not word.endswith((".py", ".sh"))):
            yield Option("", word, word)
    if line.script.endswith(".py"):
        yield Option("", "config.json", "config.json in its folder")


def _rule(line: CommandLine, named: Option) -> Match | None:
    """How to know the job again; `train.py` without its model's name is everybody's, and says nothing."""
    return match_words(line, named) if named.value in line.words else None


def _run(run: Run, kind: str, family: str) -> Run:
    """A run of the kind that the process is, for the model of `run`, before its flags."""
    quantization = getattr(run, "quantization", None)
    if kind == "serve":
        engine = SERVERS.get(family, "vllm")
        if isinstance(run, ServeRun):
            return msgspec.structs.replace(run, engine=engine)
        return ServeRun(engine=engine, precision=run.precision, quantization=quantization)
    if isinstance(run, ServeRun):
        run = InferRun(precision=run.precision, quantization=quantization, sequence_length=run.max_model_len)
    if kind == "train":
        return TrainRun(sequence_length=getattr(run, "sequence_length", None))
    return run


def _describe(preset_file: PresetFile, model: LocalModel, named: Option, *, is_kind_known: bool) -> PresetFile:
    """`preset_file`, whose values the command line says, with where it is from and what of it is only assumed."""
    place = f"{model.path}" if not model.store else f"{model.name} in {model.store}"
    derived = printable(place if named.value in place else f"{named.value}: {place}")
    assumed = (*(["model"] if model.assumed else []), *([] if is_kind_known else ["run.kind"]), *preset_file.assumed)
    return msgspec.structs.replace(preset_file, bundled=False, derived=derived, assumed=assumed)
