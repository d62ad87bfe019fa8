"""What comes and goes when a model only answers, in words; and one forward pass of a model that generates nothing."""

from collections.abc import Sequence

from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.schema.workload import InferRun
from vramtui.estimators.analytic.assemble import Fact, MomentLog, assemble
from vramtui.estimators.analytic.ops.operators import CASTS
from vramtui.estimators.analytic.sizes.runtime import workspace_for
from vramtui.estimators.analytic.tape.meter import SCRATCH, WORKSPACES, BytesByGroup
from vramtui.estimators.analytic.tape.passes import prefilled
from vramtui.estimators.analytic.tape.program import Program
from vramtui.estimators.analytic.tape.replay import TapeStage
from vramtui.estimators.analytic.training.parts import model_facts, workspace_fact
from vramtui.estimators.torch_facts.cublas import Workspace

CODE, PASSING = "the model's code", "within one pass"


def estimate_forward(program: Program, run: InferRun, device: Device) -> Estimate:
    """The estimate for one forward pass of a model that generates nothing."""
    weights = program.weights
    workspace = workspace_for(run, device)
    built = {"weights": weights.bytes, "weight tails": weights.tails, "buffers": program.buffers}
    fed = built | {"inputs": program.inputs}
    working = fed | {WORKSPACES: workspace.kept}
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


def passing_facts(program: Program, stages: Sequence[TapeStage], workspace: Workspace, what: str) -> dict[str, Fact]:
    """What comes and goes in forward passes of which nothing is kept."""
    groups = dict.fromkeys(s.group for stage in stages for node in stage.tape.nodes for s in node.makes)
    return {
        **{
            group: Fact(
                line="activations",
                bytes=0,
                formula=f"tensors on their way over {what}, at their fullest; none is kept",
                source=CODE,
                lifetime=PASSING,
            )
            for group in groups
        },
        SCRATCH: Fact(line="temporaries", bytes=0, formula="operators' own", source=CODE, lifetime=PASSING),
        CASTS: Fact(line="temporaries", bytes=0, formula="autocast's copies", source=CODE, lifetime=PASSING),
        "inputs": Fact(
            line="inputs", bytes=program.inputs, formula=program.inputs_formula, source="the batch", lifetime=PASSING
        ),
        WORKSPACES: workspace_fact(workspace, "one thread multiplies matrices"),
    }


def summed(*parts: BytesByGroup) -> BytesByGroup:
    """All parts together, name by name."""
    total: BytesByGroup = {}
    for part in parts:
        for name, size in part.items():
            total[name] = total.get(name, 0) + size
    return total
