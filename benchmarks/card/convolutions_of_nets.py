"""Workspaces of usual nets' convolutions on the card that is there: `convolutions_of_nets.py OUT [--seconds 300]`.

The convolutions are those of torchvision's models (run once on the meta device) and of `by_hand`, at `IMAGES` images
each, in three types of number and both layouts, in an order drawn once: what the time leaves out is left out by chance.
Before them stand those of `torch_facts/convolutions_h200.json` and `tests/golden/convolutions_left_out.json.gz`.

OUT/N.jsonl, one of each worker, has lines of form, sizes and padding, and what was asked for, forward, of the input's
gradient and of the weight's. `--benchmark` gives of each the largest tried under torch.backends.cudnn.benchmark and
what is taken then. `--join TABLE` writes them as `torch_facts/convolutions_h100.json.gz` has them. That one was
measured by a forerunner of this file, with a few more models (of films, detection and segmentation).
"""

import argparse
import gzip
import importlib
import json
import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from math import prod
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks import convolutions  # noqa: E402 - works from a checkout that is not installed
from vramtui.estimators.traced.process.cudnn_answers import scratch_of  # noqa: E402 - as above

IMAGES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
MOST_NUMBERS = 600_000_000  # of an input or a result
RESERVED = 500_000_000  # bytes after which a worker gives back what it has
WORKERS = 15
TABLE = ROOT / "vramtui" / "estimators" / "torch_facts" / "convolutions_h200.json"
LEFT_OUT = ROOT / "tests" / "golden" / "convolutions_left_out.json.gz"
Case = tuple[dict[str, Any], list[int]]
"""The form of a convolution; images, channels of input and output, sides, padding."""

_UNETS = (  # channels of each level, side of the first, channels of what comes in
    ((320, 640, 1280, 1280), 64, 4), ((320, 640, 1280), 128, 4), ((320, 640, 1280, 1280), 96, 4),
    ((128, 256, 512, 512), 512, 3), ((128, 256, 512, 512), 256, 3), ((128, 128, 256, 256, 512, 512), 128, 3),
    ((64, 128, 256, 512, 1024), 256, 3), ((64, 128, 256, 512, 1024), 572, 3), ((64, 128, 256, 512), 64, 3),
    ((128, 256, 256, 256), 32, 3), ((32, 64, 128, 256), 32, 1), ((32, 64, 128, 256, 320, 320), 512, 1),
    ((64, 128, 256, 512), 28, 1), ((192, 384, 576, 768), 64, 3),
)  # fmt: skip
_PATCHES = (  # side of a patch, width, side of a picture, channels
    (16, 192, 224, 3), (16, 384, 224, 3), (16, 768, 224, 3), (16, 1024, 224, 3), (14, 1024, 224, 3), (14, 1280, 224, 3),
    (32, 768, 224, 3), (14, 1152, 384, 3), (14, 768, 518, 3), (14, 1664, 336, 3), (16, 768, 384, 3), (8, 768, 224, 3),
    (2, 1152, 32, 4), (2, 1536, 64, 4), (4, 384, 32, 3),
)  # fmt: skip
_YOLOS = ((16, 32, 64, 128, 256), (32, 64, 128, 256, 512), (48, 96, 192, 384, 768), (64, 128, 256, 512, 1024))


