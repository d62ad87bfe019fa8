"""Replay tapes forward and backward, counting bytes as PyTorch's reference counts and autograd's engine would.

A block that repeats is replayed once: what every repetition adds is the same, so the fullest moment lies in the first
repetition or in the last.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from operator import itemgetter
from typing import Protocol

from vramtui.estimators.analytic.tape.tape import Node, Storage, Tape, Tensor
from vramtui.estimators.torch_facts.allocator_sizes import MIN_BLOCK, bytes_alone
from vramtui.estimators.torch_facts.cublas import NO_WORKSPACE, Workspace

BytesByGroup = dict[str, int]
Moment = tuple[int, BytesByGroup]
SCRATCH, CASTS = "temporaries of operators", "autocast weight copies"
WORKSPACES = "workspaces"
KV_CACHE, GROWTH = "kv cache", "cache growth"
EMBEDDINGS, STREAM, NORMS, ATTENTION, MLP, ADAPTERS, HEAD = (
    "activations: embeddings", "activations: residual stream", "activations: norms", "activations: attention",
    "activations: MLP", "activations: adapters", "activations: output layer and loss",
)  # fmt: skip


BACKWARD = "gradients of activations"
GRADIENTS = "gradients"
STAYS = "kv cache"


class ReplayListener(Protocol):
    """Receives the events of a replay: a `Meter` counts them, an allocation trace writes them down.

    take: `size` bytes are allocated for `owner`, which frees them again; `bias` of them are a block of their own.
    free: `size` bytes of `owner` are freed, in `count` tensors of one size.
    move: the bytes of a storage belong to another from now on.
    gemm: a matrix product runs; with `fused_bias` it adds a bias on its way.
    scratch: an operator runs, with `workspace` bytes of its own and more in `blocks`.
    sum_anew: a gradient is made and added to a parameter's; their sum takes its place.
    repeat: `once` happens `count` times. It is called once, and not again for the same `shared`.
    """

    def take(self, group: str, size: int, owner: object = None, bias: int = 0) -> None: ...
    def free(self, group: str, size: int, count: int = 1, owner: object = None) -> None: ...
    def move(self, old: Storage, new: Storage) -> None: ...
    def gemm(self, *, fused_bias: bool = False) -> None: ...
    def scratch(self, workspace: int, blocks: Sequence[int] = ()) -> None: ...
    def sum_anew(self, size: int) -> None: ...
    def repeat(self, once: Callable[[], None], count: int, shared: Hashable | None) -> None: ...


class Meter:
    """Counts what is taken and freed.

    The first matrix product of a thread takes its cuBLAS workspace, so the fullest moment before it and the one after
    are kept apart: `early` and `late`, each with what was held then.

    Args:
        workspace: what cuBLAS takes; of what it keeps the caller knows.
    """

    __slots__ = ("early", "late", "live", "multiplied", "ran", "total", "workspace")

    def __init__(self, workspace: Workspace = NO_WORKSPACE) -> None:
        self.workspace = workspace
        self.live: BytesByGroup = {}
        self.total = 0
        self.early: Moment = (0, {})
        self.late: Moment = (0, {})
        self.multiplied = False
        # What each shared stretch added, and its fullest moment, both less what was there before.
        self.ran: dict[Hashable, tuple[Moment, Moment]] = {}

    def take(self, group: str, size: int, owner: object = None, bias: int = 0) -> None:  # noqa: ARG002 - for a trace
        self.total += size
        self.live[group] = self.live.get(group, 0) + size

    def free(self, group: str, size: int, count: int = 1, owner: object = None) -> None:  # noqa: ARG002 - for a trace
        self.total -= size
        self.live[group] -= size

    def move(self, old: Storage, new: Storage) -> None:
        self.live[old.group] -= old.size
        self.live[new.group] = self.live.get(new.group, 0) + old.size

    def gemm(self, *, fused_bias: bool = False) -> None:
        """A matrix product runs: from here on the thread has its workspace, where releases of PyTorch keep one."""
        self.multiplied = True
        if self.workspace.passing:
            self._note(self.workspace.fused if fused_bias else self.workspace.passing, WORKSPACES)

    def scratch(self, workspace: int, blocks: Sequence[int] = ()) -> None:
        """Note the moment if it is the fullest so far, with an operator's own bytes beside."""
        if blocks:
            workspace += sum(blocks)
        self._note(workspace, SCRATCH)

    def sum_anew(self, size: int) -> None:
        self.scratch(0, (size, size))

    def _note(self, workspace: int, group: str) -> None:
        total = self.total + workspace
        if total <= (self.late if self.multiplied else self.early)[0]:
            return
        sizes = self.live.copy()
        if workspace:
            sizes[group] = sizes.get(group, 0) + workspace
        if self.multiplied:
            self.late = (total, sizes)
        else:
            self.early = (total, sizes)

    def begin(self) -> None:
        """Start a new pass: forget the fullest moments, keep what is held."""
        self.multiplied = False
        self.early = self.late = (0, {})
        self.ran.clear()

    def repeat(self, once: Callable[[], None], count: int, shared: Hashable | None) -> None:
        if shared is None:
            self._repeat(once, count)
            return
        if shared not in self.ran:
            early, late, total, held_before = self.early, self.late, self.total, self.live.copy()
            self.early = self.late = (0, {})
            self._repeat(once, count)
            peak, at = max(self.early, self.late, key=itemgetter(0))
            self.ran[shared] = (
                (self.total - total, _less(self.live, held_before)),
                (peak - total, _less(at, held_before)),
            )
            self.early, self.late = max(early, self.early, key=itemgetter(0)), max(late, self.late, key=itemgetter(0))
            return
        (grown, more), (peak, at) = self.ran[shared]
        moment = self.total + peak, summed(self.live, at)
        if self.multiplied:
            self.late = max(self.late, moment, key=itemgetter(0))
        else:
            self.early = max(self.early, moment, key=itemgetter(0))
        self.total += grown
        self.live = summed(self.live, more)

    def _repeat(self, once: Callable[[], None], count: int) -> None:
        if count == 1:
            once()
            return
        before = self.late
        start, start_held = self.total, self.live.copy()
        self.late = (0, {})
        once()
        grown = self.total - start
        more = _less(self.live, start_held)
        peak, at = self.late
        last = peak + grown * (count - 1)
        if last > peak:
            peak, at = (
                last,
                {group: at.get(group, 0) + size * (count - 1) for group, size in more.items()}
                | {group: size for group, size in at.items() if group not in more},
            )
        self.late = max(before, (peak, at), key=itemgetter(0))
        self.total += grown * (count - 1)
        for group, size in more.items():
            self.live[group] += size * (count - 1)


