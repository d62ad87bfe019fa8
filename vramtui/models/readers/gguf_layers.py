"""A GGUF of an architecture that is not described here: every tensor, and each layer's cache by its tensors' shapes.

Caches as llama.cpp has them: src/llama-kv-cache.cpp, and src/llama-hparams.cpp for windows (`set_swa_pattern` in
src/llama-model.cpp) and recurrent states (`n_embd_r` and `n_embd_s`).
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from vramtui.models.readers.gguf import TensorInfo, Value

EMBEDDING = "token_embd.weight"
# Every how many layers one looks back all the way, where llama.cpp's code says it and the file does not.
PATTERNS = {
    "cohere2": 4, "exaone4": 4, "gemma2": 2, "gemma3": 6, "gemma3n": 5, "gpt-oss": 2, "gptoss": 2, "llama4": 4,
    "olmo2": 4, "smallthinker": 4,
}  # fmt: skip
Optional = Callable[[str], int | None]
Shapes = Mapping[str, TensorInfo]


def generic_tables(optional: Optional, metadata: Mapping[str, Value], tensors: Shapes, kind: str) -> dict[str, Any]:
    """`basis`, `tensors` and `caches` of a `[model]` table; what the caches say stands in for single keys.

    Args:
        optional: a whole number of the architecture's metadata by its key.
        metadata: all of it.
        tensors: by their names.
        kind: the architecture, as the file calls it.
    """
    layers = optional("block_count") or 0
    pattern = metadata.get(f"{kind}.attention.sliding_window_pattern")
    slides = _slides(optional("attention.sliding_window"), pattern, PATTERNS.get(kind), layers)
    cache_counts: Counter[tuple[tuple[str, int], ...]] = Counter()
    for number in range(layers):
        cache = _cache(optional, tensors, f"blk.{number}.")
        if slides[number] and cache.get("per_token"):
            cache["window"] = optional("attention.sliding_window") or 1
        if cache:
            cache_counts[tuple(cache.items())] += 1
    return {
        "basis": "generic",
        "tensors": _list_tensors(tensors),
        "caches": [{"layers": count, **dict(cache)} for cache, count in cache_counts.items()],
        "head_dim": optional("attention.key_length"),
        "num_key_value_heads": _dividing(optional("attention.head_count_kv"), optional("attention.head_count")),
        "sliding_window": None,
        "sliding_window_pattern": None,
        "num_experts": None,
        "num_experts_per_tok": None,
    } | dict.fromkeys(
        (
            "moe_intermediate_size",
            "n_shared_experts",
            "shared_expert_intermediate_size",
            "shared_expert_gate",
            "first_k_dense_replace",
            "router_bias",
        )
    )


def _dividing(kv_heads: int | None, heads: int | None) -> int | None:
    """Heads of keys and values where they share the heads evenly in every layer."""
    return kv_heads if kv_heads and heads and heads % kv_heads == 0 else None


def _slides(window: int | None, pattern: Value | None, every: int | None, layers: int) -> list[bool]:
    """Whether each layer keeps only a window; all of them look back all the way where nothing says which do."""
    if window is None:
        return [False] * layers
    if isinstance(pattern, tuple) and len(pattern) == layers:
        return [bool(one) for one in pattern]
    if isinstance(pattern, int) and not isinstance(pattern, bool) and pattern > 0:
        every = pattern
    return [every is not None and (number + 1) % every != 0 for number in range(layers)]


def _cache(optional: Optional, tensors: Shapes, start: str) -> dict[str, int]:
    """Numbers that one layer keeps: of a token keys and values, of a sequence a recurrent state in fp32."""
    counts: dict[str, int] = {}
    keys = _rows(tensors, f"{start}attn_k.weight")
    latent = _rows(tensors, f"{start}attn_kv_a_mqa.weight")
    if latent:
        counts["per_token"] = latent
    elif keys:
        counts["per_token"] = keys + (_rows(tensors, f"{start}attn_v.weight") or keys)
    elif _rows(tensors, f"{start}attn_qkv.weight") and not _rows(tensors, f"{start}ssm_conv1d.weight"):
        heads = optional("attention.head_count") or 1
        size = optional("attention.key_length") or (optional("embedding_length") or 0) // heads
        sizes = size + (optional("attention.value_length") or size)
        counts["per_token"] = (optional("attention.head_count_kv") or heads) * sizes
    if f"{start}ssm_conv1d.weight" in tensors:
        counts["state_fp32"] = _state(optional)
    elif f"{start}shortconv.conv.weight" in tensors:
        width = optional("embedding_length") or 0
        counts["state_fp32"] = max(0, (optional("shortconv.l_cache") or 1) - 1) * width
    return counts


def _state(optional: Optional) -> int:
    """A state-space layer's: the last inputs of its convolution, and what it keeps of everything before."""
    inner, state = optional("ssm.inner_size") or 0, optional("ssm.state_size") or 0
    mixed = inner + 2 * (optional("ssm.group_count") or 0) * state
    return max(0, (optional("ssm.conv_kernel") or 1) - 1) * mixed + inner * state


def _rows(tensors: Shapes, name: str) -> int:
    """Rows of a weight; a GGUF has the inner dimension first. 0 where there is none."""
    tensor = tensors.get(name)
    return tensor.shape[1] if tensor is not None and len(tensor.shape) == 2 else 0


def _list_tensors(tensors: Shapes) -> list[dict[str, Any]]:
    counts: Counter[tuple[str, tuple[int, ...], str]] = Counter()
    for tensor in tensors.values():
        parts = [part for part in tensor.name.split(".") if part not in {"weight", "bias"} and not part.isdigit()]
        name = "embed_tokens" if tensor.name == EMBEDDING else parts[-1] if parts else tensor.name
        if tensor.shape and 0 not in tensor.shape:
            place = "layers" if tensor.name.startswith("blk.") else "outside"
            counts[name, tuple(reversed(tensor.shape)), place] += 1
    return [
        {"name": name, "shape": list(shape), "count": count, "place": place}
        for (name, shape, place), count in counts.items()
    ]
