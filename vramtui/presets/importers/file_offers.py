"""What a training job's YAML and JSON files tell of a new preset, and what of them is not read."""

from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.presets.importers.command_lines import CommandLine, Option, read_command_line
from vramtui.presets.importers.file_keys import FILE_KEYS, KEYS, MODEL_KEYS
from vramtui.presets.importers.job_files import MOST_FILES, JobFile, files_named, read_job_file

NAMED = 12  # keys that are not read, before the others are counted
ADAPTED_MLP = "model.apply_lora_to_mlp"
AUTO = "auto"  # the program that reads the file decides
_SAYS_NOTHING = {"", AUTO, "false", "none", "no", "0", "0.0", "off"}


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a command line says.

    Attributes:
        key: a preset's dotted key; or `preset`, whose value is the key of a known preset to begin with, or
            `model.config`, whose value is the path of a model's file to begin with.
        value: as `Draft.set_value` takes it.
        flag: the words it was read from, safe to show.
    """

    key: str
    value: str
    flag: str


def offers_of_file(file: JobFile) -> tuple[Offer, ...]:
    """What the file says of a preset's run, each with the key it was read from; a later one of a key holds."""
    known = KEYS[file.kind]
    offers = tuple(
        Offer(key=key, value=value, flag=_flag(file, name))
        for name in known
        if (raw := _value_under(file, name)) != AUTO
        for key, spell in known[name]
        if (value := spell(raw)) is not None
    )
    return tuple(_with_mlp(offer) for offer in offers) if file.values.get(ADAPTED_MLP, "").lower() == "true" else offers


def _value_under(file: JobFile, name: str) -> str:
    """What is said under a key; `auto` where the program decides, but what it decides where that is known: axolotl
    takes bf16 on every card that has it.
    """
    value = file.values.get(name, AUTO)
    return "true" if value == AUTO and file.kind == "axolotl" and name == "bf16" and name in file.values else value


def _with_mlp(offer: Offer) -> Offer:
    """Torchtune names the attention's layers that get adapters in a list, and the MLP's by a switch."""
    if offer.key != "run.lora.target_modules":
        return offer
    return msgspec.structs.replace(offer, value=offer.value.removesuffix("]") + ', "w1", "w2", "w3"]')


def not_read(file: JobFile) -> str:
    """A sentence that names what of the file is not read; empty where all of it is. Switches that are off and what is
    left to the program (`auto`) say nothing, read or not.
    """
    known = KEYS[file.kind]
    others = [name for name in file.values if name not in known and name not in (*MODEL_KEYS, *FILE_KEYS, ADAPTED_MLP)]
    odd = [
        f"{name} = {file.values[name][:30]}"
        for name in known
        if file.values.get(name, "").lower() not in _SAYS_NOTHING
        and all(spell(file.values[name]) is None for _, spell in known[name])
    ]
    named = [*odd, *others]
    more = f" and {len(named) - NAMED} more" if len(named) > NAMED else ""
    return f"Of {file.name} not read: {printable(', '.join(named[:NAMED]))}{more}." if named else ""


def with_models_of(line: CommandLine, files: Iterable[JobFile]) -> CommandLine:
    """`line` with the models that the files name, before its own; files themselves are no models."""
    named = [
        Option(key, file.values[key], _flag(file, key)) for file in files for key in MODEL_KEYS if key in file.values
    ]
    own = [option for option in line.options if not option.value.endswith((".yaml", ".yml"))]
    return msgspec.structs.replace(line, options=(*named, *own))


def files_of(command: str, find: Callable[[str], Path | None]) -> tuple[tuple[JobFile, ...], tuple[str, ...]]:
    """The files that a command line names, read, and a sentence for each that cannot be.

    Args:
        command: the command line.
        find: where a file is that was named so; None where that cannot be known.
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
            waiting.extend(file.others)
    return tuple(files.values()), (*notes, *filter(None, map(not_read, files.values())))


def _flag(file: JobFile, key: str) -> str:
    return f"{file.name}: {printable(key)} = {printable(file.values[key][:60])}"
