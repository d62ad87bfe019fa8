"""GGUF files of given shapes that llama.cpp loads: a header, and a hole for the tensors' bytes."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parents[1] / "golden" / "serving" / "llama_cpp.json"
ALIGNMENT = 32
# Of ggml's types their number, and how many bytes a block of so many values takes (ggml/src/ggml-common.h).
F32, Q4_K, Q6_K = (0, 4, 1), (12, 144, 256), (14, 210, 256)
UNSIGNED, SIGNED, FLOAT, STRING, ARRAY = 4, 5, 6, 8, 9  # of metadata
Model = dict[str, Any]
Tensor = tuple[str, tuple[int, ...], tuple[int, int, int]]


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: int | float | str | list[Any]) -> bytes:  # noqa: PYI041 - a float is kept as one, a whole number as one
    if isinstance(value, list):
        kind = STRING if isinstance(value[0], str) else FLOAT if isinstance(value[0], float) else SIGNED
        return struct.pack("<IIQ", ARRAY, kind, len(value)) + b"".join(_value(item)[4:] for item in value)
    if isinstance(value, str):
        return struct.pack("<I", STRING) + _text(value)
    return struct.pack("<If", FLOAT, value) if isinstance(value, float) else struct.pack("<II", UNSIGNED, value)


def _norms(model: Model) -> Iterator[Tensor]:
    kind, width, head = model["architecture"], model["hidden_size"], model["head_dim"]
    for norm in ["attn_norm", "ffn_norm", *(["post_attention_norm", "post_ffw_norm"] if kind == "gemma3" else [])]:
        yield f"{norm}.weight", (width,), F32
    if kind in {"qwen3", "qwen3moe", "gemma3"}:
        yield "attn_q_norm.weight", (head,), F32
        yield "attn_k_norm.weight", (head,), F32


def _attention(model: Model) -> Iterator[Tensor]:
    kind, width, head = model["architecture"], model["hidden_size"], model["head_dim"]
    queries, keys = model["num_attention_heads"] * head, model["num_key_value_heads"] * head
    one_by_one = (("q", queries), ("k", keys), ("v", keys))
    for name, wide in (("qkv", queries + 2 * keys),) if kind == "phi3" else one_by_one:
        yield f"attn_{name}.weight", (width, wide), Q4_K
        if kind == "qwen2":
            yield f"attn_{name}.bias", (wide,), F32
    yield "attn_output.weight", (queries, width), Q4_K


def _mlp(model: Model) -> Iterator[Tensor]:
    kind, width, inner = model["architecture"], model["hidden_size"], model["intermediate_size"]
    if "num_experts" in model:
        experts, each = model["num_experts"], model["moe_intermediate_size"]
        yield "ffn_gate_inp.weight", (width, experts), F32
        yield "ffn_gate_exps.weight", (width, each, experts), Q4_K
        yield "ffn_up_exps.weight", (width, each, experts), Q4_K
        yield "ffn_down_exps.weight", (each, width, experts), Q4_K
        return
    if kind not in {"phi3", "starcoder2"}:
        yield "ffn_gate.weight", (width, inner), Q4_K
    yield "ffn_up.weight", (width, 2 * inner if kind == "phi3" else inner), Q4_K
    yield "ffn_down.weight", (inner, width), Q4_K


def _biases(model: Model) -> Iterator[Tensor]:
    width, inner = model["hidden_size"], model["intermediate_size"]
    named = {"attn_norm": width, "ffn_norm": width, "attn_output": width, "ffn_up": inner, "ffn_down": width}
    return ((f"{name}.bias", (wide,), F32) for name, wide in named.items())


def tensors(model: Model) -> Iterator[Tensor]:
    """Each tensor's name, shape (ggml's order: the length of a row first) and type."""
    width, words = model["hidden_size"], model["vocab_size"]
    has_biases, tied = model["architecture"] == "starcoder2", model.get("tie_word_embeddings", False)
    yield "token_embd.weight", (width, words), Q6_K if tied else Q4_K
    for layer in range(model["num_hidden_layers"]):
        for part in (_norms, _attention, _mlp, *([_biases] if has_biases else [])):
            yield from ((f"blk.{layer}.{name}", shape, kind) for name, shape, kind in part(model))
    yield "output_norm.weight", (width,), F32
    if has_biases:
        yield "output_norm.bias", (width,), F32
    if not tied:
        yield "output.weight", (width, words), Q6_K


def metadata(model: Model) -> dict[str, Any]:
    """What llama.cpp reads of a file beside its tensors; a vocabulary of words that mean nothing."""
    kind, head, words = model["architecture"], model["head_dim"], model["vocab_size"]
    first = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    sizes: dict[str, Any] = {
        "block_count": model["num_hidden_layers"], "context_length": 131_072, "embedding_length": model["hidden_size"],
        "feed_forward_length": model["intermediate_size"], "attention.head_count": model["num_attention_heads"],
        "attention.head_count_kv": model["num_key_value_heads"], "attention.key_length": head,
        "attention.value_length": head, "attention.layer_norm_rms_epsilon": 1e-6, "attention.layer_norm_epsilon": 1e-5,
        "rope.scaling.original_context_length": 131_072, "rope.freq_base": 5e5, "rope.dimension_count": head,
        "vocab_size": words,
    }  # fmt: skip
    if "sliding_window" in model:
        sizes["attention.sliding_window"] = model["sliding_window"]
    if "num_experts" in model:
        sizes["expert_count"], sizes["expert_used_count"] = model["num_experts"], model["num_experts_per_tok"]
        sizes["expert_feed_forward_length"] = model["moe_intermediate_size"]
    return {
        "general.architecture": kind,
        "general.file_type": 15,  # Q4_K_M
        **{f"{kind}.{key}": value for key, value in sizes.items()},
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": first + [f"word{at}" for at in range(len(first), words)],
        "tokenizer.ggml.scores": [0.0] * words,
        "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * (words - len(first)),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}",
    }


def write_gguf(path: Path, model: Model) -> None:
    known, listed = metadata(model), list(tensors(model))
    head = b"GGUF" + struct.pack("<IQQ", 3, len(listed), len(known))
    head += b"".join(_text(key) + _value(value) for key, value in known.items())
    offset = 0
    for name, shape, (number, size, block) in listed:
        head += _text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, number, offset)
        numbers = 1
        for length in shape:
            numbers *= length
        offset += -(-numbers * size // block // ALIGNMENT) * ALIGNMENT
    with path.open("wb") as file:
        file.write(head)
        file.truncate(-(-len(head) // ALIGNMENT) * ALIGNMENT + offset)
