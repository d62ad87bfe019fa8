"""A tape as `torch.compile` runs it: elementwise operators between two kernels become one kernel.

Inductor fuses what is computed number by number, and reductions with it; products and attention stay kernels of their
own. For the backward pass its partitioner (torch/_functorch/partitioners.py, 2.13,
`min_cut_rematerialization_partition`) keeps what kernels read and made, statistics and masks, and makes the rest again
from these: so say its own lists of what is kept, read in the runs of `tests/golden/compiled.json`.
"""

from collections.abc import Iterable, Sequence

import msgspec

from vramtui.estimators.analytic.tape.tape import Node, Program, Storage, Tape, TapeStage, Tensor

# What is kept of a fused kernel itself: a number for each row, or a byte for each number of its input.
STATISTICS, MASK = 8, 1
FP32, HALF = 4, 2  # bytes of a number


def compile_program(program: Program) -> Program:
    """The program with its stages as Inductor runs them; a stage that stands in several places stays one."""
    halves = program.recipe.weights < FP32
    tapes: dict[int, Tape] = {}
    stages: dict[int, TapeStage] = {}
    for stage in program.stages:
        if id(stage) in stages:
            continue
        tape = tapes.setdefault(id(stage.tape), fuse_tape(stage.tape, halves=halves, loss_apart=program.loss_apart))
        fused = TapeStage(tape, stage.count, checkpointed=stage.checkpointed, offloaded=stage.offloaded)
        fused.again = stage.again
        stages[id(stage)] = fused
    return msgspec.structs.replace(program, stages=[stages[id(stage)] for stage in program.stages])


def fuse_tape(tape: Tape, *, halves: bool = False, loss_apart: bool = False) -> Tape:
    """A stretch of a pass with one kernel instead of all elementwise operators between two others.

    Args:
        tape: the stretch.
        halves: whether tables are trained in half precision.
        loss_apart: whether the loss stands in a graph of its own.
    """
    nodes = list(_without_second_casts(tape.nodes))
    groups: list[list[Node]] = []  # kernels, each by itself, and what stands between two of them
    for before, node in zip((None, *nodes), nodes, strict=False):
        if before is None or _is_kernel(before) or _is_kernel(node):
            groups.append([])
        groups[-1].append(node)
    plan = _Plan(tape, nodes, groups, halves=halves, loss_apart=loss_apart)
    shorter = Tape(tape.group, selective=tape.selective)
    shorter.input, shorter.given, shorter.outside = tape.input, tape.given, tape.outside
    shorter.live_until_end = tape.live_until_end
    shorter.nodes = [plan.node_of(group) for group in groups]
    shorter.output = tape.output
    shorter.note_last_uses()
    return shorter


def _without_second_casts(nodes: Iterable[Node]) -> Iterable[Node]:
    """The operators without a second cast of one tensor to one type: as each of eager q, k and v has it."""
    first: dict[tuple[Storage, int], Tensor] = {}
    same: dict[Storage, Tensor] = {}
    for node in nodes:
        if len(node.flows) == len(node.makes) == len(node.outs) == 1 and not (node.saves or _is_kernel(node)):
            (read, _), cast = node.flows[0], node.outs[0]
            if cast.itemsize != read.itemsize and cast.numel == read.numel:
                first_cast = first.setdefault((read.storage, cast.itemsize), cast)
                if first_cast is not cast:
                    same[cast.storage] = first_cast
                    continue
        if not same:
            yield node
            continue
        yield msgspec.structs.replace(
            node,
            uses=[same[one].storage if one in same else one for one in node.uses],
            saves=[same[one].storage if one in same else one for one in node.saves],
            flows=[(same.get(tensor.storage, tensor), own) for tensor, own in node.flows],
        )


def _is_kernel(node: Node) -> bool:
    """Return whether it is a library's kernel, or one that PyTorch wrote by hand."""
    return node.gemm or node.kernel or node.grads_in_forward


