"""A preset with the values that a running job's own command line has, each with the flag it was read from."""

from collections.abc import Iterator
from typing import Any

import msgspec

from vramtui.core.schema.preset import PresetFile
from vramtui.core.schema.workload import ServeRun, Workload
from vramtui.presets.importers.command_lines import CommandLine, read_command_line
from vramtui.presets.importers.file_offers import Offer
from vramtui.presets.importers.flags import whole
from vramtui.presets.importers.process_offers import family_of, said_by
from vramtui.presets.toml import reader as toml

# What scripts of people's own call the two sizes, where no library's option says them.
_OWN = {
    **dict.fromkeys(("batch", "bs", "b", "mini_batch_size"), "run.batch_size"),
    **dict.fromkeys(("seq", "block", "max_len", "ctx_len"), "run.sequence_length"),
}
# The shape is the preset's: a command line that names another one names another model.
_HEADS = ("run", "parallel")


def with_command(found: PresetFile, command: str) -> PresetFile:
    """`found` with its run's values as `command` says them; `said` names the flags.

    What the command line does not say stays as the preset has it. That is `assumed` of a bundled preset whose batch
    is not said: somebody's own preset is taken at its word. A value that the run does not have is left out.
    """
    line = read_command_line(command)
    workload, said = found.preset.workload, dict[str, str]()
    for offer in _offers(line):
        changed = _changed(workload, offer)
        if changed is not None:
            workload, said[offer.key] = changed, offer.flag
    assumed = found.bundled and not isinstance(workload.run, ServeRun) and "run.batch_size" not in said
    if not said and not assumed:
        return found
    preset = msgspec.structs.replace(found.preset, run=workload.run, parallel=workload.parallel)
    return msgspec.structs.replace(found, preset=preset, said=tuple(said.items()), assumed=assumed)


def _offers(line: CommandLine) -> Iterator[Offer]:
    read = {option.key: option for option in said_by(line, family_of(line)) if option.key.split(".")[0] in _HEADS}
    for option in line.options:
        key = _OWN.get(option.name)
        value = whole(option.value)
        if key is not None and key not in read and value is not None:
            read[key] = Offer(key=key, value=value, flag=option.flag)
    # Sharing is one decision: its strategy and its sizes stand together or not at all, whatever their order.
    yield from sorted(read.values(), key=lambda offer: offer.key)


def _changed(workload: Workload, offer: Offer) -> Workload | None:
    """`workload` with one value, or None where its run has no such key or the value says no more than is there."""
    tables: Any = msgspec.to_builtins(workload)
    *heads, last = offer.key.split(".")
    table = tables
    for head in heads:
        if table.get(head) is None:
            if head != "parallel":
                return None  # adapters that the preset does not have: its own LoRA table would lack its layers
            table[head] = {}
        table = table[head]
    if heads[0] == "run" and last not in table:
        return None
    value = _value(offer.value)
    if last == "precision" and str(table[last]).partition("-")[0] == str(value).partition("-")[0]:
        return None  # `--bf16` says no more of how weights are kept than the preset does
    table[last] = value
    try:
        return msgspec.convert(tables, Workload)
    except msgspec.ValidationError:
        return None


def _value(text: str) -> object:
    try:
        return toml.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text
