"""The shapes of models, named as Hugging Face's config files name them; the `[model]` table of a preset."""

from collections.abc import Mapping
from math import ceil, floor, prod, sqrt
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta

from vramtui.core.base.errors import UserError
from vramtui.core.base.file_limits import MOST_LAYERS

# Each is far beyond what was published: 1,000 layers (DeepNet, arXiv 2203.00555), widths
# of 100,000, 256 heads, vocabularies of a million, 2,048 experts (Switch Transformers, arXiv 2101.03961).
Layers = Annotated[int, Meta(ge=1, le=MOST_LAYERS)]
LayersOrNone = Annotated[int, Meta(ge=0, le=MOST_LAYERS)]
Heads = Annotated[int, Meta(ge=1, le=2**16)]
Experts = Annotated[int, Meta(ge=1, le=2**16)]
Words = Annotated[int, Meta(ge=1, le=2**28)]
MOST_PARAMETERS = 2**50  # five hundred times the largest that was published (2 trillion)


def check_parameters(key: str, sizes: Mapping[str, int]) -> None:
    """Refuse sizes whose product is above any model's parameters; raises UserError if it is above 2^50."""
    product = prod(sizes.values())
    if product > MOST_PARAMETERS:
        names = " x ".join(f"{name} {size:,}" for name, size in sizes.items())
        raise UserError(f"{key}: {names} make {product:,} parameters; at most {MOST_PARAMETERS:,} are computed")


def check_layers(key: str, layers: int) -> None:
    """Refuse layers that several keys count; raises UserError if there are more than 4,096, which no model has."""
    if layers > MOST_LAYERS:
        raise UserError(f"{key} come to {layers:,} layers; at most {MOST_LAYERS:,} are computed")


Count = Annotated[int, Meta(ge=1, le=2**24)]
# Of a whole model: some have more than a trillion.
ParameterCount = Annotated[int, Meta(ge=1, le=2**50)]
Tokens = Annotated[int, Meta(ge=1, le=2**32, extra={"unit": "tokens"})]
Pixels = Annotated[int, Meta(ge=1, le=2**20, extra={"unit": "pixels"})]
Probability = Annotated[float, Meta(ge=0.0, lt=1.0)]

Activation = Literal["gelu", "gelu_new", "gelu_pytorch_tanh", "quick_gelu", "relu", "relu2", "silu"]
NormStyle = Literal["layernorm", "rmsnorm", "gemma_rmsnorm"]
Position = Literal["learned", "rope", "none"]
Implementation = Literal["huggingface", "plain"]
ModuleLoading = Literal["lazy", "eager"]
# As torch.__version__ begins: 2.13, 2.13.0+cu130.
TorchRelease = Annotated[str, Meta(max_length=64)]
TensorSplit = Annotated[str, Meta(max_length=256, pattern=r"^\d+(\.\d+)?([,/]\d+(\.\d+)?)*$")]
AllocConf = Annotated[str, Meta(max_length=1024)]


class Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of a preset."""


class LayerTable(Table, frozen=True, tag_field="type"):
    """A layer of a model that is given layer by layer."""


class ModelTable(Table, frozen=True, tag_field="kind"):
    """The `[model]` table of a kind of model."""


class Runtime(NamedTuple):
    """Settings of a process's runtime, as a run's keys of these names; None if unknown."""

    module_loading: ModuleLoading | None = None
    torch: str | None = None
    alloc_conf: str | None = None
    ranks: tuple[int, str] | None = None  # of its job, and the launcher


Size = Annotated[int, Meta(ge=1, le=2**40)]
Numbers = Annotated[int, Meta(ge=0, le=2**40)]
TensorSize = Annotated[tuple[Size, ...], Meta(min_length=1, max_length=6)]
Bits = Annotated[int, Meta(ge=1, le=64)]
Place = Literal["layers", "outside", "tower"]

# Tensors that only encoders of text have.
ENCODER_TENSORS = frozenset({"head_dense", "embed_token_types", "class_out"})
# What reads an image or a sound, and is of an encoder where no layer keeps anything of a sequence.
INPUT_CONVOLUTIONS = frozenset({"conv_patch", "conv_sound", "conv_stem"})


class TensorGroup(Table, frozen=True, kw_only=True):
    """Tensors of one shape.

    Attributes:
        name: the last part of their module's name.
        shape: of one of them.
        count: how many there are.
        place: in the layers, outside them (embeddings, last norm, output layer), or in a tower for images or sound.
        bits: of one number, where the file keeps it in a type of its own; as the run's precision has it when absent.
    """

    name: str
    shape: TensorSize
    count: Size = 1
    place: Place = "layers"
    bits: Bits | None = None

    @property
    def numel(self) -> int:
        return prod(self.shape)


class LayerCache(Table, frozen=True, kw_only=True):
    """The cache of a sequence in layers of one kind.

    Attributes:
        layers: how many of them there are.
        per_token: numbers for each token: keys and values.
        window: the last tokens that are kept; all when absent.
        state: numbers for a whole sequence, however long it is: convolutions' and linear attention's states.
        state_fp32: the same, where they are kept in fp32 whatever the precision.
    """

    layers: Layers
    per_token: Numbers = 0
    window: Size | None = None
    state: Numbers = 0
    state_fp32: Numbers = 0

    def cached(self, tokens: int) -> int:
        """How many of `tokens` tokens the layer keeps."""
        return tokens if self.window is None else min(tokens, self.window)


class TowerShape(Table, frozen=True, kw_only=True):
    """The sizes of a tower for images or sound, from which its memory follows.

    One for sound is Whisper's encoder or its kin: two convolutions before its blocks, positions instead of patches.

    Attributes:
        hidden_size: width of its stream.
        num_hidden_layers: its blocks.
        num_attention_heads: heads of each.
        intermediate_size: width of the MLP.
        gated_mlp: a gate and an up projection, with RMS norms; otherwise layer norms.
        rotary: queries and keys are turned by their place.
        per_token: patches to one of the sequence's tokens.
        pixels: numbers of the image in a patch, or of the spectrogram in a position.
        clip: positions of a clip, to which sound is filled up; as long as it is when absent.
        tokens_per_second: tokens of the sequence for a second of sound.
        tokens_per_clip: where a clip that is begun takes as many tokens as a whole one.
    """

    hidden_size: Size
    num_hidden_layers: Layers
    num_attention_heads: Heads
    intermediate_size: Size
    gated_mlp: bool = False
    rotary: bool = False
    per_token: Annotated[float, Meta(gt=0, le=2**20)] = 1.0
    pixels: Size = 588
    clip: Size | None = None
    tokens_per_second: Annotated[float, Meta(gt=0, le=2**20)] | None = None
    tokens_per_clip: Size | None = None

    def tokens(self, seconds: float) -> int | None:
        """Tokens of so many seconds of sound; None if that is not known."""
        if self.tokens_per_second is None:
            return None
        step = self.tokens_per_clip or 1
        return ceil(ceil(seconds * self.tokens_per_second) / step) * step

    def positions(self, tokens: int) -> int:
        """Patches or positions that it runs over for so many tokens of a sequence."""
        count = ceil(tokens * self.per_token)
        return count if self.clip is None else ceil(count / self.clip) * self.clip


class ImageTokens(Table, frozen=True, kw_only=True):
    """How many tokens of a sequence an image takes.

    Attributes:
        fixed: as many for any image, which is made of one size first.
        cell: pixels along a side of what one token stands for, where the size is kept.
        least: pixels that an image is made larger to have.
        most: pixels that it is made smaller to have.
        longest: pixels of its longer side, to which it is made smaller.
        per_row: tokens more for each row.
    """

    fixed: Size | None = None
    cell: Size | None = None
    least: Size | None = None
    most: Size | None = None
    longest: Size | None = None
    per_row: Numbers = 0

    def count(self, width: int, height: int) -> int:
        """Tokens of an image of so many pixels.

        Sides are rounded to whole cells as by `smart_resize` (transformers 5.23, image_processing_qwen2_vl.py) where
        there are bounds for its pixels, else up, as by Pixtral's.
        """
        if self.fixed is not None or self.cell is None:
            return self.fixed or 0
        cell, shrunk = self.cell, max(1.0, max(width, height) / self.longest) if self.longest else 1.0
        if self.least is None or self.most is None:
            rows, columns = (ceil(floor(side / shrunk) / cell) for side in (height, width))
        else:
            rows, columns = max(1, round(height / cell)), max(1, round(width / cell))
            if rows * columns * cell * cell > self.most:
                scale = sqrt(height * width / self.most)
                rows, columns = floor(height / scale / cell), floor(width / scale / cell)
            elif rows * columns * cell * cell < self.least:
                scale = sqrt(self.least / (height * width))
                rows, columns = ceil(height * scale / cell), ceil(width * scale / cell)
        return max(rows, 1) * (max(columns, 1) + self.per_row)


Shape = Annotated[tuple[Count, ...], Meta(min_length=1, max_length=4)]
Padding = Annotated[int, Meta(ge=0, le=2**20)]
Times = Annotated[int, Meta(ge=1, le=10000)]
Weights = Literal["trained", "frozen", "shared"]


class Linear(LayerTable, frozen=True, kw_only=True, tag="linear"):
    """A linear layer over the last dimension; its input width follows from the layer before."""

    out_features: Count
    bias: bool = True


class Conv2d(LayerTable, frozen=True, kw_only=True, tag="conv"):
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


class Permute(LayerTable, frozen=True, kw_only=True, tag="permute"):
    """Channels moved behind (height, width), or back before them; no memory is copied."""

    channels: Literal["last", "first"] = "last"


class Scale(LayerTable, frozen=True, kw_only=True, tag="scale"):
    """A trained factor for each channel of (channels, height, width), or for each number of the last dimension."""


class DropPath(LayerTable, frozen=True, kw_only=True, tag="drop-path"):
    """Stochastic depth: the whole of a sample is dropped in training; nothing happens when the probability is 0."""

    probability: Probability = 0.1


class Upsample(LayerTable, frozen=True, kw_only=True, tag="upsample"):
    """(channels, height, width) made `scale` times as high and wide by interpolation, as on a UNet's way up.

    Attributes:
        like: as high and wide as what was marked so, instead of `scale` times.
    """

    scale: Count = 2
    like: Annotated[str, Meta(min_length=1, max_length=40)] | None = None


class Mark(LayerTable, frozen=True, kw_only=True, tag="mark"):
    """Gives what is here a name, for a `take` or `join` further on; a name may be given anew."""

    name: Annotated[str, Meta(min_length=1, max_length=40)]


class Take(LayerTable, frozen=True, kw_only=True, tag="take"):
    """Goes on from what was marked so: another branch."""

    name: Annotated[str, Meta(min_length=1, max_length=40)]


class Join(LayerTable, frozen=True, kw_only=True, tag="join"):
    """Combine the current tensor with a marked one: add, multiply (with broadcasting), or join the channels.

    Attributes:
        names: what was marked, in order; channels joined stand before those that are here.
        how: `add`, `multiply` or `concat`.
        inplace: add into what is here.
    """

    names: Annotated[tuple[str, ...], Meta(min_length=1, max_length=1000)]
    how: Literal["add", "multiply", "concat"] = "add"
    inplace: bool = False


class Regions(LayerTable, frozen=True, kw_only=True, tag="regions"):
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


class ModelOutput(LayerTable, frozen=True, kw_only=True, tag="output"):
    """Make the current tensor one of several outputs, which stay to the end; their losses replace `model.loss`.

    Attributes:
        loss: cross entropy over channels, a focal loss over every number, or one over a few `sampled` rows.
        rows: it is copied with its channels last, and joined with the other levels' answers.
    """

    loss: Literal["cross_entropy", "focal", "sampled"] = "cross_entropy"
    rows: bool = False


class WindowAttention(LayerTable, frozen=True, kw_only=True, tag="window-attention"):
    """Swin's self-attention within windows of (height, width, channels), with a table of relative positions."""

    num_heads: Heads
    window_size: Count = 7
    shifted: bool = False


