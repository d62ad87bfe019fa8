"""The program of a model for the phases of a job: its tensors, and its passes as tapes."""

from collections import Counter
from collections.abc import Collection, Sequence
from functools import cached_property

import msgspec

from vramtui.core.schema.workload import Quantization
from vramtui.estimators.analytic.sizes.precision import BlockBytes, Recipe, block_bytes, numel_of
from vramtui.estimators.analytic.sizes.quantization import EVERYTHING, blocks_of, quantized
from vramtui.estimators.analytic.tape.replay import BytesByGroup, Meter, TapeStage, backward, forward
from vramtui.estimators.analytic.tape.tape import Storage
from vramtui.estimators.torch_facts.cublas import NO_WORKSPACE, Workspace
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
        buffers: bytes that belong to the model besides parameters; `buffers_formula` in words.
        inputs: bytes of one batch with its targets; `inputs_formula` in words. Of these `targets`, where they are not
            as many as the rest.
        loss: bytes that one step's loss holds until the next step's takes its place.
        tower: the pass over a batch's images and sound before the first stage, where there are any.
        notes: what was taken for granted, a sentence each.
        measured: False if a part follows sizes that were never measured on today's libraries.
        loss_apart: whether dynamo leaves the loss of a compiled model to a graph of its own.
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
    loss_apart: bool = False

    @cached_property
    def gradients(self) -> BlockBytes:
        """The gradients of all trained parameters, each in its own type."""
        return block_bytes(self.trained, self.recipe.weights)

    @property
    def weights(self) -> BlockBytes:
        return self.gradients + self._stored(self.frozen)

    @cached_property
    def trained_numel(self) -> int:
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
            tensor: [size for size, _ in blocks[:shown]]
            for tensor, blocks in blocks_of(self.frozen, itemsize, packed, self.layers)
        }

    def _stored(self, tensors: Sequence[Parameter]) -> BlockBytes:
        if self.quantization is None:
            return block_bytes(tensors, self.recipe.frozen)
        return quantized(tensors, self.recipe.frozen, self.quantization, self.layers)


class Pass(msgspec.Struct, frozen=True):
    """One pass, in bytes by group.

    Attributes:
        early: the fullest moment before the thread's first matrix product took its workspace; `late` from then on.
        end: what is held when the pass is through.
    """

    early: BytesByGroup
    late: BytesByGroup
    end: BytesByGroup


class Passes(msgspec.Struct, frozen=True):
    """Forward and backward of one micro-batch.

    `regions` are the fullest moments of backward in the last stage, those between and the first, in this order.
    """

    forward: Pass
    backward: Pass
    regions: tuple[BytesByGroup, BytesByGroup, BytesByGroup]


def replayed(stages: Sequence[TapeStage], *, accumulate: bool = False, workspace: Workspace = NO_WORKSPACE) -> Passes:
    """Replay one micro-batch; `accumulate` adds the gradients to those of the micro-batches before, `workspace` is what
    matrix products take and give back.
    """
    meter = Meter(workspace)
    forward(stages, meter, training=True)
    first = Pass(meter.early[1], meter.late[1], meter.live.copy())
    meter.begin()
    regions, incoming = [], 0
    for part in (stages[-1:], stages[1:-1], stages[: len(stages) > 1]):
        meter.late = (0, {})
        incoming = backward(part, meter, accumulate=accumulate, incoming=incoming) if part else incoming
        regions.append(meter.late)
    fullest = max(regions, key=lambda moment: moment[0])[1]
    last, between, start = (moment[1] for moment in regions)
    return Passes(first, Pass(meter.early[1], fullest, meter.live.copy()), (last, between, start))


def prefilled(stages: Sequence[TapeStage], workspace: Workspace = NO_WORKSPACE) -> Pass:
    """Replay a forward pass without autograd; `workspace` is what matrix products take and give back."""
    meter = Meter(workspace)
    forward(stages, meter, training=False)
    return Pass(meter.early[1], meter.late[1], meter.live.copy())


class SavedTensors(msgspec.Struct):
    """Tensors of one size that are kept from forward to backward: `times` of them in each of `count` equal blocks."""

    numel: int
    itemsize: int
    size: int
    count: int
    times: int
    labels: dict[str, None]


def saved_by_group(stages: Sequence[TapeStage]) -> dict[str, list[SavedTensors]]:
    """Every tensor that autograd keeps, under the part it is shown in; of checkpointed blocks one at a time."""
    groups: dict[str, dict[tuple[int, int, int], SavedTensors]] = {}

    def note(storage: Storage, label: str, count: int, times: int) -> None:
        group, key = groups.setdefault(storage.group, {}), (count, storage.numel, storage.itemsize)
        if key in group:
            group[key].times += times
            group[key].labels[label] = None
        else:
            group[key] = SavedTensors(
                storage.numel, storage.itemsize, storage.size, count, times, dict.fromkeys((label,))
            )

    for stage, times in Counter(stages).items():
        # What stands outside of the stage is kept where it was made.
        own = stage.tape.input.storage if stage.tape.input is not None else None
        every = (storage for node in stage.tape.nodes for storage in node.saves)
        saved = dict.fromkeys(storage for storage in every if storage is own or not storage.borrowed)
        for storage in (*saved, *(storage for storage in stage.tape.live_until_end if storage not in saved)):
            note(storage, storage.label, 1 if stage.checkpointed else stage.count, times)
        if stage.checkpointed and stage.tape.input is not None and stage.count > 1:
            note(stage.tape.input.storage, "block input", stage.count - 1, times)
    return {name: list(group.values()) for name, group in groups.items()}


def passing_groups(stages: Sequence[TapeStage], saved: Collection[str]) -> list[str]:
    """Groups whose tensors are made, but never `saved`."""
    nodes = (node for stage in dict.fromkeys(stages) for node in stage.tape.nodes)
    groups = dict.fromkeys(storage.group for node in nodes for storage in node.makes)
    return [group for group in groups if group not in saved]
