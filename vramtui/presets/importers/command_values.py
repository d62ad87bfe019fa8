"""A preset with the values that a running job's own command line has, each with the flag it was read from."""

import re
from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import Any

import msgspec

from vramtui.core.base import toml
from vramtui.core.schema.decoder_models import TransformerModel
from vramtui.core.schema.preset import PresetFile
from vramtui.core.schema.workload import Lora, ServeRun, TrainRun, Workload
from vramtui.presets.importers.command_lines import CommandLine, read_command_line
from vramtui.presets.importers.file_offers import Offer
from vramtui.presets.importers.flags import OWN, whole
from vramtui.presets.importers.process_offers import family_of, image_size, offers_in_command

# Switches that give a job adapters, of libraries and of scripts of people's own.
_ADAPTERS = ("lora", "use_lora", "qlora", "use_qlora", "use_peft", "peft", "dora", "use_dora")
_OFF = {"false", "no", "none", "0", "off"}
# What peft's LoraConfig has where nothing is said: rank 8, and of the usual decoders these layers
# (peft/tuners/lora/config.py and peft/utils/constants.py, 0.17).
USUAL_RANK, USUAL_MODULES = 8, ("q_proj", "v_proj")
# Programs that serve a model and take their share of the card, whatever a training or inference preset says of it.
_SERVERS = re.compile(
    r"(?:^|/)(?:vllm|sglang|llama-server|text-generation-(?:launcher|server))$|^(?:vllm\.entrypoints|sglang\.launch_server)"
)
# The shape is the preset's: a command line that names another one names another model.
_HEADS = ("run", "parallel")


def with_command(found: PresetFile, command: str) -> PresetFile:
    """`found` with its run's values as `command` says them; `said` names the flags.

    What the command line does not say stays as the preset has it. That is `assumed` of a bundled preset whose batch,
    sequence, precision or rank of its adapters is not said, or which the job gives adapters without saying them in
    full: somebody's own preset is taken at its word. A value that the run does not have is left out.
    """
    line = read_command_line(command)
    offers = tuple(_offers(line))
    workload, said = found.preset.workload, dict[str, str]()
    adapters = _adapters(line, offers, workload) if found.bundled else ""
    if adapters:
        workload = _with_adapters(workload)
    for offer in offers:
        changed = _changed(workload, offer)
        if changed is not None:
            workload, said[offer.key] = changed, offer.flag
        elif offer.key == "run.precision" and getattr(workload.run, "precision", None) is not None:
            said[offer.key] = offer.flag  # it agrees with the preset
    for offer in image_size(line, found):
        # The shape is the preset's but for the size of its images, which is the run's in all but the table's name.
        changed = _changed(workload, offer)
        if changed is not None:
            workload, said[offer.key] = changed, offer.flag
    if adapters and not any(key.startswith("run.lora") for key in said):
        said["run.lora"] = adapters
    preset = msgspec.structs.replace(found.preset, model=workload.model, run=workload.run, parallel=workload.parallel)
    read = msgspec.structs.replace(found, preset=preset, said=tuple(said.items()))
    unsaid = read.unsaid_sizes + (read.unsaid_adapters if adapters else read.unsaid_rank)
    assumed = found.bundled and not isinstance(workload.run, ServeRun) and bool(unsaid)
    return msgspec.structs.replace(read, assumed=assumed) if said or assumed else found


def is_served(found: PresetFile, command: str) -> bool:
    """Whether an engine serves the model that a bundled preset trains or generates with."""
    if not found.bundled or isinstance(found.preset.run, ServeRun):
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


def _with_adapters(workload: Workload) -> Workload:
    """`workload` with peft's usual adapters; as it is where its layers have other names."""
    model, run = workload.model, workload.run
    if not isinstance(run, TrainRun) or not isinstance(model, TransformerModel):
        return workload
    if model.fused_qkv or model.kv_lora_rank is not None:
        return workload
    adapted = msgspec.structs.replace(run, lora=Lora(rank=USUAL_RANK, target_modules=USUAL_MODULES))
    return msgspec.structs.replace(workload, run=adapted)


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
