"""A dense MLP on a tape.

Shapes: x (b·s, h), between its layers (b·s, f); b batch, s tokens, h hidden, f width.
"""

from vramtui.estimators.analytic.ops.decoder_builder import Writer
from vramtui.estimators.analytic.tape.replay import MLP
from vramtui.estimators.analytic.tape.tape import Tensor
from vramtui.models.kinds import MlpModule, linear_parts


def record_mlp(writer: Writer, module: MlpModule, x: Tensor) -> Tensor:
    """Up and down with an activation between, or gated (SwiGLU, GeGLU)."""
    writer.tape.group = MLP
    layers = linear_parts(module)
    if not module.gated:
        y = writer.activation(writer.linear(x, layers["up_proj"]))
    elif writer.setting.liger:
        gate = writer.linear(x, layers["gate_proj"])
        y = writer.ops.liger_gated(gate, writer.linear(x, layers["up_proj"]), "gate x up")
    else:
        gate = writer.activation(writer.linear(x, layers["gate_proj"]))
        y = writer.ops.multiply(gate, writer.linear(x, layers["up_proj"]), "gate x up")
    return writer.linear(y, layers["down_proj"])
