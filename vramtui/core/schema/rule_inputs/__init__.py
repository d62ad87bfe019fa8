"""What each published rule takes: the `[rule]` table of a preset, told apart by its `id`.

A rule either reads an ordinary model and run, or its own published inputs, which stand here. A preset that has only
the latter says `[model] kind = "rule"` (see `RuleModel`), so that every other estimator meets a kind of model it does
not know rather than a missing one.
"""

from vramtui.core.schema.rule_inputs.formulas import (
    ActivationsRule,
    BytesPerParameterRule,
    EleutherRule,
    EncoderDecoderPublishedRule,
    EncoderDecoderRule,
    Gpt2ResidualRule,
    KvCacheRule,
    LinearInBatchRule,
    LoraCalculatorRule,
    MegatronRule,
    Resnet50Rule,
)
from vramtui.core.schema.rule_inputs.steps import (
    AccelerateRule,
    BlocksRule,
    DeepspeedRule,
    LayerNormRule,
    LinearRule,
    MlpRule,
    OptimizerTimelineRule,
    ZeroRule,
)

RuleInputs = (
    BlocksRule
    | LinearRule
    | MlpRule
    | LayerNormRule
    | OptimizerTimelineRule
    | BytesPerParameterRule
    | Gpt2ResidualRule
    | Resnet50Rule
    | EncoderDecoderRule
    | EncoderDecoderPublishedRule
    | LoraCalculatorRule
    | KvCacheRule
    | LinearInBatchRule
    | AccelerateRule
    | EleutherRule
    | ActivationsRule
    | MegatronRule
    | ZeroRule
    | DeepspeedRule
)
