"""Workspaces of cuDNN's convolutions: measured ones, others by the nearest of these, the rest by thresholds.

`convolutions.zip` has one member for each card and cuDNN, a line for each form: it as JSON, then columns of images,
channels in and out, sides, padding, and bytes forward, for the input's and for the weight's gradient; where known also
the largest that `torch.backends.cudnn.benchmark` tries for each. Bytes are written as what they are more than
channels-last copies of input, weight and output (`w`) or of input and weight (`p`).

`h100_9.20` is **measured** (PyTorch 2.11, cuDNN 9.19) and holds for Hopper: 100,315 convolutions of usual nets. One
near a measured one is taken to run on its kernel: of 1,500 left out that is within 5 % or 1 MiB in 76 to 98 %. The
others are answers of cuDNN **without a device** for 3,593 convolutions if such a card is described to it; it then
leaves out engines, and the H100 agrees in 51 to 86 %. `h200_9.24` and `h200_9.26` hold the rows that differ under
PyTorch 2.14 and 2.15; on Hopper they replace what the card said where the older cuDNN says the same.

If no measured one is near, contiguous tensors go by thresholds, **fitted** to 4,700 random convolutions: tensor-core
kernels first copy input, weight and output to channels-last. Of 3,000 further ones 75 to 97 % are right.
"""

import json
import os
import zipfile
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from itertools import pairwise
from math import log2, prod
from pathlib import Path
from typing import Literal

import msgspec

from vramtui.estimators.torch_facts.cards import CardLimits

Direction = Literal["forward", "input", "weight"]
# How cuDNN's plan came about: as usual; among deterministic ones, or without TF32; while others are tried; of these.
Mode = Literal["chosen", "limited", "trial", "tried"]
ALIGNED = 16  # bytes to which the channels of one pixel are padded
HEADER, HOPPER, FLOAT, HALF = 512, 9, 4, 2
# Bytes of a complex number, and of what does not grow with tensors.
COMPLEX, WIDEST_SPECTRUM, SMALL_KERNELS = 8, 512, 1 << 28
PLANE = 2  # dimensions of a picture
MeasuredCard = Literal["h100", "h200", "a100", "l4", "rtx4090", "t4"]
REAL: MeasuredCard = "h100"  # the others are models of cards that cuDNN was given without a device
# The environment's variable under which Hopper's workspaces are those of cuDNN without a device, as `dry-run` and the
# CUDA build on a stubbed driver have them: comparisons with these set it.
WITHOUT_DEVICE = "VRAMTUI_CUDNN_WITHOUT_DEVICE"
_L4, _RTX4090 = 58, 128  # multiprocessors of the two measured cards of one capability
Pair = tuple[int, int]
Sides = tuple[int, ...]
# The measured cuDNN, in their order, and the first PyTorch whose CUDA build brings each (`nvidia-cudnn-cu13`).
OLDEST_CUDNN = (9, 20)
CUDNN: dict[Pair, Pair] = {OLDEST_CUDNN: (0, 0), (9, 24): (2, 14), (9, 26): (2, 15)}


def cudnn_of(release: Pair) -> Pair:
    """The cuDNN whose measured workspaces hold for a release of PyTorch."""
    return max(cudnn for cudnn, since in CUDNN.items() if release >= since)


def is_without_device() -> bool:
    """Return whether cuDNN's answers without a device are asked for; what is kept is kept for one of the two."""
    return WITHOUT_DEVICE in os.environ


def measured_card(capability: Pair, multiprocessors: int) -> MeasuredCard | None:
    """The card whose measured workspaces hold for one of that compute capability; of two alike in it the one that is
    nearer in multiprocessors.
    """
    if capability[0] == HOPPER:
        return "h200" if is_without_device() else REAL
    ada: MeasuredCard = "l4" if multiprocessors * multiprocessors < _L4 * _RTX4090 else "rtx4090"
    cards: dict[Pair, MeasuredCard] = {(7, 5): "t4", (8, 0): "a100", (8, 9): ada}
    return cards.get(capability)


