"""LoRA fine-tuning in 16 bits: kernels, weights, the trained part's gradients and moments, activations, logits."""

from vramtui.core.schema.rule_inputs import LoraCalculatorRule
from vramtui.core.schema.workload import TrainRun, Workload
from vramtui.estimators.rules.base import Rule, RuleSheet, gib, share
from vramtui.estimators.rules.shapes import inference, parameter_count, training
from vramtui.models.specs.adapters import adapter_tensors
from vramtui.models.specs.decoder import decoder_spec

SOURCE = "Published LoRA memory calculator, with Gemma 2 27B as its example (hidden size 4068 as printed there)"


def compute(inputs: LoraCalculatorRule) -> RuleSheet:
    """Training counts the logits twice (with their gradient), inference once and no gradients or moments."""
    train = inputs.phase == "train"
    sheet = RuleSheet(SOURCE, "backward" if train else "prefill", "All tensors take 2 B an element.")
    weights = 2 * inputs.parameters
    trained = share(weights, inputs.ratio)
    tokens = inputs.batch_size * inputs.sequence_length
    hidden = inputs.num_hidden_layers * tokens * inputs.hidden_size * 2
    logits = tokens * inputs.vocab_size * 2
    sheet.add("CUDA kernels", "context", inputs.kernels, f"{gib(inputs.kernels)}, taken as constant")
    sheet.add("weights", "weights", weights, f"{inputs.parameters:,} x 2 B = {gib(weights)}")
    if train:
        what = f"{inputs.ratio:g} x {inputs.parameters:,}"
        sheet.add("gradients", "gradients", trained, f"{what} x 2 B = {gib(trained)}")
        sheet.add("moments", "optimizer", 2 * trained, f"{what} x 2 moments x 2 B = {gib(2 * trained)}")
    sheet.add(
        "activations",
        "activations",
        hidden,
        f"{inputs.num_hidden_layers} layers x batch {inputs.batch_size} x sequence {inputs.sequence_length} x "
        f"hidden {inputs.hidden_size} x 2 B = {gib(hidden)}",
    )
    times = 2 if train else 1
    what = f"batch {inputs.batch_size} x sequence {inputs.sequence_length} x vocabulary {inputs.vocab_size} x 2 B"
    if train:
        what = f"2 (with the gradient) x {what}"
    sheet.add("logits", "activations", times * logits, f"{what} = {gib(times * logits)}")
    base = inputs.kernels + weights + hidden
    if train:
        sheet.beside("all, inference", "process", base + logits, f"without gradients, moments: {gib(base + logits)}")
    else:
        total = base + 3 * trained + 2 * logits
        sheet.beside("all, training", "process", total, f"with gradients and moments, logits twice: {gib(total)}")
    return sheet


def adapt(workload: Workload) -> LoraCalculatorRule | None:
    """LoRA runs with the adapters' own share of the parameters, and any generation."""
    found = training(workload) or inference(workload)
    if found is None or (isinstance(found[1], TrainRun) and found[1].lora is None):
        return None
    model, run, length = found
    count = parameter_count(model)
    lora = run.lora if isinstance(run, TrainRun) else None
    adapters = adapter_tensors(decoder_spec(model), lora) if lora is not None else ()
    trained = sum(tensor.numel * tensor.count for tensor in adapters)
    return LoraCalculatorRule(
        parameters=count,
        ratio=min(1.0, trained / (count + trained)),
        num_hidden_layers=model.num_hidden_layers,
        hidden_size=model.hidden_size,
        vocab_size=model.vocab_size,
        sequence_length=length,
        batch_size=run.batch_size,
        phase="train" if isinstance(run, TrainRun) else "infer",
    )


RULE = Rule(
    id="lora-calculator",
    title="LoRA calculator",
    source=SOURCE,
    takes=LoraCalculatorRule,
    compute=compute,
    adapt=adapt,
    errata=(
        (
            "Gemma 2 27B is printed with a hidden size of 4,068; its config.json says 4,608. With that the "
            "activations are 3.234 GiB instead of 2.855, and the total 66.360 GiB instead of 65.981."
        ),
        (
            "one activation a layer is what full checkpointing keeps: without it this run's eager attention keeps "
            "some hundreds of GiB (`vramtui estimate gemma-2-27b-lora`)."
        ),
        "0.977 GiB is printed for the first CUDA call, and 2 GiB is taken for it.",
    ),
)
