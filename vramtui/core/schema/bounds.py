"""Bounds by meaning of a model's sizes, each by itself and what they make together.

A model is made in one place, where its Struct is: by a preset, `--set`, or a reader of somebody's file.
"""

from collections.abc import Mapping
from math import prod
from typing import Annotated, Literal, NamedTuple

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
# Five hundred times the largest that was published (2 trillion).
MOST_PARAMETERS = 2**50


def check_parameters(key: str, sizes: Mapping[str, int]) -> None:
    """Refuse sizes whose product is more than any model's parameters.

    Raises:
        UserError: they are more than 2^50 together.
    """
    product = prod(sizes.values())
    if product > MOST_PARAMETERS:
        names = " x ".join(f"{name} {size:,}" for name, size in sizes.items())
        raise UserError(f"{key}: {names} make {product:,} parameters; at most {MOST_PARAMETERS:,} are computed")


def check_layers(key: str, layers: int) -> None:
    """Refuse more layers than a model has, where several keys say how many there are.

    Raises:
        UserError: there are more than 4,096.
    """
    if layers > MOST_LAYERS:
        raise UserError(f"{key} come to {layers:,} layers; at most {MOST_LAYERS:,} are computed")


Count = Annotated[int, Meta(ge=1, le=2**24)]
# Of a whole model: some have more than a trillion.
ParameterCount = Annotated[int, Meta(ge=1, le=2**50)]
Tokens = Annotated[int, Meta(ge=1, le=2**32, extra={"unit": "tokens"})]
Pixels = Annotated[int, Meta(ge=1, le=2**20, extra={"unit": "pixels"})]
Probability = Annotated[float, Meta(ge=0.0, lt=1.0)]

Activation = Literal["gelu", "gelu_new", "gelu_pytorch_tanh", "quick_gelu", "relu", "silu"]
Norm = Literal["layernorm", "rmsnorm", "gemma_rmsnorm"]
Position = Literal["learned", "rope", "none"]
Implementation = Literal["huggingface", "plain"]
ModuleLoading = Literal["lazy", "eager"]
# As torch.__version__ begins: 2.13, 2.13.0+cu130.
TorchRelease = Annotated[str, Meta(max_length=64)]
TensorSplit = Annotated[str, Meta(max_length=256, pattern=r"^\d+(\.\d+)?([,/]\d+(\.\d+)?)*$")]
AllocConf = Annotated[str, Meta(max_length=1024)]


class Runtime(NamedTuple):
    """Settings of a process's runtime, as a run's keys of these names; None if unknown."""

    module_loading: ModuleLoading | None = None
    torch: str | None = None
    alloc_conf: str | None = None
    ranks: tuple[int, str] | None = None  # of its job, and the launcher
