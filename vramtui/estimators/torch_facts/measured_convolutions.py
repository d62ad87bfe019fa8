"""Workspaces of cuDNN's convolutions as they were measured, and of others by the nearest of these.

`convolutions_h100.json.gz` is **measured** on a real H100 (PyTorch 2.11,
cuDNN 9.19, driver 580.159, 26 November 2026) and holds for Hopper: 100,315 convolutions, namely the 3,593 described
below and those of torchvision's models and of usual UNets, YOLOs, GANs, patch embeddings and speech encoders at nine
batches from 1 to 256, each in fp32 (as TF32), fp16 and bf16, contiguous and channels-last, as far as a card's minutes
reached. What is asked for in one of them is taken as it is; a convolution near one of them is taken to run on the
same kernel. 1,500 of them left out at random are met by the rest within 5 % or 1 MiB, forward, input and weight:

    fp32   contiguous 90, 95, 80 %   channels-last 89, 91, 78
    fp16   contiguous 96, 96, 84 %   channels-last 96, 96, 87
    bf16   contiguous 97, 97, 86 %   channels-last 98, 97, 83

`convolutions_h200.json` and `_a100`, `_l4`, `_rtx4090`, `_t4` are what cuDNN 9.20 of PyTorch 2.13 says of 3,593
convolutions **without a device** where such a card is described to it (on a simulated GPU): of
public nets (ResNets, VGG, UNets, GANs, TCNs, those for MNIST and CIFAR; batches of 4 to 256), layers of one dimension
(wav2vec 2.0, Whisper, WaveNet, EnCodec, Conformer …) and of three (R3D, C3D, 3D UNets …) by their published sizes, and
random ones.

Without a device cuDNN leaves out engines that it has on a card; its log says of each that its heuristics name it and
that it is not supported: 58, 62 and 63 for windows of 1, which work in next to nothing, and 3, 17, 18 and 50, of which
one took 9 GB. Of the 3,593 the H100 has within 5 % or 64 KiB in fp32 85, 83 and 69 %, in fp16 85, 86 and 73 %, in bf16
53, 51 and 56 %; the rest is smaller on the card forward, and larger in one weight's gradient of four. The other cards
were not measured; what is said of these is likely to be wrong as often.

Another cuDNN takes other kernels: three in four of these convolutions have another workspace with 9.24, which PyTorch
2.14 brings, and nine of them yet another with 2.15's 9.26. `convolutions_h200_9.24.json` and `_9.26.json` hold the rows
that differ from the cuDNN before, without a device. On Hopper they replace what the card said where the older cuDNN
says without a device what the card said. The thresholds of `convolution_workspaces.py` are 9.20's for all.

With `torch.backends.cudnn.benchmark` the first call of each convolution takes the largest workspace of all kernels that
cuDNN finds, times them and empties the allocator's cache. That largest workspace is measured too where the row has
six figures, on the H100 with fourteen others at work on it, so that larger ones may have found no room; which kernel is
fastest only a card tells.
"""

import gzip
import json
from functools import cache, lru_cache
from itertools import pairwise
from math import log2, prod
from pathlib import Path
from typing import Any

import msgspec

from vramtui.estimators.torch_facts.cards import CardLimits
from vramtui.estimators.torch_facts.convolution_workspaces import (
    ALIGNED,
    CUDNN,
    FLOAT,
    HALF,
    HEADER,
    OLDEST_CUDNN,
    PLANE,
    REAL,
    ConvolutionForm,
    Convolved,
    Direction,
    MeasuredCard,
    Pair,
    Sides,
    convolution_workspace,
    convolved_of,
    copies,
    cudnn_of,
    measured_card,
    sides_of,
)

AMPERE = (8, 0)
"""The first cards whose tensor cores take fp32 as TF32, which PyTorch lets cuDNN do."""

_DIRECTIONS: tuple[Direction, ...] = ("forward", "input", "weight")
NEAR = 2.0
"""Octaves up to which the nearest measured convolution is nearer to the truth than the thresholds (see above)."""
NEWER_ON: MeasuredCard = "h200"
"""Where other cuDNN than 9.20 were measured, with pictures; 9.20's workspaces stand for the rest, as near ones."""
SAME_BYTES, SAME_SHARE = 1 << 16, 0.05
"""Up to which two workspaces are taken to be of one kernel: headers and rounding differ between releases."""


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
        return _read(f"convolutions_{card}.json{'.gz' if card == REAL else ''}", card, cudnn)
    if card == REAL:
        return _real_of_newer(cudnn)
    before = max(one for one in CUDNN if one < cudnn)
    other = {} if card != NEWER_ON else _read(f"convolutions_{card}_{cudnn[0]}.{cudnn[1]}.json", card, cudnn)
    forms = ((msgspec.structs.replace(form, cudnn=cudnn), rows) for form, rows in _rows(card, before).items())
    return {form: _replaced(rows, other.get(form, []), _sizes(form)) for form, rows in forms}


@cache
def _texts() -> dict[str, str]:
    """The rows of the real card as they are written, by their form: a job asks for few of its 1,440 forms."""
    read = gzip.decompress((Path(__file__).parent / f"convolutions_{REAL}.json.gz").read_bytes()).decode()
    parted = (line.rstrip(",").partition("},") for line in read.splitlines()[1:-1])
    return {f"{form[1:]}}}": rows[:-1] for form, _, rows in parted}


