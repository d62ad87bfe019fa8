"""Rules of thumb: a few numbers in, a few lines out."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from vramtui.core.base.errors import UserError
from vramtui.core.schema.rule_inputs.base import GIB, Bytes, Bytes1, Count, Ratio, RuleTable, Size, Tokens, WeightType


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
