"""ResNet-50: weights, responses of a mini-batch, and what lowering a convolution to a matrix product makes of them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from vramtui.core.schema.rule_inputs.formulas import Resnet50Rule
from vramtui.estimators.rules.base import Rule, RuleSheet, gb

SOURCE = (
    "Graphcore 2017, Why is so much memory needed for deep neural networks?; layers from He et al. 2015, Table 1, "
    "with the stride on a stage's first 1 x 1 convolution"
)
FLOAT = 4
CLASSES = 1000


@dataclass(frozen=True)
class _Convolution:
    inputs: int
    outputs: int
    kernel: int
    side: int
    shortcut: bool = False

    @property
    def responses(self) -> int:
        return self.outputs * self.side**2

    @property
    def columns(self) -> int:
        """Elements of its im2col matrix: a row of inputs x K² for each pixel of the output."""
        return self.inputs * self.kernel**2 * self.side**2


@dataclass(frozen=True)
class _Network:
    """The real network: its convolutions, and the elements that its pooling and its residual sums put out."""

    convolutions: tuple[_Convolution, ...]
    pooled: int
    sums: int

    @property
    def parameters(self) -> int:
        """Convolutions, two numbers per channel of each batch norm, and the classifier."""
        weights = sum(c.inputs * c.outputs * c.kernel**2 + 2 * c.outputs for c in self.convolutions)
        return weights + self.convolutions[-1].outputs * CLASSES + CLASSES

    @property
    def responses(self) -> int:
        return sum(c.responses for c in self.convolutions) + self.pooled + self.sums

    @property
    def outputs_times_kernel(self) -> int:
        """The sum of each convolution's outputs x K², shortcuts left out, as the published figure counts."""
        return sum(c.responses * c.kernel**2 for c in self.convolutions if not c.shortcut)

    @property
    def columns(self) -> int:
        """What lowering really makes: the im2col matrices of all convolutions, 1 x 1 ones included."""
        return sum(c.columns for c in self.convolutions)


def network(blocks: tuple[int, ...], image_size: int) -> _Network:
    """A bottleneck ResNet with `blocks` per stage: (3, 4, 6, 3) is ResNet-50, (3, 4, 23, 3) 101, (3, 8, 36, 3) 152."""
    side = _half(_half(image_size))
    convolutions = (_Convolution(3, 64, 7, _half(image_size)), *_stages(blocks, side))
    sums, side_of_stage = 0, side
    for stage, count in enumerate(blocks):
        side_of_stage = _half(side_of_stage) if stage else side_of_stage
        sums += count * (256 << stage) * side_of_stage**2
    return _Network(convolutions, 64 * side**2, sums)


def _stages(blocks: tuple[int, ...], side: int) -> Iterator[_Convolution]:
    width_in = 64
    for stage, count in enumerate(blocks):
        side = _half(side) if stage else side
        narrow, wide = 64 << stage, 256 << stage
        for block in range(count):
            if block == 0:
                yield _Convolution(width_in, wide, 1, side, shortcut=True)
            yield _Convolution(width_in, narrow, 1, side)
            yield _Convolution(narrow, narrow, 3, side)
            yield _Convolution(narrow, wide, 1, side)
            width_in = wide


def _half(side: int) -> int:
    return -(-side // 2)


def compute(inputs: Resnet50Rule) -> RuleSheet:
    """The published round counts make the total; the real layers' counts stand beside them."""
    sheet = RuleSheet(SOURCE, "forward", "Weights and responses in fp32; no gradients and no optimizer.")
    batch, one = inputs.batch_size, inputs.responses * FLOAT
    weights = inputs.parameters * FLOAT
    sheet.add("weights", "weights", weights, f"{inputs.parameters:,} x {FLOAT} B = {weights / 2**20:.1f} MiB")
    sheet.add("responses", "activations", batch * one, f"batch {batch} x {one:,} B = {gb(batch * one)}")
    sheet.mention(
        "responses of one image", "activations", one, f"{inputs.responses:,} x {FLOAT} B = {one / 1e6:.1f} MB"
    )
    if inputs.published_lowering is not None:
        lowered = inputs.published_lowering
        sheet.mention(
            "responses, lowered, as published",
            "activations",
            lowered,
            f"{gb(lowered)} as printed, {lowered / (batch * one):.2f} times the responses",
        )
    _add_real(sheet, inputs)
    return sheet


def _add_real(sheet: RuleSheet, inputs: Resnet50Rule) -> None:
    real, batch = network(inputs.blocks, inputs.image_size), inputs.batch_size
    weights, one = real.parameters * FLOAT, real.responses * FLOAT
    lowered, columns = batch * real.outputs_times_kernel * FLOAT, batch * real.columns * FLOAT
    what = "from the layers"
    sheet.mention(
        f"weights, {what}", "weights", weights, f"{real.parameters:,} x {FLOAT} B = {weights / 2**20:.1f} MiB"
    )
    sheet.mention(
        f"responses of one image, {what}",
        "activations",
        one,
        f"{real.responses:,} outputs of convolutions, pooling and residual sums x {FLOAT} B = {one / 1e6:.1f} MB",
    )
    sheet.mention(f"responses, {what}", "activations", batch * one, f"batch {batch} x {one:,} B = {gb(batch * one)}")
    sheet.mention(
        f"im2col matrices, {what}",
        "activations",
        columns,
        f"batch {batch} x {real.columns:,} (inputs x K² x pixels of the output) x {FLOAT} B = {gb(columns)}",
    )
    sheet.mention(
        "outputs x K²",
        "activations",
        lowered,
        f"batch {batch} x {real.outputs_times_kernel:,} (each convolution's outputs x K², without the shortcuts) "
        f"x {FLOAT} B = {gb(lowered)}",
    )


RULES: tuple[Rule[Any], ...] = (
    Rule(
        "resnet50",
        "ResNet-50 with lowering",
        SOURCE,
        Resnet50Rule,
        compute,
        errata=(
            (
                "26 M x 4 B is printed as 99 MB and 16 M x 4 B as 64 MB: the first are MiB (104 MB), the second MB "
                "(61.0 MiB)."
            ),
            (
                "lowering is printed as 7.5 GB without a derivation. The outputs of each convolution times K², without "
                "the shortcuts, are 7.51 GB at batch 32, and not what lowering makes: the im2col matrices of all "
                "layers take 2.66 GB."
            ),
        ),
    ),
)
