"""Published rules of thumb, each reproduced as published: `RULES` by id, and `estimate_rules` for a workload."""

from vramtui.core.base.errors import UserError, nearest
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.schema.decoder_models import RuleModel
from vramtui.core.schema.workload import Workload
from vramtui.estimators.rules import (
    calculators,
    encoder_decoder,
    model_states,
    pytorch_steps,
    resnet50,
    sharded_states,
    transformers,
)
from vramtui.estimators.rules.base import Rule

_SUBJECTS = (pytorch_steps, model_states, resnet50, encoder_decoder, calculators, transformers, sharded_states)
RULES = {rule.id: rule for subject in _SUBJECTS for rule in subject.RULES}


def estimate_rules(workload: Workload, device: Device, rule_id: str | None = None) -> list[Estimate]:
    """What every rule that fits `workload` says, or the one called `rule_id`; `device` changes no published rule.

    Raises:
        UserError: no rule is called so, or none fits.
    """
    del device
    if rule_id is not None and rule_id not in RULES:
        raise UserError(f"no rule is called {rule_id!r}{nearest(rule_id, RULES)}; there are: {', '.join(RULES)}")
    fitting = {rule.id: inputs for rule in RULES.values() if (inputs := rule.inputs(workload)) is not None}
    if not fitting and isinstance(workload.model, RuleModel):
        raise UserError('model.kind = "rule" goes with a [rule] table, and there is none')
    if not fitting:
        raise UserError("no rule fits this workload: they know decoder-only transformers and their own [rule] tables")
    if rule_id is not None and rule_id not in fitting:
        raise UserError(f"the rule {rule_id!r} does not fit this workload; these do: {', '.join(fitting)}")
    return [RULES[name].estimate(inputs) for name, inputs in fitting.items() if rule_id in {None, name}]


__all__ = ["RULES", "Rule", "estimate_rules"]
