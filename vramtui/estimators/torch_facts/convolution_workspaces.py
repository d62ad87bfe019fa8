"""Workspaces of cuDNN's convolutions, as far as a rule tells them.

cuDNN's tensor-core kernels work on channels-last tensors. Given contiguous ones they first copy input, weight and
output into a workspace, channels padded to 16 bytes: so many bytes and 512 more, whatever the kernel, on 70 % of the
convolutions measured; 1 x 1 weights need no copy. Which kernel cuDNN's heuristics take is nowhere written down. The
thresholds below are **fitted**: to 4,700 random convolutions of the real PyTorch 2.13 CUDA build with cuDNN 9.20 on an
H200, of which half were kept apart; of those the right choice is met in 83 to 94 %, by direction and type. Sums that
weight gradients split among multiprocessors are not in it.

`convolutions_h200.json` is **measured** in the same way, and goes before the thresholds on such cards: convolutions of
public nets (ResNets, VGG, UNets, DCGAN, those for MNIST and CIFAR; batches of 4 to 256) and random ones, all without
groups. What is asked for in one of them is taken as it is. A convolution near one of them is taken to run on the same
kernel: of those with a neighbour within two octaves, each left out in turn, 72 to 95 % are met so (by the thresholds 60
to 93 %). The layers of mnist, resnet18 and dcgan, which docs/scripts.md shows, are among the measured ones.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from math import log2, prod
from pathlib import Path
from typing import Literal

import msgspec

Direction = Literal["forward", "input", "weight"]
ALIGNED = 16
"""Bytes to which the channels of one pixel are padded."""
HEADER = 512
FLOAT = 4
NEAR = 2.0
"""Octaves up to which the nearest measured convolution is nearer to the truth than the thresholds (see above)."""


class Convolved(msgspec.Struct, frozen=True, kw_only=True):
    """A plain convolution; a transposed one is the input gradient of one, so that its directions change places.

    Attributes:
        images: in the batch.
        inputs: channels of the input.
        outputs: channels of the output.
        kernel: elements of the kernel's window.
        before: pixels of one image of the input.
        after: pixels of one image of the output.
        itemsize: bytes of a number.
        groups: of channels.
        side: pixels of a square input's side; 0 where it is not square, dilated or not known.
        stride: of a square input; 0 where `side` is.
        padding: pixels on each side.
    """

    images: int
    inputs: int
    outputs: int
    kernel: int
    before: int
    after: int
    itemsize: int
    groups: int = 1
    side: int = 0
    stride: int = 0
    padding: int = 0

    @property
    def products(self) -> int:
        """Multiplications."""
        return self.images * self.after * self.outputs * self.inputs // self.groups * self.kernel


# Where the tensor-core kernel is taken: by bytes of a number and direction.
_TAKEN: dict[tuple[bool, Direction], Callable[[Convolved], bool]] = {
    (False, "forward"): lambda c: c.inputs > 12 or c.products > 87_000_000,
    (False, "input"): lambda c: c.outputs > 1,
    (False, "weight"): lambda c: c.products > 12_600_000,
    (True, "forward"): lambda c: c.inputs // c.groups * c.kernel > 500,
    (True, "input"): lambda c: c.inputs > 8 and c.products > 105_000_000,
    (True, "weight"): lambda c: c.inputs > 2 and c.products > 18_900_000,
}


class MeasuredConvolution(msgspec.Struct, frozen=True):
    """A convolution and the bytes of its three workspaces: forward, of the input's gradient, of the weight's."""

    convolved: Convolved
    asked: dict[Direction, int]


@cache
def _measured() -> dict[tuple[int, int, int], list[MeasuredConvolution]]:
    """Those of `convolutions_h200.json` by bytes of a number, kernel elements and stride."""
    found: dict[tuple[int, int, int], list[MeasuredConvolution]] = defaultdict(list)
    rows = msgspec.json.decode((Path(__file__).parent / "convolutions_h200.json").read_bytes(), type=list[list[int]])
    for itemsize, window, stride, images, inputs, outputs, side, padding, *asked in rows:
        after = (side + 2 * padding - window) // stride + 1
        convolved = Convolved(
            images=images,
            inputs=inputs,
            outputs=outputs,
            kernel=window * window,
            before=side * side,
            after=after * after,
            itemsize=itemsize,
            side=side,
            stride=stride,
            padding=padding,
        )
        directions: tuple[Direction, ...] = ("forward", "input", "weight")
        found[itemsize, window * window, stride].append(
            MeasuredConvolution(convolved, dict(zip(directions, asked, strict=True)))
        )
    return found


@lru_cache(maxsize=4096)
def measured_workspace(convolved: Convolved, direction: Direction) -> tuple[int, bool] | None:
    """Bytes that cuDNN asked for on an H200, and whether for this very convolution; None where none like it is known.

    A convolution `NEAR` another is taken to run on its kernel, which copies the same tensors and splits as often.
    """
    if not convolved.side or convolved.groups > 1:
        return None
    alike = _measured().get((convolved.itemsize, convolved.kernel, convolved.stride), ())
    nearest = min(alike, key=lambda one: _distance(one.convolved, convolved), default=None)
    if nearest is None or (away := _distance(nearest.convolved, convolved)) > NEAR:
        return None
    asked, like = nearest.asked[direction], nearest.convolved
    if not away or not asked:
        return asked, not away
    for copied in ("input", "weight", "output"), ("input", "weight"):
        rest = asked - _copies(like, copied)
        if rest >= -HEADER:  # what is left are sums of weight gradients, split among multiprocessors
            split = max(0, rest) * (convolved.inputs * convolved.outputs) // (like.inputs * like.outputs)
            return _copies(convolved, copied) + split, False
    return asked, False


def _copies(convolved: Convolved, copied: tuple[str, ...]) -> int:
    """Bytes of channels-last copies; 1 x 1 weights need none."""
    inputs, outputs = (_padded(count, convolved.itemsize) for count in (convolved.inputs, convolved.outputs))
    elements = {
        "input": convolved.images * convolved.before * inputs,
        "output": convolved.images * convolved.after * outputs,
        "weight": inputs * outputs // convolved.groups * convolved.kernel if convolved.kernel > 1 else 0,
    }
    return sum(elements[name] for name in copied) * convolved.itemsize


def _distance(one: Convolved, other: Convolved) -> float:
    """How far apart two convolutions of the same kernel and stride are, in octaves of their sizes."""
    pairs = ((one.images, other.images), (one.inputs, other.inputs), (one.outputs, other.outputs))
    apart = sum(abs(log2(a / b)) for a, b in pairs) + 1.5 * abs(log2(one.side / other.side))
    channels = zip((one.inputs, one.outputs), (other.inputs, other.outputs), strict=True)
    step = ALIGNED // one.itemsize
    unlike = sum((a % step == 0) is not (b % step == 0) for a, b in channels)
    return apart + 2 * unlike + ((one.padding > 0) is not (other.padding > 0))


def convolution_workspace(convolved: Convolved, direction: Direction) -> int:
    """Bytes of cuDNN's workspace for contiguous (NCHW) tensors by the thresholds; 0 where none is known."""
    depthwise = convolved.groups == convolved.inputs > 1  # a kernel of its own
    if depthwise or not _TAKEN[convolved.itemsize == FLOAT, direction](convolved):
        return 0
    return _copies(convolved, ("input", "weight", "output")) + HEADER


def convolved_of(
    tensor: Sequence[int],
    weight: Sequence[int],
    out: Sequence[int],
    itemsize: int,
    groups: int,
    *,
    transposed: bool,
    stride: Sequence[int] = (),
    padding: Sequence[int] = (),
) -> Convolved:
    """The convolution of these shapes; a transposed one as the plain one whose input gradient it is.

    `stride` and `padding` are those of a convolution that is not dilated; without them no measured one is looked up.
    """
    before, after = (out, tensor) if transposed else (tensor, out)
    square = len(weight) == 4 and all(len(set(pair)) == 1 for pair in (before[2:], weight[2:], stride, padding) if pair)
    known = square and bool(stride) and bool(padding)
    return Convolved(
        images=tensor[0],
        inputs=before[1],
        outputs=after[1],
        kernel=prod(weight[2:]),
        before=prod(before[2:]),
        after=prod(after[2:]),
        itemsize=itemsize,
        groups=groups,
        side=before[2] if known else 0,
        stride=stride[0] if known else 0,
        padding=padding[0] if known else 0,
    )


def _padded(channels: int, itemsize: int) -> int:
    step = ALIGNED // itemsize
    return -(-channels // step) * step
