"""Bytes per parameter, by what is done with the model."""

from fractions import Fraction

from vramtui.core.estimate.estimate import Phase
from vramtui.core.estimate.ledger import Category
from vramtui.core.schema.rule_inputs import BytesPerParameterRule
from vramtui.core.schema.rule_inputs.base import WeightType
from vramtui.core.schema.workload import InferRun, TrainRun, Workload
from vramtui.estimators.rules.base import Rule, RuleSheet, gb
from vramtui.estimators.rules.shapes import parameter_count, transformer

SOURCE = (
    "Rule of thumb in wide use: 6 + 2 + 8 bytes for AdamW in mixed precision (Hugging Face, model memory anatomy; "
    "Rajbhandari et al. 2020, section 3.1), weights alone for LoRA and QLoRA"
)
WEIGHTS = {
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


def compute(inputs: BytesPerParameterRule) -> RuleSheet:
    """Parameters times bytes, line by line; the rest of the table stands beside."""
    count = inputs.parameters
    phase: Phase = "build" if inputs.phase == "inference" else "step"
    sheet = RuleSheet(SOURCE, phase, "No activations, no inputs, no CUDA context.")
    if inputs.phase == "inference":
        lines: dict[Category, tuple[Fraction, str]] = {"weights": (WEIGHTS[inputs.dtype], inputs.dtype)}
    else:
        lines = PHASES[inputs.phase]
    for line, (each, why) in lines.items():
        sheet.add(line, line, _times(count, each), _formula(count, each, why))
    for other, table in PHASES.items():
        if other != inputs.phase:
            total = sum((each for each, _ in table.values()), Fraction(0))
            sheet.beside(
                f"all, {TITLES[other]}", "process", _times(count, total), _formula(count, total, TITLES[other])
            )
    for dtype, each in WEIGHTS.items():
        if inputs.phase != "inference" or dtype != inputs.dtype:
            sheet.beside(f"weights in {dtype}", "weights", _times(count, each), _formula(count, each, dtype))
    return sheet


def adapt(workload: Workload) -> BytesPerParameterRule | None:
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


RULE = Rule(
    id="bytes-per-parameter",
    title="bytes per parameter",
    source=SOURCE,
    takes=BytesPerParameterRule,
    compute=compute,
    adapt=adapt,
    errata=(
        "a published example has 1 B parameters in fp32 take 1 B x 2 = 2 GB; fp32 takes 4 bytes: 4 GB, 2 GB more.",
        "a published table gives TF32 2 bytes; it computes with 19 bits of numbers that are kept in 4 bytes.",
    ),
)