class PatchMerging(LayerTable, frozen=True, kw_only=True, tag="patch-merging"):
    """Swin's halving of (height, width, channels): four neighbours side by side, a norm, half of their channels."""


class Norm(LayerTable, frozen=True, kw_only=True, tag="norm"):
    """A norm: over the batch for each channel, over groups of channels, or over the last dimension.

    `layer2d` is a layer norm over the channels of (channels, height, width). `manual` is a layer norm written in single
    operators: mean, variance, quotient, scale and shift. `frozen` is torchvision's FrozenBatchNorm2d, whose numbers are
    buffers; `l2` divides by the length over the channels.
    """

    norm: Literal["batch", "layer", "layer2d", "group", "rms", "manual", "frozen", "l2"] = "layer"
    groups: Count = 32
    weights: Weights = "trained"


class Act(LayerTable, frozen=True, kw_only=True, tag="activation"):
    """An activation function; `inplace` writes its result over its input."""

    act: Literal[
        "relu", "relu6", "gelu", "silu", "sigmoid", "tanh", "leaky_relu", "hardswish", "hardsigmoid", "softmax"
    ] = "relu"
    inplace: bool = False


class Pool(LayerTable, frozen=True, kw_only=True, tag="pooling"):
    """Pooling over (height, width); `global` averages everything to one number for each channel.

    `adaptive` averages to `kernel_size` rows and columns; `ceil_mode` keeps a last window that is not full.
    """

    pool: Literal["max", "avg", "global", "adaptive"] = "max"
    kernel_size: Count = 2
    stride: Count | None = None
    padding: Padding = 0
    ceil_mode: bool = False


class Dropout(LayerTable, frozen=True, kw_only=True, tag="dropout"):
    """Dropout; nothing is kept when the probability is 0."""

    probability: Probability = 0.5


class Embedding(LayerTable, frozen=True, kw_only=True, tag="embedding"):
    num_embeddings: Words
    embedding_dim: Count


