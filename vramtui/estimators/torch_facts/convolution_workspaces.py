"""Workspaces of cuDNN's convolutions, as far as a rule tells them.

cuDNN's tensor-core kernels work on channels-last tensors. Given contiguous ones they first copy input, weight and
output into a workspace, channels padded to 16 bytes: so many bytes and 512 more, whatever the kernel, on 70 % of the
convolutions measured; 1 x 1 weights need no copy. Which kernel cuDNN's heuristics take is nowhere written down. The
thresholds below are **fitted**: to 4,700 random convolutions of the real PyTorch 2.13 CUDA build with cuDNN 9.20 on an
H200, of which half were kept apart; of those the right choice is met in 83 to 94 %, by direction and type. Sums that
weight gradients split among multiprocessors are not in it.

These had two dimensions. 684 random ones of one dimension (windows of 1 to 9, up to 2,048 channels), 180 of three and
120 of 1 x 1 with up to 4,096 channels were measured in the same way, and what `_takes_tensor_cores` adds was chosen
among a few rules by all of them. Right within 5 %, forward, input and weight: one dimension 82, 78 and 74 % in fp32 and
93, 99 and 90 % in bf16; three dimensions 61, 98 and 70 %, and 80, 100 and 59 %; 1 x 1 at least 85 %.

`convolutions_h200.json` is **measured** in the same way, and goes before the thresholds on such cards: convolutions of
public nets (ResNets, VGG, UNets, GANs, TCNs, those for MNIST and CIFAR; batches of 4 to 256) and random ones. What is
asked for in one of them is taken as it is. A convolution near one of them is taken to run on the same kernel: of those
with a neighbour within two octaves, each left out in turn, 72 to 95 % of the first 2,000 are met so (by the thresholds
60 to 93 %). The convolutions of the nets in docs/scripts.md are among the measured ones, so that their errors say
nothing about other nets.

Both are figures of a model of that card. A real H200 with cuDNN 9.19 (PyTorch 2.11, `tests/golden/card`) asked within a
MiB of the table for 765 of its convolutions in 85, 84 and 66 % with fp16 (forward, input, weight), in 76, 77 and 61 %
with fp32 and in 49, 51 and 54 % with bf16: whether it is the older cuDNN or the model is not known.

Another cuDNN takes other kernels: three in four of these convolutions have another workspace with 9.24, which PyTorch
2.14 brings, and nine of them yet another with 2.15's 9.26. `convolutions_h200_9.24.json` and `_9.26.json` hold the rows
that differ from the cuDNN before, measured on those CUDA builds by benchmarks/convolutions.py (with 2.13's it finds
none that does). The thresholds are 9.20's for all.

With `torch.backends.cudnn.benchmark` the first call of each convolution takes the largest workspace of all kernels that
cuDNN finds, times them and empties the allocator's cache. That largest workspace is measured too where the row has
six figures; which kernel is fastest is not, for nothing is computed where these are measured.
"""

import json
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from math import log2, prod
from pathlib import Path
from typing import Any, Literal

import msgspec

Direction = Literal["forward", "input", "weight"]
ALIGNED = 16
"""Bytes to which the channels of one pixel are padded."""
HEADER = 512
FLOAT = 4
HALF = 2
PLANE = 2
"""Dimensions of a picture."""
_DIRECTIONS: tuple[Direction, ...] = ("forward", "input", "weight")
MEASURED_ON = 9
"""The major capability of the H200; on others cuDNN takes other kernels for half of the convolutions."""
SIZES = 7
"""Numbers of a measured row that are sizes; workspaces follow them."""
NEAR = 2.0
"""Octaves up to which the nearest measured convolution is nearer to the truth than the thresholds (see above)."""


Pair = tuple[int, int]
OLDEST_CUDNN = (9, 20)
CUDNN: dict[Pair, Pair] = {OLDEST_CUDNN: (0, 0), (9, 24): (2, 14), (9, 26): (2, 15)}
"""The measured cuDNN, in their order, and the first PyTorch whose CUDA build brings each (`nvidia-cudnn-cu13`)."""


def cudnn_of(release: Pair) -> Pair:
    """The cuDNN whose measured workspaces hold for a release of PyTorch."""
    return max(cudnn for cudnn, since in CUDNN.items() if release >= since)


class ConvolutionForm(msgspec.Struct, frozen=True, kw_only=True):
    """What else decides cuDNN's kernel: height before width; one dimension is a height of 1.

    Attributes:
        dtype: float32 (as TF32), float16 or bfloat16.
        cudnn: its release.
        channels_last: whether input or weight are (NHWC).
        window: of the kernel.
        stride, dilation, groups: as PyTorch has them.
    """

    dtype: str
    cudnn: Pair = OLDEST_CUDNN
    channels_last: bool = False
    window: Pair
    stride: Pair = (1, 1)
    dilation: Pair = (1, 1)
    groups: int = 1


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
        form: None where no measured one is looked up, as in three dimensions.
        size: height and width of the input.
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
    form: ConvolutionForm | None = None
    size: Pair = (0, 0)
    padding: Pair = (0, 0)

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
    """A convolution and the bytes of its three workspaces, and of the largest that cuDNN tries with
    `torch.backends.cudnn.benchmark`: forward, of the input's gradient, of the weight's. The latter may be unknown.
    """

    convolved: Convolved
    asked: dict[Direction, int]
    tried: dict[Direction, int]


