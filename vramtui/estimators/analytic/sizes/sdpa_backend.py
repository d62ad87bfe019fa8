"""Which attention kernel a card takes for what is asked, as torch's scaled_dot_product_attention chooses."""

from typing import Literal

from vramtui.core.schema.decoder_models import TransformerModel
from vramtui.core.schema.workload import Attention, Precision
from vramtui.estimators.analytic.sizes.parameters import latent_dims

Kernel = Literal["eager", "flash", "efficient", "math"]
AMPERE, WIDEST = (8, 0), 256
# Where cuDNN's kernel comes first; elsewhere it comes after all others.
CUDNN_FIRST = frozenset({(9, 0), (10, 0)})


def kernel_of(
    model: TransformerModel,
    attention: Attention,
    precision: Precision,
    capability: tuple[int, int],
    *,
    masked: bool = False,
) -> Kernel:
    """The kernel in the type that `precision` multiplies in; cuDNN's needs what flash does and counts as it.

    With a mask (`masked`) it is cuDNN's where that comes first, for flash takes none.

    The conditions are those of ATen/native/transformers/cuda/sdp_utils.cpp.
    """
    if attention == "eager":
        return "eager"
    keys, values = head_dims(model)
    half, new = not precision.startswith(("fp32", "tf32")), capability >= AMPERE
    equal = capability in CUDNN_FIRST or (keys == values and not masked)
    if attention != "efficient" and half and new and equal and max(keys, values) <= WIDEST:
        return "flash"
    if not new and precision.startswith(("bf16", "fp8")):
        return "math"
    if attention == "efficient":
        return "efficient"
    grouped = model.kv_heads < model.num_attention_heads and model.kv_lora_rank is None
    return "math" if grouped and not masked else "efficient"


def masks(model: TransformerModel, attention: Attention, queries: int, keys: int) -> bool:
    """Whether sliding layers hand a mask to torch's kernels, as transformers makes one from a whole window on
    (masking_utils.py, _ignore_causal_mask_sdpa). Key/value heads are then repeated before the kernel.
    """
    window = model.sliding_window
    return attention != "eager" and window is not None and queries > 1 and keys >= window


def head_dims(model: TransformerModel) -> tuple[int, int]:
    """Width of a head of keys, and of values."""
    if model.kv_lora_rank is None:
        return model.head_size, model.head_size
    plain, turned, values = latent_dims(model)
    return plain + turned, values


def kernel_note(model: TransformerModel, attention: Attention, taken: Kernel) -> tuple[str, ...]:
    """What the choice took for granted, where it is not what was asked for."""
    grouped = model.kv_heads < model.num_attention_heads and model.kv_lora_rank is None
    note = ""
    if taken == "math":
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