class SelfAttention(LayerTable, frozen=True, kw_only=True, tag="attention"):
    """Self-attention over (tokens, width) with q, k, v and output projections."""

    num_heads: Heads
    bias: bool = True
    causal: bool = False


class Flatten(LayerTable, frozen=True, kw_only=True, tag="flatten"):
    """All dimensions of a sample as one."""


class Recurrent(LayerTable, frozen=True, kw_only=True, tag="rnn"):
    """A stack of recurrent layers over (tokens, width), as torch.nn.LSTM, GRU and RNN.

    Attributes:
        cell: an LSTM, a GRU, or a plain cell with tanh or ReLU.
        hidden_size: width of a state.
        num_layers: layers on top of each other.
        bidirectional: read each sequence both ways; the output is twice as wide.
        dropout: between the layers.
        proj_size: width to which an LSTM projects its states; 0 for none.
        bias: two vectors and two matrices.
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


class Repeat(LayerTable, frozen=True, kw_only=True, tag="repeat"):
    """Some layers several times in a row; with `residual` what goes in is added to what comes out."""

    layers: tuple[Layer, ...]
    times: Times = 1
    residual: bool = False


class SequentialModel(ModelTable, frozen=True, kw_only=True, tag="sequential"):
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


class Stage(Table, frozen=True, kw_only=True):
    """One stage of a residual net: `blocks` of `channels`; the first one strides."""

    blocks: Layers
    channels: Count
    stride: Count = 1


class ConvNetModel(ModelTable, frozen=True, kw_only=True, tag="convnet"):
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


NotNegative = Annotated[int, Meta(ge=0, le=2**24)]
Levels = Meta(min_length=1, max_length=12)
Name = Annotated[str, Meta(min_length=1, max_length=64)]
Design = Literal["images", "video"]


class EncoderModel(ModelTable, frozen=True, kw_only=True, tag="encoder"):
    """An encoder: text (BERT, RoBERTa) or images in patches (ViT, CLIP's towers).

    Attributes:
        hidden_size: width of the residual stream.
        num_hidden_layers: number of blocks.
        num_attention_heads: heads, each hidden_size / heads wide.
        intermediate_size: width of the MLP; 4 x hidden_size when absent.
        vocab_size: rows of the word embedding; absent for images.
        type_vocab_size: rows of the token type embedding (BERT).
        max_position_embeddings: rows of the position embedding, for text.
        image_size: height and width of an image; its presence makes the input images.
        patch_size: height and width of a patch.
        num_channels: channels of an image.
        class_token: one more position that stands for the whole image.
        norm_first: norms before attention and MLP (ViT) instead of after the sum (BERT).
        norm_before: a norm after the embeddings (BERT, CLIP).
        norm_after: a norm after the last block (ViT, CLIP).
        patch_bias: a bias on the patch embedding (ViT; not CLIP).
        hidden_act: the MLP's activation function.
        causal: each token sees only those before it (CLIP's text tower).
        pooler: a linear layer of hidden_size over the first token (BERT).
        projection_dim: a linear layer without bias to this width over the pooled output (CLIP).
        head: `mlm` predicts words as BERT does, `classes` has num_labels outputs, `none` ends with the last block.
        num_labels: outputs of a classifier.
        hidden_dropout: dropout after embeddings, attention and MLP.
        attention_dropout: dropout on the attention's weights.
        parameters: the exact count; checked against the shapes when given.
    """

    hidden_size: Count
    num_hidden_layers: Layers
    num_attention_heads: Heads
    intermediate_size: Count | None = None
    vocab_size: Words | None = None
    type_vocab_size: NotNegative = 0
    max_position_embeddings: Tokens | None = None
    image_size: Pixels | None = None
    patch_size: Pixels = 16
    num_channels: Count = 3
    class_token: bool = True
    norm_first: bool = False
    norm_before: bool = True
    norm_after: bool = False
    patch_bias: bool = True
    hidden_act: Activation = "gelu"
    causal: bool = False
    pooler: bool = False
    projection_dim: Count | None = None
    head: Literal["mlm", "classes", "none"] = "none"
    num_labels: Count = 2
    hidden_dropout: Probability = 0.0
    attention_dropout: Probability = 0.0
    parameters: ParameterCount | None = None

    def __post_init__(self) -> None:
        width = self.intermediate_size or 4 * self.hidden_size
        sizes = {"num_hidden_layers": self.num_hidden_layers, "hidden_size": self.hidden_size}
        check_parameters("model", sizes | {"intermediate_size": width})


class EncoderDecoderModel(ModelTable, frozen=True, kw_only=True, tag="encoder-decoder"):
    """An encoder and a decoder that looks at it (T5, BART, Whisper).

    Attributes:
        d_model: width of the residual stream.
        encoder_layers: blocks of the encoder.
        decoder_layers: blocks of the decoder.
        num_attention_heads: heads in each attention.
        d_ff: width of the MLPs.
        vocab_size: rows of the word embedding, which encoder and decoder share.
        d_kv: width of one head; d_model / heads when absent (T5 differs).
        gated_mlp: gate and up projections (T5 v1.1, Flan-T5).
        hidden_act: the MLP's activation function.
        norm: the kind of norm.
        bias: biases on the linear layers.
        key_bias: the keys' projection has a bias too, where others have; Whisper's has none.
        relative_attention_num_buckets: rows of T5's relative positions, in the first block of each side.
        max_source_positions: learned or stored positions of the encoder.
        max_target_positions: learned or stored positions of the decoder.
        source_positions_trained: whether the encoder's positions get gradients (BART) or are fixed (Whisper).
        position_offset: rows added to each table of positions (2 in BART).
        norm_embeddings: a norm after the embeddings of each side (BART).
        final_norm: a norm after the last block of each side (T5, Whisper).
        num_mel_bins: channels of a spectrogram, read by two convolutions (Whisper); absent for text.
        tie_word_embeddings: the output layer is the embedding.
        final_bias: a fixed bias on the logits (BART), a buffer.
        dropout: dropout after embeddings, attention and MLP.
        parameters: the exact count; checked against the shapes when given.
    """

    d_model: Count
    encoder_layers: Layers
    decoder_layers: Layers
    num_attention_heads: Heads
    d_ff: Count
    vocab_size: Words
    d_kv: Count | None = None
    gated_mlp: bool = False
    hidden_act: Activation = "relu"
    norm: NormStyle = "rmsnorm"
    bias: bool = False
    key_bias: bool = True
    relative_attention_num_buckets: NotNegative = 0
    max_source_positions: Count | None = None
    max_target_positions: Count | None = None
    source_positions_trained: bool = True
    position_offset: NotNegative = 0
    norm_embeddings: bool = False
    final_norm: bool = True
    num_mel_bins: Count | None = None
    tie_word_embeddings: bool = True
    final_bias: bool = False
    dropout: Probability = 0.0
    parameters: ParameterCount | None = None

    def __post_init__(self) -> None:
        check_parameters("model", {"encoder_layers": self.encoder_layers, "d_model": self.d_model, "d_ff": self.d_ff})
        check_parameters("model", {"decoder_layers": self.decoder_layers, "d_model": self.d_model, "d_ff": self.d_ff})


class UNetModel(ModelTable, frozen=True, kw_only=True, tag="unet"):
    """A conditioned UNet as in diffusers' UNet2DConditionModel (Stable Diffusion 1.x, 2.x, SDXL).

    Attributes:
        block_out_channels: channels of each level.
        layers_per_block: residual blocks of each level on the way down; one more on the way up.
        transformer_layers_per_block: transformer blocks after each residual block, by level; 0 for none.
        attention_head_dim: heads of each level (diffusers' misnomer), or a single number for all.
        cross_attention_dim: width of the text's embedding.
        sample_size: height and width of the latents.
        in_channels: channels of the latents.
        out_channels: channels of the answer.
        text_length: tokens of the text.
        mid_transformer_layers: transformer blocks in the middle; as in the last level with any when absent.
        use_linear_projection: linear layers instead of 1x1 convolutions around the transformer blocks.
        addition_embed_dim: width of what SDXL adds to the time embedding; absent elsewhere.
        parameters: the exact count; checked against the shapes when given.
    """

    block_out_channels: Annotated[tuple[Count, ...], Levels]
    layers_per_block: Layers = 2
    transformer_layers_per_block: Annotated[tuple[LayersOrNone, ...], Levels]
    attention_head_dim: Annotated[tuple[Heads, ...], Levels]
    cross_attention_dim: Count
    sample_size: Count = 64
    in_channels: Count = 4
    out_channels: Count = 4
    text_length: Tokens = 77
    mid_transformer_layers: LayersOrNone | None = None
    use_linear_projection: bool = False
    addition_embed_dim: Count | None = None
    parameters: ParameterCount | None = None


class DiffusionTransformerModel(ModelTable, frozen=True, kw_only=True, tag="dit"):
    """A diffusion transformer: double-stream blocks over image and text, then single-stream ones (FLUX).

    Attributes:
        design: whose blocks they are. `sd3` and `qwen-image` have only double-stream blocks, `wan` and `pixart` read
            the text by cross-attention.
        num_layers: double-stream blocks, each with its own weights for image and text; of the last two all blocks.
        num_single_layers: single-stream blocks over both together.
        num_attention_heads: heads, each `attention_head_dim` wide.
        attention_head_dim: width of one head.
        in_channels: channels of a packed latent; of `sd3`, `wan` and `pixart`, which pack it themselves, before.
        out_channels: channels of the answer; as many as come in when absent.
        joint_attention_dim: width of the text's embedding.
        pooled_projection_dim: width of the pooled text embedding (`flux`, `sd3`).
        guidance_embeds: a second embedding of the guidance scale; of `pixart` those of resolution and aspect ratio.
        qk_norm: norms on queries and keys.
        dual_attention_layers: of the first blocks, how many attend to the image a second time (SD 3.5 medium).
        pos_embed_max_size: rows and columns of the table of positions (`sd3`).
        ffn_dim: width of the MLP (`wan`); 4 x the blocks' width in the others.
        sample_size: height and width of the image in pixels.
        height: of the image in pixels, where it is not square.
        width: of the image in pixels, where it is not square.
        frames: of a video; 1 for an image. One frame of latents stands for four, and one for the first.
        pixels_per_token: pixels along a side that one packed latent covers.
        text_length: tokens of the text.
        parameters: the exact count; checked against the shapes when given.
    """

    design: Literal["flux", "sd3", "qwen-image", "wan", "pixart"] = "flux"
    num_layers: LayersOrNone
    num_single_layers: LayersOrNone = 0
    num_attention_heads: Heads
    attention_head_dim: Count = 128
    in_channels: Count = 64
    out_channels: Count | None = None
    joint_attention_dim: Count = 4096
    pooled_projection_dim: Count = 768
    guidance_embeds: bool = False
    qk_norm: bool = True
    dual_attention_layers: LayersOrNone = 0
    pos_embed_max_size: Count = 192
    ffn_dim: Count | None = None
    sample_size: Pixels = 1024
    height: Pixels | None = None
    width: Pixels | None = None
    frames: Count = 1
    pixels_per_token: Count = 16
    text_length: Tokens = 512
    parameters: ParameterCount | None = None

    @property
    def size(self) -> tuple[int, int]:
        return self.height or self.sample_size, self.width or self.sample_size

    @property
    def latent_frames(self) -> int:
        """Frames of latents: one for the first frame, then one for each four."""
        return 1 + (self.frames - 1) // 4

    @property
    def image_tokens(self) -> int:
        height, width = self.size
        return self.latent_frames * (height // self.pixels_per_token) * (width // self.pixels_per_token)

    @property
    def packed(self) -> tuple[int, int]:
        """Numbers that come in and go out for each packed latent."""
        patch = 4 if self.design in {"sd3", "wan", "pixart"} else 1
        return patch * self.in_channels, patch * (self.out_channels or self.in_channels)


class PipelineEncoder(Table, frozen=True, kw_only=True):
    """A part of a pipeline that reads the prompt.

    Attributes:
        name: of its folder.
        hidden_size: width of its stream.
        num_hidden_layers: its blocks.
        num_attention_heads: heads of each.
        intermediate_size: width of the MLP.
        tokens: of one prompt.
        gated_mlp: a gate and an up projection.
        position_bias: scores get a bias of their own for each pair of tokens (T5).
        keeps_states: every block's output is kept to the end, as the pipeline asks for one from the middle.
        output_size: rows of an output layer over all tokens, where there is one (a whole language model).
        fp32_in_fp16: tensors that stay in fp32 in a pipeline of fp16 (T5's `wo`).
        tensors: all of them.
    """

    name: Name
    hidden_size: Count
    num_hidden_layers: Layers
    num_attention_heads: Heads
    intermediate_size: Count
    tokens: Tokens = 77
    gated_mlp: bool = False
    position_bias: bool = False
    keeps_states: bool = False
    output_size: Count | None = None
    fp32_in_fp16: tuple[str, ...] = ()
    tensors: Annotated[tuple[TensorGroup, ...], Meta(min_length=1)]


class PipelineVae(Table, frozen=True, kw_only=True):
    """The part of a pipeline that makes pixels of latents.

    Attributes:
        design: `images` is diffusers' AutoencoderKL, `video` the causal one of Wan and Qwen-Image, which decodes a
            frame of latents at a time and keeps the last frames that its convolutions saw.
        block_out_channels: channels of each level of the decoder, from the pixels inwards.
        layers_per_block: residual blocks of each level; one more on the way up.
        latent_channels: channels of the latents.
        out_channels: of what the decoder makes.
        temporal_upsample: by level from the latents outwards, whether frames are doubled there (video).
        residual: shortcuts around whole levels (Wan 2.2's 5B).
        patch_size: pixels along a side that are laid into channels.
        spatial_factor: pixels along a side of one latent.
        attention: one attention in the middle.
        force_upcast: a pipeline in fp16 decodes in fp32.
        fp32: it is kept in fp32 whatever the precision.
        tile_size: pixels along a side of a tile, with tiling.
        tensors: all of them.
    """

    design: Design = "images"
    block_out_channels: Annotated[tuple[Count, ...], Meta(min_length=1, max_length=12)]
    layers_per_block: Layers = 2
    latent_channels: Count = 4
    out_channels: Count = 3
    temporal_upsample: tuple[bool, ...] = ()
    residual: bool = False
    patch_size: Count = 1
    spatial_factor: Count = 8
    attention: bool = True
    force_upcast: bool = False
    fp32: bool = False
    tile_size: Count = 512
    tensors: Annotated[tuple[TensorGroup, ...], Meta(min_length=1)]


class PipelineModel(ModelTable, frozen=True, kw_only=True, tag="pipeline"):
    """A diffusion pipeline as its model_index.json lists it: text encoders, one or two denoisers, a VAE.

    Attributes:
        denoiser: what runs at each step.
        encoders: what reads the prompt, in the order in which it does.
        vae: what makes pixels.
        denoisers: 2 where a second one of the same shapes takes over for the late steps (Wan 2.2's 14B).
        guidance_batch: 2 where guidance asks the denoiser twice in one batch; 1 where it asks one after the other, or
            not at all.
        parameters: the exact count of all parts; checked against the shapes when given.
    """

    denoiser: UNetModel | DiffusionTransformerModel
    encoders: tuple[PipelineEncoder, ...] = ()
    vae: PipelineVae
    denoisers: Annotated[int, Meta(ge=1, le=2)] = 1
    guidance_batch: Annotated[int, Meta(ge=1, le=2)] = 1
    parameters: ParameterCount | None = None


NormsPerLayer = Annotated[int, Meta(ge=1, le=4)]
Positive = Annotated[float, Meta(gt=0)]
Basis = Literal["shapes", "family", "generic"]


class TransformerModel(ModelTable, frozen=True, kw_only=True, tag="transformer"):
    """A decoder-only transformer: dense or with experts, any of the usual attentions.

    Attributes:
        hidden_size: width of the residual stream.
        num_hidden_layers: number of blocks.
        num_attention_heads: query heads.
        vocab_size: rows of the embedding, padding included.
        num_key_value_heads: key/value heads; as many as query heads (MHA) when absent, 1 is MQA.
        head_dim: width of one head; hidden_size / heads when absent.
        intermediate_size: width of the MLP; 4 x hidden_size when absent.
        max_position_embeddings: the longest sequence; the number of rows of learned positions.
        position: learned positions are parameters, rotary ones are not.
        hidden_act: the MLP's activation function.
        gated_mlp: gate, up and down projections (SwiGLU, GeGLU).
        norm: the kind of norm; `gemma_rmsnorm` multiplies by the weight in fp32.
        norms_per_layer: 2 for most; 4 where each block is also normed after itself (Gemma 2); 1 where attention and
            MLP share one (GPT-J).
        qk_norm: a norm of head_dim over queries and another over keys.
        fused_qkv: one projection makes queries, keys and values (GPT-2, GPT-NeoX, Phi-3).
        enable_gqa: key/value heads that queries share are repeated, or scaled_dot_product_attention gets the flag;
            where neither is done (Falcon's multi-query attention) no fused kernel of torch takes them.
        parallel_residual: attention and MLP read the same input and are added together (GPT-J, GPT-NeoX).
        attention_bias: biases on the q, k, v projections.
        output_bias: bias on the attention's output projection.
        mlp_bias: biases in the MLP.
        lm_head_bias: bias on the output layer.
        tie_word_embeddings: the output layer is the embedding.
        hidden_dropout: dropout after embeddings, attention and MLP.
        attention_dropout: dropout on the attention's weights.
        sliding_window: tokens that a sliding layer looks back.
        sliding_window_pattern: every n-th layer looks back all the way, the others slide; all slide when absent.
        num_experts: routed experts in each MLP; dense when absent.
        num_experts_per_tok: experts that each token is sent to.
        moe_intermediate_size: width of one expert; intermediate_size when absent.
        n_shared_experts: experts that every token is sent to.
        shared_expert_intermediate_size: width of the shared expert where it is not n x moe_intermediate_size.
        shared_expert_gate: a gate of hidden_size on the shared expert (Qwen 2 MoE).
        first_k_dense_replace: the first layers that have a dense MLP instead (DeepSeek).
        router_bias: a bias for each expert on the router (DeepSeek V3).
        q_lora_rank: rank of the compressed queries; not compressed when absent.
        kv_lora_rank: rank of the compressed keys and values; its presence makes the attention MLA (DeepSeek).
        qk_nope_head_dim: width of a head without positions, in MLA.
        qk_rope_head_dim: width of the rotary part of a head, in MLA.
        v_head_dim: width of a head of values, in MLA.
        final_logit_softcapping: logits are squeezed by tanh to this size (Gemma 2).
        attn_logit_softcapping: so are eager attention's scores (Gemma 2); torch's fused kernels pass over it.
        implementation: whose modelling code it is, for what the shapes leave open. `huggingface` spells RMS norms and
            `gelu_new` out in single operators and computes the loss on fp32 logits; `plain` uses torch's fused ones
            and leaves the logits in the compute type, as nanoGPT does.
        parameters: the model card's exact count; checked against the shapes when given.
        tensors: every tensor, where the sizes above do not give them; weights are then counted only by these.
        caches: what the layers keep of a sequence, where the sizes above do not say it.
        image_tokens: how many tokens of a sequence an image takes.
        tower: what the tower for images holds while it runs.
        audio_tower: the same of one for sound.
        basis: how sure it is: every operator follows from the `shapes`; the tensors and caches of its `family` are
            exact, and what comes and goes is the nearest decoder's; or all is read from the usual keys (`generic`).
    """

    hidden_size: Count
    num_hidden_layers: Layers
    num_attention_heads: Heads
    vocab_size: Words
    num_key_value_heads: Heads | None = None
    head_dim: Count | None = None
    intermediate_size: Count | None = None
    max_position_embeddings: Tokens | None = None
    position: Position = "rope"
    hidden_act: Activation = "silu"
    gated_mlp: bool = True
    norm: NormStyle = "rmsnorm"
    norms_per_layer: NormsPerLayer = 2
    qk_norm: bool = False
    fused_qkv: bool = False
    enable_gqa: bool = True
    parallel_residual: bool = False
    attention_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    lm_head_bias: bool = False
    tie_word_embeddings: bool = False
    hidden_dropout: Probability = 0.0
    attention_dropout: Probability = 0.0
    sliding_window: Tokens | None = None
    sliding_window_pattern: Layers | None = None
    num_experts: Experts | None = None
    num_experts_per_tok: Experts | None = None
    moe_intermediate_size: Count | None = None
    n_shared_experts: Experts | None = None
    shared_expert_intermediate_size: Count | None = None
    shared_expert_gate: bool = False
    first_k_dense_replace: LayersOrNone = 0
    router_bias: bool = False
    q_lora_rank: Count | None = None
    kv_lora_rank: Count | None = None
    qk_nope_head_dim: Count | None = None
    qk_rope_head_dim: Count | None = None
    v_head_dim: Count | None = None
    final_logit_softcapping: Positive | None = None
    attn_logit_softcapping: Positive | None = None
    implementation: Implementation = "huggingface"
    parameters: ParameterCount | None = None
    tensors: tuple[TensorGroup, ...] = ()
    caches: tuple[LayerCache, ...] = ()
    image_tokens: ImageTokens | None = None
    tower: TowerShape | None = None
    audio_tower: TowerShape | None = None
    basis: Basis = "shapes"

    def __post_init__(self) -> None:
        layers = {"num_hidden_layers": self.num_hidden_layers, "hidden_size": self.hidden_size}
        heads = {"num_attention_heads": self.num_attention_heads, "head_dim": self.head_size}
        check_parameters("model", layers | heads)
        if self.num_experts is None:
            check_parameters("model", layers | {"intermediate_size": self.ffn_size})
        else:
            experts = {"num_experts": self.num_experts, "moe_intermediate_size": self.expert_size}
            check_parameters("model", layers | experts)
        check_parameters("model.tensors", {"numbers": sum(group.numel * group.count for group in self.tensors)})

    @property
    def kv_heads(self) -> int:
        """Number of key/value heads: as many as heads (MHA) unless given (GQA, MQA)."""
        return self.num_key_value_heads or self.num_attention_heads

    @property
    def head_size(self) -> int:
        return self.head_dim or self.hidden_size // self.num_attention_heads

    @property
    def ffn_size(self) -> int:
        return self.intermediate_size or 4 * self.hidden_size

    @property
    def expert_size(self) -> int:
        return self.moe_intermediate_size or self.ffn_size

    @property
    def shared_size(self) -> int:
        """Width of the shared experts together; 0 where there are none."""
        return self.shared_expert_intermediate_size or (self.n_shared_experts or 0) * self.expert_size


class TorchModel(ModelTable, frozen=True, kw_only=True, tag="torch"):
    """Someone's own PyTorch code, which runs only if a person asks for it.

    Attributes:
        file: the Python file, relative to the preset.
        function: which function of it, without arguments; the file runs as a script when absent.
        arguments: what a script finds in `sys.argv`.
    """

    file: str
    function: str | None = None
    arguments: tuple[str, ...] = ()


Model = (
    TransformerModel
    | EncoderModel
    | EncoderDecoderModel
    | ConvNetModel
    | SequentialModel
    | UNetModel
    | DiffusionTransformerModel
    | PipelineModel
    | TorchModel
)
