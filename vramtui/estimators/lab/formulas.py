"""What arithmetic says of an experiment, without PyTorch: whole blocks, and the rules on the articles' own nets."""

from collections.abc import Iterator

import msgspec

from vramtui.core.base.units import MIB, TORCH_ITEM_BYTES
from vramtui.core.estimate.devices import Device
from vramtui.core.schema.rule_inputs import RuleInputs
from vramtui.estimators.lab.catalogue import Experiment, ExperimentRun
from vramtui.estimators.rules import RULES
from vramtui.estimators.torch_facts.allocator_sizes import rounded
from vramtui.estimators.torch_facts.cublas import workspace_bytes

ELEMENTS = 1 << 20
SQUARE = 64 * 64 * 4
# How many tensors stand beside the leaves after each expression: its result, and each factor that was computed.
GRAPHS = {"leaves and workspace": 0, "x @ w": 1, "x + w": 1, "(x * 2) @ w": 2, "(((x + 2) @ w1) + 3) * w2": 3}


class FormulaRow(msgspec.Struct, frozen=True, kw_only=True):
    """One moment by arithmetic alone.

    Attributes:
        run: the title of its run.
        label: what has just happened.
        allocated: bytes.
        printed: bytes as an article prints them; None where none does.
    """

    run: str
    label: str
    allocated: int
    printed: int | None


def formula_rows(experiment: Experiment, device: Device) -> tuple[FormulaRow, ...]:
    """Every moment of `experiment` for which there is a formula; none where there is none."""
    return tuple(
        FormulaRow(run=run.title, label=label, allocated=allocated, printed=run.printed.get(label))
        for run in experiment.runs
        for label, allocated in predicted(experiment, run, device).items()
    )


def predicted(experiment: Experiment, run: ExperimentRun, device: Device) -> dict[str, int]:
    """Bytes allocated at each moment for which there is a formula, by the moment's label."""
    if experiment.key == "dtypes":
        return {name: rounded(ELEMENTS * each) for name, each in TORCH_ITEM_BYTES.items()}
    if experiment.key == "blocks":
        return {label: rounded(int(label)) for label in run.labels}
    if experiment.key == "small-cache":
        return dict.fromkeys(run.printed, 0) | {"1024 numbers": rounded(1024 * 4)}
    if experiment.key == "cache":
        return dict(_cache())
    if experiment.key == "autograd":
        leaves = 3 * rounded(SQUARE) + workspace_bytes(device.capability)
        return {label: leaves + count * rounded(SQUARE) for label, count in GRAPHS.items()}
    return {} if run.rule is None else _by_rule(run, run.rule, device)


def _by_rule(run: ExperimentRun, rule: RuleInputs, device: Device) -> dict[str, int]:
    inputs = on_card(rule, device)
    moments = RULES[str(rule.__struct_config__.tag)].estimate(inputs).timeline
    return {label: moment.allocated for label, moment in zip(run.labels, moments, strict=True)}


def _cache() -> Iterator[tuple[str, int]]:
    small, middle = rounded(1024), rounded(4 * MIB)
    yield "nothing yet", 0
    yield "1 KiB", small
    yield "and 4 MiB", small + middle
    yield "and 50 MiB", small + middle + rounded(50 * MIB)
    yield "50 MiB freed", small + middle
    # A rest of 1 MiB or less is not split off (c10/cuda/CUDACachingAllocator.cpp, should_split).
    yield "49 MiB again", small + middle + rounded(50 * MIB)
    yield "all but 1 KiB freed", small
    yield "empty_cache", small
    yield "1 KiB freed, empty_cache", 0


def on_card(rule: RuleInputs, device: Device) -> RuleInputs:
    """The rule's inputs with the workspace that cuBLAS takes on `device`, where it counts one."""
    if not hasattr(rule, "workspace"):
        return rule
    changed: RuleInputs = msgspec.structs.replace(rule, workspace=workspace_bytes(device.capability))
    return changed
