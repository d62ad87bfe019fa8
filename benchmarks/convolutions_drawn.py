"""Convolutions drawn by a seed, run forward and backward: `convolutions_drawn.py SEED COUNT`, a line of peaks for each.

    PYTHON benchmarks/convolutions_drawn.py 3109 49 2> true.txt             # the CUDA build, with a card or a stub
    vramtui trace --show-output --steps 99 --python PYTHON benchmarks/convolutions_drawn.py -- 3109 49 2> traced.txt
    python benchmarks/convolutions_drawn.py --compare true.txt traced.txt

A third argument, `benchmark`, runs each twice under `torch.backends.cudnn.benchmark`, first with what is tried.
Beside a stub the trace wants `VRAMTUI_CUDNN_WITHOUT_DEVICE=1`. Sizes are those that nets usually have, in one dimension
(series, causal and dilated), two and three; every fourth is transposed, every second has a bias. The standard library
and torch alone.
"""

import json
import random
import sys
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import torch

BATCHES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 50, 64, 80, 96, 100, 128, 200, 256, 512)
CHANNELS = (
    1, 2, 3, 4, 6, 8, 10, 12, 16, 17, 20, 21, 24, 30, 32, 40, 48, 50, 56, 60, 64, 72, 80, 85, 96, 100, 112, 120, 128,
    144, 150, 160, 192, 200, 224, 240, 255, 256, 288, 300, 320, 336, 384, 400, 448, 480, 512, 576, 600, 640, 672, 768,
    800, 896, 960, 1024, 1152, 1280, 1536, 2048,
)  # fmt: skip
SIDES: dict[int, tuple[int, ...]] = {
    1: (5, 8, 10, 12, 16, 24, 32, 50, 64, 100, 128, 150, 168, 256, 336, 512, 720, 784, 1000, 2048, 4096, 8000, 16000),
    2: (1, 2, 4, 5, 7, 8, 10, 12, 14, 16, 20, 26, 28, 30, 32, 40, 52, 56, 60, 64, 80, 96, 112, 128, 160, 224, 256, 416),
    3: (2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96),
}
WINDOWS: dict[int, tuple[tuple[int, ...], ...]] = {
    1: ((1,), (1,), (2,), (3,), (3,), (3,), (4,), (5,), (7,), (9,), (11,), (15,)),
    2: (
        (3, 3), (3, 3), (3, 3), (3, 3), (1, 1), (1, 1), (1, 1), (4, 4), (5, 5), (7, 7), (2, 2), (1, 3), (3, 1), (1, 7),
        (11, 11), (16, 16),
    ),
    3: ((3, 3, 3), (3, 3, 3), (1, 1, 1), (2, 2, 2), (5, 5, 5), (1, 3, 3), (3, 1, 1), (1, 7, 7)),
}  # fmt: skip
LARGEST = 1 << 30
"""Bytes of a tensor."""
Case = dict[str, Any]


def drawn(draw: random.Random) -> Case:
    """A convolution as `torch.nn` takes it, with what it is given."""
    dimensions = draw.choices((1, 2, 3), (27, 58, 15))[0]
    window = draw.choice(WINDOWS[dimensions])
    inputs = draw.choice((1, 2, 3, 4, draw.choice(CHANNELS))) if draw.random() < 0.15 else draw.choice(CHANNELS)
    outputs = draw.choice((inputs, inputs, 2 * inputs, max(1, inputs // 2), draw.choice(CHANNELS)))
    groups = 1
    if inputs > 1 and draw.random() < 0.1:
        groups, outputs = inputs, inputs
    step = draw.choice((1, 1, 1, 1, 2))
    apart = draw.choice((2, 4, 8)) if step == 1 and max(window) > 1 and draw.random() < 0.12 else 1
    side = draw.choice(SIDES[dimensions])
    sides = [side] * dimensions if draw.random() < 0.7 else [draw.choice(SIDES[dimensions]) for _ in window]
    padding = [(one - 1) * apart // 2 for one in window] if draw.random() < 0.8 else [0] * dimensions
    return {
        "shape": [draw.choice(BATCHES), inputs, *sides],
        "outputs": outputs,
        "window": list(window),
        "how": {"stride": step, "padding": padding, "dilation": apart, "groups": groups, "bias": draw.random() < 0.5},
        "transposed": draw.random() < 0.25,
        "dtype": draw.choice(("float32", "float32", "float16", "bfloat16")),
        "channels_last": dimensions > 1 and draw.random() < 0.25,
    }


def cases(seed: int, count: int) -> Iterator[Case]:
    """So many that fit into their picture and into `LARGEST` bytes a tensor."""
    draw = random.Random(seed)
    while count:
        case = drawn(draw)
        spans = [(one - 1) * case["how"]["dilation"] + 1 for one in case["window"]]
        padded = [side + 2 * pad for side, pad in zip(case["shape"][2:], case["how"]["padding"], strict=True)]
        images, inputs, *sides = case["shape"]
        most = images * max(inputs, case["outputs"]) * prod(sides) * (8 if case["transposed"] else 1) * 4
        if all(span <= side for span, side in zip(spans, padded, strict=True)) and most <= LARGEST:
            yield case
            count -= 1


def peaks(case: Case) -> list[int]:
    """The most bytes that are held beside what was there, forward and backward, of each turn."""
    dimensions, dtype = len(case["window"]), getattr(torch, case["dtype"])
    kind = f"Conv{'Transpose' if case['transposed'] else ''}{dimensions}d"
    net = getattr(torch.nn, kind)(
        case["shape"][1], case["outputs"], tuple(case["window"]), device="cuda", dtype=dtype, **case["how"]
    )
    given = torch.empty(case["shape"], device="cuda", dtype=dtype)
    if case["channels_last"]:
        last: Any = {2: torch.channels_last, 3: torch.channels_last_3d}[dimensions]
        given = given.to(memory_format=last)
    given.requires_grad_(True)
    taken = []
    for _ in range(1 + torch.backends.cudnn.benchmark):
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        result = net(given)
        taken.append(torch.cuda.max_memory_allocated() - before)
        gradient = torch.empty_like(result)
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        result.backward(gradient)
        taken.append(torch.cuda.max_memory_allocated() - before)
    torch.optim.SGD(net.parameters(), lr=0.1).step()  # a trace ends where nothing is trained any more
    return taken


def rows(file: Path) -> dict[int, tuple[Case, list[int]]]:
    """What a run wrote, by the place of each convolution."""
    lines = (line for line in file.read_text(encoding="utf-8").splitlines() if line.startswith("["))
    return {at: (case, taken) for at, case, taken in map(json.loads, lines)}


def compare(true: Path, traced: Path) -> None:
    """Say how many peaks are equal, and which are not."""
    ours, others = rows(traced), rows(true)
    both = ours.keys() & others.keys()
    pairs = [(others[at][0], *one) for at in both for one in zip(others[at][1], ours[at][1], strict=True)]
    for case, one, other in pairs:
        if one != other:
            print(f"{one:,} and {other:,} bytes: {case}")
    print(f"{sum(one == other for _, one, other in pairs)} of {len(pairs)} peaks are equal")


def main() -> None:
    """Run, or compare."""
    if sys.argv[1] == "--compare":
        compare(*map(Path, sys.argv[2:]))
        return
    torch.backends.cudnn.benchmark = sys.argv[3:] == ["benchmark"]
    for at, case in enumerate(cases(*map(int, sys.argv[1:3]))):
        print(json.dumps([at, case, peaks(case)]), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
