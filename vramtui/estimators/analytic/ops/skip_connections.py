"""Tensors that one stage makes and a much later one takes up: a UNet's skips, a transformer's residual.

Shapes: whatever the stage hands on, in a UNet (b, c, y, x), in a transformer (b, s, h); only its count is used.
"""

from vramtui.estimators.analytic.ops.module_builder import ModuleBuilder
from vramtui.estimators.analytic.tape.tape import Node, Tensor, storage_of


class Skip:
    """A tensor on its way past the stages between.

    Where autograd keeps it for its next operator anyway, only its gradient is followed; else it stands by itself from
    the end of the stage that reads it first.

    Args:
        x: the tensor; `group` where it is shown while it waits.
        saved: whether the stage that reads it first saves it for its backward.
    """

    def __init__(self, x: Tensor, group: str, *, saved: bool) -> None:
        self.storage = storage_of(x.numel, x.itemsize, group, "waits for the way up")
        self.storage.borrowed = saved
        self.tensor = Tensor(self.storage, x.numel, x.itemsize, tracked=x.tracked)
        self.saved = saved

    def read(self, part: ModuleBuilder) -> None:
        """Read the connection at the start of the stage that reads it first, where its gradient is used up."""
        part.ops.tape.nodes.append(Node(outs=[self.tensor]))

    def keep_until_end(self, part: ModuleBuilder) -> None:
        """Note at the end of that stage that its storage stays, unless the tape saved it."""
        if not self.saved:
            part.ops.tape.nodes.append(Node(makes=[self.storage]))