def _less(sizes: BytesByGroup, start: BytesByGroup) -> BytesByGroup:
    return {group: size - start.get(group, 0) for group, size in sizes.items()}


def summed(*parts: BytesByGroup) -> BytesByGroup:
    total: BytesByGroup = {}
    for part in parts:
        for name, size in part.items():
            total[name] = total.get(name, 0) + size
    return total


class TapeStage:
    """A tape that runs `count` times in a row; `checkpointed` keeps only its input and runs it again for backward.

    A stage may stand in several places of a model (`again`): it is run in one of them and counted alike in the others.
    """

    __slots__ = ("again", "checkpointed", "count", "tape")

    def __init__(self, tape: Tape, count: int = 1, *, checkpointed: bool = False) -> None:
        self.tape = tape
        self.count = count
        self.checkpointed = checkpointed
        self.again = False


def drop_gradients(stages: Sequence[TapeStage]) -> None:
    """Leave no gradient on the tapes: each is used or moved to the host as soon as it is made."""
    for node in (node for stage in stages for node in stage.tape.nodes):
        node.set_gradient(0)


def forward(stages: Sequence[TapeStage], meter: ReplayListener, *, training: bool) -> None:
    """Run every stage. What is held for the whole pass is let go at its end."""
    at_end: dict[tuple[str, int], int] = {}
    borrowed = False
    handed: Storage | None = None
    left: dict[TapeStage, tuple[list[tuple[str, int]], bool]] = {}
    for stage in stages:
        tape = stage.tape
        if tape.input is not None and not borrowed and handed is not None and not tape.given:
            meter.move(handed, tape.input.storage)

        def once(tape: Tape = tape, stage: TapeStage = stage) -> None:
            again = training and stage.checkpointed
            if again and tape.input is not None:
                tape.input.storage.refs += 1
            _run(tape.nodes, meter, keep=training and not again, first=training)

        if stage not in left and tape.input is not None:
            tape.input.storage.refs = 1
            tape.input.storage.borrowed = borrowed or tape.given
        meter.repeat(once, stage.count, stage if stage.again else None)
        handed = tape.output.storage if tape.output is not None else None
        if stage not in left:
            # What is let go at the end of the pass, and whether something else holds on to what is handed on.
            kinds = []
            for storage in tape.live_until_end:
                if storage.refs == 1 + (storage is handed) and storage.group != STAYS:
                    kinds.append((storage.group, storage.size))
                storage.refs -= 1
            borrowed = handed is not None and (handed.refs > 1 or handed in tape.live_until_end)
            if borrowed and handed is not None:
                handed.refs -= 1
            left[stage] = kinds, borrowed
        kinds, borrowed = left[stage]
        for kind in kinds:
            at_end[kind] = at_end.get(kind, 0) + stage.count
    for (group, size), count in at_end.items():
        meter.free(group, size * count, count)