class ConvolutionForm(msgspec.Struct, frozen=True, kw_only=True):
    """Other inputs of cuDNN's choice of kernel: depth before height before width; one dimension is a height of 1.

    `channels_last` is whether input or weight are (NHWC), `window` the kernel's.
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
    """A plain convolution; a transposed one is the input gradient of one, so that its directions change places."""

    images: int
    inputs: int
    outputs: int
    kernel: int  # elements of its window
    before: int  # pixels of one image of the input, and `after` of the output
    after: int
    itemsize: int  # bytes of a number
    groups: int = 1
    form: ConvolutionForm | None = None  # without one no measured one is looked up
    size: Sides = (0, 0)  # of the input
    padding: Sides = (0, 0)  # pixels on each

    @property
    def products(self) -> int:
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


def copies(convolved: Convolved, copied: tuple[str, ...]) -> int:
    """Bytes of channels-last copies; 1 x 1 weights need none."""
    inputs, outputs = (padded(count, convolved.itemsize) for count in (convolved.inputs, convolved.outputs))
    elements = {
        "input": convolved.images * convolved.before * inputs,
        "output": convolved.images * convolved.after * outputs,
        "weight": inputs * outputs // convolved.groups * convolved.kernel if convolved.kernel > 1 else 0,
    }
    return sum(elements[name] for name in copied) * convolved.itemsize


def convolution_workspace(convolved: Convolved, direction: Direction, dimensions: int = PLANE) -> int:
    """Bytes of cuDNN's workspace for contiguous (NCHW) tensors by the thresholds; 0 if none is known.

    `dimensions` are those of a picture: 1 of a series, 3 of a volume.
    """
    if dimensions != PLANE and direction == "forward":
        taken = convolved.inputs // convolved.groups > ALIGNED
    elif dimensions > PLANE and (direction == "weight" or convolved.kernel == 1):
        taken = True
    else:
        taken = _TAKEN[convolved.itemsize == FLOAT, direction](convolved)
    depthwise = convolved.groups == convolved.inputs > 1  # a kernel of its own
    return copies(convolved, ("input", "weight", "output")) + HEADER if taken and not depthwise else 0


def deterministic_workspace(convolved: Convolved, direction: Direction) -> int:
    """Bytes in fp32 (as TF32) if the usual kernel asks for none and only deterministic ones are left; 0 if it stays.

    **Fitted** to 1,537 convolutions of the table of an H200, with and without `torch.backends.cudnn.deterministic`
    under PyTorch 2.13's CUDA build with cuDNN 9.20, without a device. Right within 5 % or 1 MiB, with this rule and
    without: 97 and 93 % of the inputs' gradients, 98 and 94 % of the weights'; forward none differs.
    """
    leaves = direction == "weight" or (
        direction == "input" and convolved.kernel > 1 and convolved.outputs > convolved.inputs
    )
    return copies(convolved, ("input", "weight", "output")) + HEADER if leaves and convolved.groups == 1 else 0


def convolved_of(
    shapes: tuple[Sequence[int], Sequence[int], Sequence[int]],
    itemsize: int,
    groups: int,
    *,
    transposed: bool,
    form: ConvolutionForm | None = None,
    padding: Sequence[int] = (),
) -> Convolved:
    """The convolution of what is read, the weight and what is written; without a form no measured one is looked up."""
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


def padded(channels: int, itemsize: int) -> int:
    step = ALIGNED // itemsize
    return -(-channels // step) * step


AMPERE = (8, 0)  # the first cards whose tensor cores take fp32 as TF32, which PyTorch lets cuDNN do
_DIRECTIONS: tuple[Direction, ...] = ("forward", "input", "weight")
# Octaves up to which the nearest measured convolution is nearer to the truth than the thresholds.
NEAR, ROUNDING = 2.0, 1e-6
# The card on which other cuDNN than 9.20 were measured, with pictures; 9.20's workspaces stand for the rest.
NEWER_ON: MeasuredCard = "h200"
# Up to which two workspaces are taken to be of one kernel: headers and rounding differ between releases.
SAME_BYTES, SAME_SHARE = 1 << 16, 0.05


class MeasuredConvolution(msgspec.Struct, frozen=True):
    """A convolution, the bytes of its three workspaces, and of the largest that cuDNN tries with
    `torch.backends.cudnn.benchmark`, which may be unknown.
    """

    convolved: Convolved
    asked: dict[Direction, int]
    tried: dict[Direction, int]


@cache
def table_of(card: MeasuredCard, cudnn: Pair) -> dict[str, str]:
    """The columns of each form, as they are written: a job asks for few of the 1,440 forms."""
    with zipfile.ZipFile(Path(__file__).with_name("convolutions.zip")) as tables:
        lines = tables.read(f"{card}_{cudnn[0]}.{cudnn[1]}").decode().splitlines()
    return {form: columns for form, _, columns in (line.partition("\t") for line in lines)}


@cache
def rows_of(form: ConvolutionForm) -> list[list[int]]:
    """Measured rows of a form: images, channels in and out, sides, padding, bytes."""
    if form.cudnn == OLDEST_CUDNN:
        return _written_rows(form)
    sizes = _sizes(form)
    if form.card == REAL:
        newer, older = (
            {tuple(row[:sizes]): row for row in rows_of(msgspec.structs.replace(form, card=NEWER_ON, cudnn=one))}
            for one in (form.cudnn, OLDEST_CUDNN)
        )
        rows, end = [], sizes + len(_DIRECTIONS)
        for row in rows_of(msgspec.structs.replace(form, cudnn=OLDEST_CUDNN)):
            at, asked = tuple(row[:sizes]), row[sizes:end]
            if at in older:  # the newer bytes, if the older cuDNN says without a device what the card did
                pairs = zip(asked, older[at][sizes:end], newer[at][sizes:end], strict=True)
                asked = [
                    new if abs(old - seen) <= max(SAME_BYTES, SAME_SHARE * seen) else seen for seen, old, new in pairs
                ]
            rows.append([*row[:sizes], *asked, *row[end:]])
        return rows
    other = {tuple(row[:sizes]): row for row in _written_rows(form)} if form.card == NEWER_ON else {}
    before = max(one for one in CUDNN if one < form.cudnn)
    return [other.get(tuple(row[:sizes]), row) for row in rows_of(msgspec.structs.replace(form, cudnn=before))]


def _written_rows(form: ConvolutionForm) -> list[list[int]]:
    ones = (1,) * len(form.window)
    usual = {"channels_last": False, "stride": ones, "dilation": ones, "groups": 1}
    names = ("channels_last", "dilation", "dtype", "groups", "stride", "window")
    fields = {name: value for name in names if (value := getattr(form, name)) != usual.get(name)}
    columns = table_of(form.card, form.cudnn).get(json.dumps(fields, separators=(",", ":")))
    if columns is None:
        return []
    rows = []
    for words in zip(*(column.split(",") for column in columns.split("\t")), strict=True):
        sizes = [int(word) for word in words[: _sizes(form)]]
        convolved = _convolved(form, sizes)
        given = {"w": copies(convolved, ("input", "weight", "output")), "p": copies(convolved, ("input", "weight"))}
        asked = [
            given[word[0]] + int(word[1:] or 0) if word[0] in given else int(word)
            for word in words[_sizes(form) :]
            if word != "?"
        ]
        rows.append(sizes + asked)
    return rows


def _sizes(form: ConvolutionForm) -> int:
    """Numbers of a measured row that are sizes; workspaces follow them."""
    return 3 + 2 * len(form.window)


@cache
def measured_of(form: ConvolutionForm) -> list[MeasuredConvolution]:
    measured = []
    for row in rows_of(form):
        asked, tried = (dict(zip(_DIRECTIONS, row[_sizes(form) + at :], strict=False)) for at in (0, len(_DIRECTIONS)))
        measured.append(MeasuredConvolution(_convolved(form, row), asked, tried))
    return measured


def _convolved(form: ConvolutionForm, row: list[int]) -> Convolved:
    (images, inputs, outputs, *rest), sides = row, len(form.window)
    size, padding = rest[:sides], rest[sides : 2 * sides]
    after = prod(
        (side + 2 * pad - (window - 1) * apart - 1) // step + 1
        for side, pad, window, apart, step in zip(size, padding, form.window, form.dilation, form.stride, strict=True)
    )
    return Convolved(
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


@lru_cache(maxsize=4096)
def _nearest(convolved: Convolved) -> tuple[MeasuredConvolution, float] | None:
    """The measured convolution nearest to this one, and how far it is away; None if none is `NEAR`."""
    form = convolved.form
    if form is None:
        return None
    picture = len(convolved.size) == PLANE and convolved.size[0] > 1  # newer cuDNN were asked only about these
    unheld = not (form.cudnn == OLDEST_CUDNN or (form.card in (NEWER_ON, REAL) and picture))
    sizes = (convolved.images, convolved.inputs, convolved.outputs, *convolved.size, *convolved.padding)
    if (known := _by_sizes(form).get(sizes)) is not None:
        return measured_of(form)[known], float(unheld)
    place, other = _place(convolved), {"float16": "bfloat16", "bfloat16": "float16"}.get(form.dtype)
    total = sum(place[0])
    for near in (form, msgspec.structs.replace(form, dtype=other)) if other else (form,):  # of half precisions either
        places = _places(near)  # two are at least as far apart as their sums
        first, last = bisect_left(places, (total - NEAR - ROUNDING,)), bisect_left(places, (total + NEAR + ROUNDING,))
        far = ((_distance(one, place), number) for _, number, one in places[first:last])
        away, number = min(far, default=(NEAR + 1, 0))
        if away <= NEAR:
            return measured_of(near)[number], away + (near != form or unheld)
    return None


def measured_workspace(convolved: Convolved, direction: Direction, *, tried: bool = False) -> tuple[int, bool] | None:
    """Bytes that cuDNN asked for on the form's card, or `tried` with `torch.backends.cudnn.benchmark` at most, and
    whether for this very convolution; None if none is near.

    A convolution `NEAR` another is taken to run on its kernel, which copies the same tensors and splits as often.
    """
    measured, away = _nearest(convolved) or (None, 0)
    known = {} if measured is None else measured.tried if tried else measured.asked
    return None if measured is None or not known else (_like(convolved, measured, known[direction]), not away)


class ConvolutionCall(msgspec.Struct, frozen=True, kw_only=True):
    """A convolution as PyTorch calls it: what is read, the weight and what is written; `channels_last` is NHWC."""

    shapes: tuple[Sides, Sides, Sides]
    dtype: str
    itemsize: int
    stride: Sides
    padding: Sides
    dilation: Sides
    groups: int = 1
    transposed: bool = False
    channels_last: bool = False

    def plain(self, direction: Direction) -> Direction:
        """The direction of the plain convolution that it is: a transposed one is the input gradient of one."""
        if not self.transposed or direction == "weight":
            return direction
        return "input" if direction == "forward" else "forward"

    def convolved(self, card: CardLimits, release: Pair) -> Convolved:
        """The call as it is looked up for a card and a release of PyTorch."""
        measured = measured_card(card.capability, card.multiprocessors)
        form = None
        if measured is not None:
            form = ConvolutionForm(
                card=measured,
                dtype=self.dtype,
                cudnn=cudnn_of(release),
                channels_last=self.channels_last,
                window=sides_of(self.shapes[1][2:], 1),
                stride=sides_of(self.stride, 1),
                dilation=sides_of(self.dilation, 1),
                groups=self.groups,
            )
        return convolved_of(
            self.shapes, self.itemsize, self.groups, transposed=self.transposed, form=form, padding=self.padding
        )


def asked_workspace(
    call: ConvolutionCall, direction: Direction, card: CardLimits, release: Pair, *, tf32: bool = True
) -> tuple[int, bool | None]:
    """Bytes that cuDNN asks for, and whether they were measured for this very convolution; None if none is near, and a
    rule stands for it. `tf32` is `torch.backends.cudnn.allow_tf32`, which Ampere and later take.
    """
    convolved, at = call.convolved(card, release), call.plain(direction)
    has_tf32 = card.capability >= AMPERE
    copies_first = call.itemsize < FLOAT or (call.itemsize == FLOAT and has_tf32 and tf32)
    measured = None
    if copies_first or (call.itemsize == FLOAT and not has_tf32):
        measured = measured_workspace(convolved, at)
    if measured is None and copies_first and not call.channels_last:
        return convolution_workspace(convolved, at, len(call.shapes[1]) - 2), None
    return measured or (0, None)


def workspace_on_card(
    call: ConvolutionCall, direction: Direction, mode: Mode, card: CardLimits, release: Pair
) -> tuple[int, int | None]:
    """The least and the most bytes that the workspace of a convolution may take on a real card; None if it is unknown.

    On Hopper an H100's was measured; if none near was, and on other cards, it is between none and copies of all
    tensors, or what the H100 took. What `torch.backends.cudnn.benchmark` tries is known of convolutions that were
    measured themselves, and bounded of others; the fastest plan takes any of that.
    """
    hopper = CardLimits((HOPPER, 0), 132, 2048)
    if mode in ("trial", "tried"):
        convolved = call.convolved(hopper, release)
        tried = measured_workspace(convolved, call.plain(direction), tried=True)
        if tried is None or not tried[1] or card.capability[0] != HOPPER:
            return 0, most_tried(convolved, call.plain(direction))
        return tried[0] if mode == "trial" else 0, tried[0]
    real, is_measured = asked_workspace(call, direction, hopper, release)
    if is_measured is not None and mode == "chosen" and card.capability[0] == HOPPER:
        return real, real
    return 0, max(real, copies(call.convolved(card, release), ("input", "weight", "output")) + HEADER)


def most_tried(convolved: Convolved, direction: Direction) -> int | None:
    """Bytes beyond all that `torch.backends.cudnn.benchmark` tries: complex spectra of all three tensors in a square of
    a power of two, forth and back but for the input's gradient; the columns of a matrix product; copies. None without a
    form. **Held** to 1,518 measured convolutions: up to 98 % of it in fp32, 86 % in half precision. There were spectra
    of up to 512 pixels, and none of groups or of windows with gaps; of strides in the input's gradient alone.
    """
    form, one, is_gradient = convolved.form, convolved, direction == "input"
    if form is None:
        return None
    weights, columns = one.inputs * one.outputs // one.groups, max(one.inputs * one.after, one.outputs * one.before)
    copied = one.images * (one.inputs * one.before + one.outputs * one.after) + weights * one.kernel
    sides = zip(one.size, one.padding, form.window, strict=True)
    square = max(32, *(1 << (side + 2 * pad + window - 2).bit_length() for side, pad, window in sides))
    has_spectra = one.itemsize >= FLOAT and square <= WIDEST_SPECTRUM and max(form.dilation) == one.groups == 1
    pixels = has_spectra * square ** (len(form.window) - 1) * (square // 2 + 1) * prod(form.stride)
    turns = 1 if is_gradient else 2 * (max(form.stride) == 1)
    spectra: int = turns * COMPLEX * (one.images * (one.inputs + one.outputs) + weights) * pixels
    return spectra + FLOAT * (one.images * one.kernel * columns + copied) + SMALL_KERNELS


def _like(convolved: Convolved, measured: MeasuredConvolution, asked: int) -> int:
    """Bytes for `convolved` where cuDNN asked for `asked` for a measured one like it."""
    like = measured.convolved
    if not asked or like == convolved:
        return asked
    for copied in ("input", "weight", "output"), ("input", "weight"):
        rest = asked - copies(like, copied)
        if rest >= -HEADER:  # what is left are sums of weight gradients, split among multiprocessors
            split = max(0, rest) * (convolved.inputs * convolved.outputs) // (like.inputs * like.outputs)
            return copies(convolved, copied) + split
    return asked


# Octaves of the sizes, whether channels are aligned and there is padding, and the picture's shape.
_Place = tuple[tuple[float, ...], tuple[bool, bool], bool, tuple[float, ...]]


def _place(convolved: Convolved) -> _Place:
    step = ALIGNED // convolved.itemsize
    octaves = (log2(convolved.images), log2(convolved.inputs), log2(convolved.outputs), 0.75 * log2(convolved.before))
    aligned = convolved.inputs % step == 0, convolved.outputs % step == 0
    shape = tuple(one / next_one for one, next_one in pairwise(convolved.size))
    return octaves, aligned, max(convolved.padding) > 0, shape


@cache
def _by_sizes(form: ConvolutionForm) -> dict[tuple[int, ...], int]:
    rows = list(enumerate(rows_of(form)))
    return {tuple(row[: _sizes(form)]): number for number, row in reversed(rows)}  # the first row of the same sizes


@cache
def _places(form: ConvolutionForm) -> list[tuple[float, int, _Place]]:
    places = [_place(one.convolved) for one in measured_of(form)]
    return sorted((sum(place[0]), number, place) for number, place in enumerate(places))


def _distance(one: _Place, other: _Place) -> float:
    """How far apart two convolutions of the same form are, in octaves of their sizes."""
    ((a, b, c, d), (first, second), is_padded, shape) = one
    ((e, f, g, h), (others_first, others_second), others_padded, others_shape) = other
    apart = abs(a - e) + abs(b - f) + abs(c - g) + abs(d - h) + 0.25 * (shape != others_shape)
    return apart + 2 * ((first is not others_first) + (second is not others_second)) + (is_padded is not others_padded)
