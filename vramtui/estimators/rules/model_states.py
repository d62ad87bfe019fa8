"""Bytes per parameter by what is done with the model, and the ZeRO paper's model and residual states of GPT-2."""

from fractions import Fraction
from math import isqrt
from typing import Any

from vramtui.core.estimate.estimate import Phase
from vramtui.core.estimate.ledger import Category
from vramtui.core.schema.rule_inputs.formulas import BytesPerParameterRule, Gpt2ResidualRule, WeightType
from vramtui.core.schema.workload import InferRun, TrainRun, Workload
from vramtui.estimators.rules.base import Rule, RuleSheet, full_training, gb, parameter_count, transformer

BYTES_SOURCE = (
    "Rule of thumb in wide use: 6 + 2 + 8 bytes for AdamW in mixed precision (Hugging Face, model memory anatomy; "
    "Rajbhandari et al. 2020, section 3.1), weights alone for LoRA and QLoRA"
)
WEIGHTS: dict[WeightType, Fraction] = {
    "fp32": Fraction(4),
    "tf32": Fraction(4),
    "bf16": Fraction(2),
    "fp16": Fraction(2),
    "int8": Fraction(1),
    "int4": Fraction(1, 2),
}
PHASES: dict[str, dict[Category, tuple[Fraction, str]]] = {
    "full-fp16": {
        "weights": (Fraction(2), "fp16"),
        "gradients": (Fraction(2), "fp16"),
        "optimizer": (Fraction(4), "two fp16 moments"),
    },
    "mixed": {
        "weights": (Fraction(6), "2 bf16 and 4 of the fp32 copy"),
        "gradients": (Fraction(2), "bf16"),
        "optimizer": (Fraction(8), "two fp32 moments"),
    },
    "lora": {"weights": (Fraction(2), "frozen, 16 bits; the adapters are left out")},
    "qlora": {"weights": (Fraction(1, 2), "frozen, 4 bits; the adapters are left out")},
}
FOUR_BITS = {"int4", "nf4", "nf4-double"}
KEPT_IN: dict[str, WeightType] = {"fp32": "fp32", "tf32": "tf32", "fp16": "fp16"}
TITLES = {"full-fp16": "full fp16", "mixed": "mixed bf16", "lora": "LoRA", "qlora": "QLoRA"}


def bytes_per_parameter(inputs: BytesPerParameterRule) -> RuleSheet:
    """Parameters times bytes, line by line; the rest of the table stands beside."""
    count = inputs.parameters
    phase: Phase = "build" if inputs.phase == "inference" else "step"
    sheet = RuleSheet(BYTES_SOURCE, phase, "No activations, no inputs, no CUDA context.")
    if inputs.phase == "inference":
        lines: dict[Category, tuple[Fraction, str]] = {"weights": (WEIGHTS[inputs.dtype], inputs.dtype)}
    else:
        lines = PHASES[inputs.phase]
    for line, (each, why) in lines.items():
        sheet.add(line, line, _times(count, each), _formula(count, each, why))
    for other, table in PHASES.items():
        if other != inputs.phase:
            total = sum((each for each, _ in table.values()), Fraction(0))
            sheet.mention(
                f"all, {TITLES[other]}", "process", _times(count, total), _formula(count, total, TITLES[other])
            )
    for dtype, each in WEIGHTS.items():
        if inputs.phase != "inference" or dtype != inputs.dtype:
            sheet.mention(f"weights in {dtype}", "weights", _times(count, each), _formula(count, each, dtype))
    return sheet


def bytes_inputs(workload: Workload) -> BytesPerParameterRule | None:
    """The phase that is nearest to the run."""
    model, run = transformer(workload), workload.run
    if model is None:
        return None
    count = parameter_count(model)
    if isinstance(run, InferRun):
        return BytesPerParameterRule(parameters=count, phase="inference", dtype=KEPT_IN.get(run.precision, "bf16"))
    if not isinstance(run, TrainRun):
        return None
    if run.lora is not None and run.quantization is not None:
        # The rule knows QLoRA with 4 bits alone.
        return BytesPerParameterRule(parameters=count, phase="qlora") if run.quantization in FOUR_BITS else None
    if run.lora is not None:
        return BytesPerParameterRule(parameters=count, phase="lora")
    return BytesPerParameterRule(parameters=count, phase="full-fp16" if run.precision in {"bf16", "fp16"} else "mixed")


