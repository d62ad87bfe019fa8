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

3,000 further random ones, of one to three dimensions and all usual sizes, were drawn after all this and used for none
of it (`tests/golden/convolutions_left_out.json.gz`). Those without a measured one near are right within 5 % or 1 MiB in
79, 85 and 75 % in fp32 and in 87, 97 and 79 % in bf16, those with one in 81, 90 and 83 % and in 93, 98 and 89 %.
Decision trees over all sizes, fitted to every second of them, are no better on the rest: 81, 86 and 77 %; 91, 98, 84 %.

What was measured of single convolutions stands in `measured_convolutions.py` and goes before the thresholds.
"""

import os
from collections.abc import Callable, Sequence
from math import prod
from typing import Literal

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
MeasuredCard = Literal["h100", "h200", "a100", "l4", "rtx4090", "t4"]
"""A real H100, or models of cards that cuDNN was told of without a device."""
REAL: MeasuredCard = "h100"
"""The one card that was there."""
WITHOUT_DEVICE = "VRAMTUI_CUDNN_WITHOUT_DEVICE"
"""The environment's variable under which Hopper's workspaces are those of cuDNN without a device, as `run --on` and
the CUDA build on a stubbed driver have them: what is held against these sets it.
"""
_L4, _RTX4090 = 58, 128
"""Multiprocessors of the two measured cards of one capability."""


Pair = tuple[int, int]
Sides = tuple[int, ...]
OLDEST_CUDNN = (9, 20)
CUDNN: dict[Pair, Pair] = {OLDEST_CUDNN: (0, 0), (9, 24): (2, 14), (9, 26): (2, 15)}
"""The measured cuDNN, in their order, and the first PyTorch whose CUDA build brings each (`nvidia-cudnn-cu13`)."""


def cudnn_of(release: Pair) -> Pair:
    """The cuDNN whose measured workspaces hold for a release of PyTorch."""
    return max(cudnn for cudnn, since in CUDNN.items() if release >= since)


def is_without_device() -> bool:
    """Whether cuDNN's answers without a device are asked for; what is kept is kept for one of the two."""
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
        """The number of multiplications."""
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
    return copies(convolved, ("input", "weight", "output")) + HEADER


def deterministic_workspace(convolved: Convolved, direction: Direction) -> int:
    """Bytes for contiguous pictures or series in fp32 (as TF32) where cuDNN's usual kernel asks for none, and kernels
    that are not deterministic are left out; 0 where it keeps its kernel.

    **Fitted** to 1,537 convolutions of `convolutions_h200.json`, run with and without
    `torch.backends.cudnn.deterministic` under PyTorch 2.13's CUDA build with cuDNN 9.20, without a device: forward none
    differs, the input's gradient in 10 % and the weight's in 8 %, of these nine in ten in fp32 from none to the
    tensor-core kernel's copies. Right within 5 % or 1 MiB, with this rule and without: 97 and 93 % of the inputs'
    gradients, 98 and 94 % of the weights'. The rule for the input's gradient was chosen among eight by all of them.
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


def padded(channels: int, itemsize: int) -> int:
    step = ALIGNED // itemsize
    return -(-channels // step) * step
