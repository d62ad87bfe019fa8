"""Model states and residual states, as the ZeRO paper counts them on GPT-2."""

from fractions import Fraction
from math import isqrt

from vramtui.core.estimate.ledger import Category
from vramtui.core.schema.rule_inputs import Gpt2ResidualRule
from vramtui.core.schema.workload import Workload
from vramtui.estimators.rules.base import Rule, RuleSheet, gb
from vramtui.estimators.rules.shapes import full_training, parameter_count

SOURCE = "Rajbhandari et al. 2020, ZeRO: Memory Optimizations Toward Training Trillion Parameter Models, section 3"
STATES: tuple[tuple[str, Category, int], ...] = (
    ("weights, fp16", "weights", 2),
    ("gradients, fp16", "gradients", 2),
    ("weights, fp32", "master_weights", 4),
    ("momentum, fp32", "optimizer", 4),
    ("variance, fp32", "optimizer", 4),
)


def compute(inputs: Gpt2ResidualRule) -> RuleSheet:
    """16 B per parameter; activations 12 x hidden x batch x sequence x layers in fp16; a fused fp32 buffer."""
    count = inputs.parameters
    sheet = RuleSheet(SOURCE, "backward", "Adam in mixed precision; one buffer of fp32 for fused gradients.")
    for name, line, each in STATES:
        sheet.add(name, line, each * count, f"{count:,} parameters x {each} B = {gb(each * count)}")
    sheet.beside("model states", "process", 16 * count, f"{count:,} parameters x 16 B = {gb(16 * count)}")
    _add_activations(sheet, inputs)
    sheet.add("fused fp32 buffer", "temporaries", 4 * count, f"{count:,} parameters x 4 B = {gb(4 * count)}")
    if inputs.fragmentation:
        used = sum(part.at_peak for part in sheet.parts)
        part = Fraction(repr(inputs.fragmentation))
        lost = round(used * part / (1 - part))
        sheet.add(
            "fragmentation",
            "cached",
            lost,
            f"{inputs.fragmentation:.0%} of the memory free and of no use: {gb(used)} x {inputs.fragmentation:g} / "
            f"(1 - {inputs.fragmentation:g}) = {gb(lost)}",
        )
    return sheet


def _add_activations(sheet: RuleSheet, inputs: Gpt2ResidualRule) -> None:
    """With checkpointing the paper's square root counts in the total; the other figures stand beside it."""
    tokens = f"hidden {inputs.hidden_size} x batch {inputs.batch_size} x sequence {inputs.sequence_length}"
    one = inputs.hidden_size * inputs.batch_size * inputs.sequence_length * 2
    layers = inputs.num_hidden_layers
    full = 12 * one * layers
    # The paper says "the square root of the total": that holds only with the total in units of 1 GB.
    root = isqrt(full * 10**9)
    stored = one * layers
    add, other = (sheet.add, sheet.beside) if inputs.checkpointing == "none" else (sheet.beside, sheet.add)
    add("activations", "activations", full, f"12 x {tokens} x {layers} layers x 2 B = {gb(full)}")
    other(
        "activations, checkpointed as published",
        "activations",
        root,
        f"the square root of the {full / 10**9:.1f} GB, taken in units of GB = {gb(root)}, published as about 8 GB "
        "for GPT-2 of 1.5 B",
    )
    sheet.beside(
        "activations, one input stored per layer",
        "activations",
        stored,
        f"{tokens} x {layers} layers x 2 B = {gb(stored)}",
    )
    sheet.beside(
        "activations of one layer, made again", "activations", 12 * one, f"12 x {tokens} x 2 B = {gb(12 * one)}"
    )


def adapt(workload: Workload) -> Gpt2ResidualRule | None:
    """Any training of a whole transformer."""
    found = full_training(workload)
    if found is None:
        return None
    model, run, length = found
    return Gpt2ResidualRule(
        parameters=parameter_count(model),
        hidden_size=model.hidden_size,
        num_hidden_layers=model.num_hidden_layers,
        batch_size=run.batch_size,
        sequence_length=length,
        checkpointing="none" if run.checkpointing == "none" else "full",
    )


RULE = Rule(
    id="gpt2-residual",
    title="model states and residual states",
    source=SOURCE,
    takes=Gpt2ResidualRule,
    compute=compute,
    adapt=adapt,
    errata=(
        (
            "checkpointing is said to take the square root of 60 GB, 8 GB; a root of bytes has no unit, and one "
            "input kept for each layer plus one layer made again is what it takes (both stand beside)."
        ),
        (
            "a model of 100 B parameters is said to need 60 GB of activations with checkpointing, without its "
            "shape; the same square root gives 28.4 GB for 8,192 wide and 125 layers, one input per layer 67.1 GB."
        ),
    ),
)