def _times(count: int, each: Fraction) -> int:
    return round(count * each)


def _formula(count: int, each: Fraction, why: str) -> str:
    return f"{count:,} parameters x {float(each):g} B ({why}) = {gb(_times(count, each))}"


RESIDUAL_SOURCE = (
    "Rajbhandari et al. 2020, ZeRO: Memory Optimizations Toward Training Trillion Parameter Models, section 3"
)
RESIDUAL_STATES: tuple[tuple[str, Category, int], ...] = (
    ("weights, fp16", "weights", 2),
    ("gradients, fp16", "gradients", 2),
    ("weights, fp32", "master_weights", 4),
    ("momentum, fp32", "optimizer", 4),
    ("variance, fp32", "optimizer", 4),
)


def gpt2_residual(inputs: Gpt2ResidualRule) -> RuleSheet:
    """16 B per parameter; activations 12 x hidden x batch x sequence x layers in fp16; a fused fp32 buffer."""
    count = inputs.parameters
    sheet = RuleSheet(RESIDUAL_SOURCE, "backward", "Adam in mixed precision; one buffer of fp32 for fused gradients.")
    for name, line, each in RESIDUAL_STATES:
        sheet.add(name, line, each * count, f"{count:,} parameters x {each} B = {gb(each * count)}")
    sheet.mention("model states", "process", 16 * count, f"{count:,} parameters x 16 B = {gb(16 * count)}")
    _add_residual_activations(sheet, inputs)
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


def _add_residual_activations(sheet: RuleSheet, inputs: Gpt2ResidualRule) -> None:
    """Add residual activations; with checkpointing the paper's square root counts in the total."""
    tokens = f"hidden {inputs.hidden_size} x batch {inputs.batch_size} x sequence {inputs.sequence_length}"
    one = inputs.hidden_size * inputs.batch_size * inputs.sequence_length * 2
    layers = inputs.num_hidden_layers
    full = 12 * one * layers
    # The paper says "the square root of the total": that holds only with the total in units of 1 GB.
    root = isqrt(full * 10**9)
    stored = one * layers
    add, other = (sheet.add, sheet.mention) if inputs.checkpointing == "none" else (sheet.mention, sheet.add)
    add("activations", "activations", full, f"12 x {tokens} x {layers} layers x 2 B = {gb(full)}")
    other(
        "activations, checkpointed as published",
        "activations",
        root,
        f"the square root of the {full / 10**9:.1f} GB, taken in units of GB = {gb(root)}, published as about 8 GB "
        "for GPT-2 of 1.5 B",
    )
    sheet.mention(
        "activations, one input stored per layer",
        "activations",
        stored,
        f"{tokens} x {layers} layers x 2 B = {gb(stored)}",
    )
    sheet.mention(
        "activations of one layer, made again", "activations", 12 * one, f"12 x {tokens} x 2 B = {gb(12 * one)}"
    )


def residual_inputs(workload: Workload) -> Gpt2ResidualRule | None:
    """Any training of a whole transformer."""
    shapes = full_training(workload)
    if shapes is None:
        return None
    model, run, length = shapes
    return Gpt2ResidualRule(
        parameters=parameter_count(model),
        hidden_size=model.hidden_size,
        num_hidden_layers=model.num_hidden_layers,
        batch_size=run.batch_size,
        sequence_length=length,
        checkpointing="none" if run.checkpointing == "none" else "full",
    )


RULES: tuple[Rule[Any], ...] = (
    Rule(
        "bytes-per-parameter",
        "bytes per parameter",
        BYTES_SOURCE,
        BytesPerParameterRule,
        bytes_per_parameter,
        bytes_inputs,
        errata=(
            "a published example has 1 B parameters in fp32 take 1 B x 2 = 2 GB; fp32 takes 4 bytes: 4 GB, 2 GB more.",
            "a published table gives TF32 2 bytes; it computes with 19 bits of numbers that are kept in 4 bytes.",
        ),
    ),
    Rule(
        "gpt2-residual",
        "model states and residual states",
        RESIDUAL_SOURCE,
        Gpt2ResidualRule,
        gpt2_residual,
        residual_inputs,
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
    ),
)
