"""Rules of thumb, a few numbers in and a few lines out; formulas for a transformer's shapes, as tools and papers have
them.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from vramtui.core.base.errors import UserError

Size = Annotated[int, Meta(ge=1, le=2**40)]
Layers = Annotated[int, Meta(ge=0, le=2**20)]
Tokens = Annotated[int, Meta(ge=1, le=2**40, extra={"unit": "tokens"})]
Bytes = Annotated[int, Meta(ge=0, le=2**60, extra={"unit": "bytes"})]
Bytes1 = Annotated[int, Meta(ge=1, le=2**60, extra={"unit": "bytes"})]
Count = Annotated[int, Meta(ge=1, le=2**50)]
Ranks = Annotated[int, Meta(ge=1, le=2**20)]
Ratio = Annotated[float, Meta(ge=0.0, le=1.0)]
Shape = Annotated[tuple[Size, ...], Meta(max_length=8)]

Dtype = Literal["fp64", "fp32", "tf32", "bf16", "fp16", "int64", "int8", "bool"]
WeightType = Literal["fp32", "tf32", "bf16", "fp16", "int8", "int4"]
CUBLAS_WORKSPACE = 8_519_680
GIB = 1 << 30


class RuleTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="id"):
    """What all of them share: nothing but the tag."""


class BytesPerParameterRule(RuleTable, frozen=True, kw_only=True, tag="bytes-per-parameter"):
    """`dtype` counts for inference only; the other phases fix their own.

    Attributes:
        parameters: number of weights.
        phase: what is done with them; it says how many bytes each takes.
        dtype: what the weights are kept in, for inference only.
    """

    parameters: Count
    phase: Literal["inference", "full-fp16", "mixed", "lora", "qlora"]
    dtype: WeightType = "bf16"


class Gpt2ResidualRule(RuleTable, frozen=True, kw_only=True, tag="gpt2-residual"):
    """`fragmentation` is the part of the memory that is free and yet of no use when memory runs out.

    Attributes:
        parameters: number of weights.
        hidden_size: width of the residual stream.
        num_hidden_layers: number of blocks.
        batch_size: sequences in a batch.
        sequence_length: tokens in each sequence.
        checkpointing: whether activations are made again in the backward pass.
        fragmentation: the part of the memory that is free and of no use when memory runs out.
    """

    parameters: Count
    hidden_size: Size
    num_hidden_layers: Size
    batch_size: Size
    sequence_length: Tokens
    checkpointing: Literal["none", "full"] = "none"
    fragmentation: Annotated[float, Meta(ge=0.0, lt=1.0)] = 0.0


class Resnet50Rule(RuleTable, frozen=True, kw_only=True, tag="resnet50"):
    """The published counts, and the stages of the real network beside them.

    Attributes:
        parameters: number of weights, as published.
        responses: number of activations of one image, as published.
        published_lowering: bytes with lowering, as published, where no derivation is.
        blocks: bottleneck blocks of each stage of the real network.
        image_size: height and width of its input in pixels.
        batch_size: images in a batch.
    """

    parameters: Count
    responses: Count
    batch_size: Size
    published_lowering: Bytes | None = None
    blocks: Annotated[tuple[Size, ...], Meta(min_length=1, max_length=8)] = (3, 4, 6, 3)
    image_size: Annotated[int, Meta(ge=32, le=2**16)] = 224


class LoraCalculatorRule(RuleTable, frozen=True, kw_only=True, tag="lora-calculator"):
    """`ratio` is the part of the parameters that is trained; every tensor is in 16 bits.

    Attributes:
        parameters: number of weights.
        num_hidden_layers: number of blocks.
        hidden_size: width of the residual stream.
        vocab_size: rows of the embedding.
        sequence_length: tokens in each sequence.
        batch_size: sequences in a batch.
        ratio: the part of the parameters that is trained.
        phase: training, or inference.
        kernels: what CUDA's kernels take.
    """

    parameters: Count
    num_hidden_layers: Size
    hidden_size: Size
    vocab_size: Size
    sequence_length: Tokens
    batch_size: Size = 1
    ratio: Ratio = 0.02
    phase: Literal["train", "infer"] = "train"
    kernels: Bytes = 2 * GIB


class KvCacheRule(RuleTable, frozen=True, kw_only=True, tag="kv-cache"):
    """Fewer `num_key_value_heads` than `num_attention_heads` is GQA, one is MQA.

    Attributes:
        num_hidden_layers: number of blocks.
        num_attention_heads: query heads.
        head_dim: width of one head.
        batch_size: sequences in a batch.
        sequence_length: tokens in each sequence.
        num_key_value_heads: key/value heads; as many as query heads when absent.
        dtype: what keys and values are kept in.
    """

    num_hidden_layers: Size
    num_attention_heads: Size
    head_dim: Size
    batch_size: Size
    sequence_length: Tokens
    num_key_value_heads: Size | None = None
    dtype: Literal["fp32", "bf16", "fp16", "int8"] = "fp16"

    def __post_init__(self) -> None:
        """Raises UserError for key/value heads that do not divide the heads."""
        if self.num_attention_heads % (self.num_key_value_heads or 1):
            raise UserError(
                f"rule.num_key_value_heads = {self.num_key_value_heads} does not divide "
                f"rule.num_attention_heads = {self.num_attention_heads}"
            )


class BatchPoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Memory seen at one batch size, in bytes.

    Attributes:
        batch_size: samples in the batch.
        bytes: memory seen with it.
    """

    batch_size: Size
    bytes: Bytes1


