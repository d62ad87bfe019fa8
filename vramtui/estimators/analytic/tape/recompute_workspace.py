"""A tape within an operator: what a stretch that is made again for its backward pass needs meanwhile."""

from vramtui.estimators.analytic.tape.meter import Meter
from vramtui.estimators.analytic.tape.replay import BACKWARD, GRADIENTS, TapeStage, backward, forward
from vramtui.estimators.analytic.tape.tape import Tape


def recompute_workspace(tape: Tape, *, input_grad_bytes: int) -> tuple[int, int]:
    """The most bytes alive in its forward pass when nothing is kept, and in forward and backward one after the other.

    The second leaves out the gradient that comes in, the `input_grad_bytes` of what came in from outside, and the
    parameters' gradients, all of which the operator around it counts.
    """
    meter = Meter()
    stages = [TapeStage(tape)]
    forward(stages, meter, training=False)
    alone = max(meter.early[0], meter.late[0])
    for node in tape.nodes:
        for storage in node.uses:
            storage.refs = 0
    meter = Meter()
    incoming = tape.output.storage.size if tape.output is not None else 0
    forward(stages, meter, training=True)
    meter.take(BACKWARD, incoming)
    backward(stages, meter, incoming=incoming)
    outside = incoming + input_grad_bytes + meter.held.get(GRADIENTS, 0)
    return alone, max(meter.early[0], meter.late[0]) - outside
