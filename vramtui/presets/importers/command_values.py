"""A preset with the values that a running job's own command line has, each with the flag it was read from."""

import re
from collections.abc import Container, Iterable, Iterator
from itertools import takewhile
from typing import Any

import msgspec

from vramtui.core.base import toml
from vramtui.core.estimate.assumptions import with_usual_adapters
from vramtui.core.schema.preset import Known, PresetFile
from vramtui.core.schema.workload import InferRun, ServeRun, TrainRun, Workload
from vramtui.presets.importers.command_lines import CommandLine, read_command_line
from vramtui.presets.importers.file_offers import Offer
from vramtui.presets.importers.flags import OWN, is_checkpointing_off, whole
from vramtui.presets.importers.launcher_defaults import defaults_of
from vramtui.presets.importers.process_offers import family_of, image_size, offers_in_command

# Switches that give a job adapters, of libraries and of scripts of people's own.
_ADAPTERS = ("lora", "use_lora", "qlora", "use_qlora", "use_peft", "peft", "dora", "use_dora")
_OFF = {"false", "no", "none", "0", "off"}
# Programs that serve a model and take their share of the card, whatever a training or inference preset says of it.
_SERVERS = re.compile(
    r"(?:^|/)(?:vllm|sglang|llama-server|text-generation-(?:launcher|server))$|^(?:vllm\.entrypoints|sglang\.launch_server)"
)
# The shape is the preset's: a command line that names another one names another model.
_HEADS = ("run", "parallel")


def with_command(preset_file: PresetFile, command: str) -> PresetFile:
    """`preset_file` with its run's values as `command` says them, and of a bundled preset what its launcher takes where
    nothing is said; `known` has those, `assumed` what is left. Somebody's own preset is taken at its word.

    A value that the run does not have is left out.
    """
    line = read_command_line(command)
    offers, family = tuple(_offers(line)), family_of(line)
    workload, known = preset_file.preset.workload, {one.key: one for one in preset_file.known}
    adapters = _adapters(line, offers, workload) if preset_file.bundled else ""
    if adapters:
        workload = with_usual_adapters(workload)
    for offer in (*offers, *image_size(line, preset_file)):
        # The shape is the preset's but for the size of its images, which is the run's in all but the table's name.
        changed = _changed(workload, offer.key, _value(offer.value))
        if changed is not None:
            workload = changed
        agrees = offer.key == "run.precision" and _has(workload, offer.key)
        if changed is not None or agrees:
            known[offer.key] = Known(offer.key, "command line", offer.flag)
    if preset_file.bundled:
        switch = line.find(*_ADAPTERS)
        if switch is not None and switch.value.lower() in _OFF:
            workload = _changed(workload, "run.lora", None) or workload
        flag = adapters or (switch.flag if switch is not None else "")
        if flag and not any(key.startswith("run.lora") for key in known):
            known["run.lora"] = Known("run.lora", "command line", flag)
        off = next((option.flag for option in line.options if is_checkpointing_off(option.name, option.value)), "")
        if off and "run.checkpointing" not in known:
            workload = _changed(workload, "run.checkpointing", "none") or workload
            known["run.checkpointing"] = Known("run.checkpointing", "command line", off)
        workload = _with_defaults(workload, known, defaults_of(line, family))
    preset = msgspec.structs.replace(
        preset_file.preset, model=workload.model, run=workload.run, parallel=workload.parallel
    )
    read = msgspec.structs.replace(preset_file, preset=preset, known=tuple(known.values()))
    assumed = _left_open(workload, known) if preset_file.bundled else ()
    return msgspec.structs.replace(read, assumed=assumed) if known or assumed else preset_file


def _with_defaults(workload: Workload, known: dict[str, Known], defaults: dict[str, tuple[object, str]]) -> Workload:
    """`workload` as its launcher runs it where nothing is said; notes in `known` what is so."""
    for key, (value, launcher) in defaults.items():
        if key in known or not _has(workload, key) or (key == "run.lora" and any("lora" in one for one in known)):
            continue
        changed = _changed(workload, key, value)
        if changed is not None:
            workload = changed
        known[key] = Known(key, "launcher's default", f"{launcher}'s default")
    return workload


def _left_open(workload: Workload, known: Container[str]) -> tuple[str, ...]:
    """The keys on which the run's memory depends most and that are not known. Servers but llama.cpp take their share
    of the card whatever those are.
    """
    run = workload.run
    if isinstance(run, ServeRun):
        is_open = run.engine == "llama.cpp" and run.max_model_len is not None and "run.max_model_len" not in known
        return ("run.max_model_len",) if is_open else ()
    keys = [key for key in ("run.batch_size", "run.sequence_length", "run.precision") if _is_open(run, key, known)]
    if isinstance(run, TrainRun):
        is_said = any(key in known for key in ("run.lora", "run.lora.rank", "run.lora.target_modules"))
        keys += [] if is_said else ["run.lora"]
        keys += [] if run.lora is None or "run.lora.rank" in known else ["run.lora.rank"]
        keys += [] if "run.checkpointing" in known else ["run.checkpointing"]
    return tuple(keys)


def _is_open(run: TrainRun | InferRun, key: str, known: Container[str]) -> bool:
    return key not in known and getattr(run, key.removeprefix("run."), None) is not None


def _has(workload: Workload, key: str) -> bool:
    """Whether the run has such a key."""
    head, _, name = key.partition(".")
    return (
        head == "run"
        and name in workload.run.__struct_fields__
        and (name == "lora" or getattr(workload.run, name) is not None)
    )


def is_served(preset_file: PresetFile, command: str) -> bool:
    """Whether an engine serves the model that a bundled preset trains or generates with."""
    if not preset_file.bundled or isinstance(preset_file.preset.run, ServeRun):
        return False
    program = takewhile(lambda word: not word.startswith("--"), read_command_line(command).words)
    return any(_SERVERS.search(word) for word in program)


def _adapters(line: CommandLine, offers: Iterable[Offer], workload: Workload) -> str:
    """The flag that gives the job adapters which the preset does not have; empty where there is none."""
    run = workload.run
    if not isinstance(run, TrainRun) or run.lora is not None:
        return ""
    switch = line.find(*_ADAPTERS)
    if switch is not None:
        return "" if switch.value.lower() in _OFF else switch.flag
    return next((offer.flag for offer in offers if offer.key.startswith("run.lora.")), "")


def _offers(line: CommandLine) -> Iterator[Offer]:
    read = {
        option.key: option for option in offers_in_command(line, family_of(line)) if option.key.split(".")[0] in _HEADS
    }
    for option in line.options:
        key = OWN.get(option.name)
        value = whole(option.value)
        if key is not None and key not in read and value is not None:
            read[key] = Offer(key=key, value=value, flag=option.flag)
    # Sharing is one decision: its strategy and its sizes stand together or not at all, whatever their order.
    yield from sorted(read.values(), key=lambda offer: offer.key)


def _changed(workload: Workload, key: str, value: object) -> Workload | None:
    """`workload` with one value, or None where its run has no such key or the value says no more than is there."""
    tables: Any = msgspec.to_builtins(workload)
    *heads, last = key.split(".")
    table = tables
    for head in heads:
        if table.get(head) is None:
            if head != "parallel":
                return None  # adapters that the preset does not have: its own LoRA table would lack its layers
            table[head] = {}
        table = table[head]
    if heads[0] == "run" and last not in table:
        return None
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