class LinearInBatchRule(RuleTable, frozen=True, kw_only=True, tag="linear-in-batch"):
    """Two points of the line, and the batch whose memory is asked for.

    Attributes:
        first: one point of the line.
        second: another point of the line.
        batch_size: the batch whose memory is asked for.
    """

    first: BatchPoint
    second: BatchPoint
    batch_size: Size

    def __post_init__(self) -> None:
        """Raises UserError for two points that fix no line, or one that falls with the batch."""
        few, many = sorted((self.first, self.second), key=lambda point: point.batch_size)
        if few.batch_size == many.batch_size:
            raise UserError(f"rule.first and rule.second have the same batch_size {few.batch_size}: they fix no line")
        if many.bytes < few.bytes:
            raise UserError("rule.first and rule.second say that a larger batch takes less memory")
        if few.bytes * many.batch_size < many.bytes * few.batch_size:
            raise UserError("rule.first and rule.second say that a batch of nothing takes less than no memory")


class EncoderDecoderRule(RuleTable, frozen=True, kw_only=True, tag="encoder-decoder"):
    """A transformer as in Vaswani et al. 2017, trained in fp32 with Adam.

    Attributes:
        position: `learned` has parameters, `sinusoidal` a constant table, `none` neither.
        tie_word_embeddings: the output projection shares the target's embedding.
        d_model: width of the residual stream.
        d_ff: width of the MLPs.
        num_heads: heads in each attention.
        encoder_layers: blocks of the encoder.
        decoder_layers: blocks of the decoder.
        source_vocab_size: rows of the source's embedding.
        target_vocab_size: rows of the target's embedding.
        batch_size: pairs of sequences in a batch.
        source_length: tokens of each source.
        target_length: tokens of each target.
        bias: biases on the linear layers.
        max_length: rows of the table of positions; the longer of the two sequences when absent.
    """

    d_model: Size
    d_ff: Size
    num_heads: Size
    encoder_layers: Size
    decoder_layers: Layers
    source_vocab_size: Size
    target_vocab_size: Size
    batch_size: Size
    source_length: Tokens
    target_length: Tokens
    bias: bool = True
    position: Literal["learned", "sinusoidal", "none"] = "sinusoidal"
    max_length: Tokens | None = None
    tie_word_embeddings: bool = False

    def __post_init__(self) -> None:
        """Raises UserError for heads that do not divide and for sequences longer than the position table."""
        if self.d_model % self.num_heads:
            raise UserError(f"rule.num_heads = {self.num_heads} does not divide rule.d_model = {self.d_model}")
        if self.max_length is not None and self.max_length < max(self.source_length, self.target_length):
            raise UserError(f"rule.max_length = {self.max_length} is less than the longer of the two sequences")


class EncoderDecoderPublishedRule(RuleTable, frozen=True, kw_only=True, tag="encoder-decoder-published"):
    """The arguments of a published function; 0 decoder layers make a GPT of the encoder's.

    Attributes:
        d_model: width of the residual stream.
        d_ff: width of the MLPs.
        num_heads: heads in each attention.
        encoder_layers: blocks of the encoder.
        decoder_layers: blocks of the decoder.
        source_vocab_size: rows of the source's embedding.
        target_vocab_size: rows of the target's embedding.
        embedding_size: width of the embeddings.
        batch_size: pairs of sequences in a batch.
        sequence_length: tokens of each source and target.
        bias: norms have one.
        position_parameters: positions have parameters of their own.
        dropout: by which the function enlarges the weights.
        dtype: what every number is kept in.
    """

    d_model: Size
    d_ff: Size
    num_heads: Size
    encoder_layers: Size
    decoder_layers: Layers
    source_vocab_size: Size
    target_vocab_size: Size
    embedding_size: Size
    batch_size: Size
    sequence_length: Tokens
    bias: bool = True
    position_parameters: bool = False
    dropout: Ratio = 0.1
    dtype: Literal["fp32", "fp16"] = "fp32"


