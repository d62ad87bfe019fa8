"""A preset with the values of a running job's own command line, each with the flag it was read from, and with its
launcher's defaults.
"""

import re
from collections.abc import Callable, Collection, Container, Iterator, Mapping
from itertools import takewhile
from typing import Any, NamedTuple

import msgspec

from vramtui.core.base import toml
from vramtui.core.base.text import printable
from vramtui.core.estimate.assumptions import with_usual_adapters
from vramtui.core.schema.preset import Known, PresetFile
from vramtui.core.schema.workload import ServeRun, TrainRun, Workload
from vramtui.models.specs.adapters import ALL_LINEAR
from vramtui.presets.importers.command_lines import CommandLine, Option, read_command_line
from vramtui.presets.importers.flags import (
    FLAGS,
    LAUNCHED,
    MODEL_FLAGS,
    OWN,
    SHARED,
    WEIGHTLESS,
    is_checkpointing_off,
    whole,
)
from vramtui.presets.importers.job_files import FILE_OPTIONS, SAYS_NOTHING, JobFile, Offer
from vramtui.presets.importers.process_offers import family_of, image_size, model_named, offers_in_command

# Switches that give a job adapters, of libraries and of people's own scripts.
_ADAPTERS = ("lora", "use_lora", "qlora", "use_qlora", "use_peft", "peft", "dora", "use_dora")
_OFF = {"false", "no", "none", "0", "off"}
# Programs that serve a model and take their share of the card, whatever a training or inference preset says.
_SERVERS = re.compile(
    r"(?:^|/)(?:vllm|sglang|llama-server|text-generation-(?:launcher|server))$|^(?:vllm\.entrypoints|sglang\.launch_server)"
)
# The shape is the preset's: a command line that names another one names another model.
_HEADS = ("run", "parallel")


def with_command(preset_file: PresetFile, command: str) -> PresetFile:
    """Set `preset_file`'s run to the values of `command`, and a bundled preset's other values to its launcher's
    defaults; `known` lists those, `assumed` the rest. A person's own preset keeps its other values.

    A value that the run does not have is left out.
    """
    line = read_command_line(command)
    family, bundled = family_of(line), preset_file.bundled
    offers = {one.key: one for one in offers_in_command(line, family) if one.key.split(".")[0] in _HEADS}
    for option in line.options:
        key, value = OWN.get(option.name), whole(option.value)
        if key is not None and key not in offers and value is not None:
            offers[key] = Offer(key=key, value=value, flag=option.flag)
    workload, known = preset_file.preset.workload, {one.key: one for one in preset_file.known}
    switch = line.find(*_ADAPTERS)
    is_off = switch is not None and switch.value.lower() in _OFF
    adapters = ""  # the flag that gives the job adapters which the preset does not have
    if bundled and isinstance(workload.run, TrainRun) and workload.run.lora is None and not is_off:
        first = next((offer.flag for key, offer in sorted(offers.items()) if key.startswith("run.lora.")), "")
        adapters = first if switch is None else switch.flag
    if adapters:
        workload = with_usual_adapters(workload)
    # Sharding is one decision: its strategy and its sizes are set together or not at all, whatever their order.
    for _, offer in (*sorted(offers.items()), *((one.key, one) for one in image_size(line, preset_file))):
        try:
            read: object = toml.loads(f"value = {offer.value}")["value"]
        except (ValueError, RecursionError):
            read = offer.value
        changed = _changed(workload, offer.key, read)
        if changed is not None:
            workload = changed
        if changed is not None or (offer.key == "run.precision" and _has(workload, offer.key)):
            known[offer.key] = Known(offer.key, "command line", offer.flag)
    if bundled:
        if is_off:
            workload = _changed(workload, "run.lora", None) or workload
        flag = adapters or (switch.flag if switch is not None else "")
        if flag and not any(key.startswith("run.lora") for key in known):
            known["run.lora"] = Known("run.lora", "command line", flag)
        off = next((option.flag for option in line.options if is_checkpointing_off(option.name, option.value)), "")
        if off and "run.checkpointing" not in known:
            workload = _changed(workload, "run.checkpointing", "none") or workload
            known["run.checkpointing"] = Known("run.checkpointing", "command line", off)
        for key, default, launcher in _defaults(line, family):
            if key in known or not _has(workload, key) or (key == "run.lora" and any("lora" in one for one in known)):
                continue
            workload = _changed(workload, key, default) or workload
            known[key] = Known(key, "launcher's default", f"{launcher}'s default")
    preset = msgspec.structs.replace(
        preset_file.preset, model=workload.model, run=workload.run, parallel=workload.parallel
    )
    assumed = _left_open(workload, known) if bundled else ()
    if not known and not assumed:
        return preset_file
    return msgspec.structs.replace(preset_file, preset=preset, known=tuple(known.values()), assumed=assumed)