@cache
def _rows(cudnn: Pair) -> dict[ConvolutionForm, list[list[int]]]:
    """Measured rows: images, channels, outputs, height, width, padding, bytes; of a newer cuDNN those of the one before
    it, with the rows that differ in their place.
    """
    if cudnn == OLDEST_CUDNN:
        return _read("convolutions_h200.json", cudnn)
    other = _read(f"convolutions_h200_{cudnn[0]}.{cudnn[1]}.json", cudnn)
    before = max(one for one in CUDNN if one < cudnn)
    rows_of_forms = ((msgspec.structs.replace(form, cudnn=cudnn), rows) for form, rows in _rows(before).items())
    return {form: _replaced(rows, other.get(form, [])) for form, rows in rows_of_forms}


def _read(name: str, cudnn: Pair) -> dict[ConvolutionForm, list[list[int]]]:
    read = json.loads((Path(__file__).parent / name).read_bytes())
    return {_form(form | {"cudnn": cudnn}): rows for form, rows in read}


def _replaced(rows: list[list[int]], other: list[list[int]]) -> list[list[int]]:
    by_sizes = {tuple(row[:SIZES]): row for row in other}
    return [by_sizes.get(tuple(row[:SIZES]), row) for row in rows]


def _form(read: dict[str, Any]) -> ConvolutionForm:
    fields: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in read.items()}
    return ConvolutionForm(**fields)


@cache
def _measured(form: ConvolutionForm) -> list[MeasuredConvolution]:
    """The measured convolutions of that form."""
    found = []
    for images, inputs, outputs, *rest in _rows(form.cudnn).get(form, ()):
        size, padding, asked, tried = rest[:2], rest[2:4], rest[4:7], rest[7:]
        after = prod(
            (side + 2 * beside - (window - 1) * apart - 1) // step + 1
            for side, beside, window, apart, step in zip(
                size, padding, form.window, form.dilation, form.stride, strict=True
            )
        )
        convolved = Convolved(
            images=images,
            inputs=inputs,
            outputs=outputs,
            kernel=prod(form.window),
            before=prod(size),
            after=after,
            itemsize=FLOAT if form.dtype == "float32" else HALF,
            groups=form.groups,
            form=form,
            size=(size[0], size[1]),
            padding=(padding[0], padding[1]),
        )
        found.append(
            MeasuredConvolution(
                convolved, dict(zip(_DIRECTIONS, asked, strict=True)), dict(zip(_DIRECTIONS, tried, strict=False))
            )
        )
    return found


def _forms(form: ConvolutionForm) -> list[ConvolutionForm]:
    """Where to look for one near: halves of one kind go by the other where none of their own is."""
    other = {"float16": "bfloat16", "bfloat16": "float16"}.get(form.dtype)
    return [form, *([msgspec.structs.replace(form, dtype=other)] if other else [])]


@lru_cache(maxsize=4096)
def _nearest(convolved: Convolved) -> tuple[MeasuredConvolution, float] | None:
    """The measured convolution nearest to this one, and how far it is away; None where none is `NEAR`."""
    if convolved.form is None:
        return None
    place = _place(convolved)
    for form in _forms(convolved.form):
        far = [_distance(one, place) for one in _places(form)]
        away = min(far, default=NEAR + 1)
        if away <= NEAR:
            return _measured(form)[far.index(away)], away + (form != convolved.form)
    return None


def measured_workspace(convolved: Convolved, direction: Direction) -> tuple[int, bool] | None:
    """Bytes that cuDNN asked for on an H200, and whether for this very convolution; None where none like it is known.

    A convolution `NEAR` another is taken to run on its kernel, which copies the same tensors and splits as often.
    """
    found = _nearest(convolved)
    return None if found is None else (_like(convolved, found[0], found[0].asked[direction]), not found[1])


def tried_workspace(convolved: Convolved, direction: Direction) -> tuple[int, bool] | None:
    """Bytes of the largest workspace that cuDNN tries for it with `torch.backends.cudnn.benchmark`, as above."""
    found = _nearest(convolved)
    if found is None or not found[0].tried:
        return None
    return _like(convolved, found[0], found[0].tried[direction]), not found[1]


