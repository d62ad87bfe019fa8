"""Rules of a few numbers: the LoRA calculator, the KV cache, and memory as a line over the batch."""

from fractions import Fraction
from typing import Any

from vramtui.core.base.units import ITEM_BYTES
from vramtui.core.schema.rule_inputs.formulas import KvCacheRule, LinearInBatchRule, LoraCalculatorRule
from vramtui.core.schema.workload import TrainRun, Workload
from vramtui.estimators.rules.base import Rule, RuleSheet, gib, inference, parameter_count, share, training
from vramtui.models.specs.adapters import adapter_tensors
from vramtui.models.specs.decoder import decoder_spec

LORA_SOURCE = "Published LoRA memory calculator, with Gemma 2 27B as its example (hidden size 4068 as printed there)"


def lora_calculator(inputs: LoraCalculatorRule) -> RuleSheet:
    """Training counts the logits twice (with their gradient), inference once and no gradients or moments."""
    train = inputs.phase == "train"
    sheet = RuleSheet(LORA_SOURCE, "backward" if train else "prefill", "All tensors take 2 B an element.")
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
        sheet.mention("all, inference", "process", base + logits, f"without gradients, moments: {gib(base + logits)}")
    else:
        total = base + 3 * trained + 2 * logits
        sheet.mention("all, training", "process", total, f"with gradients and moments, logits twice: {gib(total)}")
    return sheet


def lora_inputs(workload: Workload) -> LoraCalculatorRule | None:
    """LoRA runs with the adapters' own share of the parameters, and any generation."""
    shapes = training(workload) or inference(workload)
    if shapes is None or (isinstance(shapes[1], TrainRun) and shapes[1].lora is None):
        return None
    model, run, length = shapes
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


KV_CACHE_SOURCE = "Pope et al. 2022; fewer key/value heads as in Shazeer 2019 (MQA) and Ainslie et al. 2023 (GQA)"


def kv_cache(inputs: KvCacheRule) -> RuleSheet:
    """2 x batch x sequence x layers x key/value heads x head size x bytes."""
    sheet = RuleSheet(KV_CACHE_SOURCE, "decode", "A full-length cache for every sequence, without pages or windows.")
    heads = inputs.num_key_value_heads or inputs.num_attention_heads
    one, what = _one_head(inputs)
    for name in ("keys", "values"):
        sheet.add(name, "kv_cache", one * heads, f"{what} x {heads} heads = {gib(one * heads)}")
    sheet.mention(
        "keys and values", "kv_cache", 2 * one * heads, f"2 x {what} x {heads} heads = {gib(2 * one * heads)}"
    )
    others = {"as MHA": inputs.num_attention_heads, "as MQA": 1}
    for name, count in others.items():
        if count != heads:
            size = 2 * one * count
            sheet.mention(f"keys and values {name}", "kv_cache", size, f"2 x {what} x {count} heads = {gib(size)}")
    return sheet


def _one_head(inputs: KvCacheRule) -> tuple[int, str]:
    item = ITEM_BYTES[inputs.dtype]
    size = inputs.batch_size * inputs.sequence_length * inputs.num_hidden_layers * inputs.head_dim * item
    what = (
        f"batch {inputs.batch_size} x sequence {inputs.sequence_length} x {inputs.num_hidden_layers} layers x "
        f"head size {inputs.head_dim} x {item} B"
    )
    return size, what


def kv_cache_inputs(workload: Workload) -> KvCacheRule | None:
    """Generation: the prompt and what is written after it."""
    shapes = inference(workload)
    if shapes is None:
        return None
    model, run, length = shapes
    dtype = run.kv_cache or run.precision
    return KvCacheRule(
        num_hidden_layers=model.num_hidden_layers,
        num_attention_heads=model.num_attention_heads,
        num_key_value_heads=model.kv_heads,
        head_dim=model.head_size,
        batch_size=run.batch_size,
        sequence_length=length + run.new_tokens,
        dtype="fp32" if dtype in {"fp32", "tf32"} else "fp16",
    )


LINEAR_IN_BATCH_SOURCE = "Rule of thumb in wide use: memory = model + batch x what one sample takes"


def linear_in_batch(inputs: LinearInBatchRule) -> RuleSheet:
    """The line through both points, at the batch asked for; exact at the two points themselves."""
    first, second = inputs.first, inputs.second
    slope = Fraction(second.bytes - first.bytes, second.batch_size - first.batch_size)
    constant = first.bytes - first.batch_size * slope
    total = round(constant + inputs.batch_size * slope)
    model = round(constant)
    sheet = RuleSheet(
        LINEAR_IN_BATCH_SOURCE, "backward", "Memory is taken to grow by the same amount with every sample."
    )
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
    sheet.mention("one sample", "activations", round(slope), f"{float(slope):,.1f} B")
    return sheet


RULES: tuple[Rule[Any], ...] = (
    Rule(
        "lora-calculator",
        "LoRA calculator",
        LORA_SOURCE,
        LoraCalculatorRule,
        lora_calculator,
        lora_inputs,
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
    ),
    Rule(
        "kv-cache",
        "KV cache",
        KV_CACHE_SOURCE,
        KvCacheRule,
        kv_cache,
        kv_cache_inputs,
        errata=(
            (
                "a published text has every head keep keys and values of its own in MQA; all heads share one pair, so "
                "that the cache is the number of heads times smaller."
            ),
        ),
    ),
    Rule("linear-in-batch", "linear in the batch", LINEAR_IN_BATCH_SOURCE, LinearInBatchRule, linear_in_batch),
)
