"""Model states per rank under ZeRO's three stages, as the paper has them."""

from vramtui.core.estimate.ledger import Category
from vramtui.core.schema.rule_inputs import ZeroRule
from vramtui.core.schema.workload import TrainRun, Workload
from vramtui.estimators.rules.base import Rule, RuleSheet, ceil_share, gb
from vramtui.estimators.rules.shapes import parameter_count, transformer

SOURCE = "Rajbhandari et al. 2020, ZeRO: Memory Optimizations Toward Training Trillion Parameter Models, Figure 1"
NAMES = {0: "baseline", 1: "ZeRO-1 (optimizer)", 2: "ZeRO-2 (and gradients)", 3: "ZeRO-3 (and parameters)"}
# Bytes per parameter, and the first stage that shards them.
STATES: tuple[tuple[str, Category, int, int], ...] = (
    ("weights, fp16", "weights", 2, 3),
    ("gradients, fp16", "gradients", 2, 2),
    ("weights, fp32", "master_weights", 4, 1),
    ("momentum, fp32", "optimizer", 4, 1),
    ("variance, fp32", "optimizer", 4, 1),
)


def compute(inputs: ZeroRule) -> RuleSheet:
    """2 + 2 + 12 bytes per parameter; each state is divided by the ranks from its stage on."""
    count, ranks = inputs.parameters, inputs.ranks
    sheet = RuleSheet(SOURCE, "step", "Model states alone, on one rank; Adam in mixed precision.")
    for name, line, each, stage in STATES:
        over = ranks if inputs.stage >= stage else 1
        size = ceil_share(count * each, over)
        sheet.add(name, line, size, f"{count:,} parameters x {each} B / {over} = {gb(size)}")
    for stage, name in NAMES.items():
        total = sum(ceil_share(count * each, ranks if stage >= first else 1) for _, _, each, first in STATES)
        sheet.beside(f"all, {name}", "process", total, f"on each of {ranks} ranks: {gb(total)}")
    return sheet


def adapt(workload: Workload) -> ZeroRule | None:
    """Training in full; one rank, unsharded."""
    model, run = transformer(workload), workload.run
    if model is None or not isinstance(run, TrainRun) or run.lora is not None:
        return None
    return ZeroRule(parameters=parameter_count(model), ranks=1)


RULE = Rule(id="zero", title="ZeRO's model states", source=SOURCE, takes=ZeroRule, compute=compute, adapt=adapt)