@cache
def rows_of(form: ConvolutionForm) -> list[list[int]]:
    """The measured rows of one form."""
    if form.card != REAL or form.cudnn != OLDEST_CUDNN:
        return _rows(form.card, form.cudnn).get(form, [])
    ones = (1,) * len(form.window)
    usual = {"channels_last": False, "stride": ones, "dilation": ones, "groups": 1}
    names = ("channels_last", "dilation", "dtype", "groups", "stride", "window")
    fields = {name: value for name in names if (value := getattr(form, name)) != usual.get(name)}
    rows: list[list[int]] = json.loads(_texts().get(json.dumps(fields, separators=(",", ":")), "[]"))
    return rows


def _real_of_newer(cudnn: Pair) -> dict[ConvolutionForm, list[list[int]]]:
    """What the card said, with a newer cuDNN's answer without a device where the older one's is the card's."""
    combined = {}
    for form, rows in _rows(REAL, OLDEST_CUDNN).items():
        sizes = _sizes(form)
        older, newer = (
            {
                tuple(row[:sizes]): row[sizes : sizes + len(_DIRECTIONS)]
                for row in _rows(NEWER_ON, one).get(msgspec.structs.replace(form, card=NEWER_ON, cudnn=one), ())
            }
            for one in (OLDEST_CUDNN, cudnn)
        )
        combined[msgspec.structs.replace(form, cudnn=cudnn)] = [
            [*row[:sizes], *_of_newer(row[sizes:], older[at], newer[at])]
            if (at := tuple(row[:sizes])) in older
            else row
            for row in rows
        ]
    return combined


def _of_newer(real: list[int], older: list[int], newer: list[int]) -> list[int]:
    """Bytes of each direction, and what was tried."""
    asked = [
        new if abs(old - seen) <= max(SAME_BYTES, SAME_SHARE * seen) else seen
        for seen, old, new in zip(real, older, newer, strict=False)
    ]
    return asked + real[len(asked) :]


def _read(name: str, card: MeasuredCard, cudnn: Pair) -> dict[ConvolutionForm, list[list[int]]]:
    data = (Path(__file__).parent / name).read_bytes()
    read = json.loads(gzip.decompress(data) if name.endswith(".gz") else data)  # a traced job may have no msgspec
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
    return [_convolution(form, row) for row in rows_of(form)]


def _convolution(form: ConvolutionForm, row: list[int]) -> MeasuredConvolution:
    (images, inputs, outputs, *rest), sides = row, len(form.window)
    size, padding, bytes_of = rest[:sides], rest[sides : 2 * sides], rest[2 * sides :]
    asked, tried = bytes_of[:3], bytes_of[3:]
    after = prod(
        (side + 2 * pad - (window - 1) * apart - 1) // step + 1
        for side, pad, window, apart, step in zip(size, padding, form.window, form.dilation, form.stride, strict=True)
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
    return MeasuredConvolution(
        convolved, dict(zip(_DIRECTIONS, asked, strict=True)), dict(zip(_DIRECTIONS, tried, strict=False))
    )


def _forms(form: ConvolutionForm) -> list[ConvolutionForm]:
    """Where to look for one near: halves of one kind go by the other where none of their own is."""
    other = {"float16": "bfloat16", "bfloat16": "float16"}.get(form.dtype)
    return [form, *([msgspec.structs.replace(form, dtype=other)] if other else [])]


def _is_held(convolved: Convolved) -> bool:
    """Whether the form's cuDNN itself was asked: newer ones only about pictures, on one card."""
    form = convolved.form
    picture = len(convolved.size) == PLANE and convolved.size[0] > 1
    return form is None or form.cudnn == OLDEST_CUDNN or (form.card in (NEWER_ON, REAL) and picture)


@lru_cache(maxsize=4096)
def _nearest(convolved: Convolved) -> tuple[MeasuredConvolution, float] | None:
    """The measured convolution nearest to this one, and how far it is away; None where none is `NEAR`."""
    if convolved.form is None:
        return None
    sizes = _sizes_of(convolved)
    if sizes in (known := _by_sizes(convolved.form)):
        return _convolution(convolved.form, known[sizes]), float(not _is_held(convolved))
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
    nearest = _nearest(convolved)
    return None if nearest is None else (_like(convolved, nearest[0], nearest[0].asked[direction]), not nearest[1])


class ConvolutionCall(msgspec.Struct, frozen=True, kw_only=True):
    """A convolution as it is called.

    Attributes:
        shapes: of what is read, of the weight, of what is written.
        dtype: float32, float16, bfloat16 or float64.
        itemsize: bytes of a number.
        stride, padding, dilation, groups, transposed: as PyTorch has them.
        channels_last: whether input or weight are (NHWC).
    """

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
    """Bytes that cuDNN asks for, and whether they were measured for this very convolution; None where none is near,
    and a rule stands for it.

    Args:
        call: the convolution.
        direction: which of its three products.
        card: on which it runs.
        release: of PyTorch.
        tf32: whether cuDNN may take fp32 as TF32 (`torch.backends.cudnn.allow_tf32`), as Ampere and later cards do.
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


def tried_workspace(convolved: Convolved, direction: Direction) -> tuple[int, bool] | None:
    """Bytes of the largest workspace that cuDNN tries for it with `torch.backends.cudnn.benchmark`, as above."""
    nearest = _nearest(convolved)
    if nearest is None or not nearest[0].tried:
        return None
    return _like(convolved, nearest[0], nearest[0].tried[direction]), not nearest[1]


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


def _sizes_of(convolved: Convolved) -> tuple[int, ...]:
    return convolved.images, convolved.inputs, convolved.outputs, *convolved.size, *convolved.padding


@cache
def _by_sizes(form: ConvolutionForm) -> dict[tuple[int, ...], list[int]]:
    """The measured row of just these sizes."""
    return {tuple(row[: _sizes(form)]): row for row in reversed(rows_of(form))}


@cache
def _places(form: ConvolutionForm) -> list[_Place]:
    """The places of the measured convolutions of a form, in their order."""
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
