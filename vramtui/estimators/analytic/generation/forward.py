"""One forward pass of a model that generates nothing."""

from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.schema.workload import InferRun
from vramtui.estimators.analytic.assemble import MomentLog, assemble
from vramtui.estimators.analytic.sizes.runtime import workspace_for
from vramtui.estimators.analytic.tape.program import Program, prefilled
from vramtui.estimators.analytic.tape.replay import WORKSPACES, summed
from vramtui.estimators.analytic.training.parts import model_facts, passing_facts


def estimate_forward(program: Program, run: InferRun, device: Device) -> Estimate:
    """The estimate of a batch, in evaluation."""
    weights = program.weights
    workspace = workspace_for(run, device)
    built = {"weights": weights.bytes, "weight tails": weights.tails, "buffers": program.buffers}
    fed = built | {"inputs": program.inputs}
    working = fed | {WORKSPACES: workspace.persistent}
    done = prefilled(program.stages, workspace)
    moments = MomentLog()
    moments.note("build", 0, built)
    moments.note("input", 0, fed)
    moments.note("forward", 0, summed(fed, done.early), end=False)
    moments.note("forward", 0, summed(working, done.late), end=False)
    moments.note("forward", 0, summed(working, done.end))
    facts = model_facts(program, weights) | passing_facts(
        program, program.stages, workspace, f"a batch of {run.batch_size}"
    )
    return assemble(moments, facts, device, program.notes)