def unused_options(line: CommandLine, preset_file: PresetFile, files: Collection[JobFile] = ()) -> list[str]:
    """The options of a command, as written, that are not understood or do not apply to the run."""
    family, read = (
        family_of(line),
        {word for known in preset_file.known for word in (known.words, *known.words.split())},
    )
    table = FLAGS[family]
    named = model_named(line, family)

    def is_used(option: Option) -> bool:
        if option.name in table:
            spelled = table[option.name][1](option.value)
            if spelled is None:
                return option.value.lower() in SAYS_NOTHING
            return printable(option.flag) in read or table[option.name][0] == "run.precision"
        known = (*MODEL_FLAGS, *_ADAPTERS, *LAUNCHED, *SHARED, *OWN, *FILE_OPTIONS, "nnodes", "num_nodes", "resolution")
        return (
            option == named
            or option.name in known
            or option.name in {"fsdp", "use_fsdp", "fsdp_sharding_strategy", "zero_stage", "finetuning_type"}
            or is_checkpointing_off(option.name, option.value)
            or any(file.name == option.value for file in files)
            or WEIGHTLESS.match(option.name) is not None
        )

    return [option.flag for option in line.options if not is_used(option)]


def _left_open(workload: Workload, known: Container[str]) -> tuple[str, ...]:
    """The keys on which the run's memory depends most and that are unknown. All servers but llama.cpp take their share
    of the card whatever they are.
    """
    run = workload.run
    if isinstance(run, ServeRun):
        follows = run.engine == "ollama" or (run.is_llama_cpp and run.max_model_len is not None)
        return ("run.max_model_len",) if follows and "run.max_model_len" not in known else ()
    sizes = ("batch_size", "sequence_length", "precision")
    keys = [f"run.{name}" for name in sizes if f"run.{name}" not in known and getattr(run, name, None) is not None]
    if isinstance(run, TrainRun):
        is_said = any(key in known for key in ("run.lora", "run.lora.rank", "run.lora.target_modules"))
        keys += [] if is_said else ["run.lora"]
        keys += [] if run.lora is None or "run.lora.rank" in known else ["run.lora.rank"]
        keys += [] if "run.checkpointing" in known else ["run.checkpointing"]
    return tuple(keys)


def _has(workload: Workload, key: str) -> bool:
    """Return whether the run has that key."""
    head, _, name = key.partition(".")
    return (
        head == "run"
        and name in workload.run.__struct_fields__
        and (name == "lora" or getattr(workload.run, name) is not None)
    )


def _changed(workload: Workload, key: str, value: object) -> Workload | None:
    """`workload` with one value; None if its run has no such key or already has as much."""
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


def is_served(preset_file: PresetFile, command: str) -> bool:
    """Return whether an engine serves the model that a bundled preset trains or generates with."""
    if not preset_file.bundled or isinstance(preset_file.preset.run, ServeRun):
        return False
    program = takewhile(lambda word: not word.startswith("--"), read_command_line(command).words)
    return any(_SERVERS.search(word) for word in program)


# Defaults of launchers: only what every release of a launcher does the same, each with the file that shows it.
# Precision is not among them: a Trainer's without a flag follows from the checkpoint and the release.
#
# TRL's configurations are a Trainer's with gradient_checkpointing True from 0.22 on (trl/trainer/sft_config.py, since
# 1.0 base_config.py) and False before, so it is unknown for TRL's own scripts, and for people's own, whose flags are
# the same with either library.
_TRL = {"bco", "cpo", "dpo", "gkd", "grpo", "kto", "orpo", "ppo", "reward", "rloo", "sft"}  # in its scripts' names


