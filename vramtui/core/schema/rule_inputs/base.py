"""Types that the rules' inputs share."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

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
