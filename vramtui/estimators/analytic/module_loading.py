"""An estimate with the CUDA context of a job that loads every kernel at its start."""

import msgspec

from vramtui.core.base.units import format_bytes
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.schema.bounds import ModuleLoading
from vramtui.core.schema.workload import InferRun, Run, TrainRun
from vramtui.estimators.torch_facts.context import cuda_context


def loading_of(run: Run) -> ModuleLoading:
    """How the job loads kernels; servers load them when first used, as their images set it."""
    return run.module_loading if isinstance(run, (TrainRun, InferRun)) else "lazy"


def with_module_loading(found: Estimate, run: Run, device: Device) -> Estimate:
    """`found`, which counts the context of lazy loading, with the one that the job has."""
    if loading_of(run) == "lazy":
        return found
    context, lazy = cuda_context(device.capability, "eager"), found.ledger.context or 0
    major, minor = device.capability
    formula = (
        f"{format_bytes(context.bytes, 0)} with every kernel loaded at the start (run.module_loading = eager) on "
        f"capability {major}.{minor}, give or take {format_bytes(context.spread, 0)}; {format_bytes(lazy, 0)} with "
        "kernels loaded when first used"
    )
    parts = tuple(
        msgspec.structs.replace(
            part, bytes=context.bytes, at_peak=context.bytes, formula=formula, source=context.source
        )
        if part.line == "context"
        else part
        for part in found.parts
    )
    ledger = msgspec.structs.replace(found.ledger, context=context.bytes, process=found.process + context.bytes - lazy)
    return msgspec.structs.replace(found, parts=parts, ledger=ledger)
