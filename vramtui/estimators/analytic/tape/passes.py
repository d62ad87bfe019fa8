"""One forward and one backward pass of a model: what is held at their ends and at their fullest moments."""

from collections import Counter
from collections.abc import Collection, Sequence

import msgspec

from vramtui.estimators.analytic.tape.meter import BytesByGroup, Meter
from vramtui.estimators.analytic.tape.replay import TapeStage, backward, forward
from vramtui.estimators.analytic.tape.tape import Storage
from vramtui.estimators.torch_facts.cublas import NO_WORKSPACE, Workspace


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
    first = Pass(meter.early[1], meter.late[1], meter.held.copy())
    meter.begin()
    regions, incoming = [], 0
    for part in (stages[-1:], stages[1:-1], stages[: len(stages) > 1]):
        meter.late = (0, {})
        incoming = backward(part, meter, accumulate=accumulate, incoming=incoming) if part else incoming
        regions.append(meter.late)
    fullest = max(regions, key=lambda moment: moment[0])[1]
    last, between, start = (moment[1] for moment in regions)
    return Passes(first, Pass(meter.early[1], fullest, meter.held.copy()), (last, between, start))


def prefilled(stages: Sequence[TapeStage], workspace: Workspace = NO_WORKSPACE) -> Pass:
    """Replay a forward pass without autograd; `workspace` is what matrix products take and give back."""
    meter = Meter(workspace)
    forward(stages, meter, training=False)
    return Pass(meter.early[1], meter.late[1], meter.held.copy())


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
        for storage in _saved(stage):
            note(storage, storage.label, 1 if stage.checkpointed else stage.count, times)
        if stage.checkpointed and stage.tape.input is not None and stage.count > 1:
            note(stage.tape.input.storage, "block input", stage.count - 1, times)
    return {name: list(group.values()) for name, group in groups.items()}


def _saved(stage: TapeStage) -> list[Storage]:
    """What the stage keeps; what stands outside of it is kept where it was made."""
    own = stage.tape.input.storage if stage.tape.input is not None else None
    every = (storage for node in stage.tape.nodes for storage in node.saves)
    saved = dict.fromkeys(storage for storage in every if storage is own or not storage.borrowed)
    return [*saved, *(storage for storage in stage.tape.held if storage not in saved)]


def passing_groups(stages: Sequence[TapeStage], kept: Collection[str]) -> list[str]:
    """Groups of which tensors are made, but none `kept`."""
    nodes = (node for stage in dict.fromkeys(stages) for node in stage.tape.nodes)
    made = dict.fromkeys(storage.group for node in nodes for storage in node.makes)
    return [group for group in made if group not in kept]
