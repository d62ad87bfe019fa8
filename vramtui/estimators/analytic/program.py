"""What a family of models hands to the phases of a job: its tensors, and its passes as tapes."""

from collections.abc import Sequence

import msgspec

from vramtui.estimators.analytic.precision import Recipe
from vramtui.estimators.analytic.replay import Stage
from vramtui.estimators.analytic.tensors import Tensor


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """One model for one batch.

    Attributes:
        frozen: parameter tensors without gradients; `trained` those with.
        stages: the forward pass in order.
        buffers: bytes of what belongs to the model and is no parameter; `buffers_formula` in words.
        inputs: bytes of one batch with its targets; `inputs_formula` in words.
        notes: what was taken for granted, a sentence each.
    """

    frozen: tuple[Tensor, ...]
    trained: tuple[Tensor, ...]
    recipe: Recipe
    stages: Sequence[Stage]
    inputs: int
    inputs_formula: str
    buffers: int = 0
    buffers_formula: str = ""
    notes: tuple[str, ...] = ()
