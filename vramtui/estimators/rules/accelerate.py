"""The table of `accelerate estimate-memory`: largest layer, all weights, and four times that for Adam."""

from fractions import Fraction
from typing import Literal

from vramtui.core.schema.rule_inputs import AccelerateRule
from vramtui.core.schema.workload import InferRun, TrainRun, Workload
from vramtui.estimators.rules.base import Rule, RuleSheet
from vramtui.estimators.rules.shapes import largest_tensor, parameter_count, transformer

SOURCE = "Hugging Face accelerate, docs/source/usage_guides/model_size_estimator.md and commands/estimate.py"
FLOAT = 4
PARTS = {
    "fp32": Fraction(1),
    "fp16": Fraction(1, 2),
    "bf16": Fraction(1, 2),
    "int8": Fraction(1, 4),
    "int4": Fraction(1, 8),
}


def compute(inputs: AccelerateRule) -> RuleSheet:
    """Weights and buffers in fp32, scaled by the type; training is 4 x that (model, gradients, two moments)."""
    train = inputs.phase == "train"
    sheet = RuleSheet(
        SOURCE, "step" if train else "build", "No activations; accelerate's MB and GB are 2^20 and 2^30 bytes."
    )
    full = FLOAT * inputs.parameters + inputs.buffer_bytes
    size = round(full * PARTS[inputs.dtype])
    buffers = f" + {inputs.buffer_bytes:,} B of buffers" if inputs.buffer_bytes else ""
    what = f"({inputs.parameters:,} parameters x {FLOAT} B{buffers}) x {PARTS[inputs.dtype]} = {_mb(size)}"
    sheet.add("model", "weights", size, what)
    training = f"4 x {_mb(size)} = {_mb(4 * size)}"
    if train:
        sheet.add("gradients", "gradients", size, f"as the model, {_mb(size)}")
        sheet.add("Adam's moments", "optimizer", 2 * size, f"2 x {_mb(size)}")
    sheet.beside("training using Adam", "process", 4 * size, training)
    if inputs.largest_layer_parameters is not None:
        layer = round(inputs.largest_layer_parameters * FLOAT * PARTS[inputs.dtype])
        sheet.beside(
            "largest layer",
            "weights",
            layer,
            f"{inputs.largest_layer_parameters:,} x {FLOAT} B x {PARTS[inputs.dtype]} = {_mb(layer)}",
        )
    for dtype, part in PARTS.items():
        if dtype not in {inputs.dtype, "bf16"}:
            other = round(full * part)
            sheet.beside(f"model in {dtype}", "weights", other, f"{full:,} B x {part} = {_mb(other)}")
    mixed = 2 * full
    sheet.beside("training in mixed precision", "process", mixed, f"2 x {_mb(full)} of fp32 = {_mb(mixed)}")
    return sheet


def _mb(size: int) -> str:
    return f"{size / 2**20:,.2f} MB"


def adapt(workload: Workload) -> AccelerateRule | None:
    """Any transformer, in the type its weights are kept in; LoRA by its weights alone."""
    model, run = transformer(workload), workload.run
    if model is None or not isinstance(run, TrainRun | InferRun):
        return None
    dtype: Literal["fp32", "bf16"] = "bf16" if run.precision in {"bf16", "fp16"} else "fp32"
    return AccelerateRule(
        parameters=parameter_count(model),
        largest_layer_parameters=largest_tensor(model),
        dtype=dtype,
        phase="train" if isinstance(run, TrainRun) and run.lora is None else "infer",
    )


RULE = Rule(
    id="accelerate",
    title="accelerate estimate-memory",
    source=SOURCE,
    takes=AccelerateRule,
    compute=compute,
    adapt=adapt,
)