class _Plan:
    """Which storages of a tape are made at all, and which of them are kept for the backward pass."""

    def __init__(
        self, tape: Tape, nodes: Sequence[Node], groups: Sequence[list[Node]], *, halves: bool, loss_apart: bool
    ) -> None:
        self._halves = halves
        self._loss_apart = loss_apart
        self._maker = {storage: node for node in nodes for storage in node.makes}
        self._sources: dict[Storage, tuple[Storage, ...]] = {}
        self._fixed = {*tape.live_until_end, *([tape.output.storage] if tape.output is not None else [])}
        self._fixed |= {s for node in nodes if _is_kernel(node) for s in (*node.uses, *node.saves)}
        self._saved = {s for node in nodes if _is_kernel(node) for s in node.saves}
        for node in nodes:
            if not _is_kernel(node):
                self._saved |= {source for storage in node.saves for source in self._sources_of(storage)}
        self._written = self._fixed | self._saved
        group_of = {id(node): index for index, group in enumerate(groups) for node in group}
        for node in nodes:
            # What another kernel made than the one that reads it.
            makers = ((storage, self._maker.get(storage)) for storage in node.uses)
            self._written |= {s for s, maker in makers if maker is None or group_of[id(maker)] != group_of[id(node)]}

    def node_of(self, group: Sequence[Node]) -> Node:
        """The kernel that stands for a group: what it makes, reads, keeps, and hands back."""
        if len(group) == 1 and _is_kernel(group[0]):
            # A bias's gradient is summed by a kernel of Triton's, whose partial sums are a MB or so instead of tens.
            return msgspec.structs.replace(group[0], last_use_of=(), sum_workspace=0)
        inside = {storage for node in group for storage in node.makes}
        uses = dict.fromkeys(s for node in group for s in node.uses if s in self._written or s not in inside)
        saves = dict.fromkeys(
            source for node in group for s in node.saves for source in self._sources_of(s) if source in self._saved
        )
        flows: dict[Storage, tuple[Tensor, bool]] = {}
        for node in group:
            for tensor, _ in node.flows:
                if tensor.storage not in inside:
                    flows.setdefault(tensor.storage, (tensor, True))
        workspace = sum(map(_table_sums, group)) if self._halves else 0
        if not self._loss_apart and any(tensor.numel == 1 for node in group for tensor in node.outs):
            # Zeros that autograd hands the graph as the gradient of its other answer, what the loss is computed from:
            # of a graph of its own the loss is the only answer.
            workspace += sum(storage.size for storage in flows if storage in self._saved)
        return Node(
            backward_workspace=workspace,
            outs=[tensor for node in group for tensor in node.outs if tensor.storage in self._written],
            makes=[s for node in group for s in node.makes if s in self._written],
            uses=list(uses),
            saves=list(saves),
            saved_outside_graph=[s for node in group for s in node.saved_outside_graph],
            flows=list(flows.values()),
            grad_bytes=sum(node.grad_bytes for node in group),
            bias_grad_bytes=sum(node.bias_grad_bytes for node in group),
        )

    def _sources_of(self, storage: Storage) -> tuple[Storage, ...]:
        """Storages that it is made again from: itself, if a kernel made it or it is small."""
        if storage not in self._sources:
            self._sources[storage] = (storage,)
            maker = self._maker.get(storage)
            if maker is None or _is_kernel(maker) or storage in self._fixed:
                return self._sources[storage]
            widest = max((other.numel for other in maker.uses), default=storage.numel)
            if storage.itemsize != MASK and storage.numel * STATISTICS > widest:
                read = [s for s in maker.uses if s not in maker.makes]
                sources = tuple(dict.fromkeys(source for s in read for source in self._sources_of(s)))
                self._sources[storage] = sources or (storage,)
        return self._sources[storage]


def _table_sums(node: Node) -> int:
    """Bytes that the gradient of a table in half precision takes besides itself: it is summed in fp32 first
    (`embedding_dense_backward` in torch/_decomp/decompositions.py, 2.13), and a tied one's is then added to the output
    layer's into a tensor of its own.
    """
    if not node.outs or any(storage not in node.makes for storage in node.uses):
        return 0
    tied = max(node.backward_pieces, default=0)
    return FP32 // HALF * (tied or node.grad_bytes) + tied
