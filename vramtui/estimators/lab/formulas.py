"""What arithmetic says of an experiment, without PyTorch: whole blocks, and the rules on the articles' own nets."""

import msgspec

from vramtui.core.base.units import TORCH_ITEM_BYTES
from vramtui.core.estimate.devices import Device
from vramtui.core.schema.rule_inputs import RuleInputs
from vramtui.estimators.lab.catalogue import Experiment, ExperimentRun
from vramtui.estimators.rules import RULES
from vramtui.estimators.torch_facts.allocator_sizes import rounded
from vramtui.estimators.torch_facts.cublas import workspace_bytes

ELEMENTS = 1 << 20


def predicted(experiment: Experiment, run: ExperimentRun, device: Device) -> dict[str, int]:
    """Bytes allocated at each moment for which there is a formula, by the moment's label."""
    if experiment.key == "dtypes":
        return {name: rounded(ELEMENTS * each) for name, each in TORCH_ITEM_BYTES.items()}
    if experiment.key == "blocks":
        return {label: rounded(int(label)) for label in run.labels}
    if run.rule is None:
        return {}
    inputs = on_card(run.rule, device)
    moments = RULES[str(run.rule.__struct_config__.tag)].estimate(inputs).timeline
    return {label: moment.allocated for label, moment in zip(run.labels, moments, strict=True)}


def on_card(rule: RuleInputs, device: Device) -> RuleInputs:
    """The rule's inputs with the workspace that cuBLAS takes on `device`, where it counts one."""
    if not hasattr(rule, "workspace"):
        return rule
    changed: RuleInputs = msgspec.structs.replace(rule, workspace=workspace_bytes(device.capability))
    return changed


def apart(printed: int, here: int, device: Device) -> str:
    """Why a figure is not the printed one, in a sentence; empty where it is."""
    off = here - printed
    if not off:
        return ""
    figure = f"{off:+,} B against the article".replace("-", "−")
    printed_on, here_on = workspace_bytes((8, 0)), workspace_bytes(device.capability)
    each = here_on - printed_on
    if each and off % each == 0:
        major, minor = device.capability
        times = off // each
        return (
            f"{figure}: {times} cuBLAS workspace{'s' if times > 1 else ''} of {here_on:,} B on capability"
            f" {major}.{minor}, where the article's card has {printed_on:,} B"
        )
    return f"{figure}: not explained"
