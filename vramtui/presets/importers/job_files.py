"""YAML and JSON files that a training job is started with: what they set, and what of them is not read.

Only bounded, plain files are read, as dotted keys with their values; nothing in them is run.
"""

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from vramtui.core.base import toml
from vramtui.core.base.errors import UserError
from vramtui.core.base.file_limits import DEEPEST_KEY, MOST_KEYS, TRAINING
from vramtui.core.base.text import printable
from vramtui.models.named_files import exists
from vramtui.models.readers.bounded import read_plain
from vramtui.presets.importers.command_lines import CommandLine, Option, read_command_line
from vramtui.presets.importers.flags import FILE_KEYS, KEYS, MODEL_KEYS, NOT_MODELLED, WEIGHTLESS

MOST_FILES = 4
_SUFFIXES = (".yaml", ".yml", ".json")
FILE_OPTIONS = ("config_file", "config", "deepspeed", "deepspeed_config", "ds_config", "fsdp_config")
ADAPTED_MLP = "model.apply_lora_to_mlp"
AUTO = "auto"  # the program that reads the file decides
# What people call DeepSpeed's files: ds_z3_config.json, zero2_offload.json, ds_config_stage3.json.
_ZERO = re.compile(r"(?:(?:^|[-_.])z|zero[-_]?(?:stage)?|stage)[-_]?([123])(?!\d)")
SAYS_NOTHING = {"", AUTO, "false", "none", "no", "0", "0.0", "off"}


class JobFile(msgspec.Struct, frozen=True):
    """A job's file: its `name`, safe to show; its `kind`, a key of `flags.KEYS`; its `values` by dotted key, spelt as
    on a command line; `by_name` if it is not on this machine and its name says them.
    """

    name: str
    kind: str
    values: Mapping[str, str]
    by_name: bool = False


def read_job_file(path: Path, name: str | None = None) -> JobFile:
    """Read the file at `path`, which a command or another file calls `name`: if it is not there, that may say enough.

    Raises:
        UserError: it cannot be read, is not YAML or JSON with keys, or has no key of a training program.
    """
    title = printable(name if name is not None else str(path))
    if name is not None and not exists(path) and (file := _by_name(path, title)):
        return file
    values = dict(_spelt(read_tables(path, title)))
    tops = {key.partition(".")[0] for key in values}
    signs = (
        ("deepspeed", {"zero_optimization", "train_micro_batch_size_per_gpu"} & tops),
        ("accelerate", {"compute_environment", "distributed_type"} & tops),
        ("axolotl", "base_model" in tops),
        ("llamafactory", {"finetuning_type", "cutoff_len"} & tops),
        ("torchtune", any(key.endswith("._component_") for key in values)),
        ("trainer", values.keys() & KEYS["trainer"].keys()),
    )
    kind = next((kind for kind, seen in signs if seen), None)
    if kind is None:
        raise UserError(f"{title} says nothing that a preset could take: it has no key of a training program")
    return JobFile(title, kind, values)


# Keys of kohya's GUI (kohya_ss 25) and of SimpleTuner (3.x, docs/OPTIONS.md), and kohya's own options for them.
_KOHYA = {"max_resolution": "resolution", "LoRA_type": "network_module", "optimizer": "optimizer_type"}


