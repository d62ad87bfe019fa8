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
public nets (ResNets, VGG, UNets, GANs, TCNs, those for MNIST and CIFAR; batches of 4 to 256), layers of one dimension
(wav2vec 2.0, Whisper, WaveNet, EnCodec, Conformer, nets for electrocardiograms …) and of three (R3D, C3D, 3D UNets,
patches of films) by their published sizes, and random ones. What is asked for in one of them is taken as it is. A
convolution near one of them is taken to run on the same kernel. Each left out in turn, of those with a neighbour
within two octaves (63 % of two dimensions, 61 of three, 29 of one) this meets within 5 % or 64 KiB, forward, input and
weight, in brackets the thresholds over all:

    two dimensions, fp32     84, 92, 81 %   (69, 84, 67)      fp16     92, 94, 82 %   (87, 91, 74)
    one dimension, fp32      84, 88, 80 %   (70, 83, 66)      fp16     97, 90, 90 %   (86, 86, 77)
    three dimensions, fp32   86, 91, 86 %   (61, 87, 77)      fp16     74, 93, 87 %   (72, 93, 78)

`convolutions_a100.json`, `_l4`, `_rtx4090` and `_t4` hold the same 3,593 convolutions as far as the card can run them,
measured by benchmarks/convolutions.py on emulated cards with PyTorch 2.13's CUDA build: cuDNN's own answers for the
card that is described to it. By the nearest in the same way, fp32 of two dimensions: A100 77, 88 and 74 %, where the
thresholds meet 44, 76 and 51; L4 73, 84, 71 (43, 66, 49); T4, which has no TF32, 77, 81, 100 (no workspace at all: 62,
74, 97); fp16 on the T4 73, 71, 60. None of these was held against such a card. The convolutions of the nets in
docs/scripts.md are among the measured ones, so that their errors say nothing about other nets.

The H200's are figures of a model of that card. A real H200 with cuDNN 9.19 (PyTorch 2.11, `tests/golden/card`) asked
within a MiB of the table for 765 of its convolutions in 85, 84 and 66 % with fp16 (forward, input, weight), in 76, 77
and 61 % with fp32 and in 49, 51 and 54 % with bf16: whether it is the older cuDNN or the model is not known.

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
from itertools import pairwise
from math import log2, prod
from pathlib import Path
from typing import Any, Literal

import msgspec

Direction = Literal["forward", "input", "weight"]
ALIGNED = 16
"""Bytes to which the channels of one pixel are padded."""
HEADER = 512
HOPPER = 9
FLOAT = 4
HALF = 2
PLANE = 2
"""Dimensions of a picture."""
_DIRECTIONS: tuple[Direction, ...] = ("forward", "input", "weight")
MeasuredCard = Literal["h200", "a100", "l4", "rtx4090", "t4"]
_L4, _RTX4090 = 58, 128
"""Multiprocessors of the two measured cards of one capability."""
NEAR = 2.0
"""Octaves up to which the nearest measured convolution is nearer to the truth than the thresholds (see above)."""


Pair = tuple[int, int]
Sides = tuple[int, ...]
OLDEST_CUDNN = (9, 20)
CUDNN: dict[Pair, Pair] = {OLDEST_CUDNN: (0, 0), (9, 24): (2, 14), (9, 26): (2, 15)}
"""The measured cuDNN, in their order, and the first PyTorch whose CUDA build brings each (`nvidia-cudnn-cu13`)."""


NEWER_ON: MeasuredCard = "h200"
"""Where other cuDNN than 9.20 were measured, with pictures; 9.20's workspaces stand for the rest, as near ones."""


def cudnn_of(release: Pair) -> Pair:
    """The cuDNN whose measured workspaces hold for a release of PyTorch."""
    return max(cudnn for cudnn, since in CUDNN.items() if release >= since)


def measured_card(capability: Pair, multiprocessors: int) -> MeasuredCard | None:
    """The card whose measured workspaces hold for one of that compute capability; of two alike in it the one that is
    nearer in multiprocessors.
    """
    if capability[0] == HOPPER:
        return "h200"
    ada: MeasuredCard = "l4" if multiprocessors * multiprocessors < _L4 * _RTX4090 else "rtx4090"
    cards: dict[Pair, MeasuredCard] = {(7, 5): "t4", (8, 0): "a100", (8, 9): ada}
    return cards.get(capability)


