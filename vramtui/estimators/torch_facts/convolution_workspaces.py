"""Workspaces of cuDNN's convolutions, as far as a rule tells them.

cuDNN's tensor-core kernels work on channels-last tensors. Given contiguous ones they first copy input, weight and
output into a workspace, channels padded to 16 bytes: so many bytes and 512 more, whatever the kernel, on 70 % of the
convolutions measured; 1 x 1 weights need no copy. Which kernel cuDNN's heuristics take is nowhere written down. The
thresholds below are **fitted**: to 4,700 random convolutions of the real PyTorch 2.13 CUDA build with cuDNN 9.20 on an
H200, of which half were kept apart; of those the right choice is met in 83 to 94 %, by direction and type. Sums that
weight gradients split among multiprocessors are not in it.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Literal

import msgspec

Direction = Literal["forward", "input", "weight"]
ALIGNED = 16
"""Bytes to which the channels of one pixel are padded."""
HEADER = 512
FLOAT = 4


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
    """

    images: int
    inputs: int
    outputs: int
    kernel: int
    before: int
    after: int
    itemsize: int
    groups: int = 1

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


def convolution_workspace(convolved: Convolved, direction: Direction) -> int:
    """Bytes of cuDNN's workspace for contiguous (NCHW) tensors; 0 where none is known."""
    depthwise = convolved.groups == convolved.inputs > 1  # a kernel of its own
    if depthwise or not _TAKEN[convolved.itemsize == FLOAT, direction](convolved):
        return 0
    inputs, outputs = (_padded(count, convolved.itemsize) for count in (convolved.inputs, convolved.outputs))
    pixels = convolved.before * inputs + convolved.after * outputs
    weight = inputs * outputs // convolved.groups * convolved.kernel if convolved.kernel > 1 else 0
    return (convolved.images * pixels + weight) * convolved.itemsize + HEADER


def convolved_of(
    tensor: Sequence[int], weight: Sequence[int], out: Sequence[int], itemsize: int, groups: int, *, transposed: bool
) -> Convolved:
    """The convolution of these shapes; a transposed one as the plain one whose input gradient it is."""
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
    )


def _padded(channels: int, itemsize: int) -> int:
    step = ALIGNED // itemsize
    return -(-channels // step) * step
