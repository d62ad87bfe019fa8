"""What a job's launcher does where nothing is said: settings that are known without a word of them.

Only what every release of the launcher does the same stands here. Precision is not in it: what a Trainer computes in
without a flag follows from the checkpoint and the release.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from vramtui.presets.importers.command_lines import CommandLine

# TRL's commands and scripts; its own arguments switch checkpointing on (SFTConfig, trl/trainer/sft_config.py, 0.24).
_TRL = ("sft.py", "dpo.py", "grpo.py", "kto.py", "orpo.py", "reward_modeling.py", "sft", "dpo", "grpo", "kto")


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
    own = "trl" in line.words[:4] or line.script in _TRL
    return family == "trainer" and not own and ("per_device_train_batch_size" in names or "do_train" in names)


def _is_example(line: CommandLine, family: str) -> bool:
    return _is_trainer(line, family) and line.script.startswith("run_") and line.script.endswith(".py")


LAUNCHERS = (
    Launcher(
        "Trainer",
        _is_trainer,
        {"run.checkpointing": "none", "run.batch_size": 8},
        "transformers 4.0 to 5.2, training_args.py: gradient_checkpointing False, per_device_train_batch_size 8",
    ),
    Launcher(
        "transformers' example",
        _is_example,
        {"run.lora": None},
        "transformers 4.57, examples/pytorch: run_*.py train all weights",
    ),
    Launcher(
        "diffusers' example",
        lambda line, family: family == "diffusers" and line.script.startswith("train_"),
        {"run.checkpointing": "none"},
        "diffusers 0.35, examples/*/train_*.py: gradient_checkpointing is a switch that is off",
    ),
    Launcher(
        "nanoGPT",
        lambda line, family: family == "nanogpt" and "megatron" not in line.script,
        {"run.checkpointing": "none", "run.lora": None},
        "nanoGPT, train.py: neither activation checkpointing nor adapters",
    ),
    Launcher(
        "torchtune",
        lambda line, family: family == "torchtune" and line.script.startswith("full_"),
        {"run.lora": None},
        "torchtune 0.6, recipes/full_finetune_*.py train all weights",
    ),
    Launcher(
        "Megatron-LM",
        lambda _line, family: family == "megatron",
        {"run.lora": None, "run.checkpointing": "none"},
        "Megatron-LM core 0.14, arguments.py: recompute_granularity None; pretrain_*.py train all weights",
    ),
)
# As above, of a file's program, by its kind in `file_keys.KEYS`.
FILES: Mapping[str, Mapping[str, object]] = {
    # axolotl 0.12, utils/schemas: gradient_checkpointing False, adapter None.
    "axolotl": {"run.checkpointing": "none", "run.lora": None},
    # torchtune 0.6, recipes/*.py: `cfg.get("enable_activation_checkpointing", False)`.
    "torchtune": {"run.checkpointing": "none", "run.lora": None},
    # LLaMA-Factory 0.9, model_args.py: `disable_gradient_checkpointing: bool = False`.
    "llamafactory": {"run.checkpointing": "full"},
}


def defaults_of(line: CommandLine, family: str) -> dict[str, tuple[object, str]]:
    """What the launcher of a command line takes where nothing is said, each key with its value and that launcher."""
    return {
        key: (value, launcher.name)
        for launcher in LAUNCHERS
        if launcher.starts(line, family)
        for key, value in launcher.defaults.items()
    }
