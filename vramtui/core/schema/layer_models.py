"""Models given layer by layer: any list of layers, and convolutional nets from a table of stages."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from vramtui.core.schema.bounds import Count, Heads, Layers, ParameterCount, Pixels, Probability, Words, check_layers

Shape = Annotated[tuple[Count, ...], Meta(min_length=1, max_length=4)]
Padding = Annotated[int, Meta(ge=0, le=2**20)]
Times = Annotated[int, Meta(ge=1, le=10000)]
Weights = Literal["trained", "frozen", "shared"]


class Linear(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="linear"):
    """A linear layer over the last dimension; its input width follows from the layer before."""

    out_features: Count
    bias: bool = True


class Conv2d(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="conv"):
    """A convolution over (channels, height, width).

    Attributes:
        transposed: torch.nn.ConvTranspose2d, which makes its input `stride` times as high and wide.
        weights: its own, its own without a gradient, or those of a layer before it, which are not counted again.
    """

    out_channels: Count
    kernel_size: Count
    stride: Count = 1
    padding: Padding = 0
    dilation: Count = 1
    groups: Count = 1
    bias: bool = True
    transposed: bool = False
    weights: Weights = "trained"


class Permute(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="permute"):
    """Channels moved behind (height, width), or back before them; no memory is copied."""

    channels: Literal["last", "first"] = "last"


class Scale(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="scale"):
    """A trained factor for each channel of (channels, height, width), or for each number of the last dimension."""


class DropPath(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="drop-path"
):
    """Stochastic depth: the whole of a sample is dropped in training; nothing happens when the probability is 0."""

    probability: Probability = 0.1


class Upsample(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="upsample"):
    """(channels, height, width) made `scale` times as high and wide by interpolation, as on a UNet's way up.

    Attributes:
        like: as high and wide as what was marked so, instead of `scale` times.
    """

    scale: Count = 2
    like: Annotated[str, Meta(min_length=1, max_length=40)] | None = None


class Mark(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="mark"):
    """Gives what is here a name, for a `take` or `join` further on; a name may be given anew."""

    name: Annotated[str, Meta(min_length=1, max_length=40)]


class Take(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="take"):
    """Goes on from what was marked so: another branch."""

    name: Annotated[str, Meta(min_length=1, max_length=40)]


class Join(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="join"):
    """Combine the current tensor with a marked one: add, multiply (with broadcasting), or join the channels.

    Attributes:
        names: what was marked, in order; channels joined stand before those that are here.
        how: `add`, `multiply` or `concat`.
        inplace: add into what is here.
    """

    names: Annotated[tuple[str, ...], Meta(min_length=1, max_length=1000)]
    how: Literal["add", "multiply", "concat"] = "add"
    inplace: bool = False


class Regions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="regions"):
    """Squares cut out of what was marked, as torchvision.ops.MultiScaleRoIAlign: each is a sample from here on.

    Attributes:
        names: the levels of a pyramid, as they were marked.
        size: height and width of a square.
        training: squares of an image in training, at most.
        inference: squares of an image in inference, at most.
    """

    names: Annotated[tuple[str, ...], Meta(min_length=1, max_length=1000)]
    size: Count = 7
    training: Count = 512
    inference: Count = 1000


class ModelOutput(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="output"
):
    """Make the current tensor one of several outputs, which stay to the end; their losses replace `model.loss`.

    Attributes:
        loss: cross entropy over channels, a focal loss over every number, or one over a few `sampled` rows.
        rows: it is copied with its channels last, and joined with the other levels' answers.
    """

    loss: Literal["cross_entropy", "focal", "sampled"] = "cross_entropy"
    rows: bool = False


class WindowAttention(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="window-attention"
):
    """Swin's self-attention within windows of (height, width, channels), with a table of relative positions."""

    num_heads: Heads
    window_size: Count = 7
    shifted: bool = False


class PatchMerging(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="patch-merging"
):
    """Swin's halving of (height, width, channels): four neighbours side by side, a norm, half of their channels."""


class Norm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="norm"):
    """A norm: over the batch for each channel, over groups of channels, or over the last dimension.

    `layer2d` is a layer norm over the channels of (channels, height, width). `manual` is a layer norm written in single
    operators: mean, variance, quotient, scale and shift. `frozen` is torchvision's FrozenBatchNorm2d, whose numbers are
    buffers; `l2` divides by the length over the channels.
    """

    norm: Literal["batch", "layer", "layer2d", "group", "rms", "manual", "frozen", "l2"] = "layer"
    groups: Count = 32
    weights: Weights = "trained"


class Act(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="activation"):
    """An activation function; `inplace` writes its result over its input."""

    act: Literal[
        "relu", "relu6", "gelu", "silu", "sigmoid", "tanh", "leaky_relu", "hardswish", "hardsigmoid", "softmax"
    ] = "relu"
    inplace: bool = False


