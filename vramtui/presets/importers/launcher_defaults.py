"""What a job's launcher does where nothing is said: settings that are known without a word of them.

Only what every release of the launcher does the same stands here, each looked up in the file of the release that its
row names. Precision is not in it: that of a Trainer without a flag follows from the checkpoint and the release.

TRL's configurations are a Trainer's with gradient_checkpointing True from 0.22 on (trl/trainer/sft_config.py, since 1.0
base_config.py) and False before, so nothing is known of it here: not of TRL's own scripts, and not of a script of
people's own, whose flags are the same with either library.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from vramtui.models.specs.adapters import ALL_LINEAR
from vramtui.presets.importers.command_lines import CommandLine

# What TRL trains by: words in the names of its scripts, and of those that others wrote with it (`run_sft.py`).
_TRL = {"bco", "cpo", "dpo", "gkd", "grpo", "kto", "orpo", "ppo", "reward", "rloo", "sft"}


class Launcher(NamedTuple):
    """A program that trains: how to know it, and what it does unless it is told otherwise.

    Attributes:
        name: as people call it.
        starts: whether a command line, whose options have the names of a family, is one of its.
        defaults: a preset's keys with the values that it takes; `run.lora` is None where it has no adapters.
        source: where that is said.
    """

    name: str
    starts: Callable[[CommandLine, str], bool]
    defaults: Mapping[str, object]
    source: str


def _is_trainer(line: CommandLine, family: str) -> bool:
    names = {option.name for option in line.options}
    return family == "trainer" and ("per_device_train_batch_size" in names or "do_train" in names)


def _is_example(line: CommandLine, family: str) -> bool:
    stem = line.script.removesuffix(".py")
    is_named_so = stem != line.script and stem.startswith("run_") and not _TRL & {*stem.split("_")}
    return _is_trainer(line, family) and is_named_so


def _is_llamafactory(line: CommandLine, family: str) -> bool:
    names = {option.name for option in line.options}
    is_named = any(word.rpartition("/")[2] in {"llamafactory-cli", "lmf"} for word in line.words[:4])
    return family == "trainer" and (is_named or {"stage", "finetuning_type"} <= names)


def _tuning(line: CommandLine) -> str:
    """LLaMA-Factory's way of training; empty where nothing is said."""
    option = line.find("finetuning_type")
    return option.value if option is not None else ""


LAUNCHERS = (
    Launcher(
        "Trainer",
        _is_trainer,
        {"run.batch_size": 8},
        "transformers 5 (00349ae8), src/transformers/training_args.py: per_device_train_batch_size 8; TRL 0.24 and 1.9,"
        " trl/trainer/*_config.py, leave it so",
    ),
    Launcher(
        "transformers' example",
        _is_example,
        {"run.checkpointing": "none", "run.lora": None},
        "as above: gradient_checkpointing False; examples/pytorch/*/run_*.py train all weights",
    ),
    Launcher(
        "diffusers' example",
        lambda line, family: family == "diffusers" and line.script.startswith("train_"),
        {"run.checkpointing": "none"},
        "diffusers (58eb52c0, 2026-08-23), examples/**/train_*.py: gradient_checkpointing is `store_true` in all 78",
    ),
    Launcher(
        "nanoGPT",
        lambda line, family: family == "nanogpt" and "megatron" not in line.script,
        {"run.checkpointing": "none", "run.lora": None},
        "nanoGPT (3adf61e1, 2025-11-12), train.py: neither activation checkpointing nor adapters",
    ),
    Launcher(
        "torchtune",
        lambda line, family: family == "torchtune" and line.script.startswith("full_"),
        {"run.lora": None},
        "torchtune 0.6 (bd2a0fc7), recipes/full_*.py train all weights",
    ),
    Launcher(
        "Megatron-LM",
        lambda _line, family: family == "megatron",
        {"run.lora": None, "run.checkpointing": "none"},
        "Megatron-LM core 0.6 and 0.14, megatron/training/arguments.py: recompute_granularity None, as later in"
        " megatron/core/transformer/transformer_config.py; pretrain_*.py train all weights",
    ),
    Launcher(
        "LLaMA-Factory",
        _is_llamafactory,
        {"run.checkpointing": "full"},
        "LLaMA-Factory 0.8.3 to 0.9.5, src/llamafactory/hparams/model_args.py: disable_gradient_checkpointing False",
    ),
    Launcher(
        "LLaMA-Factory",
        lambda line, family: _is_llamafactory(line, family) and _tuning(line) in {"", "lora"},
        {"run.lora": {"rank": 8, "target_modules": [ALL_LINEAR]}},
        "LLaMA-Factory 00577a85 (0.9.5), src/llamafactory/hparams/finetuning_args.py: finetuning_type lora,"
        " lora_rank 8, lora_target all",
    ),
    Launcher(
        "LLaMA-Factory",
        lambda line, family: _is_llamafactory(line, family) and _tuning(line) == "full",
        {"run.lora": None},
        "as above: finetuning_type full trains all weights",
    ),
)
# As above, of a file's program, by its kind in `file_keys.KEYS`.
FILES: Mapping[str, Mapping[str, object]] = {
    # axolotl (067b021c, 2026-07-24), src/axolotl/utils/schemas: config.py gradient_checkpointing False, peft.py adapter
    # None.
    "axolotl": {"run.checkpointing": "none", "run.lora": None},
    # torchtune 0.6 (bd2a0fc7), recipes/{full,lora,qat}_*.py: `cfg.get("enable_activation_checkpointing", False)`; the
    # others ask for it. Adapters have a lora_rank.
    "torchtune": {"run.checkpointing": "none", "run.lora": None},
    # As above.
    "llamafactory": {"run.checkpointing": "full"},
}


def defaults_of_file(kind: str, values: Mapping[str, str]) -> dict[str, object]:
    """The defaults of the program that a job file is for.

    Args:
        kind: of the file.
        values: what it says.
    """
    defaults = dict(FILES.get(kind, {}))
    tuning = values.get("finetuning_type", "lora")
    if kind == "llamafactory" and tuning == "lora":
        defaults |= {"run.lora.rank": "8", "run.lora.target_modules": f'["{ALL_LINEAR}"]'}
    elif kind == "llamafactory" and tuning == "full":
        defaults["run.lora"] = None
    return defaults


def defaults_of(line: CommandLine, family: str) -> dict[str, tuple[object, str]]:
    """What the launcher of a command line takes where nothing is said, each key with its value and that launcher."""
    return {
        key: (value, launcher.name)
        for launcher in LAUNCHERS
        if launcher.starts(line, family)
        for key, value in launcher.defaults.items()
    }