def options_in_file(path: Path, title: str) -> tuple[str, ...]:
    """Return the script and options that a file of kohya's scripts, of their GUI or of SimpleTuner stands for, whatever
    its tables, or the options of kohya's file of images; none for any other file.
    """
    try:
        tables = read_tables(path, title)
    except UserError:  # the reader of presets or models says why
        return ()
    if isinstance(sets := tables.get("datasets"), list) and sets and isinstance(sets[0], dict):
        stated = {**tables.get("general", {}), **sets[0]}
        size = stated.get("resolution", "")
        size = ",".join(map(str, size)) if isinstance(size, list) else size
        pairs = (("resolution", size), ("train_batch_size", stated.get("batch_size", "")))
        return tuple(f"--{name}={value}" for name, value in pairs if value)
    values = {
        _KOHYA.get(name, name): value for key, value in _spelt(tables) if (name := key.rpartition(".")[2].lstrip("-"))
    }
    if "pretrained_model_name_or_path" not in values:
        return ()
    if values.pop("model_type", "").lower() == "lora":
        values["network_module"] = "lora"
    if "model_family" in values:  # SimpleTuner's, which reads all texts before it trains
        values["cache_text_encoder_outputs"] = "true"
    script = "train_network.py" if "network_module" in values else "train.py"
    stated = {name: value for name, value in values.items() if value.lower() not in SAYS_NOTHING}
    return (script, *(f"--{name}" if value == "true" else f"--{name}={value}" for name, value in stated.items()))


def option_files(line: CommandLine) -> list[str]:
    """The files of options, by kohya's scripts, that a command line names."""
    named = (option.value for option in line.options if option.name in {"config_file", "dataset_config"})
    return [name for name in named if name.endswith((".toml", ".json"))]


def with_options_of_files(command: str, find: Callable[[str], Path | None]) -> str:
    """Return the command with the options of its files before its own."""
    line = read_command_line(command)
    stated: dict[str, str] = {}
    for path, name in ((find(name), name) for name in option_files(line)):
        words = options_in_file(path, name) if path is not None else ()
        stated |= {word.partition("=")[0]: word for word in words if word.startswith("--")}
    at = next((at for at, word in enumerate(line.words, 1) if word.endswith(line.script)), 1)
    more = (word for name, word in stated.items() if line.find(name.removeprefix("--")) is None)
    return shlex.join((*line.words[:at], *more, *line.words[at:])) if stated else command


def _by_name(path: Path, title: str) -> JobFile | None:
    """Read ZeRO and what is offloaded, or FSDP, from the name of a missing file; None if it has neither."""
    name, is_json = path.stem.lower(), path.suffix == ".json"
    if stage := _ZERO.search(name):
        parts = ("optimizer", "param")[: int(stage[1]) - 1 if re.search("(?<!no[-_])offload", name) else 0]
        if is_json:
            offloads = {f"zero_optimization.offload_{part}.device": "cpu" for part in parts}
            return JobFile(title, "deepspeed", {"zero_optimization.stage": stage[1], **offloads}, by_name=True)
        offloads = {f"deepspeed_config.offload_{part}_device": "cpu" for part in parts}
        return JobFile(title, "accelerate", {"deepspeed_config.zero_stage": stage[1], **offloads}, by_name=True)
    if (fsdp := re.search("fsdp([12]?)", name)) and not is_json:
        return JobFile(title, "accelerate", {"fsdp_config.fsdp_version": fsdp[1] or "1"}, by_name=True)
    return None


def read_tables(path: Path, title: str) -> dict[str, Any]:
    """Read a YAML, JSON or TOML file of plain values.

    Raises:
        UserError: it cannot be read, or is none of these with keys.
    """
    content, kind = read_plain(path, TRAINING, title), path.suffix[1:].upper().replace("YML", "YAML")
    try:
        text = content.decode("utf-8-sig")
        decoded = msgspec.json.decode(text) if kind == "JSON" else toml.loads(text) if kind == "TOML" else _yaml(text)
    except UnicodeDecodeError:
        raise UserError(f"{title} is not UTF-8 text") from None
    except RecursionError:
        raise UserError(f"{title} is nested too deeply") from None
    except ValueError as error:
        reason = " ".join(printable(str(error)).split())[:120]
        raise UserError(f"{title} is not valid {kind}: {reason}") from None
    if not isinstance(decoded, dict):
        raise UserError(f"{title} has no keys: a table of them is needed")
    return decoded


