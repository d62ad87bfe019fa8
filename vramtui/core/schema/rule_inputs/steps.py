"""Rules that follow PyTorch's allocator block by block."""

from typing import Annotated, Literal

from msgspec import Meta

from vramtui.core.schema.rule_inputs.base import CUBLAS_WORKSPACE, Bytes, Dtype, RuleTable, Shape, Size


class BlocksRule(RuleTable, frozen=True, kw_only=True, tag="blocks"):
    """Tensors by shape, each rounded up to whole 512-byte blocks.

    Attributes:
        shapes: the tensors' shapes, each a list.
        dtype: what every tensor is kept in.
    """

    shapes: Annotated[tuple[Shape, ...], Meta(min_length=1, max_length=64)]
    dtype: Dtype = "fp32"


class LinearRule(RuleTable, frozen=True, kw_only=True, tag="linear"):
    """One `nn.Linear` on an input of (batch_size, in_features); `workspace` is cuBLAS's per thread, in bytes.

    Attributes:
        in_features: width of the input.
        out_features: width of the output.
        batch_size: rows of the input.
        bias: whether there is a bias.
        dtype: what every tensor is kept in.
        workspace: what cuBLAS takes for each thread.
    """

    in_features: Size
    out_features: Size
    batch_size: Size = 1
    bias: bool = True
    dtype: Dtype = "fp32"
    workspace: Bytes = CUBLAS_WORKSPACE


class MlpRule(RuleTable, frozen=True, kw_only=True, tag="mlp"):
    """Linear, ReLU, Linear, Sigmoid; `inference` is `torch.inference_mode()`.

    Attributes:
        in_features: width of the input.
        hidden_features: width between the two linear layers.
        out_features: width of the output.
        batch_size: rows of the input.
        mode: a training step, or `torch.inference_mode()`.
        dtype: what every tensor is kept in.
        workspace: what cuBLAS takes for each thread.
    """

    in_features: Size
    hidden_features: Size
    out_features: Size
    batch_size: Size = 1
    mode: Literal["train", "inference"] = "train"
    dtype: Dtype = "fp32"
    workspace: Bytes = CUBLAS_WORKSPACE


class LayerNormRule(RuleTable, frozen=True, kw_only=True, tag="layernorm"):
    """A layer norm written out by hand over the last of `shape`'s dimensions, with a trained factor and no bias.

    Attributes:
        shape: the input's shape, normed over its last dimension.
        mode: a training step, or `torch.inference_mode()`.
        dtype: what every tensor is kept in.
    """

    shape: Annotated[Shape, Meta(min_length=1)]
    mode: Literal["train", "inference"] = "train"
    dtype: Dtype = "fp32"


class OptimizerTimelineRule(RuleTable, frozen=True, kw_only=True, tag="optimizer-timeline"):
    """Some training steps of one `nn.Linear`, without a cuBLAS workspace.

    Attributes:
        in_features: width of the input.
        out_features: width of the output.
        batch_size: rows of the input.
        optimizer: which optimizer.
        steps: training steps that are drawn.
        bias: whether there is a bias.
        dtype: what every tensor is kept in.
    """

    in_features: Size
    out_features: Size
    batch_size: Size
    optimizer: Literal["sgd", "momentum", "adam", "adamw"]
    steps: Annotated[int, Meta(ge=1, le=64)] = 4
    bias: bool = True
    dtype: Dtype = "fp32"