def _like(convolved: Convolved, measured: MeasuredConvolution, asked: int) -> int:
    """Bytes for `convolved` where cuDNN asked for `asked` for a measured one like it."""
    like = measured.convolved
    if not asked or like == convolved:
        return asked
    for copied in ("input", "weight", "output"), ("input", "weight"):
        rest = asked - _copies(like, copied)
        if rest >= -HEADER:  # what is left are sums of weight gradients, split among multiprocessors
            split = max(0, rest) * (convolved.inputs * convolved.outputs) // (like.inputs * like.outputs)
            return _copies(convolved, copied) + split
    return asked


def _copies(convolved: Convolved, copied: tuple[str, ...]) -> int:
    """Bytes of channels-last copies; 1 x 1 weights need none."""
    inputs, outputs = (_padded(count, convolved.itemsize) for count in (convolved.inputs, convolved.outputs))
    elements = {
        "input": convolved.images * convolved.before * inputs,
        "output": convolved.images * convolved.after * outputs,
        "weight": inputs * outputs // convolved.groups * convolved.kernel if convolved.kernel > 1 else 0,
    }
    return sum(elements[name] for name in copied) * convolved.itemsize


class _Place(msgspec.Struct, frozen=True):
    """What of a convolution tells how far it is from another: octaves of its sizes, whether its channels are aligned,
    its picture's shape and whether it is padded.
    """

    images: float
    inputs: float
    outputs: float
    before: float
    aligned: tuple[bool, bool]
    shape: float
    padded: bool


def _place(convolved: Convolved) -> _Place:
    step = ALIGNED // convolved.itemsize
    return _Place(
        images=log2(convolved.images),
        inputs=log2(convolved.inputs),
        outputs=log2(convolved.outputs),
        before=0.75 * log2(convolved.before),
        aligned=(convolved.inputs % step == 0, convolved.outputs % step == 0),
        shape=convolved.size[0] / convolved.size[1],
        padded=max(convolved.padding) > 0,
    )


@cache
def _places(form: ConvolutionForm) -> list[_Place]:
    """Of the measured convolutions of that form, in their order."""
    return [_place(one.convolved) for one in _measured(form)]


def _distance(one: _Place, other: _Place) -> float:
    """How far apart two convolutions of the same form are, in octaves of their sizes."""
    apart = abs(one.images - other.images) + abs(one.inputs - other.inputs) + abs(one.outputs - other.outputs)
    apart += abs(one.before - other.before)
    if one.shape != other.shape:
        apart += 0.25  # another shape of picture
    for mine, its in zip(one.aligned, other.aligned, strict=True):
        apart += 2 * (mine is not its)
    return apart + (one.padded is not other.padded)


def _takes_tensor_cores(convolved: Convolved, direction: Direction, dimensions: int) -> bool:
    """Whether the tensor-core kernel is taken for tensors of so many dimensions beside images and channels."""
    if dimensions != PLANE and direction == "forward":
        return convolved.inputs // convolved.groups > ALIGNED
    if dimensions > PLANE and (direction == "weight" or convolved.kernel == 1):
        return True
    return _TAKEN[convolved.itemsize == FLOAT, direction](convolved)


def convolution_workspace(convolved: Convolved, direction: Direction, dimensions: int = PLANE) -> int:
    """Bytes of cuDNN's workspace for contiguous (NCHW) tensors by the thresholds; 0 where none is known.

    Args:
        convolved: the convolution.
        direction: which of its three products.
        dimensions: of a picture: 1 of a series, 3 of a volume.
    """
    depthwise = convolved.groups == convolved.inputs > 1  # a kernel of its own
    if depthwise or not _takes_tensor_cores(convolved, direction, dimensions):
        return 0
    return _copies(convolved, ("input", "weight", "output")) + HEADER


def convolved_of(
    shapes: tuple[Sequence[int], Sequence[int], Sequence[int]],
    itemsize: int,
    groups: int,
    *,
    transposed: bool,
    form: ConvolutionForm | None = None,
    padding: Sequence[int] = (),
) -> Convolved:
    """The convolution of these shapes; a transposed one as the plain one whose input gradient it is.

    Args:
        shapes: of what is read, of the weight, of what is written.
        itemsize: bytes of a number.
        groups: of channels.
        transposed: whether it is.
        form: without it, and its padding, no measured one is looked up.
        padding: on each side.
    """
    tensor, weight, out = shapes
    before, after = (out, tensor) if transposed else (tensor, out)
    return Convolved(
        images=tensor[0],
        inputs=before[1],
        outputs=after[1],
        kernel=prod(weight[2:]),
        before=prod(before[2:]),
        after=prod(after[2:]),
        itemsize=itemsize,
        groups=groups,
        form=form,
        size=pair(before[2:], 1) if form else (0, 0),
        padding=pair(padding, 0) if form else (0, 0),
    )


def pair(numbers: Sequence[int], first: int) -> Pair:
    """Height and width; one dimension has a height of `first`, as PyTorch adds it for cuDNN."""
    return (first, numbers[0]) if len(numbers) == 1 else (numbers[0], numbers[1])


def _padded(channels: int, itemsize: int) -> int:
    step = ALIGNED // itemsize
    return -(-channels // step) * step
