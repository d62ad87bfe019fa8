"""What a release of PyTorch does where `torch_facts` has a rule: `release_facts.py QUESTIONS OUT`, on a card.

QUESTIONS is the JSON of `questions` in benchmarks/releases.py, OUT gets one object of answers. Runs in the job's
environment: torch and the standard library alone.
"""

import json
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16, "fp64": torch.float64}
SIDE = 512
BACKENDS = {"MATH": "math", "FLASH_ATTENTION": "flash", "EFFICIENT_ATTENTION": "efficient", "CUDNN_ATTENTION": "cudnn"}


def taken(call: Callable[[], object], operands: int) -> tuple[int, int]:
    """Bytes that a call leaves allocated beside its operands and its result, and that its peak has beside them."""
    torch.cuda.reset_peak_memory_stats()
    kept = call()
    left = torch.cuda.memory_allocated() - operands
    peak = torch.cuda.max_memory_allocated() - operands
    del kept
    return left, peak


def workspaces() -> dict[str, int]:
    """Of cuBLAS and cuBLASLt in bytes, each after its first product, and what a second thread and stream add."""
    a = torch.ones(64, 64, device="cuda")
    bias = torch.ones(64, device="cuda")
    operands, result = torch.cuda.memory_allocated(), a.nbytes
    left, peak = taken(lambda: a @ a, operands)
    found = {"kept": left - result, "peak": peak - result}
    _, peak = taken(lambda: functional.linear(a, a, bias), operands)
    found["fused"] = peak - result - found["kept"]
    before = torch.cuda.memory_allocated()

    def product() -> None:
        a @ a

    thread = threading.Thread(target=product)
    thread.start()
    thread.join()
    found["thread"] = torch.cuda.memory_allocated() - before
    before = torch.cuda.memory_allocated()
    with torch.cuda.stream(torch.cuda.Stream()):
        product()
    found["stream"] = torch.cuda.memory_allocated() - before
    return found


def optimizer_defaults() -> dict[str, list[bool]]:
    """Whether (fused, foreach) is taken for parameters on a card, in training of fp32 and of bf16."""
    from torch.optim.optimizer import _default_to_fused_or_foreach  # noqa: PLC0415 - private, told apart if it goes

    return {
        name: list(_default_to_fused_or_foreach([torch.ones(2, device="cuda", dtype=dtype)], differentiable=False))
        for name, dtype in DTYPES.items()
    }


def blocks() -> dict[str, int]:
    """Bytes allocated for one byte, and reserved for a small, a middle and a large request."""
    found = {}
    for name, size in (("one byte", 1), ("small", 1 << 20), ("middle", (1 << 20) + 1), ("large", 10 << 20)):
        torch.cuda.empty_cache()
        before = torch.cuda.memory_reserved()
        tensor = torch.empty(size, dtype=torch.uint8, device="cuda")
        found[name] = torch.cuda.memory_allocated() if name == "one byte" else torch.cuda.memory_reserved() - before
        del tensor
    return found


def free_block() -> str:
    """Which of two free blocks of one size is taken: `lowest`, by address, or `oldest`, by when it was cut."""
    torch.cuda.empty_cache()
    first, between, second, after = (_mebibytes(size) for size in (8, 2, 4, 6))  # a segment of 20 to its last byte
    places = {first.data_ptr(): "lowest", second.data_ptr(): "oldest"}
    del first
    newer, rest = _mebibytes(4), _mebibytes(4)
    del newer, second
    taken_now = _mebibytes(4)
    return places.get(taken_now.data_ptr(), f"neither, beside {len((between, after, rest))} others")


def _mebibytes(number: int) -> torch.Tensor:
    return torch.empty(number << 20, dtype=torch.uint8, device="cuda")


def written_views() -> dict[str, int]:
    """The base's bytes, and those at the peak of backward after a write into a view of it, beside a write into it."""
    writes: dict[str, Callable[[torch.Tensor], object]] = {
        "base": lambda base: base.relu_(),
        "flattened": lambda base: base.view(-1).relu_(),
        "transposed": lambda base: base.t().relu_(),
        "half": lambda base: base[: len(base) // 2].relu_(),
    }
    found = {name: _peak_of_backward(write) for name, write in writes.items()}
    beside = {name: peak - found["base"] for name, peak in found.items()}
    return beside | {"base": SIDE * SIDE * 4}


def _peak_of_backward(write: Callable[[torch.Tensor], object]) -> int:
    leaf = torch.ones(SIDE, SIDE, device="cuda", requires_grad=True)
    base = leaf * 2
    written = write(base)
    out = written if isinstance(written, torch.Tensor) and written.numel() == base.numel() else base
    _, peak = taken(partial(out.backward, torch.ones_like(out)), torch.cuda.memory_allocated() + out.nbytes)
    return peak


def attention(calls: list[dict[str, Any]]) -> list[str]:
    """The kernel of each call."""
    from torch.nn.attention import SDPBackend  # noqa: PLC0415 - its place is this release's own

    names = {int(getattr(SDPBackend, name).value): ours for name, ours in BACKENDS.items()}
    found = []
    for call in calls:
        kind: dict[str, Any] = {"device": "cuda", "dtype": DTYPES[call["dtype"]]}
        query, key, value = (
            torch.empty(call[name], requires_grad=bool(call["training"]), **kind) for name in ("query", "key", "value")
        )
        mask = None
        if call["mask"] is not None:
            shape = (query.shape[0], query.shape[1], query.shape[2], key.shape[2])
            mask = torch.empty(shape, requires_grad=call["mask"] == "trained", **kind)
        torch.use_deterministic_algorithms(bool(call["deterministic"]))
        chosen = torch._fused_sdp_choice(  # noqa: SLF001 - what attention itself asks
            query,
            key,
            value,
            attn_mask=mask,
            dropout_p=float(call["dropout"]),
            is_causal=bool(call["causal"]),
            enable_gqa=bool(call["grouped"]),
        )
        found.append(names.get(int(chosen), str(chosen)))
    torch.use_deterministic_algorithms(False)
    return found


def settings(values: dict[str, str]) -> list[str]:
    """Names of `PYTORCH_CUDA_ALLOC_CONF` that this release does not take, each tried with its value."""
    return [name for name, value in values.items() if not is_taken(f"{name}:{value}")]


def is_taken(setting: str) -> bool:
    """Whether the allocator takes it."""
    try:
        torch._C._accelerator_setAllocatorSettings(setting)  # noqa: SLF001 - as the variable is read
    except (RuntimeError, ValueError):
        return False
    return True


def main() -> None:
    """Look at each, and write what was found."""
    asked = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    found = {
        "torch": torch.__version__,
        "blocks": blocks(),
        "free block": free_block(),
        "written views": written_views(),
        "workspaces": workspaces(),
        "optimizers": optimizer_defaults(),
        "attention": attention(asked["attention"]),
        "settings": settings(asked["settings"]),
    }
    Path(sys.argv[2]).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
