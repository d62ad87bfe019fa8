"""What `scaled_dot_product_attention` leaves, and takes at its peak.

`attention_memory.py FILE` on a card adds the answers of this release of PyTorch to FILE; a trace of
`attention_memory.py --check FILE` is held to them.

Runs in the job's environment: torch and the standard library alone. Each row has, for a forward and a backward pass,
bytes left and bytes at the peak, both beside what stood before.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

# Batch, heads, heads of keys and values, queries, keys, width of keys, width of values.
SHAPES = (
    (2, 8, 8, 256, 256, 64, 64), (2, 8, 2, 256, 256, 64, 64), (2, 8, 4, 512, 512, 128, 128), (1, 16, 2, 100, 100, 32,
    32), (4, 4, 1, 64, 128, 80, 48), (2, 8, 2, 256, 256, 160, 160),
)  # fmt: skip
HOW: tuple[dict[str, Any], ...] = ({"training": False}, {}, {"dropout": 0.1}, {"masked": True})


def attend(dtype: str, shape: tuple[int, ...], how: dict[str, Any]) -> list[int]:
    batch, heads, shared, queries, keys, width, values = shape
    training = how.get("training", True)
    kind: dict[str, Any] = {"device": "cuda", "dtype": getattr(torch, dtype)}
    query = torch.ones(batch, heads, queries, width, requires_grad=training, **kind)
    key = torch.ones(batch, shared, keys, width, requires_grad=training, **kind)
    value = torch.ones(batch, shared, keys, values, requires_grad=training, **kind)
    mask = torch.ones(batch, heads, queries, keys, **kind) if how.get("masked") else None
    before = _start()
    out = functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, dropout_p=how.get("dropout", 0.0), is_causal=mask is None,
        enable_gqa=shared != heads,
    )  # fmt: skip
    row = _taken_since(before)
    if training:
        gradient = torch.ones_like(out)
        before = _start()
        out.backward(gradient)
        row += _taken_since(before)
    return row


def _start() -> int:
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated()


def _taken_since(before: int) -> list[int]:
    return [torch.cuda.memory_allocated() - before, torch.cuda.max_memory_allocated() - before]


def answers() -> dict[str, list[int]]:
    """Each case by its name. cuDNN's kernel has its own goldens; a mask leaves halves to the memory-efficient one."""
    torch.backends.cuda.enable_cudnn_sdp(False)
    cases = [("float32", how) for how in HOW] + [("float16", HOW[-1])]
    return {
        f"{dtype} {' '.join(map(str, shape))} {json.dumps(how)}": attend(dtype, shape, how)
        for dtype, how in cases
        for shape in SHAPES
    }


def main() -> None:
    """Record them, or hold this run to them.

    Raises:
        ValueError: it has others.
    """
    file = Path(sys.argv[-1])
    known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    release = ".".join(torch.__version__.split(".")[:2])
    found = answers()
    if "--check" not in sys.argv:
        known[release] = found
        file.write_text(json.dumps(known) + "\n", encoding="utf-8")
        return
    wrong = {name: (row, known[release][name]) for name, row in found.items() if row != known[release][name]}
    if wrong:
        raise ValueError(f"traced, then measured: {wrong}")


if __name__ == "__main__":
    main()
