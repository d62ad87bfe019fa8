"""One rank's passes: its layers of the pipeline, and its part of the sequence between the matrix products."""

from collections.abc import Sequence

import msgspec

from vramtui.core.schema.workload import TrainRun
from vramtui.estimators.analytic.sizes.partition import Share
from vramtui.estimators.analytic.tape.replay import EMBEDDINGS, NORMS, STREAM, TapeStage
from vramtui.estimators.analytic.tape.tape import Storage, Tape, Tensor
from vramtui.estimators.torch_facts.allocator_sizes import bytes_alone

# What Megatron splits along the sequence: the residual stream, norms and dropouts (arXiv 2205.05198, section 4.2.2).
ALONG_SEQUENCE = frozenset({STREAM, NORMS, EMBEDDINGS})
RECEIVED = "activations: received from the rank before"


def run_of(run: TrainRun, share: Share, sequence: int) -> TrainRun:
    """The run as this rank sees it: its part of the sequence, and of the frozen layers those that are here."""
    frozen = min(max(run.frozen_layers - share.first, 0), share.layers)
    return msgspec.structs.replace(run, sequence_length=sequence, frozen_layers=frozen)


def own_stages(stages: Sequence[TapeStage], share: Share, numel: int, itemsize: int) -> list[TapeStage]:
    """The stages of a decoder (embeddings, blocks, loss) that run on this rank.

    `numel` numbers of `itemsize` bytes arrive from the rank before.
    """
    first, *blocks, last = stages
    if share.stages == 1:
        return list(stages)
    if not share.begins and len(blocks) > 1 and blocks[0].count == 1:
        # Only in the very first block does no gradient flow back to the block's input.
        blocks = [TapeStage(blocks[1].tape, 1, checkpointed=blocks[0].checkpointed), *blocks[1:]]
    start = first if share.begins else TapeStage(received(numel, itemsize))
    return [start, *blocks, *((last,) if share.ends else ())]


def received(numel: int, itemsize: int) -> Tape:
    """The activations that arrive from the rank before."""
    tape = Tape(RECEIVED)
    x = tape.new(numel, itemsize, "block input", tracked=True)
    tape.record([], [x])
    tape.close(x)
    return tape


def split_sequence(stages: Sequence[TapeStage], ranks: int, wide: int) -> None:
    """Leave one of `ranks` parts of everything that stands along the sequence between the matrix products.

    `wide` numbers make up the residual stream; a dropout over as many belongs to it.
    """
    tapes = {id(stage.tape): stage.tape for stage in stages}.values()
    storages_seen: list[Storage] = []
    tensors: dict[int, Tensor] = {}
    for tape in tapes:
        ends = [tensor for tensor in (tape.input, tape.output) if tensor is not None]
        storages_seen += [*tape.live_until_end, *(tensor.storage for tensor in ends)]
        for node in tape.nodes:
            storages_seen += [*node.makes, *node.saves, *node.uses, *node.last_use_of]
            for tensor in (*node.outs, *(tensor for tensor, _ in node.flows)):
                tensors[id(tensor)] = tensor
            if node.outs and all(_along(tensor.storage, wide) for tensor in node.outs):
                node.workspace //= ranks
                node.backward_workspace //= ranks
        tensors |= {id(tensor): tensor for tensor in ends}
    tensors = {key: tensor for key, tensor in tensors.items() if _along(tensor.storage, wide)}
    storages = {id(storage): storage for storage in storages_seen if _along(storage, wide)}
    for storage in storages.values():
        storage.numel = -(-storage.numel // ranks)
        storage.size = bytes_alone(storage.numel * storage.itemsize)
    for tensor in tensors.values():
        tensor.numel = -(-tensor.numel // ranks)


def _along(storage: Storage, wide: int) -> bool:
    return storage.group in ALONG_SEQUENCE or (storage.numel == wide and "dropout" in storage.label)


def in_flight(share: Share, micro_batches: int, chunks: int = 1) -> tuple[int, int]:
    """Micro-batches whose activations this rank holds at once under 1F1B, as a fraction (over `chunks`).

    Each rank runs ahead by as many as there are ranks after it; interleaved over `chunks` stretches of layers it runs
    ahead by twice as many and by all stretches but one of a whole pipeline (Narayanan et al. 2021, arXiv 2104.04473).
    """
    after = share.stages - share.rank
    if chunks == 1:
        return min(micro_batches, after), 1
    ahead = 2 * (after - 1) + (chunks - 1) * share.stages + 1
    return min(micro_batches * chunks, ahead), chunks
