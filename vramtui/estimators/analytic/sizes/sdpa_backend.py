"""Which attention kernel a card takes for what is asked, as torch's scaled_dot_product_attention chooses."""

from typing import Literal

from vramtui.core.schema.decoder_models import TransformerModel
from vramtui.core.schema.workload import Attention, Precision
from vramtui.estimators.torch_facts.sdpa_backend import AttentionCall, can_use, choose_backend
from vramtui.models.specs.decoder import attention_of

Kernel = Literal["eager", "flash", "efficient", "math"]
# No choice hangs on the length, from two tokens on.
_TOKENS = 128


def kernel_of(
    model: TransformerModel,
    attention: Attention,
    precision: Precision,
    capability: tuple[int, int],
    *,
    masked: bool = False,
    training: bool = False,
) -> Kernel:
    """The kernel in the type that `precision` multiplies in; cuDNN's needs what flash does and counts as it.

    With a mask (`masked`) transformers repeats shared key/value heads before it.
    """
    if attention == "eager":
        return "eager"
    module = attention_of(model)
    heads = module.heads
    grouped = module.kv_heads < heads and not masked
    if grouped and not model.enable_gqa:
        return "math"
    kind = precision.partition("-")[0]
    call = AttentionCall(
        dtype={"fp8": "bf16", "tf32": "fp32"}.get(kind, kind),
        query=(1, heads, _TOKENS, module.key_dim),
        key=(1, module.kv_heads if grouped else heads, _TOKENS, module.key_dim),
        value=(1, module.kv_heads if grouped else heads, _TOKENS, module.value_dim),
        masked=masked,
        causal=not masked,
        grouped=grouped,
        training=training,
    )
    if attention == "efficient":
        return "efficient" if can_use("efficient", call, capability) else "math"
    backend = choose_backend(call, capability)
    return "flash" if backend == "cudnn" else backend


def masks(model: TransformerModel, attention: Attention, queries: int, keys: int) -> bool:
    """Whether sliding layers hand a mask to torch's kernels, as transformers makes one from a whole window on
    (masking_utils.py, _ignore_causal_mask_sdpa). Key/value heads are then repeated before the kernel.
    """
    window = model.sliding_window
    return attention != "eager" and window is not None and queries > 1 and keys >= window


def kernel_note(model: TransformerModel, attention: Attention, taken: Kernel) -> tuple[str, ...]:
    """What the choice took for granted, where it is not what was asked for."""
    module = attention_of(model)
    grouped = module.kv_heads < module.heads
    note = ""
    if taken == "math":
        if grouped and not model.enable_gqa:
            note = "the model's code broadcasts its shared key/value heads, which no fused kernel takes"
            return (f"{note}: scaled_dot_product_attention spells the scores out",)
        lack = "has no shared key/value heads" if grouped else "knows no bf16 there"
        note = (
            f"{attention} attention cannot run in this precision on this card, and torch's memory-efficient kernel "
            f"{lack}: scaled_dot_product_attention spells the scores out"
        )
    elif taken == "efficient" and attention != "efficient":
        note = f"{attention} attention cannot run here; torch takes its memory-efficient kernel"
    elif taken == "efficient" and grouped:
        note = "the memory-efficient kernel has no shared key/value heads: they are repeated before it"
    return (note,) if note else ()
