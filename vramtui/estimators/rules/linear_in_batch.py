"""Memory is a constant and a slope: two measured batches give any third."""

from fractions import Fraction

from vramtui.core.schema.rule_inputs import LinearInBatchRule
from vramtui.estimators.rules.base import Rule, RuleSheet

SOURCE = "Rule of thumb in wide use: memory = model + batch x what one sample takes"


def compute(inputs: LinearInBatchRule) -> RuleSheet:
    """The line through both points, at the batch asked for; exact at the two points themselves."""
    first, second = inputs.first, inputs.second
    slope = Fraction(second.bytes - first.bytes, second.batch_size - first.batch_size)
    constant = first.bytes - first.batch_size * slope
    total = round(constant + inputs.batch_size * slope)
    model = round(constant)
    sheet = RuleSheet(SOURCE, "backward", "Memory is taken to grow by the same amount with every sample.")
    sheet.add(
        "model",
        "weights",
        model,
        f"{first.bytes:,} B - {first.batch_size} x {float(slope):,.1f} B = {model:,} B: all that does not grow "
        "with the batch (states, workspaces, context)",
    )
    sheet.add(
        "samples",
        "activations",
        total - model,
        f"{inputs.batch_size} x ({second.bytes:,} B - {first.bytes:,} B) / ({second.batch_size} - {first.batch_size}) "
        f"= {total - model:,} B",
    )
    sheet.beside("one sample", "activations", round(slope), f"{float(slope):,.1f} B")
    return sheet


RULE = Rule(
    id="linear-in-batch",
    title="linear in the batch",
    source=SOURCE,
    takes=LinearInBatchRule,
    compute=compute,
)
