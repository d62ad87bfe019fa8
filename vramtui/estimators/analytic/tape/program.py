"""What a family of models hands to the phases of a job: its tensors, and its passes as tapes."""

from collections.abc import Sequence
from functools import cached_property

import msgspec

from vramtui.core.schema.workload import Quantization
from vramtui.estimators.analytic.sizes.precision import Recipe
from vramtui.estimators.analytic.sizes.quantization import EVERYTHING, blocks_of, quantized
from vramtui.estimators.analytic.sizes.tensor_bytes import BlockBytes, block_bytes, numel_of
from vramtui.estimators.analytic.tape.replay import TapeStage
from vramtui.models.spec import Parameter

# Names of what towers for images and sound hold while they run, and where that is from.
TOWER, PIXELS, FEATURES = "tower activations", "tower inputs", "tower outputs"
TOWER_SOURCE = "transformers: the tower's forward(), as a decoder's blocks of the same sizes hold it"


class TowerPass(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of one pass of a tower, or of one after the other.

    Attributes:
        pixels: the images or spectrograms, held as the model's input.
        fullest: the most beside them while it runs forward, and `saved` what stays of it for the backward pass.
        features: what it gives to the words, held while these are read.
        backward: the most beside gradients while it runs backward.
        gradients: of all its trained tensors; 0 of a frozen one.
        formula: the arithmetic.
    """

    pixels: int
    fullest: int
    saved: int = 0
    features: int
    backward: int = 0
    gradients: int = 0
    formula: str


class Program(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One model for one batch.

    Attributes:
        frozen: parameter tensors without gradients; `trained` those with.
        quantization: how the frozen ones are kept, where that is not the recipe's type; `layers` of the model.
        stages: the forward pass in order.
        buffers: bytes of what belongs to the model and is no parameter; `buffers_formula` in words.
        inputs: bytes of one batch with its targets; `inputs_formula` in words. Of these `targets`, where they are not
            as many as the rest.
        loss: bytes that one step's loss holds until the next step's takes its place.
        tower: the pass over a batch's images and sound before the first stage, where there are any.
        notes: what was taken for granted, a sentence each.
        measured: False where a part follows sizes that nobody measured on today's libraries.
    """

    frozen: tuple[Parameter, ...]
    trained: tuple[Parameter, ...]
    recipe: Recipe
    quantization: Quantization | None = None
    layers: int = 1
    stages: Sequence[TapeStage]
    inputs: int
    inputs_formula: str
    targets: int | None = None
    loss: int = 0
    buffers: int = 0
    buffers_formula: str = ""
    tower: TowerPass | None = None
    notes: tuple[str, ...] = ()
    measured: bool = True

    @cached_property
    def gradients(self) -> BlockBytes:
        """Of all trained parameters, in the type of each."""
        return block_bytes(self.trained, self.recipe.weights)

    @property
    def weights(self) -> BlockBytes:
        """All parameters as they are kept."""
        return self.gradients + self._stored(self.frozen)

    @cached_property
    def trained_numel(self) -> int:
        """Numbers in all trained parameters."""
        return numel_of(self.trained)

    def towers(self) -> dict[str, tuple[int, BlockBytes]]:
        """Numbers in the frozen tensors of each tower, by its name, and what they take; none of a model without."""
        parts: dict[str, list[Parameter]] = {}
        for tensor in self.frozen:
            name, dot, _ = tensor.module.partition(".")
            if dot:
                parts.setdefault(name, []).append(tensor)
        return {
            name: (sum(tensor.numel * tensor.count for tensor in tensors), self._stored(tensors))
            for name, tensors in parts.items()
        }

    def frozen_sizes(self) -> dict[Parameter, list[int]]:
        """Bytes of the blocks that one frozen tensor becomes, of each; of files' mixed types the first.

        Of several equal tensors it is said once.
        """
        itemsize, packed = self.recipe.frozen, self.quantization
        if packed is None:
            bits = 8 * itemsize
            return {tensor: [-(-tensor.numel * (tensor.bits or bits) // 8)] for tensor in self.frozen}
        shown = 1 if packed in EVERYTHING else None
        return {
            tensor: [size for size, _ in pieces[:shown]]
            for tensor, pieces in blocks_of(self.frozen, itemsize, packed, self.layers)
        }

    def _stored(self, tensors: Sequence[Parameter]) -> BlockBytes:
        if self.quantization is None:
            return block_bytes(tensors, self.recipe.frozen)
        return quantized(tensors, self.recipe.frozen, self.quantization, self.layers)
