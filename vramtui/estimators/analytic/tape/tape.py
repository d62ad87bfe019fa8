"""A stretch of a forward pass as operators on sized tensors: what each makes, saves, and hands back as gradients.

Nothing is computed. A tape is written once for a block that may repeat, and replayed by `replay`.
"""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from functools import cached_property
from operator import itemgetter
from typing import Protocol

import msgspec

from vramtui.core.schema.workload import Quantization
from vramtui.estimators.analytic.sizes import precision as precisions
from vramtui.estimators.torch_facts.allocator_sizes import MIN_BLOCK, bytes_alone
from vramtui.estimators.torch_facts.cublas import NO_WORKSPACE, Workspace
from vramtui.models.spec import Parameter


class Storage(msgspec.Struct, eq=False, gc=False):
    """One block of the allocator, with its tail in `size`. `refs` counts who holds it while a tape is replayed."""

    numel: int
    itemsize: int
    group: str
    label: str
    size: int
    lives_until_end: bool = False
    borrowed: bool = False
    refs: int = 0


def storage_of(numel: int, itemsize: int, group: str, label: str) -> Storage:
    return Storage(numel, itemsize, group, label, bytes_alone(numel * itemsize))


class Tensor(msgspec.Struct, eq=False, gc=False):
    """A view of a storage: `numel` elements of `itemsize` bytes. `tracked` says that a gradient flows back to it."""

    storage: Storage
    numel: int
    itemsize: int
    tracked: bool
    gradient: list[int] | None = None


def borrowed(numel: int, itemsize: int, group: str, label: str, *, tracked: bool = False) -> Tensor:
    """A tensor that something outside of the tape made and holds."""
    storage = storage_of(numel, itemsize, group, label)
    storage.borrowed = True
    return Tensor(storage, numel, itemsize, tracked)


class Node(msgspec.Struct, eq=False, gc=False, kw_only=True):
    """An operator on a tape: the storages behind its tensors, without what no gradient asks for.

    Attributes:
        outs: tensors it hands on: new ones, or views of what it reads.
        makes: storages it allocates; `uses` all that it reads or makes.
        saves: storages that autograd keeps until its backward has run.
        saved_outside_graph: storages it keeps itself until the graph goes, checkpoint or not.
        last_use_of: storages whose last use in the forward pass this is.
        flows: (input, own): its gradient is a new tensor, or (not own) the output's gradient passed on.
        grad_bytes: bytes of parameter gradients its backward makes, `bias_grad_bytes` of them in a block of its own.
        gemm: a matrix product, which needs the thread's cuBLAS workspace; `fused_bias`: one that adds a bias by
            cuBLASLt.
        workspace: bytes needed only while it runs, and more in `scratch_blocks`, blocks of their own.
        backward_workspace: bytes needed only meanwhile; `backward_pieces`: the second gradient of a tied table, added
            in place to the first, or with a further one for their sum, which takes the first one's place.
        sum_workspace: bytes needed afterwards, when a bias's gradient is summed.
        weight_first: the parameter's gradient is made before those of `flows`.
        grads_in_forward: what it saved are the gradients themselves, made in the forward pass.
        cached: a selective checkpoint keeps what it makes, so that it is not run again.
        kernel: a library's or hand-written kernel other than a product, which no compiler fuses.
    """

    outs: Sequence[Tensor] = ()
    makes: Sequence[Storage] = ()
    uses: Sequence[Storage] = ()
    saves: Sequence[Storage] = ()
    saved_outside_graph: Sequence[Storage] = ()
    last_use_of: Sequence[Storage] = ()
    flows: Sequence[tuple[Tensor, bool]] = ()
    grad_bytes: int = 0
    bias_grad_bytes: int = 0
    gemm: bool = False
    fused_bias: bool = False
    workspace: int = 0
    scratch_blocks: Sequence[int] = ()
    backward_workspace: int = 0
    backward_pieces: Sequence[int] = ()
    sum_workspace: int = 0
    weight_first: bool = False
    grads_in_forward: bool = False
    cached: bool = False
    kernel: bool = False

    def set_gradient(self, size: int) -> None:
        self.grad_bytes, self.bias_grad_bytes = size, 0


