"""The KV cache: a key and a value per token, layer and key/value head."""

from vramtui.core.base.units import ITEM_BYTES
from vramtui.core.schema.rule_inputs import KvCacheRule
from vramtui.core.schema.workload import Workload
from vramtui.estimators.rules.base import Rule, RuleSheet, gib
from vramtui.estimators.rules.shapes import inference

SOURCE = "Pope et al. 2022; fewer key/value heads as in Shazeer 2019 (MQA) and Ainslie et al. 2023 (GQA)"


def compute(inputs: KvCacheRule) -> RuleSheet:
    """2 x batch x sequence x layers x key/value heads x head size x bytes."""
    sheet = RuleSheet(SOURCE, "decode", "A full-length cache for every sequence, without pages or windows.")
    heads = inputs.num_key_value_heads or inputs.num_attention_heads
    one, what = _one_head(inputs)
    for name in ("keys", "values"):
        sheet.add(name, "kv_cache", one * heads, f"{what} x {heads} heads = {gib(one * heads)}")
    sheet.beside("keys and values", "kv_cache", 2 * one * heads, f"2 x {what} x {heads} heads = {gib(2 * one * heads)}")
    others = {"as MHA": inputs.num_attention_heads, "as MQA": 1}
    for name, count in others.items():
        if count != heads:
            size = 2 * one * count
            sheet.beside(f"keys and values {name}", "kv_cache", size, f"2 x {what} x {count} heads = {gib(size)}")
    return sheet


def _one_head(inputs: KvCacheRule) -> tuple[int, str]:
    item = ITEM_BYTES[inputs.dtype]
    size = inputs.batch_size * inputs.sequence_length * inputs.num_hidden_layers * inputs.head_dim * item
    what = (
        f"batch {inputs.batch_size} x sequence {inputs.sequence_length} x {inputs.num_hidden_layers} layers x "
        f"head size {inputs.head_dim} x {item} B"
    )
    return size, what


def adapt(workload: Workload) -> KvCacheRule | None:
    """Generation: the prompt and what is written after it."""
    found = inference(workload)
    if found is None:
        return None
    model, run, length = found
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


RULE = Rule(
    id="kv-cache",
    title="KV cache",
    source=SOURCE,
    takes=KvCacheRule,
    compute=compute,
    adapt=adapt,
    errata=(
        (
            "a published text has every head keep keys and values of its own in MQA; all heads share one pair, so "
            "that the cache is the number of heads times smaller."
        ),
    ),
)
