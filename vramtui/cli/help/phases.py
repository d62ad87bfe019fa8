"""`vramtui help phases`: what is in memory in training and in inference; `vramtui help cache`: keys and values."""

from collections.abc import Iterator

from vramtui.cli.help.words import wrapped
from vramtui.core.base.units import format_bytes
from vramtui.core.schema.rule_inputs import BytesPerParameterRule, KvCacheRule
from vramtui.estimators.rules import RULES

PARAMETERS = 7_000_000_000
PHASES = (
    ("pretraining", "mixed", "all weights, gradients, moments; large batches, so activations beside"),
    ("fine-tuning, all of it", "full-fp16", "the same in 16 bits alone, smaller batches"),
    ("fine-tuning, LoRA", "lora", "frozen weights; gradients and moments of the adapters alone"),
    ("fine-tuning, QLoRA", "qlora", "the same with weights in 4 bits"),
    ("inference", "inference", "weights, and the KV cache of what is asked"),
)
CACHE = (
    (
        "A decoder's token looks only at those before it, so their keys and values never change: kept, each new "
        "token costs one pass of one token. An encoder's tokens look at all others, and there is nothing to keep."
    ),
    "The cache buys time with memory: without it every token runs all before it again.",
)
MADE_ANEW = (
    "generate() keeps it in one tensor a layer, which torch.cat makes anew for every token; a static cache, or pages "
    "as vLLM has them, are taken once."
)
TOKENS = 2048


def phases() -> Iterator[str]:
    """Bytes a parameter of each phase, by the rule of thumb."""
    yield from wrapped(
        f"What is in memory, by phase, for {PARAMETERS / 1e9:g} B parameters; activations come with batch and sequence:"
    )
    yield ""
    yield f"{'PHASE':<24}{'B A PARAMETER':>14}{'GB':>7}  WHAT"
    for title, phase, what in PHASES:
        inputs = BytesPerParameterRule(parameters=PARAMETERS, phase=phase)  # type: ignore[arg-type] # one of its phases
        size = RULES["bytes-per-parameter"].estimate(inputs).process or 0
        yield from wrapped(what, f"{title:<24}{size / PARAMETERS:>14g}{size / 1e9:>7.1f}  ", " " * 47)
    yield ""
    yield from wrapped(
        "`vramtui estimate PRESET` has each with its activations; -v has every part with its arithmetic."
    )


def cache() -> Iterator[str]:
    """What the KV cache is for, and what it takes."""
    for sentence in CACHE:
        yield from wrapped(sentence)
    yield ""
    again = TOKENS * (TOKENS + 1) // 2
    yield from wrapped(f"{TOKENS:,} tokens: {TOKENS:,} passes of one token with it, {again:,} tokens run without.")
    inputs = KvCacheRule(
        num_hidden_layers=32, num_attention_heads=32, head_dim=128, batch_size=1, sequence_length=1, dtype="fp16"
    )
    one = RULES["kv-cache"].estimate(inputs).process or 0
    yield from wrapped(
        f"Llama 7B in fp16: 2 x 32 layers x 32 heads x 128 x 2 B = {one:,} B a token and sequence, {TOKENS:,} tokens "
        f"{format_bytes(one * TOKENS)}."
    )
    yield from wrapped(MADE_ANEW)