class Tape:
    """The operators of one block in the order they run; `close` is called when the last is written.

    `outside` are borrowed tensors, the block's input apart, whose gradients begin in this block; `handed_back` are the
    bytes of the input's gradient once it was replayed backward: one number where it is that of a sum. `selective` says
    that a checkpoint around it keeps the answers of some operators.
    """

    def __init__(self, group: str = "activations", *, selective: bool = False) -> None:
        self.nodes: list[Node] = []
        self.group = group
        self.input: Tensor | None = None
        self.output: Tensor | None = None
        self.live_until_end: list[Storage] = []
        self.given = False
        self.outside: list[Tensor] = []
        self.handed_back = 0
        self.selective = selective
        self.products = 0

    def take_in(self, numel: int, itemsize: int) -> Tensor:
        """The batch itself, which belongs to whoever made it."""
        self.given = True
        return self.enter(numel, itemsize, tracked=False)

    def enter(self, numel: int, itemsize: int, *, tracked: bool = True) -> Tensor:
        """The tensor that the block before handed on."""
        storage = storage_of(numel, itemsize, self.group, "block input")
        self.input = Tensor(storage, numel, itemsize, tracked)
        return self.input

    def new(self, numel: int, itemsize: int, label: str, *, tracked: bool, group: str | None = None) -> Tensor:
        size = bytes_alone(numel * itemsize)
        return Tensor(Storage(numel, itemsize, group or self.group, label, size), numel, itemsize, tracked)

    def record(
        self,
        uses: Sequence[Tensor],
        outs: Sequence[Tensor],
        *,
        saves: Sequence[Tensor] = (),
        saved_outputs: Sequence[Tensor] = (),
        saved_outside_graph: Sequence[Tensor] = (),
        flows: Sequence[tuple[Tensor, bool]] = (),
        grad_bytes: int = 0,
        bias_grad_bytes: int = 0,
        gemm: bool = False,
        fused_bias: bool = False,
        workspace: int = 0,
        scratch_blocks: Sequence[int] = (),
        backward_workspace: int = 0,
        backward_pieces: Sequence[int] = (),
        sum_workspace: int = 0,
        weight_first: bool = False,
        grads_in_forward: bool = False,
        cached: bool = False,
        kernel: bool = False,
    ) -> None:
        """Write one operator down, as `Node` describes it; without a gradient to hand back nothing is saved.

        `saved_outputs` are further tensors that it makes and autograd keeps, such as a norm's statistics.
        """
        flows = [flow for flow in flows if flow[0].tracked]
        used = [tensor.storage for tensor in uses]
        storages = [tensor.storage for tensor in (*outs, *saved_outputs)]
        keeps = bool(flows) or grad_bytes > 0
        # Most make one tensor, which is not a view of what they use.
        one = len(storages) == 1 and storages[0] not in used
        self.nodes.append(
            Node(
                outs=outs,
                makes=storages if one else [storage for storage in dict.fromkeys(storages) if storage not in used],
                uses=used + storages,
                saves=[tensor.storage for tensor in (*saves, *saved_outputs)] if keeps else (),
                saved_outside_graph=[tensor.storage for tensor in saved_outside_graph] if keeps else (),
                flows=flows,
                grad_bytes=grad_bytes,
                bias_grad_bytes=bias_grad_bytes,
                gemm=gemm,
                fused_bias=fused_bias,
                workspace=workspace,
                scratch_blocks=scratch_blocks,
                backward_workspace=backward_workspace,
                backward_pieces=backward_pieces,
                sum_workspace=sum_workspace,
                weight_first=weight_first,
                grads_in_forward=grads_in_forward,
                cached=cached and self.selective,
                kernel=kernel,
            )
        )

    def view(self, of: Tensor, numel: int | None = None) -> Tensor:
        return Tensor(of.storage, of.numel if numel is None else numel, of.itemsize, tracked=of.tracked)

    def touch(self, *tensors: Tensor) -> None:
        """A local variable is still alive here."""
        self.nodes.append(Node(uses=[tensor.storage for tensor in tensors]))

    def hold(self, tensor: Tensor) -> Tensor:
        """Keep `tensor` to the end of the forward pass, as autocast's cache does."""
        tensor.storage.lives_until_end = True
        self.live_until_end.append(tensor.storage)
        return tensor

    def close(self, output: Tensor | None) -> None:
        """Note what the block hands on, and after which operator each tensor is let go."""
        self.output = output
        if self.input is not None:
            self.touch(self.input)
        self.note_last_uses()

    def note_last_uses(self) -> None:
        """Note for each operator which tensors are not read after it, except what the block hands on."""
        last: dict[Storage, Node] = {}
        for node in self.nodes:
            for storage in node.uses:
                last[storage] = node
        passed = self.output.storage if self.output is not None else None
        for storage, node in last.items():
            if storage is not passed:
                node.last_use_of = (*node.last_use_of, storage)


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
        """Note the moment if it is the fullest so far, with an operator's own bytes."""
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
    """A tape that runs `count` times in a row; `checkpointed` keeps only its input and runs it again for backward, and
    `offloaded` has that in host memory in between.

    A stage may stand in several places of a model (`again`): it is run in one of them and counted alike in the others.
    """

    __slots__ = ("again", "checkpointed", "count", "offloaded", "tape")

    def __init__(self, tape: Tape, count: int = 1, *, checkpointed: bool = False, offloaded: bool = False) -> None:
        self.tape = tape
        self.count = count
        self.checkpointed = checkpointed
        self.offloaded = offloaded
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
            if again and tape.input is not None and not stage.offloaded:
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
            if stage.offloaded and tape.input is not None:
                tape.input.storage.refs = 1
                meter.take(tape.input.storage.group, tape.input.storage.size, tape.input.storage)
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