class Launcher(NamedTuple):
    """A training program: its name, how to recognise its command line (of a family), and its defaults by a preset's
    key; `run.lora` is None if it has no adapters.
    """

    name: str
    starts: Callable[[CommandLine, str], bool]
    defaults: Mapping[str, object]


def _is_trainer(line: CommandLine, family: str) -> bool:
    return family == "trainer" and line.find("per_device_train_batch_size", "do_train") is not None


def _is_example(line: CommandLine, family: str) -> bool:
    stem = line.script.removesuffix(".py")
    is_named_so = stem != line.script and stem.startswith("run_") and not _TRL & {*stem.split("_")}
    return _is_trainer(line, family) and is_named_so


def _is_llamafactory(line: CommandLine, family: str, *tuning: str) -> bool:
    """Recognise LLaMA-Factory; with `tuning` only if its finetuning_type (or an empty text) is one of these."""
    names = {option.name for option in line.options}
    is_named = any(word.rpartition("/")[2] in {"llamafactory-cli", "lmf"} for word in line.words[:4])
    option = line.find("finetuning_type")
    is_tuned_so = not tuning or (option.value if option is not None else "") in tuning
    return family == "trainer" and is_tuned_so and (is_named or {"stage", "finetuning_type"} <= names)


LAUNCHERS = (
    # transformers 5 (00349ae8), src/transformers/training_args.py: per_device_train_batch_size 8; TRL 0.24 and 1.9,
    # trl/trainer/*_config.py, leave it so
    Launcher("Trainer", _is_trainer, {"run.batch_size": 8}),
    # as above: gradient_checkpointing False; examples/pytorch/*/run_*.py train all weights
    Launcher("transformers' example", _is_example, {"run.checkpointing": "none", "run.lora": None}),
    # diffusers (58eb52c0, 2026-08-23), examples/**/train_*.py: gradient_checkpointing is `store_true` in all 78
    Launcher(
        "diffusers' example",
        lambda line, family: family == "diffusers" and line.script.startswith("train_"),
        {"run.checkpointing": "none"},
    ),
    # nanoGPT (3adf61e1, 2025-11-12), train.py: neither activation checkpointing nor adapters
    Launcher(
        "nanoGPT",
        lambda line, family: family == "nanogpt" and "megatron" not in line.script,
        {"run.checkpointing": "none", "run.lora": None},
    ),
    # torchtune 0.6 (bd2a0fc7), recipes/full_*.py train all weights
    Launcher(
        "torchtune", lambda line, family: family == "torchtune" and line.script.startswith("full_"), {"run.lora": None}
    ),
    # Megatron-LM core 0.6 and 0.14, megatron/training/arguments.py: recompute_granularity None, as later in
    # megatron/core/transformer/transformer_config.py; pretrain_*.py train all weights
    Launcher("Megatron-LM", lambda _, family: family == "megatron", {"run.lora": None, "run.checkpointing": "none"}),
    # LLaMA-Factory 0.8.3 to 0.9.5, src/llamafactory/hparams/model_args.py: disable_gradient_checkpointing False
    Launcher("LLaMA-Factory", _is_llamafactory, {"run.checkpointing": "full"}),
    # LLaMA-Factory 00577a85 (0.9.5), src/llamafactory/hparams/finetuning_args.py: finetuning_type lora, lora_rank 8,
    # lora_target all
    Launcher(
        "LLaMA-Factory",
        lambda line, family: _is_llamafactory(line, family, "", "lora"),
        {"run.lora": {"rank": 8, "target_modules": [ALL_LINEAR]}},
    ),
    # as above: finetuning_type full trains all weights
    Launcher("LLaMA-Factory", lambda line, family: _is_llamafactory(line, family, "full"), {"run.lora": None}),
)


def _defaults(line: CommandLine, family: str) -> Iterator[tuple[str, object, str]]:
    """Keys with the launcher's default and its name; the last default of a key is in force."""
    values = {
        key: (value, launcher.name)
        for launcher in LAUNCHERS
        if launcher.starts(line, family)
        for key, value in launcher.defaults.items()
    }
    return ((key, value, name) for key, (value, name) in values.items())
