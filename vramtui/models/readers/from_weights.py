"""Tensors as a checkpoint lists them, and a decoder from their names and shapes alone."""

import re
from math import prod
from typing import Any

from vramtui.models.readers.bounded import DamagedError
from vramtui.models.readers.safetensors import BITS, FLOATS, CheckpointWeights

_TOWER = re.compile(r"^(model\.)?(vision|visual|vit|image|audio|speech|multi_modal|mm_|embed_vision|embed_audio)")
_WORDS = re.compile(r"(embed_tokens|wte|word_embeddings|embed_in|tok_embeddings|embeddings)\.weight$")
_KEYS = re.compile(r"\b(k_proj|key|v_proj|value|k|v)\.weight$")
_QUERIES = re.compile(r"\b(q_proj|query|q)\.weight$")
_UP = re.compile(r"(up_proj|w3|fc1|c_fc|dense_h_to_4h|intermediate\.dense)\.weight$")
USUAL_HEAD = 128


def listed_weights(weights: CheckpointWeights) -> dict[str, Any]:
    """The keys of a `[model]` table that list every tensor, those of packed types with their bits."""
    merged: dict[tuple[str, tuple[int, ...], str, int | None], int] = {}
    for (name, shape, dtype), count in weights.groups.items():
        if not shape or 0 in shape:
            continue
        place = "tower" if _TOWER.match(name) else "layers" if "#" in name else "outside"
        bits = None if dtype in FLOATS else BITS[dtype]
        key = (_module(name), shape, place, bits)
        merged[key] = merged.get(key, 0) + count
    tensors: list[dict[str, Any]] = []
    for (name, shape, place, bits), count in merged.items():
        table: dict[str, Any] = {"name": name, "shape": list(shape), "count": count}
        if place != "layers":
            table["place"] = place
        if bits is not None:
            table["bits"] = bits
        tensors.append(table)
    numbers = sum(prod(table["shape"]) * table["count"] for table in tensors)
    return {"tensors": tensors, "parameters": numbers}


def _module(name: str) -> str:
    """The last part of a module's name, as the estimator knows it."""
    if _WORDS.search(name):
        return "embed_tokens"
    parts = [part for part in name.split(".") if part not in {"#", "weight", "bias"}]
    last = parts[-1] if parts else name
    if "experts" in parts and "shared" not in name:
        return f"experts_{last}"
    return f"shared_{last}" if "shared" in name else last


def decoder_of_weights(weights: CheckpointWeights) -> dict[str, Any]:
    """The `[model]` table of a decoder whose config is not there.

    Raises:
        DamagedError: there is no embedding of words, or there are no projections to keys and values.
    """
    shapes = {name: shape for name, shape, _ in weights.groups if len(shape) == 2 and not _TOWER.match(name)}
    words = next((shape for name, shape in shapes.items() if _WORDS.search(name)), None)
    projections = [
        (shape, count)
        for (name, shape, _), count in weights.groups.items()
        if _KEYS.search(name) and "#" in name and len(shape) == 2 and not _TOWER.match(name)
    ]
    if words is None or not projections:
        raise DamagedError("neither an embedding of words nor projections to keys and values are among them")
    layers = max(1, sum(count for _, count in projections) // 2)
    queries = next((shape[0] for name, shape in shapes.items() if _QUERIES.search(name)), words[1])
    heads = max(1, queries // USUAL_HEAD)
    each = sum(shape[0] * count for shape, count in projections) // layers
    width = next((shape[0] for name, shape in shapes.items() if _UP.search(name)), 4 * words[1])
    return {
        "kind": "transformer",
        "hidden_size": words[1],
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "head_dim": max(1, queries // heads),
        "intermediate_size": width,
        "vocab_size": words[0],
        "basis": "generic",
        "caches": [{"layers": layers, "per_token": each}],
        **listed_weights(weights),
    }