def by_hand() -> Iterator[tuple[int, int, int, int, int, int]]:
    """Channels in and out, window, stride, padding and side of square convolutions that are in no torchvision model."""
    for widths, side, came_in in _UNETS:
        yield from ((came_in, widths[0], 3, 1, 1, side), (widths[0], came_in, 3, 1, 1, side))
        for at, width in enumerate(widths):
            before, after = widths[max(at - 1, 0)], widths[min(at + 1, len(widths) - 1)]
            for inputs in {width, before, 2 * width, width + before, width + after}:
                yield from ((inputs, width, window, 1, window // 2, side >> at) for window in (1, 3))
            yield (width, width, 3, 2, 1, side >> at)
    yield from ((channels, width, patch, patch, 0, side) for patch, width, side, channels in _PATCHES)
    for widths in _YOLOS:
        for side in (640, 416):
            for at, width in enumerate(widths):
                half = side >> (at + 1)
                yield (3 if at == 0 else widths[at - 1], width, 3, 2, 1, side >> at)
                yield from ((width, width // 2, 1, 1, 0, half), (width // 2, width // 2, 3, 1, 1, half))
                yield from ((width // 2, width, 3, 1, 1, half), (width, width, 1, 1, 0, half))
    for width in (64, 128):  # DCGAN and its kin
        steps = zip((8, 16, 32, 64), ((8, 4), (4, 2), (2, 1), (1, None)), strict=True)
        yield from ((less * width if less else 3, more * width, 4, 2, 1, side) for side, (more, less) in steps)
        yield from ((8 * width, outputs, 4, 1, 0, 4) for outputs in (1, 100))
    for width in (16, 32, 64, 128, 256, 512):  # ResNets for CIFAR
        for side in (32, 16, 8, 4):
            yield from (
                (width, width, 3, 1, 1, side),
                (width, 2 * width, 3, 2, 1, side),
                (width, 2 * width, 1, 2, 0, side),
            )


def of_torchvision() -> Iterator[tuple[Any, ...]]:
    """Channels, window, stride, padding, dilation, groups and sides of each convolution of its models of pictures."""
    torchvision = importlib.import_module("torchvision")  # the workers do without
    made: list[tuple[Any, ...]] = []

    def keep(module: Any, inputs: tuple[torch.Tensor, ...], _: object) -> None:  # noqa: ANN401 - a convolution
        sides = tuple(inputs[0].shape[2:])
        form = (module.kernel_size, module.stride, module.padding, module.dilation, module.groups)
        made.append((module.in_channels, module.out_channels, *form, sides))

    with torch.device("meta"), torch.no_grad():
        for name in torchvision.models.list_models(module=torchvision.models):
            side = 299 if name.startswith("inception") else 224
            try:
                net = torchvision.models.get_model(name, weights=None).eval()
                for module in net.modules():
                    if isinstance(module, torch.nn.Conv2d):
                        module.register_forward_hook(keep)
                net(torch.empty(1, 3, side, side))
            except (RuntimeError, NotImplementedError) as error:  # some fill their weights by numpy
                print(name, str(error)[:80], file=sys.stderr)
    yield from dict.fromkeys(made)


def left_out() -> list[Case]:
    """Random ones that no rule was fitted to."""
    made = []
    for dimensions, dtype, images, inputs, outputs, sides, padding, window, stride, dilation, _, _ in json.loads(
        gzip.decompress(LEFT_OUT.read_bytes())
    ):
        line = dimensions == 1  # cuDNN is given a height of 1
        form = {
            name: [1] * line + [number] * dimensions
            for name, number in (("window", window), ("stride", stride), ("dilation", dilation))
        }
        pads = [0] * line + [padding] * dimensions
        made.append(({"dtype": dtype} | form, [images, inputs, outputs, *[1] * line, *sides, *pads]))
    return made


def cases() -> list[Case]:
    """What is measured, in its order."""
    table = [
        (form, row[: 3 + 2 * len(form["window"])]) for form, rows in json.loads(TABLE.read_bytes()) for row in rows
    ]
    nets: list[Case] = []
    square = (
        (inputs, outputs, (window,) * 2, (stride,) * 2, (padding,) * 2, (1, 1), 1, (side,) * 2)
        for inputs, outputs, window, stride, padding, side in by_hand()
    )
    for inputs, outputs, window, stride, padding, dilation, groups, sides in dict.fromkeys(
        [*square, *of_torchvision()]
    ):
        for images in IMAGES:
            if images * prod(sides) * max(inputs, outputs) > MOST_NUMBERS:
                continue
            for dtype in ("float32", "bfloat16", "float16"):
                for last in (False, True):
                    form = {"dtype": dtype, "window": list(window)}
                    form |= {"stride": [*stride]} if stride != (1, 1) else {}
                    form |= {"dilation": [*dilation]} if dilation != (1, 1) else {}
                    form |= ({"groups": groups} if groups > 1 else {}) | ({"channels_last": True} if last else {})
                    nets.append((form, [images, inputs, outputs, *sides, *padding]))
    random.Random(11).shuffle(nets)
    return table + left_out() + nets


def twice(call: Callable[[], object], result: int) -> Any:  # noqa: ANN401 - two figures
    """What the first call of a convolution asks for, which tries, and the second."""
    torch.cuda.empty_cache()
    return [scratch_of(call, result) for _ in range(2)]


def measure(at: int, options: argparse.Namespace) -> None:
    """Every `WORKERS`th case from `at` on."""
    end = time.monotonic() + options.seconds
    torch.backends.cudnn.benchmark = options.benchmark
    how = twice if options.benchmark else scratch_of
    with (options.out / f"{at}.jsonl").open("w", encoding="utf-8") as file:
        for form, row in json.loads((options.out / "cases.json").read_bytes())[at::WORKERS]:
            if time.monotonic() > end:
                break
            try:
                file.write(json.dumps([form, row, convolutions.workspaces(form, row, how)]) + "\n")
            except (torch.OutOfMemoryError, RuntimeError) as error:
                print(form, row, str(error)[:80], file=sys.stderr)
            if torch.cuda.memory_reserved() > RESERVED:
                torch.cuda.empty_cache()


def join(out: Path, table: Path) -> None:
    """Rows of the same form together, those of `LEFT_OUT` apart."""
    apart = {json.dumps(one, sort_keys=True) for one in left_out()}
    forms: dict[str, list[list[int]]] = defaultdict(list)
    for file in out.glob("*.jsonl"):
        for line in file.read_text(encoding="utf-8").splitlines():
            form, row, asked = json.loads(line)
            if json.dumps((form, row), sort_keys=True) not in apart:
                forms[json.dumps(form, sort_keys=True)].append([*row, *asked])
    lines = [
        json.dumps([json.loads(form), sorted(rows)], separators=(",", ":")) for form, rows in sorted(forms.items())
    ]
    table.write_bytes(gzip.compress(("[\n" + ",\n".join(lines) + "\n]\n").encode(), 9, mtime=0))


def main() -> None:
    """Start the workers, or be one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--benchmark", action="store_true")
    parser.add_argument("--worker", type=int)
    parser.add_argument("--join", type=Path)
    options = parser.parse_args()
    if options.join is not None:
        join(options.out, options.join)
    elif options.worker is not None:
        measure(options.worker, options)
    else:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "cases.json").write_text(json.dumps(cases()), encoding="utf-8")
        command = [sys.executable, *sys.argv, "--worker"]
        for worker in [subprocess.Popen([*command, str(at)]) for at in range(WORKERS)]:
            worker.wait()


if __name__ == "__main__":
    main()
