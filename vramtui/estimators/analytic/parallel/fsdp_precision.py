"""Mixed precision under FSDP2: weights stay fp32 in their shards, and are gathered in half precision."""

import msgspec

from vramtui.core.schema.workload import TrainRun
from vramtui.estimators.analytic.parallel.zero_fsdp import Sharing
from vramtui.estimators.analytic.tape.program import Program

HALVES = {"bf16-mixed": "bf16", "fp16-mixed": "fp16"}
POLICY_NOTE = (
    "mixed precision is FSDP2's own (MixedPrecisionPolicy): fp32 weights and gradients in shards, weights gathered in "
    "half precision, gradients reduced in fp32"
)


def has_policy(run: TrainRun, sharing: Sharing) -> bool:
    """Whether FSDP2 casts instead of autocast; beside frozen weights autocast is taken as it is."""
    return sharing.kind == "fsdp" and run.lora is None and run.precision in HALVES


def written_run(run: TrainRun, sharing: Sharing) -> TrainRun:
    """The run as the gathered weights see it."""
    return msgspec.structs.replace(run, precision=HALVES[run.precision]) if has_policy(run, sharing) else run


def with_policy(program: Program, run: TrainRun, sharing: Sharing) -> Program:
    """The program with fp32 shards of weights, gradients and states, where FSDP2 casts."""
    if not has_policy(run, sharing):
        return program
    tapes = {id(stage.tape): stage.tape for stage in program.stages}
    for node in (node for tape in tapes.values() for node in tape.nodes):
        node.grad_bytes *= 4 // program.recipe.weights
    recipe = msgspec.structs.replace(program.recipe, weights=4, frozen=4, states=4)
    return msgspec.structs.replace(program, recipe=recipe, notes=(*program.notes, POLICY_NOTE))
