"""Types that the shapes of all models share."""

from typing import Annotated, Literal

from msgspec import Meta

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
