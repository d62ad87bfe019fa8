"""A Workload: everything an estimator may look at. These Structs are also the schema of a preset's tables."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from vramtui.core.models import Model
from vramtui.core.rule_inputs import RuleInputs

Positive = Annotated[int, Meta(ge=1, le=2**40)]
NotNegative = Annotated[int, Meta(ge=0, le=2**40)]
Fraction = Annotated[float, Meta(ge=0.0, le=1.0)]

Precision = Literal["fp32", "tf32", "bf16-mixed", "fp16-mixed", "bf16", "fp16"]
Optimizer = Literal["sgd", "momentum", "adam", "adamw"]
OptimizerImplementation = Literal["foreach", "fused", "loop"]
Attention = Literal["eager", "flash"]
Checkpointing = Literal["none", "full"]
CacheType = Literal["fp32", "bf16", "fp16"]


class Lora(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Low-rank adapters beside frozen weights (Hu et al. 2021; names as in peft's LoraConfig)."""

    rank: Positive
    target_modules: tuple[str, ...]
    dropout: Fraction = 0.0


class TrainRun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="train"):
    """One training job. `batch_size` is the micro-batch one GPU sees; `sequence_length` is in tokens."""

    batch_size: Positive = 1
    sequence_length: Positive | None = None
    precision: Precision = "bf16-mixed"
    optimizer: Optimizer = "adamw"
    optimizer_implementation: OptimizerImplementation = "foreach"
    attention: Attention = "flash"
    checkpointing: Checkpointing = "none"
    gradient_accumulation_steps: Positive = 1
    lora: Lora | None = None


class InferRun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="infer"):
    """Generation: a prompt of `sequence_length` tokens and `new_tokens` after it, per sequence of the batch."""

    batch_size: Positive = 1
    sequence_length: Positive | None = None
    new_tokens: NotNegative = 0
    precision: Precision = "bf16"
    kv_cache: CacheType | None = None
    attention: Attention = "flash"


Run = TrainRun | InferRun


class Workload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model and what is done with it; `rule` holds a published rule's own inputs, where a preset gives them."""

    model: Model
    run: Run
    rule: RuleInputs | None = None
