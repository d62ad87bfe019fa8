"""Presets derived from jobs: of a running process by the model that its command line or folder names, of a pasted
command, and of a training program's file over the model that it names.

Files are read only as far as the readers of model files go, and only if this user may read them; nothing is executed.
Paths are those of the process: its own folder, root and environment.
"""

import os
import pwd
import re
import shlex
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from vramtui.agent.ancestors import owner_of, read_file
from vramtui.core.base.errors import UserError
from vramtui.core.base.file_limits import LOG
from vramtui.core.base.text import printable
from vramtui.core.observation.oom.context import job_of
from vramtui.core.schema.models import TransformerModel
from vramtui.core.schema.preset import DERIVED, Preset, PresetFile
from vramtui.core.schema.workload import InferRun, ServeRun, TrainRun
from vramtui.models.named_files import exists, is_plain_file
from vramtui.models.readers.bounded import open_plain, path_text
from vramtui.models.specs.decoder import decoder_spec, linear_layers, resolve_target_modules
from vramtui.models.stores.local_models import LocalModel, find_model, without_address
from vramtui.models.stores.resolve import is_repository
from vramtui.presets.importers import command_lines
from vramtui.presets.importers import process_offers as offers
from vramtui.presets.importers.flags import FILE_KEYS, LAUNCHED, MODEL_KEYS
from vramtui.presets.importers.job_files import (
    files_of,
    not_modelled,
    not_read,
    option_files,
    options_in_file,
    read_job_file,
    read_tables,
    with_models_of,
    with_options_of_files,
)
from vramtui.presets.library import PresetLibrary
from vramtui.presets.model_presets import preset_of
from vramtui.presets.named_presets import COMPOSED, LOGS, OPTION_FILES, SCRIPTS, preset_known, preset_named
from vramtui.presets.overrides import apply_overrides
from vramtui.presets.toml_text import value_text