def _run(nodes: Iterable[Node], meter: ReplayListener, *, keep: bool, first: bool = False) -> None:
    """Run operators, which `keep` what they save; `first` in training's forward pass, not when they run again.

    A selective checkpoint has what some of them made already when they run again, or keeps it from now on.
    """
    take, scratch = meter.take, meter.scratch
    for node in nodes:
        if node.cached and keep and not first:
            for storage in node.makes:
                storage.refs = 1
        else:
            cache = node.cached and first and not keep
            for storage in node.makes:
                storage.refs = (2 if storage.lives_until_end else 1) + cache
                take(storage.group, storage.size, storage)
            if node.gemm:
                meter.gemm(fused_bias=node.fused_bias)
            scratch(node.workspace, node.scratch_blocks)
        if keep:
            for storage in node.saves:
                storage.refs += 1
        if first:
            for storage in node.saved_outside_graph:
                storage.refs += 1
        _let_go(node.last_use_of, meter)


def backward(stages: Sequence[TapeStage], meter: ReplayListener, *, accumulate: bool = False, incoming: int = 0) -> int:
    """Run every stage's backward, last first; gradients of parameters stay, added to older ones if `accumulate`.

    `incoming` bytes are the gradient of what the last stage hands on; the caller has counted them. Returned are those
    of the gradient that is handed on to what came before the first stage.
    """
    for stage in reversed(stages):
        tape = stage.tape
        start = incoming

        def once(tape: Tape = tape, stage: TapeStage = stage, start: int = start) -> None:
            # One block's backward. A checkpointed one is recomputed when the first operator asks for what it saved.
            if tape.output is not None and start:
                tape.output.gradient = [start, 1]
            end = (
                max((i for i, node in enumerate(tape.nodes) if node.saves), default=-1) + 1 if stage.checkpointed else 0
            )
            for index in range(len(tape.nodes) - 1, -1, -1):
                if stage.checkpointed and index == end - 1:
                    _again(tape, end, meter)
                node = tape.nodes[index]
                arrived = []
                for out in node.outs:
                    if out.gradient is not None:
                        arrived.append(out.gradient)
                        out.gradient = None
                _gradients(node, arrived, meter, accumulate=accumulate, recomputed=stage.checkpointed)
            if stage.checkpointed:
                # What a selective checkpoint kept for a recomputation that ended before it.
                for node in tape.nodes[max(end - 1, 0) :]:
                    for storage in node.makes if node.cached else ():
                        meter.free(storage.group, storage.size, 1, storage)
            if tape.input is not None:
                tape.handed_back = 0
                if tape.input.tracked:
                    tape.handed_back = tape.input.gradient[0] if tape.input.gradient else _size(tape.input)
                tape.input.gradient = None
            for tensor in tape.outside:
                tensor.gradient = None
            if stage.checkpointed and tape.input is not None:
                _let_go((tape.input.storage,), meter)

        meter.repeat(once, stage.count, stage if stage.again else None)
        incoming = tape.handed_back
    for stage in stages:
        for storage in dict.fromkeys(storage for node in stage.tape.nodes for storage in node.saved_outside_graph):
            meter.free(storage.group, storage.size * stage.count, stage.count)
    return incoming


def _again(tape: Tape, end: int, meter: ReplayListener) -> None:
    """Recompute a checkpointed block up to the last tensor that its backward needs, before its node `end`."""
    nodes = tape.nodes[:end]
    if nodes:
        # It stops once all is saved that its backward needs. Inputs are saved before the last operator runs, answers
        # of its own afterwards, when it has made the others too.
        last = nodes[-1]
        node = nodes[-1] = Node(
            makes=last.makes if any(one in last.saves for one in last.makes) else (), saves=last.saves
        )
        node.gemm, node.fused_bias = last.gemm, last.fused_bias
        node.last_use_of = [one for one in last.last_use_of if one in node.makes or one not in last.makes]
    reached = {storage for node in nodes for storage in node.makes}
    _run(nodes, meter, keep=True)
    for node in tape.nodes[end:]:
        _let_go([storage for storage in node.last_use_of if storage in reached], meter)
    if tape.output is not None and tape.output.storage in reached:
        _let_go((tape.output.storage,), meter)
    _let_go([storage for storage in tape.live_until_end if storage in reached], meter)


