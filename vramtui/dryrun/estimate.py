"""A finished trace in the form that all estimators have."""

from pathlib import Path
from typing import Literal

import msgspec

from vramtui.core.base.errors import UserError, nearest
from vramtui.core.base.units import format_bytes
from vramtui.core.estimate import estimate as estimates
from vramtui.core.estimate.devices import Device
from vramtui.core.schema.models import TorchModel
from vramtui.core.schema.workload import InferRun, Workload
from vramtui.dryrun.job_command import job_interpreter
from vramtui.dryrun.result import DryRun, TraceRequest, TraceRow

STEPS = 2
NO_LIMIT = 1 << 50
SOURCE = "the model's own operators, run on fake tensors through a simulated caching allocator"
LIFETIMES: dict[estimates.Category, str] = {
    "weights": "from the model's making to the end",
    "gradients": "from backward to zero_grad",
    "optimizer": "from the first step to the end",
    "activations": "from forward to backward",
    "inputs": "while a batch is worked on",
    "workspaces": "from the first product of each thread to the end",
    "temporaries": "within single operators",
    "kv_cache": "while a sequence is generated",
}


def request_of(workload: Workload, device: Device) -> TraceRequest:
    """The request that runs the code a preset names.

    Raises:
        UserError: the preset names no code, or no Python with torch is within reach.
    """
    model = workload.model
    if not isinstance(model, TorchModel):
        raise UserError("this preset describes a model; a dry run is for your own code: kind = 'torch'")
    path = Path(model.file)
    if not path.is_file():
        scripts = [str(script) for script in path.parent.glob("*.py")]
        raise UserError(f"{path} does not exist{nearest(str(path), scripts)}, or is a folder")
    job_interpreter(str(path.resolve()), engine="fake")
    return TraceRequest(path=str(path.resolve()), function=model.function, arguments=model.arguments, device=device)


def ledger_of(result: DryRun) -> estimates.Ledger:
    ledger = estimates.ledger_from_parts(
        {category: result.peak_categories.get(category, 0) for category in estimates.CATEGORIES},
        reserved=result.peak_reserved,
        context=result.context,
    )
    return msgspec.structs.replace(ledger, other=result.other or ledger.other, process=result.process)


def estimate_of(result: DryRun, workload: Workload) -> estimates.Estimate:
    parts = [_part(category, result) for category in estimates.CATEGORIES if result.peak_categories.get(category)]
    cached = result.peak_reserved - result.peak_allocated
    peak = next((row for row in result.timeline if row.peak_allocated == result.peak_allocated), None)
    moments: list[estimates.Moment] = []
    for row in result.timeline:
        placed = {"phase": _phase(row, workload), "step": max(row.step, 0)}
        moment = estimates.Moment(**msgspec.structs.asdict(row) | placed)
        # The model's and the optimizer's making are one, as are the batches drawn in between.
        if moments and moment.phase == "build" == moments[-1].phase:
            before = moments.pop()
            moment = msgspec.structs.replace(
                moment,
                peak_allocated=max(before.peak_allocated, moment.peak_allocated),
                peak_reserved=max(before.peak_reserved or 0, moment.peak_reserved or 0),
            )
        moments.append(moment)
    return estimates.Estimate(
        method="traced",
        parts=(*parts, _outside("cached", cached, result), _outside("context", result.context, result)),
        ledger=ledger_of(result),
        peak_phase="build" if peak is None else _phase(peak, workload),
        peak_step=None if result.peak_step < 0 else result.peak_step,
        timeline=tuple(moments),
        assumptions=(
            "The code is the person's own; a preset's [run] table only says what it is about.",
            f"{result.events:,} allocations and releases by torch {result.torch}, without a limit to memory",
            *result.warnings,
        ),
    )


def _part(category: estimates.Category, result: DryRun) -> estimates.Part:
    size = result.peak_categories[category]
    most = max((row.categories.get(category, 0) for row in result.timeline), default=size)
    largest = [allocation for allocation in result.largest if allocation.category == category]
    listed = ", ".join(
        f"{format_bytes(one.bytes, 2)} in {one.module or one.operator.removeprefix('aten.').removesuffix('.default')}"
        for one in largest[:3]
    )
    rest = size - sum(allocation.bytes for allocation in largest[:3])
    formula = f"{format_bytes(size, 2)} alive at the peak"
    if listed:
        formula += f": {listed}" + (f", {format_bytes(rest, 2)} in smaller ones" if rest else "")
    return estimates.Part(
        name=category.replace("_", " "),
        line=category,
        bytes=max(size, most) if category == "gradients" else size,
        at_peak=size,
        formula=formula,
        source=SOURCE,
        lifetime=LIFETIMES.get(category, "as the code has it"),
    )


def _outside(line: Literal["cached", "context"], size: int, result: DryRun) -> estimates.Part:
    formula = f"usual for compute capability {'.'.join(map(str, result.capability))}"
    source = "what processes of that kind were seen to hold outside PyTorch's allocator"
    lifetime = "from the first use of CUDA to the end"
    if line == "cached":
        formula = f"peak reserved {result.peak_reserved:,} - peak allocated {result.peak_allocated:,}"
        source, lifetime = "the simulated allocator's segments", "until torch.cuda.empty_cache"
    return estimates.Part(
        name=line, line=line, bytes=size, at_peak=size, formula=formula, source=source, lifetime=lifetime
    )


def _phase(row: TraceRow, workload: Workload) -> estimates.Phase:
    if row.phase in {"model", "optimizer"}:
        return "build"
    if row.phase == "forward" and isinstance(workload.run, InferRun) and workload.run.new_tokens:
        return "decode" if row.step > 0 else "prefill"
    phases: tuple[estimates.Phase, ...] = ("input", "forward", "backward", "step", "zero_grad")
    return next((phase for phase in phases if phase == row.phase), "build")