# Names of what towers for images and sound hold while they run, and where that is from.
TOWER, PIXELS, FEATURES = "tower activations", "tower inputs", "tower outputs"
TOWER_SOURCE = "transformers: the tower's forward(), as a decoder's blocks of the same sizes hold it"


class TowerPass(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of one pass of a tower, or of one after the other.

    Attributes:
        pixels: the images or spectrograms, held as the model's input.
        fullest: the most besides them while it runs forward, and `saved` what stays of it for the backward pass.
        features: what it gives to the words, held while these are read.
        backward: the most besides gradients while it runs backward.
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
    recipe: precisions.Recipe
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
    def gradients(self) -> precisions.BlockBytes:
        """The gradients of all trained parameters, each in its own type."""
        return precisions.block_bytes(self.trained, self.recipe.weights)

    @property
    def weights(self) -> precisions.BlockBytes:
        return self.gradients + self._stored(self.frozen)

    @cached_property
    def trained_numel(self) -> int:
        return precisions.numel_of(self.trained)

    def towers(self) -> dict[str, tuple[int, precisions.BlockBytes]]:
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
        shown = 1 if packed in precisions.EVERYTHING else None
        return {
            tensor: [size for size, _ in blocks[:shown]]
            for tensor, blocks in precisions.blocks_of(self.frozen, itemsize, packed, self.layers)
        }

    def _stored(self, tensors: Sequence[Parameter]) -> precisions.BlockBytes:
        if self.quantization is None:
            return precisions.block_bytes(tensors, self.recipe.frozen)
        return precisions.quantized(tensors, self.recipe.frozen, self.quantization, self.layers)


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
        if stage.checkpointed and not stage.offloaded and stage.tape.input is not None and stage.count > 1:
            note(stage.tape.input.storage, "block input", stage.count - 1, times)
    return {name: list(group.values()) for name, group in groups.items()}


def passing_groups(stages: Sequence[TapeStage], saved: Collection[str]) -> list[str]:
    """Groups whose tensors are made, but never `saved`."""
    nodes = (node for stage in dict.fromkeys(stages) for node in stage.tape.nodes)
    groups = dict.fromkeys(storage.group for node in nodes for storage in node.makes)
    return [group for group in groups if group not in saved]