def _yaml(text: str) -> object:
    """Read plain values of YAML text; raise ValueError if it is not valid or too large."""
    try:
        import yaml  # type: ignore[import-untyped]  # noqa: PLC0415 - carries no types; only this loads it
    except ModuleNotFoundError:
        raise ValueError("reading YAML needs PyYAML: pip install 'vramtui-core[yaml]', or vramtui itself") from None

    class Loader(yaml.SafeLoader):  # type: ignore[misc]  # as above
        """Plain values only, not too many nor too deep; tables that are merged into others stay small."""

        values = depth = 0

        def compose_node(self, parent: yaml.Node | None, index: object) -> yaml.Node | None:
            self.values, self.depth = self.values + 1, self.depth + 1
            if self.values > (TRAINING.count or 0):
                raise ValueError(f"more than {TRAINING.count:,} values")
            if self.depth > (TRAINING.depth or 0):
                raise ValueError(f"more than {TRAINING.depth} levels")
            node = super().compose_node(parent, index)
            self.depth -= 1
            return node

        def flatten_mapping(self, node: yaml.MappingNode) -> None:
            super().flatten_mapping(node)
            if len(node.value) > MOST_KEYS:
                raise ValueError("too many keys")

    try:
        documents = list(yaml.load_all(text, Loader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"line {mark.line + 1}: " if mark is not None else ""
        raise ValueError(f"{place}{getattr(error, 'problem', None) or error}") from None
    if len(documents) > 1:  # as Kubernetes has them
        return {"documents": documents}
    return documents[0] if documents else None


def _spelt(tables: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each value with its dotted key; lists of words with commas, other lists only as `[…]`."""
    waiting: list[tuple[str, object]] = [("", tables)]
    for _ in range(MOST_KEYS):
        if not waiting:
            return
        key, value = waiting.pop()
        if isinstance(value, Mapping):
            inner = [(f"{key}.{name}".lstrip("."), part) for name, part in value.items()]
            if key.count(".") < DEEPEST_KEY and len(inner) + len(waiting) <= MOST_KEYS:
                waiting.extend(reversed(inner))
        elif isinstance(value, bool):
            yield key, "true" if value else "false"
        elif isinstance(value, (str, float)):
            yield key, str(value)
        elif isinstance(value, int):
            if abs(value) < 10**18:
                yield key, str(value)
        elif isinstance(value, list) and value and all(isinstance(part, str) for part in value):
            yield key, ",".join(value)
        elif value:
            yield key, "[…]"


def files_named(line: CommandLine) -> tuple[str, ...]:
    names = [option.value for option in line.options if option.name in FILE_OPTIONS]
    for before, word in zip(line.words, line.words[1:], strict=False):
        behind = not before.startswith("-") and not word.startswith("-") and "=" not in word
        if behind and (word.endswith((".yaml", ".yml")) or (word.endswith(".json") and before.endswith(".py"))):
            names.append(word)
    return tuple(dict.fromkeys(name for name in names if name.endswith(_SUFFIXES)))[:MOST_FILES]


def files_of(command: str, find: Callable[[str], Path | None]) -> tuple[tuple[JobFile, ...], tuple[str, ...]]:
    """Read the files that a command line names, and those that they name.

    Args:
        command: the command line.
        find: gives the path of a named file; None if it cannot be known.

    Returns:
        The files, and a sentence for each that cannot be read and for what of them is not read.
    """
    waiting = list(files_named(read_command_line(command)))
    files: dict[str, JobFile] = {}
    notes: list[str] = []
    for name in waiting:
        path = find(name)
        if name in files or len(files) + len(notes) >= MOST_FILES:
            continue
        if path is None:
            notes.append(f"{printable(name)} is not read: the folder it was named from is not known.")
            continue
        try:
            files[name] = file = read_job_file(path, name)
        except UserError as error:
            notes.append(f"{error}.")
        else:
            waiting.extend(value for key in FILE_KEYS if (value := file.values.get(key, "")).endswith(_SUFFIXES))
    found_in = (word(file) for file in files.values() for word in (not_read, not_modelled))
    return tuple(files.values()), (*notes, *filter(None, found_in))


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """One value that a command line or file sets.

    Attributes:
        key: a preset's dotted key; or `preset`, the key of a known preset to begin with; or `model.config`, the path
            of a model's file to begin with.
        value: as `Draft.set_value` takes it.
        flag: the words it was read from, safe to show.
    """

    key: str
    value: str
    flag: str


def offers_of_file(file: JobFile) -> tuple[Offer, ...]:
    """Offer the file's settings of a run, each with the key it was read from; a later one of a key is in force."""
    known, offers = KEYS[file.kind], []
    adapts_mlp = file.values.get(ADAPTED_MLP, "").lower() == "true"
    for name in known:
        raw = file.values.get(name, AUTO)
        if raw == AUTO and file.kind == "axolotl" and name == "bf16" and name in file.values:
            raw = "true"  # axolotl decides for bf16 on every card that has it
        for key, spell in known[name]:
            value = None if raw == AUTO else spell(raw)
            if value is None:
                continue
            if adapts_mlp and key == "run.lora.target_modules":
                # Torchtune lists the attention's layers that get adapters, and has a switch for the MLP's.
                value = value.removesuffix("]") + ', "w1", "w2", "w3"]'
            if (file.kind, value) == ("axolotl", "bf16") and file.values.get("adapter"):
                # Adapters are fp32 under autocast (axolotl 067b021c, core/builders/base.py: `training_args["bf16"]`).
                value = "bf16-mixed"
            offers.append(Offer(key=key, value=value, flag=_flag(file, name)))
    return tuple(offers)


def not_read(file: JobFile) -> str:
    """Name what of the file is not used, in a sentence; empty if all of it is. Switches that are off, values that the
    program decides (`auto`) and keys that change no memory do not count.
    """
    known = KEYS[file.kind]
    named = []
    for name, value in file.values.items():
        if name in known:
            is_odd = value.lower() not in SAYS_NOTHING and all(spell(value) is None for _, spell in known[name])
            named += [f"{name} = {value[:30]}"] if is_odd else []
            if name == "plugins":
                named += [
                    f"plugins[{at}] ({plugin.rpartition('.')[2]})"
                    for at, plugin in enumerate(value.split(","))
                    if not is_odd and not plugin.endswith(("CutCrossEntropyPlugin", "LigerPlugin"))
                ]
        elif name not in {*MODEL_KEYS, *FILE_KEYS, ADAPTED_MLP, *NOT_MODELLED} and value.lower() not in SAYS_NOTHING:
            named += [] if WEIGHTLESS.match(name) else [name]
    return f"Not used of {file.name}: {printable(', '.join(named))}." if named else ""


def not_modelled(file: JobFile) -> str:
    """Name the file's settings that change the memory and are not modelled, and those without an effect."""
    values = {key: value.lower() for key, value in file.values.items()}
    sentences = [
        f"{key} = {printable(values[key][:100])} is not modelled: counted as if the file did not say it."
        for key, words in NOT_MODELLED.items()
        if key in values and (not words or values[key] in words)
    ]
    if file.kind == "llamafactory" and "quantization_method" in values and "quantization_bit" not in values:
        sentences.append("quantization_method has no effect without quantization_bit.")
    if file.by_name:
        settings = ", ".join(f"{key} = {value}" for key, value in values.items())
        sentences.append(f"{file.name} is not here; by its name, {settings}.")
    return " ".join(sentences)


def with_models_of(line: CommandLine, files: Iterable[JobFile]) -> CommandLine:
    """`line` with the models that the files name before its own; a file itself is not a model."""
    named = [
        Option(key, file.values[key], _flag(file, key)) for file in files for key in MODEL_KEYS if key in file.values
    ]
    own = [option for option in line.options if not option.value.endswith((".yaml", ".yml"))]
    return msgspec.structs.replace(line, options=(*named, *own))


def _flag(file: JobFile, key: str) -> str:
    return f"{file.name}: {printable(key)} = {printable(file.values[key][:60])}"