def _size(tensor: Tensor) -> int:
    whole = tensor.storage
    if tensor.numel == whole.numel and tensor.itemsize == whole.itemsize:
        return whole.size
    return bytes_alone(tensor.numel * tensor.itemsize)


def _gradients(
    node: Node, arrived: list[list[int]], meter: ReplayListener, *, accumulate: bool, recomputed: bool
) -> None:
    """One operator's backward. What it saved goes when it is through; a recomputed tensor already before a bias's
    gradient is summed, because nothing but the operator holds it.
    """
    if not (node.outs or node.saves or node.flows):
        return
    saved: Sequence[Storage] = node.saves
    if node.grads_in_forward:
        _let_go(saved, meter)
        saved = ()
    grad_bytes, into = node.grad_bytes, BACKWARD if accumulate else GRADIENTS
    # A sum's gradient, one number seen from everywhere, is laid out for a matrix product or a norm.
    expanded = _size(node.outs[0]) if grad_bytes and len(arrived) == 1 else 0
    if expanded and arrived[0][0] < expanded:
        meter.take(BACKWARD, expanded)
    else:
        expanded = 0
    # Each gradient in its order. A product makes room for its answer before it asks for the thread's workspace.
    product = node.gemm and not node.grads_in_forward
    bias = 0 if accumulate else node.bias_grad_bytes
    if grad_bytes and node.weight_first:
        meter.take(into, grad_bytes, None, bias)
        if product:
            meter.gemm()
    fresh = []
    for tensor, own in node.flows:
        if own:
            buffer = [_size(tensor), 1]
            meter.take(BACKWARD, buffer[0], buffer)
        else:
            if not arrived:  # that of the loss itself, a single 1
                arrived.append([512, 0])
                meter.take(BACKWARD, 512, arrived[0])
            buffer = arrived[0]
            buffer[1] += 1
        fresh.append((tensor, buffer))
        if product:
            meter.gemm()
    if not node.weight_first:
        if grad_bytes:
            meter.take(into, grad_bytes, None, bias)
        if product:
            meter.gemm()
    if len(node.backward_pieces) > 1 and not accumulate:
        meter.sum_anew(node.backward_pieces[0])
    else:
        meter.scratch(node.backward_workspace, node.backward_pieces)
    if recomputed:
        _let_go(saved, meter)
    if expanded:
        meter.free(BACKWARD, expanded)
    elif node.sum_workspace:
        meter.scratch(node.sum_workspace - MIN_BLOCK, (MIN_BLOCK,))  # partial sums, and counters of who is last
    for buffer in arrived:
        _release(buffer, meter)
    if not recomputed:
        _let_go(saved, meter)
    _hand_on(fresh, meter)
    if accumulate and grad_bytes:
        meter.free(BACKWARD, grad_bytes)


def _let_go(storages: Iterable[Storage], meter: ReplayListener) -> None:
    for storage in storages:
        storage.refs -= 1
        if storage.refs == 0 and not storage.borrowed:
            meter.free(storage.group, storage.size, 1, storage)


def _hand_on(fresh: Iterable[tuple[Tensor, list[int]]], meter: ReplayListener) -> None:
    """Add to a gradient that waits for its tensor: in place if nothing else holds it, else into a new one."""
    for tensor, buffer in fresh:
        waiting = tensor.gradient
        if waiting is None:
            tensor.gradient = buffer
        elif waiting[1] == 1:
            _release(buffer, meter)
        elif buffer[1] == 1:
            meter.take(BACKWARD, buffer[0])
            meter.scratch(0)
            meter.free(BACKWARD, buffer[0])
            _release(waiting, meter)
            tensor.gradient = buffer
        else:
            # A part of a larger gradient, as of joined channels, is summed into a tensor of its own size.
            size = min(buffer[0], _size(tensor))
            tensor.gradient = [size, 1]
            meter.take(BACKWARD, size, tensor.gradient)
            meter.scratch(0)
            _release(buffer, meter)
            _release(waiting, meter)


def _release(buffer: list[int], meter: ReplayListener) -> None:
    buffer[1] -= 1
    if buffer[1] == 0:
        meter.free(BACKWARD, buffer[0], 1, buffer)


def recompute_workspace(tape: Tape, *, input_grad_bytes: int) -> tuple[int, int]:
    """The most bytes alive in its forward pass when nothing is kept, and in forward and backward one after the other.

    The second leaves out the gradient that comes in, the `input_grad_bytes` of what came in from outside, and the
    parameters' gradients; the operator around it counts them all.
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
    outside = incoming + input_grad_bytes + meter.live.get(GRADIENTS, 0)
    return alone, max(meter.early[0], meter.late[0]) - outside
