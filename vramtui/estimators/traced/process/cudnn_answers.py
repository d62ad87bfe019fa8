"""Answers for cuDNN's workspaces on an emulated card, from PyTorch's CUDA build: a convolution a line, as JSON.

A trace starts it and asks (`device/asked_cudnn.py`). The answer to `{"shapes": …}` is a line with two numbers of bytes:
what cuDNN asks for, and the largest that it tries first under `torch.backends.cudnn.benchmark`; or `null`, where
PyTorch refuses the convolution. The first line says that it is there. The standard library and torch alone.

Where nothing is computed the fastest of cuDNN's kernels is a matter of chance, so that the first of its order alone is
timed (`benchmark_limit`): PyTorch 2.13 takes the workspace of the largest before (generate_and_filter_plans and
get_plans_from_find, aten/src/ATen/native/cudnn/Conv_v8.cpp). It keeps what it tried for each thread, so that a
convolution that is another's gradient is tried in a thread of its own.
"""

import json
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

PLANE = 4
"""Dimensions of a batch of pictures."""


def scratch_of(call: Callable[[], object], result: int) -> int:
    """Bytes that a call asks for beside its result, whose bytes are known."""
    before: int = torch.cuda.memory_stats()["requested_bytes.all.current"]
    torch.cuda.reset_peak_memory_stats()
    outcome = call()
    peak: int = torch.cuda.memory_stats()["requested_bytes.all.peak"]
    del outcome
    return int(peak - before - result)


def answer(asked: dict[str, Any]) -> list[int]:
    """Bytes asked for, and bytes of the largest that is tried.

    Args:
        asked: `shapes` of input, weight and output; `dtype`, `stride`, `padding`, `dilation`, `transposed`,
            `output_padding` and `groups` as PyTorch has them; `channels_last`; `direction`: forward, input or weight;
            `tf32`, `deterministic` and `benchmark`: settings of torch.backends.cudnn; `room`: bytes that are free.
    """
    cudnn: Any = torch.backends.cudnn
    cudnn.allow_tf32, cudnn.deterministic, cudnn.benchmark = asked["tf32"], asked["deterministic"], asked["benchmark"]
    shape, weight_shape, out_shape = asked["shapes"]
    last = torch.channels_last if len(shape) == PLANE else torch.channels_last_3d
    layout = last if asked["channels_last"] else torch.contiguous_format
    dtype = getattr(torch, asked["dtype"])
    tensor, weight, gradient = (
        torch.empty(one, device="cuda", dtype=dtype).to(memory_format=layout)
        for one in (shape, weight_shape, out_shape)
    )
    how = [asked[name] for name in ("stride", "padding", "dilation", "transposed", "output_padding", "groups")]
    at = ("forward", "input", "weight").index(asked["direction"])

    def call() -> object:
        if not at:
            return torch.ops.aten.convolution(tensor, weight, None, *how)
        wanted = [at == 1, at == 2, False]
        return torch.ops.aten.convolution_backward(gradient, tensor, weight, None, *how, wanted)

    result = (gradient, tensor, weight)[at].nbytes
    if not asked["benchmark"]:
        return [scratch_of(call, result)] * 2
    taken = []
    if asked["room"]:
        free = torch.cuda.mem_get_info()[0] - asked["room"] - result
        taken.append(torch.empty(max(0, free), dtype=torch.uint8, device="cuda"))
    tried = scratch_of(call, result)
    return [scratch_of(call, result), tried]


def main() -> None:
    """Answer until nobody asks."""
    torch.empty(1, device="cuda")
    torch.backends.cudnn.benchmark_limit = 1
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        try:
            with ThreadPoolExecutor(1) as thread:
                numbers = thread.submit(answer, json.loads(line)).result()
        except RuntimeError:  # torch.OutOfMemoryError is one
            numbers = None
        torch.cuda.empty_cache()
        sys.stdout.write(f"{json.dumps(numbers)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
