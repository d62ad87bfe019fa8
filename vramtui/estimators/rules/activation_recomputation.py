"""Activations of a transformer layer by what is recomputed: none, the attention core (selective), or all."""

from fractions import Fraction

from vramtui.core.schema.rule_inputs import ActivationsRule
from vramtui.core.schema.workload import Workload
from vramtui.estimators.rules.base import Rule, RuleSheet, gib
from vramtui.estimators.rules.shapes import training

SOURCE = "Korthikanti et al. 2022, Reducing Activation Recomputation in Large Transformer Models, Table 2"


def compute(inputs: ActivationsRule) -> RuleSheet:
    """s·b·h·(10 + 24/t + 5·a·s/(h·t)) per layer; the last term is the attention core that selective recomputes."""
    sheet = RuleSheet(SOURCE, "backward", "16-bit activations, MLP of 4 x hidden, dropout, eager attention.")
    tokens = inputs.sequence_length * inputs.batch_size
    unit = tokens * inputs.hidden_size * inputs.num_hidden_layers
    ranks = inputs.tensor_parallel
    what = f"s·b·h·L = {unit:,}"
    outside = Fraction(10 * unit, ranks if inputs.sequence_parallel else 1)
    inside = Fraction(24 * unit, ranks)
    core = Fraction(5 * inputs.num_attention_heads * inputs.sequence_length * tokens * inputs.num_hidden_layers, ranks)
    over = f" / {ranks}" if ranks > 1 else ""
    ratio = 5 * inputs.num_attention_heads * inputs.sequence_length / inputs.hidden_size
    parts = {
        "norms, dropouts and inputs": (outside, f"10 x {what}{over if inputs.sequence_parallel else ''}"),
        "attention and MLP": (inside, f"24 x {what}{over}"),
        "attention core": (core, f"5·a·s/h x {what}{over}, 5·a·s/h = {ratio:g}"),
    }
    kept = {"none": 3, "selective": 2, "full": 0}[inputs.recompute]
    for index, (name, (exact, formula)) in enumerate(parts.items()):
        size = round(exact)
        add = sheet.add if index < kept else sheet.beside
        add(name, "activations", size, f"{formula} = {gib(size)}")
    add = sheet.add if inputs.recompute == "full" else sheet.beside
    add(
        "inputs of each layer",
        "activations",
        2 * unit,
        f"2 x {what} = {gib(2 * unit)}, all that full recomputation keeps",
    )
    return sheet


def adapt(workload: Workload) -> ActivationsRule | None:
    """Training of a transformer."""
    found = training(workload)
    if found is None:
        return None
    model, run, length = found
    return ActivationsRule(
        hidden_size=model.hidden_size,
        num_hidden_layers=model.num_hidden_layers,
        num_attention_heads=model.num_attention_heads,
        sequence_length=length,
        batch_size=run.batch_size,
        recompute="full" if run.checkpointing == "full" else "none" if run.attention == "eager" else "selective",
    )


RULE = Rule(
    id="activation-recomputation",
    title="activations with selective recomputation",
    source=SOURCE,
    takes=ActivationsRule,
    compute=compute,
    adapt=adapt,
)