class EleutherRule(RuleTable, frozen=True, kw_only=True, tag="eleutherai"):
    """Options of calc_transformer_mem.py, with its defaults.

    Attributes:
        num_hidden_layers: number of blocks.
        hidden_size: width of the residual stream.
        num_attention_heads: query heads.
        sequence_length: tokens in each sequence.
        batch_size: sequences that one GPU sees.
        vocab_size: rows of the embedding.
        ffn_expansion_factor: width of the MLP over that of the residual stream.
        mlp_linears: linear layers in each MLP; 3 where it is gated.
        kv_size_ratio: key/value heads over query heads.
        phase: training, or inference.
        output_tokens: tokens generated, for inference.
        checkpointing: activations are made again in the backward pass.
        partition_activations: kept activations are shared by the tensor ranks.
        zero_stage: 0 shares nothing, 1 optimizer states, 2 gradients as well, 3 weights as well.
        gpus: GPUs in all.
        tensor_parallel: ranks that each hold a part of every matrix.
        pipeline_parallel: ranks that each hold some layers.
        mixed_precision: half-precision weights with fp32 copies in the optimizer.
    """

    num_hidden_layers: Size
    hidden_size: Size
    num_attention_heads: Size
    sequence_length: Tokens = 2048
    batch_size: Size = 1
    vocab_size: Size = 51200
    ffn_expansion_factor: Annotated[float, Meta(gt=0.0, le=1024.0)] = 4.0
    mlp_linears: Annotated[int, Meta(ge=1, le=8)] = 2
    kv_size_ratio: Annotated[float, Meta(gt=0.0, le=1.0)] = 1.0
    phase: Literal["train", "infer"] = "train"
    output_tokens: Tokens = 1
    checkpointing: bool = False
    partition_activations: bool = False
    zero_stage: Annotated[int, Meta(ge=0, le=3)] = 1
    gpus: Ranks = 1
    tensor_parallel: Ranks = 1
    pipeline_parallel: Ranks = 1
    mixed_precision: bool = True


class ActivationsRule(RuleTable, frozen=True, kw_only=True, tag="activation-recomputation"):
    """Korthikanti et al. 2022, Table 2.

    Attributes:
        hidden_size: width of the residual stream.
        num_hidden_layers: number of blocks.
        num_attention_heads: query heads.
        sequence_length: tokens in each sequence.
        batch_size: the micro-batch.
        tensor_parallel: ranks that each hold a part of every matrix.
        sequence_parallel: norms and dropouts are split along the sequence.
        recompute: which activations are made again in the backward pass.
    """

    hidden_size: Size
    num_hidden_layers: Size
    num_attention_heads: Size
    sequence_length: Tokens
    batch_size: Size
    tensor_parallel: Ranks = 1
    sequence_parallel: bool = False
    recompute: Literal["none", "selective", "full"] = "selective"


class MegatronRule(RuleTable, frozen=True, kw_only=True, tag="megatron"):
    """Arguments of Megatron-LM's theoretical memory report (dense models, one pipeline stage's worst shard).

    Attributes:
        hidden_size: width of the residual stream.
        num_hidden_layers: number of blocks.
        num_attention_heads: query heads.
        ffn_hidden_size: width of the MLP.
        padded_vocab_size: rows of the embedding, padding included.
        sequence_length: tokens in each sequence.
        batch_size: the micro-batch.
        num_query_groups: key/value heads; as many as query heads when absent.
        kv_channels: width of one head; hidden_size / heads when absent.
        swiglu: gate and up projections beside the down projection.
        rmsnorm: RMS norms, which have no bias.
        tie_word_embeddings: the output layer is the embedding.
        tensor_parallel: ranks that each hold a part of every matrix.
        pipeline_parallel: ranks that each hold some layers.
        data_parallel: replicas that see different batches.
        distributed_optimizer: optimizer states are shared by the replicas.
        sequence_parallel: norms and dropouts are split along the sequence.
        recompute: which activations are made again in the backward pass.
    """

    hidden_size: Size
    num_hidden_layers: Size
    num_attention_heads: Size
    ffn_hidden_size: Size
    padded_vocab_size: Size
    sequence_length: Tokens
    batch_size: Size
    num_query_groups: Size | None = None
    kv_channels: Size | None = None
    swiglu: bool = False
    rmsnorm: bool = False
    tie_word_embeddings: bool = True
    tensor_parallel: Ranks = 1
    pipeline_parallel: Ranks = 1
    data_parallel: Ranks = 1
    distributed_optimizer: bool = False
    sequence_parallel: bool = True
    recompute: Literal["none", "selective"] = "selective"
