"""Model states of one rank: ZeRO's three stages as the paper has them, and DeepSpeed's own estimators."""

from typing import Any

from msgspec import structs

from vramtui.core.estimate.ledger import Category
from vramtui.core.schema.rule_inputs.steps import DeepspeedRule, ZeroRule
from vramtui.core.schema.workload import TrainRun, Workload
from vramtui.estimators.rules.base import Rule, RuleSheet, ceil_share, gb, gib, parameter_count, transformer

ZERO_SOURCE = "Rajbhandari et al. 2020, ZeRO: Memory Optimizations Toward Training Trillion Parameter Models, Figure 1"
NAMES = {0: "baseline", 1: "ZeRO-1 (optimizer)", 2: "ZeRO-2 (and gradients)", 3: "ZeRO-3 (and parameters)"}
# Bytes per parameter, and the first stage that shards them.
STATES: tuple[tuple[str, Category, int, int], ...] = (
    ("weights, fp16", "weights", 2, 3),
    ("gradients, fp16", "gradients", 2, 2),
    ("weights, fp32", "master_weights", 4, 1),
    ("momentum, fp32", "optimizer", 4, 1),
    ("variance, fp32", "optimizer", 4, 1),
)


def zero(inputs: ZeroRule) -> RuleSheet:
    """2 + 2 + 12 bytes per parameter; each state is divided by the ranks from its stage on."""
    count, ranks = inputs.parameters, inputs.ranks
    sheet = RuleSheet(ZERO_SOURCE, "step", "Model states alone, on one rank; Adam in mixed precision.")
    for name, line, each, stage in STATES:
        over = ranks if inputs.stage >= stage else 1
        size = ceil_share(count * each, over)
        sheet.add(name, line, size, f"{count:,} parameters x {each} B / {over} = {gb(size)}")
    for stage, name in NAMES.items():
        total = sum(ceil_share(count * each, ranks if stage >= first else 1) for _, _, each, first in STATES)
        sheet.mention(f"all, {name}", "process", total, f"on each of {ranks} ranks: {gb(total)}")
    return sheet


def zero_inputs(workload: Workload) -> ZeroRule | None:
    """Training in full; one rank, unsharded."""
    model, run = transformer(workload), workload.run
    if model is None or not isinstance(run, TrainRun) or run.lora is not None:
        return None
    return ZeroRule(parameters=parameter_count(model), ranks=1)


DEEPSPEED_SOURCE = (
    "DeepSpeed, docs/code-docs/source/memory.rst; runtime/zero/stage_1_and_2.py and stage3.py "
    "(estimate_zero2/3_model_states_mem_needs)"
)
# What the optimizer keeps in fp32, in bytes per parameter: it moves to the host as a whole.
FP32: tuple[tuple[str, Category, int], ...] = (
    ("gradients, fp32", "gradients", 4),
    ("weights, fp32", "master_weights", 4),
    ("Adam's moments", "optimizer", 8),
)
State = tuple[str, Category, int, str]


def deepspeed(inputs: DeepspeedRule) -> RuleSheet:
    """ZeRO-2: 4 P + 16 P / ranks (now 2 P + 18 P / ranks); ZeRO-3: 4 x the largest layer + 18 P / ranks."""
    sheet = RuleSheet(DEEPSPEED_SOURCE, "step", "Model states on one GPU; DeepSpeed's GB are 2^30 bytes.")
    for name, line, size, formula in _states(inputs):
        sheet.add(name, line, size, f"{formula} = {gib(size)}")
    for name, optimizer, parameters in (
        ("all, nothing offloaded", False, False),
        ("all, optimizer offloaded", True, False),
        ("all, parameters and optimizer offloaded", True, True),
    ):
        if inputs.stage == 3 or not parameters:
            option = structs.replace(inputs, offload_optimizer=optimizer, offload_parameters=parameters)
            total = sum(size for _, _, size, _ in _states(option))
            sheet.mention(name, "process", total, f"on each of {inputs.ranks} GPUs: {gib(total)}")
    return sheet


def _states(inputs: DeepspeedRule) -> list[State]:
    states: list[State] = []
    if inputs.stage == 3:
        layer = inputs.largest_layer_parameters or 0
        states.append(("largest layer, gathered", "temporaries", 4 * layer, f"{layer:,} parameters x (2 + 2) B"))
    if not inputs.offload_parameters:
        states.append(_state(inputs, "weights, fp16", "weights", 2, inputs.ranks if inputs.stage == 3 else 1))
    if not inputs.offload_optimizer:
        if inputs.stage == 2:
            ranks = inputs.ranks if inputs.formula == "current" else 1
            states.append(_state(inputs, "gradients, fp16", "gradients", 2, ranks))
        states += [_state(inputs, name, line, each, inputs.ranks) for name, line, each in FP32]
    return states


def _state(inputs: DeepspeedRule, name: str, line: Category, each: int, ranks: int) -> State:
    size = ceil_share(inputs.parameters * each, ranks)
    return name, line, size, f"{inputs.parameters:,} parameters x {each} B / {ranks}"


RULES: tuple[Rule[Any], ...] = (
    Rule("zero", "ZeRO's model states", ZERO_SOURCE, ZeroRule, zero, zero_inputs),
    Rule("deepspeed", "DeepSpeed's estimators for ZeRO-2 and ZeRO-3", DEEPSPEED_SOURCE, DeepspeedRule, deepspeed),
)