class ConvolutionForm(msgspec.Struct, frozen=True, kw_only=True):
    """What else decides cuDNN's kernel: depth before height before width; one dimension is a height of 1.

    Attributes:
        card: whose workspaces are looked up.
        dtype: float32 (as TF32 where the card has it), float16 or bfloat16.
        cudnn: its release.
        channels_last: whether input or weight are (NHWC).
        window: of the kernel.
        stride, dilation, groups: as PyTorch has them.
    """

    card: MeasuredCard = "h200"
    dtype: str
    cudnn: Pair = OLDEST_CUDNN
    channels_last: bool = False
    window: Sides
    stride: Sides = (1, 1)
    dilation: Sides = (1, 1)
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
        form: None where no measured one is looked up.
        size: sides of the input.
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
    size: Sides = (0, 0)
    padding: Sides = (0, 0)

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
def _rows(card: MeasuredCard, cudnn: Pair) -> dict[ConvolutionForm, list[list[int]]]:
    """Measured rows: images, channels, outputs, sides, padding, bytes; of a newer cuDNN those of the one before it,
    with the rows that differ in their place, where they were measured.
    """
    if cudnn == OLDEST_CUDNN:
        return _read(f"convolutions_{card}.json", card, cudnn)
    before = max(one for one in CUDNN if one < cudnn)
    other = {} if card != NEWER_ON else _read(f"convolutions_{card}_{cudnn[0]}.{cudnn[1]}.json", card, cudnn)
    forms = ((msgspec.structs.replace(form, cudnn=cudnn), rows) for form, rows in _rows(card, before).items())
    return {form: _replaced(rows, other.get(form, []), _sizes(form)) for form, rows in forms}


def _read(name: str, card: MeasuredCard, cudnn: Pair) -> dict[ConvolutionForm, list[list[int]]]:
    read = json.loads((Path(__file__).parent / name).read_bytes())
    return {_form(form | {"card": card, "cudnn": cudnn}): rows for form, rows in read}


def _sizes(form: ConvolutionForm) -> int:
    """Numbers of a measured row that are sizes; workspaces follow them."""
    return 3 + 2 * len(form.window)


def _replaced(rows: list[list[int]], other: list[list[int]], sizes: int) -> list[list[int]]:
    by_sizes = {tuple(row[:sizes]): row for row in other}
    return [by_sizes.get(tuple(row[:sizes]), row) for row in rows]


def _form(read: dict[str, Any]) -> ConvolutionForm:
    fields: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in read.items()}
    ones = (1,) * len(fields["window"])
    return ConvolutionForm(**({"stride": ones, "dilation": ones} | fields))


@cache
def _measured(form: ConvolutionForm) -> list[MeasuredConvolution]:
    """The measured convolutions of that form."""
    found = []
    sides = len(form.window)
    for images, inputs, outputs, *rest in _rows(form.card, form.cudnn).get(form, ()):
        size, padding, bytes_of = rest[:sides], rest[sides : 2 * sides], rest[2 * sides :]
        asked, tried = bytes_of[:3], bytes_of[3:]
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
            size=tuple(size),
            padding=tuple(padding),
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


def _is_held(convolved: Convolved) -> bool:
    """Whether the form's cuDNN itself was asked: newer ones only about pictures, on one card."""
    form = convolved.form
    picture = len(convolved.size) == PLANE and convolved.size[0] > 1
    return form is None or form.cudnn == OLDEST_CUDNN or (form.card == NEWER_ON and picture)


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
            return _measured(form)[far.index(away)], away + (form != convolved.form or not _is_held(convolved))
    return None


def measured_workspace(convolved: Convolved, direction: Direction) -> tuple[int, bool] | None:
    """Bytes that cuDNN asked for on the form's card, and whether for this very convolution; None where none is near.

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
    shape: tuple[float, ...]
    padded: bool


def _place(convolved: Convolved) -> _Place:
    step = ALIGNED // convolved.itemsize
    return _Place(
        images=log2(convolved.images),
        inputs=log2(convolved.inputs),
        outputs=log2(convolved.outputs),
        before=0.75 * log2(convolved.before),
        aligned=(convolved.inputs % step == 0, convolved.outputs % step == 0),
        shape=tuple(one / next_one for one, next_one in pairwise(convolved.size)),
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
        size=sides_of(before[2:], 1) if form else (0, 0),
        padding=sides_of(padding, 0) if form else (0, 0),
    )


def sides_of(numbers: Sequence[int], first: int) -> Sides:
    """A number for each side; one dimension has a height of `first`, as PyTorch adds it for cuDNN."""
    return (first, numbers[0]) if len(numbers) == 1 else tuple(numbers)


def _padded(channels: int, itemsize: int) -> int:
    step = ALIGNED // itemsize
    return -(-channels // step) * step