class Pool(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="pooling"):
    """Pooling over (height, width); `global` averages everything to one number for each channel.

    `adaptive` averages to `kernel_size` rows and columns; `ceil_mode` keeps a last window that is not full.
    """

    pool: Literal["max", "avg", "global", "adaptive"] = "max"
    kernel_size: Count = 2
    stride: Count | None = None
    padding: Padding = 0
    ceil_mode: bool = False


class Dropout(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="dropout"):
    """Dropout; nothing is kept when the probability is 0."""

    probability: Probability = 0.5


class Embedding(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="embedding"
):
    num_embeddings: Words
    embedding_dim: Count


class SelfAttention(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="attention"
):
    """Self-attention over (tokens, width) with q, k, v and output projections."""

    num_heads: Heads
    bias: bool = True
    causal: bool = False


class Flatten(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="flatten"):
    """All dimensions of a sample as one."""


class Recurrent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="rnn"):
    """A stack of recurrent layers over (tokens, width), as torch.nn.LSTM, GRU and RNN.

    Attributes:
        cell: an LSTM, a GRU, or a plain cell with tanh or ReLU.
        hidden_size: width of a state.
        num_layers: layers on top of each other.
        bidirectional: read each sequence both ways; the output is twice as wide.
        dropout: between the layers.
        proj_size: width to which an LSTM projects its states; 0 for none.
        bias: two vectors beside the two matrices.
        batch_first: sequences as (batch, tokens, width), which cuDNN copies on the way in; else (tokens, batch, width).
        output: what goes on: the whole `sequence`, or its `last` step.
    """

    cell: Literal["lstm", "gru", "rnn_tanh", "rnn_relu"] = "lstm"
    hidden_size: Count
    num_layers: Layers = 1
    bidirectional: bool = False
    dropout: Probability = 0.0
    proj_size: Annotated[int, Meta(ge=0, le=2**31)] = 0
    bias: bool = True
    batch_first: bool = True
    output: Literal["sequence", "last"] = "sequence"


Layer = (
    Linear
    | Conv2d
    | Norm
    | Act
    | Pool
    | Dropout
    | Embedding
    | SelfAttention
    | Recurrent
    | Flatten
    | Permute
    | Scale
    | DropPath
    | Upsample
    | Mark
    | Take
    | Join
    | Regions
    | ModelOutput
    | WindowAttention
    | PatchMerging
)


class Repeat(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="repeat"):
    """Some layers several times in a row; with `residual` what goes in is added to what comes out."""

    layers: tuple[Layer, ...]
    times: Times = 1
    residual: bool = False


class SequentialModel(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="sequential"
):
    """Any list of layers.

    Attributes:
        input_shape: one sample's shape without the batch: (features), (tokens, features), (channels, height, width);
            for an embedding the number of tokens.
        layers: the layers in order.
        loss: `cross_entropy` over classes in the last dimension, `mse` against a target of the output's shape, or the
            `sum` of the output.
        cudnn: convolutions and recurrent layers by cuDNN; without it PyTorch lays the patches of one sample out in a
            matrix, and runs recurrent layers step by step.
        parameters: the exact count; checked against the layers when given.
    """

    input_shape: Shape
    layers: tuple[Layer | Repeat, ...]
    loss: Literal["cross_entropy", "mse", "sum"] = "cross_entropy"
    cudnn: bool = True
    parameters: ParameterCount | None = None

    def __post_init__(self) -> None:
        """Raises UserError where repeated layers are more than any model has."""
        check_layers(
            "model.layers", sum(len(part.layers) * part.times for part in self.layers if isinstance(part, Repeat))
        )


class Stage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One stage of a residual net: `blocks` of `channels`; the first one strides."""

    blocks: Layers
    channels: Count
    stride: Count = 1


class ConvNetModel(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="convnet"
):
    """A residual net (ResNet) from a table of stages.

    Attributes:
        stages: the stages in order.
        block: `basic` is two 3x3 convolutions, `bottleneck` 1x1, 3x3, 1x1 with four times the channels at its end.
        num_classes: rows of the last linear layer.
        image_size: height and width of an image.
        num_channels: channels of an image.
        embedding_size: channels of the first convolution (7x7, stride 2), which a max pooling follows.
        inplace: each ReLU writes its result over its input, as torchvision's do.
        cudnn: convolutions by cuDNN; without it PyTorch lays the patches of one sample out in a matrix.
        parameters: the exact count; checked against the stages when given.
    """

    stages: Annotated[tuple[Stage, ...], Meta(min_length=1, max_length=64)]
    block: Literal["basic", "bottleneck"] = "bottleneck"
    num_classes: Count = 1000
    image_size: Pixels = 224
    num_channels: Count = 3
    embedding_size: Count = 64
    inplace: bool = True
    cudnn: bool = True
    parameters: ParameterCount | None = None

    def __post_init__(self) -> None:
        """Raises UserError where the stages have more blocks than any model."""
        check_layers("model.stages", sum(stage.blocks for stage in self.stages))
