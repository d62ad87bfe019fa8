"""Rules that follow PyTorch's allocator block by block, and rules of weights, gradients and optimizer states, whole or
sharded.
"""

from typing import Annotated, Literal

from msgspec import Meta

from vramtui.core.base.errors import UserError
from vramtui.core.schema.rule_inputs.formulas import (
    CUBLAS_WORKSPACE,
    Bytes,
    Count,
    Dtype,
    Ranks,
    RuleTable,
    Shape,
    Size,
)


class AccelerateRule(RuleTable, frozen=True, kw_only=True, tag="accelerate"):
    """`buffer_bytes` are non-trained tensors that the table counts with the weights (position ids and the like).

    Attributes:
        parameters: number of weights.
        largest_layer_parameters: weights of the largest layer, which is loaded in addition.
        buffer_bytes: tensors that are not trained and are counted with the weights.
        dtype: what the weights are loaded in.
        phase: training with Adam, or inference.
    """

    parameters: Count
    largest_layer_parameters: Count | None = None
    buffer_bytes: Bytes = 0
    dtype: Literal["fp32", "bf16", "fp16", "int8", "int4"] = "fp32"
    phase: Literal["train", "infer"] = "infer"


class ZeroRule(RuleTable, frozen=True, kw_only=True, tag="zero"):
    """Model states per rank in the ZeRO paper: 2 + 2 + 12 bytes per parameter, sharded by stage over `ranks`.

    Attributes:
        parameters: number of weights.
        ranks: GPUs that share the states.
        stage: 0 shares nothing, 1 optimizer states, 2 gradients as well, 3 weights as well.
    """

    parameters: Count
    ranks: Ranks
    stage: Annotated[int, Meta(ge=0, le=3)] = 0


class DeepspeedRule(RuleTable, frozen=True, kw_only=True, tag="deepspeed"):
    """`formula` is what DeepSpeed's pages print (`documented`) or what its code says since (`current`).

    Attributes:
        parameters: number of weights.
        ranks: GPUs that share the states.
        stage: 2 shares optimizer states and gradients, 3 weights as well.
        largest_layer_parameters: weights of the largest layer, which stage 3 gathers.
        offload_optimizer: optimizer states stay in host memory.
        offload_parameters: weights stay in host memory too, in stage 3.
        formula: what DeepSpeed's pages print (`documented`), or what its code says since (`current`).
    """

    parameters: Count
    ranks: Ranks
    stage: Annotated[int, Meta(ge=2, le=3)]
    largest_layer_parameters: Count | None = None
    offload_optimizer: bool = False
    offload_parameters: bool = False
    formula: Literal["documented", "current"] = "documented"

    def __post_init__(self) -> None:
        """Raises UserError for what the estimator asks for or does not know."""
        if self.stage == 3 and self.largest_layer_parameters is None:
            raise UserError("rule.largest_layer_parameters is needed for rule.stage = 3")
        if self.offload_parameters and not (self.stage == 3 and self.offload_optimizer):
            raise UserError("rule.offload_parameters goes with rule.stage = 3 and rule.offload_optimizer = true")


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