PROC = Path("/proc")
# Variables that tell where models are stored; nothing else of a process's environment is looked at.
STORES = ("HOME", "XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "OLLAMA_MODELS")
# Names of servers' and launchers' workers: the command line of the process that started them names the model.
_WORKER = re.compile(r"VLLM::|sglang::|ray::|multiprocessing[. ](?:spawn|forkserver)")
MOST_ABOVE = 4
MOST_WORDS = 64  # of a command line that are tried as a model's path
_PATH_STARTS = ("/", ".", "~")
_RECIPE = re.compile(r"(\w+)/(\d+(?:\.\d+)?B)_")  # llama3_1/8B_lora_single_device
_SUFFIXES = (".gguf", ".safetensors", "config.json")


class JobPlace(msgspec.Struct, frozen=True):
    """The place of a running process on this host's disks.

    Attributes:
        folder: its working directory.
        root: the path before its absolute paths; empty if they are this host's.
        environ: where its models are stored, by `STORES`, as paths of this host; and its settings of `OLLAMA`.
    """

    folder: Path
    root: str = ""
    environ: Mapping[str, str] = {}

    def find(self, name: str) -> Path:
        """This host's path of a file that the process names."""
        return Path(f"{self.root}{name}") if name.startswith("/") else self.folder / name


def place_of(pid: int, command: str, proc: Path = PROC) -> JobPlace | None:
    """Return the place of the process `pid`; None if it does not run `command` on this host, or is not readable."""
    place = proc / str(pid)
    run = _words(place)
    if not run or (" ".join(run) != command and run != command_lines.read_command_line(command).words):
        return None
    try:
        at_root = str((place / "root").readlink()) == "/"
        folder = (place / "cwd").readlink() if at_root else place / "cwd"
    except OSError:
        return None
    root = "" if at_root else str(place / "root")
    lines = read_file(f"{place}/environ", command_lines.LONGEST).decode(errors="replace").split("\0")
    variables = (line.partition("=") for line in lines)
    known = {name: value for name, _, value in variables if name in STORES or re.fullmatch(r"\w+", value)}
    paths = {name: f"{root}{known[name]}" for name in STORES if known.get(name, "").startswith("/")}
    return JobPlace(
        folder, root, paths | {name: value for name, value in known.items() if name in command_lines.OLLAMA}
    )


def finder_of(pid: int, command: str, proc: Path = PROC) -> Callable[[str], Path | None]:
    """Return a function that finds a file that the process `pid` names. If it does not run `command` on this host, an
    absolute name is this host's, and a relative one is not found.
    """
    place = place_of(pid, command, proc)
    return place.find if place is not None else lambda name: Path(name) if Path(name).is_absolute() else None


def _words(place: Path) -> tuple[str, ...]:
    """The command line of a process; empty if it is not readable."""
    words = read_file(f"{place}/cmdline", command_lines.LONGEST).rstrip(b"\0").split(b"\0")
    return tuple(word.decode(errors="replace") for word in words) if words != [b""] else ()


def derive(pid: int, command: str, proc: Path = PROC) -> PresetFile | None:
    """Derive the preset of a running process of this host, by its command line or, for a server's or launcher's worker,
    those of the processes of the same user above it; None if they name no model that this user may read.
    """
    is_worker = _WORKER.search(command[: command_lines.LONGEST]) is not None
    for _ in range(1 + MOST_ABOVE * is_worker):
        text, place = command, place_of(pid, command, proc)
        if place is not None and "vllm" in command.lower():
            # The release of vLLM next to the interpreter or script of the process.
            words = (*command_lines.read_command_line(command).words[:2], "/usr/local/bin/vllm", "/usr/bin/vllm")
            folders = (place.find(str(Path(word).parent.parent)) for word in words if word.startswith("/"))
            names = (path.name for one in folders for path in one.glob("lib/python3*/*-packages/vllm-*.dist-info"))
            text += next((f" engine_version={name[5 : -len('.dist-info')]}" for name in names), "")
        elif place is not None and "ollama" in command:
            text += "".join(f" {name}={place.environ[name]}" for name in command_lines.OLLAMA if name in place.environ)
        preset_file = derived_preset(text if place is None else with_options_of_files(text, place.find), place)
        match = re.search(rb"^PPid:\s*(\d+)$", read_file(f"{proc}/{pid}/status", command_lines.LONGEST), re.MULTILINE)
        above = int(match[1]) if match else 0
        if preset_file is not None or above <= 1:
            return preset_file
        is_same = owner_of(above, f"{proc}") == owner_of(pid, f"{proc}")
        if not is_same or not (started := _words(proc / str(above))):
            return None
        pid, command = above, shlex.join(started)
    return None


def why_none(pid: int, command: str, proc: Path = PROC) -> str:
    """Return why `derive` finds no preset: what the command line lacks, or whose files cannot be read; empty if it
    names no model.
    """
    line = command_lines.read_command_line(command)
    option = offers.model_named(line, offers.family_of(line))
    if option is None:
        return ""
    path = finder_of(pid, command, proc)(option.value) if option.value.startswith(_PATH_STARTS) else None
    if path is None:
        return f"{printable(option.value)} is not known here"
    for place in (path, *path.parents):
        try:
            owner = place.stat().st_uid
        except FileNotFoundError:  # its folder can be searched
            break
        except OSError:
            continue
        if place == path and os.access(path, os.R_OK):
            return "its model's file names no known model"
        try:
            return f"model file not readable (owner {pwd.getpwuid(owner).pw_name})"
        except KeyError:
            return f"model file not readable (owner {owner})"
    return "model file not found"


def preset_of_command(pasted: command_lines.Pasted, *, hub: bool = False) -> PresetFile:
    """Return the job of a pasted command, with what it does not use in the notes; paths are this shell's.

    Raises:
        UserError: it names no model that is known here.
    """
    place = JobPlace(Path.cwd(), "", {name: os.environ[name] for name in STORES if name in os.environ})
    command = with_options_of_files(pasted.command, place.find)
    line = command_lines.read_command_line(command)
    if pasted.gpus is not None and line.find(*LAUNCHED) is None:
        command += f" num_gpus={pasted.gpus}"
    derived = derived_preset(command, place, hub=hub)
    files, notes = files_of(command, place.find)
    if derived is None:
        line = with_models_of(line, files)
        family = offers.family_of(line)
        if family == "tensorrt-llm":
            raise UserError("TensorRT-LLM's memory is not estimated; vLLM's, SGLang's and llama.cpp's is")
        option = offers.model_named(line, family)
        if option is not None and (variable := re.search(r"\$\{?\w+\}?", option.value)):
            raise UserError(
                f"{printable(variable[0])} has no value in the command: write the model's name in its place"
            )
        if option is not None and not option.value.startswith(_PATH_STARTS):
            preset_named(option.value, PresetLibrary(), hub=hub)
        why = "names no model" if option is None else f"names {printable(option.value[:100])}, which is not known here"
        lacks = [
            *notes,
            *(f"{printable(one)} does not exist" for one in option_files(line) if not exists(place.find(one))),
        ]
        ways = lacks[0] if lacks else "give its model's name to `vramtui estimate`, and its flags"
        raise UserError(f"the command {why}: {ways}")
    unused = offers.unused_options(line, derived, files)
    unused = [f"{one} (write it before --)" if re.fullmatch(r"--gpu[ =]\w{2,}", one) else one for one in unused]
    unused += [f"the service {name}" for name in pasted.others]
    words = [offers.not_modelled_in(line)]
    words += [f"Not used: {printable(', '.join(unused))}."] if unused else []
    if pasted.gpus is not None:
        size = re.fullmatch(r"(\d+)gb?", pasted.card, re.IGNORECASE)
        kind, of = ("", f" of {size[1]} GB") if size else (f"{pasted.card} ".lstrip(), "")
        words.append(f"The file asks for {pasted.gpus} {kind}GPU{'s' * (pasted.gpus > 1)}{of}.")
    is_said = " is read as " in derived.preset.notes
    if assumed := [key.removeprefix("run.") for key in derived.assumed if not (is_said and key == "model")]:
        words.append(f"Not stated, so assumed: {', '.join(assumed)}.")
    notes_text = " ".join(filter(None, (*words, *notes, derived.preset.notes)))
    preset = msgspec.structs.replace(derived.preset, notes=notes_text)
    return msgspec.structs.replace(derived, key=derived.key.removeprefix(DERIVED), preset=preset)


def derived_preset(command: str, place: JobPlace | None, *, hub: bool = False) -> PresetFile | None:
    """Derive the preset of a command line: its model from the first of its files that is one, or from a name on the Hub
    that is known or asked for; its run from its flags.
    """
    files = files_of(command, place.find)[0] if place is not None else ()
    line = with_models_of(command_lines.read_command_line(command), files)
    family = offers.family_of(line)
    if family == "tensorrt-llm":
        return None
    kind = offers.run_kind(line, family)
    option = offers.model_named(line, family)
    if option is not None and family == "torchtune" and (recipe := _RECIPE.match(option.value)):
        option = command_lines.Option(option.name, f"{recipe[1].replace('_', '.')} {recipe[2]}", option.flag)
    # Words that may name the model, the surest first: its option, a model's file or folder, the script's folder.
    words = (
        word
        for word in line.words[1:MOST_WORDS]
        if word.endswith(_SUFFIXES) or ("/" in word and not word.startswith("-") and not word.endswith((".py", ".sh")))
    )
    candidates = [*([option] if option is not None else []), *(command_lines.Option("", word, word) for word in words)]
    candidates += [command_lines.Option("", "config.json", "config.json in its folder")] * line.script.endswith(".py")
    library = PresetLibrary()
    for named in candidates:
        model, preset = None, None
        try:
            if place is not None:
                path = place.find(named.value)
                if exists(path):
                    model = find_model(str(path))
                elif not named.value.startswith(_PATH_STARTS):
                    model = find_model(named.value, place.environ or None, place.folder)
            preset = None if model is None else preset_of(model.path, model.name)
        except (UserError, OSError):
            model = None
        if model is None:  # the Hub's of that name, or one whose name a folder has that cannot be read
            name, preset_file, store = named.value, None, "the bundled models"
            by_folder = name.startswith(_PATH_STARTS) or without_address(name).count("/") > 1
            if by_folder and named is option:
                store, seen = f"the folder's name, {name}, whose files cannot be read", False
                with suppress(OSError):  # a folder that this user can list holds no model, or an unknown one
                    folder = None if place is None else place.find(name)
                    seen = folder is not None and (folder.is_file() or any(True for _ in folder.iterdir()))
                preset_file = None if seen else preset_known(name, library, folder=True)
            elif not by_folder and place is not None and exists(place.find(name)):
                continue
            elif not by_folder:
                preset_file = preset_known(name, library)
            if preset_file is None and named is option:
                with suppress(UserError):
                    preset_file, store = preset_named(name, library, hub=hub), "the bundled models"
            if preset_file is None:
                continue
            assumed = by_folder or ("/" in preset_file.key and "/" not in name)  # its owner was not named
            model = LocalModel(name=preset_file.key, path=Path(preset_file.path), store=store, assumed=assumed)
            preset = preset_file.preset
        if preset is None:
            continue
        title = (model.name or preset.name).rpartition("/")[2]
        others = [file for file in files if file.name != named.value]
        # `train.py` without its model's name does not identify the job.
        match = offers.match_words(line, named) if named.value in line.words else None
        run, does = preset.run, kind.value if kind else "train" if others else "infer"  # before its flags
        engine, quantization = offers.engine_of(line, family), getattr(run, "quantization", None)
        if does == "train":
            length = getattr(run, "max_model_len", getattr(run, "sequence_length", None))
            run = TrainRun(sequence_length=length, precision="bf16" if family == "torchtune" else "bf16-mixed")
        elif does == "serve" and isinstance(run, ServeRun):
            context = None if family == "llama.cpp" else run.max_model_len  # its own depends on release and GPU
            run = msgspec.structs.replace(run, engine=engine, max_model_len=context)
        elif does == "serve":
            run = ServeRun(engine=engine, precision=run.precision, quantization=quantization)
        elif isinstance(run, ServeRun):
            run = InferRun(precision=run.precision, quantization=quantization, sequence_length=run.max_model_len)
        preset = msgspec.structs.replace(preset, name=title, run=run, match=match)
        key = f"{DERIVED}{printable(title)}"
        preset_file = PresetFile(key=key, path=str(model.path), bundled=True, preset=preset)
        if files and isinstance(run, TrainRun):
            settings = {
                key: one
                for key, one in offers.settings_of_files(files, library).items()
                if key.split(".")[0] in ("run", "parallel") and key != "run.kind"
            }
            values = [f"{key}={value}" for key, (value, _) in settings.items() if value is not None]
            with suppress(UserError):  # those of another model do not fit
                changed = apply_overrides(preset, values)
                known = tuple(known for _, known in settings.values())
                preset_file = msgspec.structs.replace(preset_file, preset=changed, known=known)
        preset_file = offers.with_command(preset_file, command)
        source = f"{model.path}" if not model.store else f"{model.name} in {model.store}"
        unstated = ["model"] * model.assumed + ["run.kind"] * (kind is None and not others)
        return msgspec.structs.replace(
            preset_file,
            bundled=False,
            derived=printable(source if named.value in source else f"{named.value}: {source}"),
            assumed=(*unstated, *preset_file.assumed),
        )
    return None


def preset_of_job(text: str, library: PresetLibrary, *, hub: bool = False) -> PresetFile:
    """Return the preset of a training program's YAML, a compose file (with `:SERVICE` if it serves several models), a
    batch script, a log or a command; else of a preset's or model's name.

    Raises:
        UserError: there is none, or it does not state a job that is known.
    """
    file, service = COMPOSED.fullmatch(text) if exists(text) or not command_lines.is_command(text) else None, ""
    if file is not None:
        text, service = file[1], file[2] or ""
        path = Path(text)
        tables = read_tables(path, text)
        tables = tables if "services" in tables else {"services": command_lines.containers_in(tables), **tables}
        if isinstance(tables["services"], dict) and tables["services"]:
            return preset_of_command(command_lines.service_in(tables, printable(path.name), service), hub=hub)
        return preset_of_job_file(path, library, hub=hub)
    if text.endswith(OPTION_FILES) and is_plain_file(Path(text)) and (command := options_in_file(Path(text), text)):
        return preset_of_command(command_lines.Pasted(shlex.join(command)), hub=hub)
    if text.endswith(SCRIPTS) and is_plain_file(Path(text)):
        with open_plain(Path(text), text)[0] as log:
            script = log.read(LOG.size).decode("utf-8", "replace")
        if not text.endswith(LOGS):
            return preset_of_command(command_lines.command_in(script), hub=hub)
        if stated := job_of(script).command:  # a server's arguments as it printed them
            return preset_of_command(command_lines.Pasted(stated), hub=hub)
        if not text.endswith(".txt"):  # which may be any text
            raise UserError(
                f"{printable(text)} is not a start-up log of vLLM, SGLang or llama.cpp that names its model"
            )
    if command_lines.is_command(text) and text not in library and not exists(text):
        return preset_of_command(command_lines.command_in(text), hub=hub)
    return preset_named(text, library, hub=hub)


def preset_of_job_file(path: Path, library: PresetLibrary, *, hub: bool = False) -> PresetFile:
    """Return the job that the file describes, with the model that it names.

    Raises:
        UserError: it cannot be read, or names no model that is known here, or the network fails.
    """
    file = read_job_file(path)
    if file.kind == "torchtune" and "optimizer._component_" not in file.values:
        raise UserError(f"{path_text(path)} names no optimizer, so it trains nothing: give its model's name instead")
    values = {offer.key: offer.value for offer in offers.draft_from_process("", library, (file,))}
    # The model's name or folder; of an address on huggingface.co the name.
    named = next((without_address(file.values[key]) for key in MODEL_KEYS if key in file.values), None)
    is_name = named is not None and is_repository(named)
    called_after = False
    preset_file: PresetFile | None = None
    if offers.MODEL_FILE in values:
        preset_file = preset_named(values[offers.MODEL_FILE], library)
    elif hub and is_name and named is not None:
        preset_file = preset_named(named, library, hub=True)
    elif named is not None:
        try:
            if is_name:
                preset_file = preset_named(named, library)
            elif not (path.parent / Path(named).expanduser()).exists():  # a folder of another machine
                preset_file = preset_known(named, library, folder=True)
                called_after = preset_file is not None
        except (UserError, OSError, ValueError, RuntimeError):
            preset_file = None
    if preset_file is None and file.kind == "torchtune" and "." in file.values.get("model._component_", ""):
        # A recipe's model by its builder: torchtune.models.llama3_1.lora_llama3_1_8b.
        builder = re.sub("^(q?lora)_", "", file.values["model._component_"].rpartition(".")[2]).replace("_", " ")
        with suppress(UserError):
            preset_file = preset_named(builder, library)
    if preset_file is None and offers.PRESET in values:
        preset_file = library.get(values[offers.PRESET])
    if preset_file is None:
        which = "no model that is" if named is None else f"{printable(named[:100])}, which is not"
        ways = "give its name or config.json, and this as --job-file; --hub asks for it"
        raise UserError(f"{path_text(path)} names {which} known here: {ways}")
    notes = f"The run is what {path.name} says; the shapes are those of {preset_file.key}."
    if called_after:
        notes += f" The folder {named} is taken for it by its name: it is not on this machine."
    if "run.sequence_length" not in values:
        notes += " It says no sequence length: the model's longest is taken."
    preset = Preset(name=path.stem, notes=notes, model=preset_file.preset.model, run=TrainRun(sequence_length=None))
    return with_job_file(PresetFile(key=path.stem, path=str(path), bundled=False, preset=preset), path, library)


def with_job_file(preset_file: PresetFile, path: Path, library: PresetLibrary) -> PresetFile:
    """Return the preset with the settings of a file of accelerate, DeepSpeed or another training program and of those
    that it names with it, and with its program's defaults.

    Raises:
        UserError: it cannot be read, or does not fit the preset.
    """
    files, note = [file := read_job_file(path)], ""
    name = next((name for key in FILE_KEYS if (name := file.values.get(key, "")).endswith(".json")), "")
    try:
        files += [read_job_file(path.parent / name, name)] if name else []
    except UserError as error:
        note = f"{error}."
    values = [
        f"{key}={value}" for key, (value, _) in offers.settings_of_files(files, library).items() if value is not None
    ]
    try:
        preset = apply_overrides(preset_file.preset, values)
    except UserError as error:
        raise UserError(f"{path_text(path)}: {str(error).removeprefix('--set ')}") from None
    lora = getattr(preset.run, "lora", None)
    if isinstance(preset.model, TransformerModel) and lora is not None:
        spec = decoder_spec(preset.model)
        named, layers = resolve_target_modules(spec, lora).target_modules, linear_layers(spec)
        there, missing = ([name for name in named if (name in layers) is has] for has in (True, False))
        if there and missing:  # peft 0.21 passes over them (tuners/tuners_utils.py, inject_adapter)
            note = f"{note} The model has no layers called {', '.join(missing)}, which get no adapters.".strip()
            preset = apply_overrides(preset, [f"run.lora.target_modules={value_text(there)}"])
    words = (preset.notes, note, *map(not_read, files), *map(not_modelled, files))
    preset = msgspec.structs.replace(preset, notes=" ".join(filter(None, words)))
    return msgspec.structs.replace(preset_file, preset=preset)
