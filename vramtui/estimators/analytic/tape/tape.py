"""A stretch of a forward pass as operators on sized tensors: what each makes, saves, and hands back as gradients.

Nothing is computed. A tape is written once for a block that may repeat, and replayed by `replay`.
"""

from collections.abc import Sequence

import msgspec

from vramtui.estimators.torch_facts.allocator_sizes import bytes_alone


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
    """A storage of so many numbers."""
    return Storage(numel, itemsize, group, label, bytes_alone(numel * itemsize))


class Tensor(msgspec.Struct, eq=False, gc=False):
    """A view of a storage: `numel` elements of `itemsize` bytes. `tracked` says that a gradient flows back to it."""

    storage: Storage
    numel: int
    itemsize: int
    tracked: bool
    gradient: list[int] | None = None


class OperatorCost(msgspec.Struct, eq=False, gc=False, kw_only=True):
    """What an operator takes beside the tensors that it hands on.

    Attributes:
        flows: (input, own): its gradient is a new tensor, or (not own) the output's gradient passed on.
        grad_bytes: bytes of parameter gradients its backward makes, of which `bias_grad_bytes` are a block of its own.
        gemm: whether it is a matrix product, which needs the thread's cuBLAS workspace; `fused_bias`: one that adds a
            bias on its way, by cuBLASLt.
        workspace: bytes needed only while it runs, and more in `scratch_blocks`, blocks of their own.
        backward_workspace: bytes needed only meanwhile; `backward_pieces`: the second gradient of a tied table, added
            in place to the first, or with a further one for their sum, which takes the first one's place.
        sum_workspace: bytes needed afterwards, when a bias's gradient is summed.
        weight_first: the parameter's gradient is made before those of `flows`.
        grads_in_forward: what it saved are the gradients themselves, made in the forward pass.
        cached: whether a selective checkpoint keeps what it makes, so that it is not run again.
        kernel: whether it is a kernel of a library's or written by hand beside products, which no compiler fuses.
    """

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


class Operator(OperatorCost, frozen=True, eq=False, gc=False):  # type: ignore[misc]  # of dataclasses, not of msgspec
    """One operator, as a model's module runs it.

    Attributes:
        uses: tensors it reads, and `outs` those it hands on: new ones, or views of what it reads.
        saves: tensors that autograd keeps until its backward has run.
        saved_outputs: further tensors it makes and keeps so, as a norm's statistics.
        saved_outside_graph: tensors it keeps itself, which stand until the graph goes, checkpoint or not.
    """

    uses: Sequence[Tensor]
    outs: Sequence[Tensor]
    saves: Sequence[Tensor] = ()
    saved_outputs: Sequence[Tensor] = ()
    saved_outside_graph: Sequence[Tensor] = ()


class Node(OperatorCost, eq=False, gc=False, kw_only=True):
    """An operator on a tape, as it is replayed: the storages behind its tensors, without what no gradient asks for.

    Attributes:
        makes: storages it allocates.
        uses: all that it reads or makes.
        last_use_of: storages whose last use in the forward pass this is.
    """

    outs: Sequence[Tensor] = ()
    makes: Sequence[Storage] = ()
    uses: Sequence[Storage] = ()
    saves: Sequence[Storage] = ()
    saved_outside_graph: Sequence[Storage] = ()
    last_use_of: Sequence[Storage] = ()

    def set_gradient(self, size: int) -> None:
        """Count `size` bytes of parameter gradients, in one block."""
        self.grad_bytes, self.bias_grad_bytes = size, 0


def _fresh(storages: list[Storage], used: list[Storage]) -> list[Storage]:
    """Each storage once that is not used already."""
    return [storage for storage in dict.fromkeys(storages) if storage not in used]


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
        """A tensor that the next operator makes."""
        size = bytes_alone(numel * itemsize)
        return Tensor(Storage(numel, itemsize, group or self.group, label, size), numel, itemsize, tracked)

    def record(self, operator: Operator) -> None:
        """Write one operator down; without a gradient to hand back nothing is saved."""
        flows = [flow for flow in operator.flows if flow[0].tracked]
        used = [tensor.storage for tensor in operator.uses]
        storages = [tensor.storage for tensor in (*operator.outs, *operator.saved_outputs)]
        saves: Sequence[Storage] = ()
        saved_outside_graph: Sequence[Storage] = ()
        if flows or operator.grad_bytes > 0:
            saves = [tensor.storage for tensor in (*operator.saves, *operator.saved_outputs)]
            saved_outside_graph = [tensor.storage for tensor in operator.saved_outside_graph]
        # Most make one tensor, which is no view of what they use.
        makes = storages if len(storages) == 1 and storages[0] not in used else _fresh(storages, used)
        self.nodes.append(
            Node(
                outs=operator.outs,
                makes=makes,
                uses=used + storages,
                saves=saves,
                saved_outside_graph=saved_outside_graph,
                flows=flows,
                grad_bytes=operator.grad_bytes,
                bias_grad_bytes=operator.bias_grad_bytes,
                gemm=operator.gemm,
                fused_bias=operator.fused_bias,
                workspace=operator.workspace,
                scratch_blocks=operator.scratch_blocks,
                backward_workspace=operator.backward_workspace,
                backward_pieces=operator.backward_pieces,
                sum_workspace=operator.sum_workspace,
                weight_first=operator.weight_first,
                grads_in_forward=operator.grads_in_forward,
                cached=operator.cached and self.selective,
                kernel=operator.kernel,
            )
        )

    def view(self, of: Tensor, numel: int | None = None) -> Tensor:
        """Another tensor on the same storage; its gradient is its own."""
        return Tensor(of.storage, of.numel if numel is None else numel, of.itemsize, tracked=of.tracked)

    def touch(self, *tensors: Tensor) -> None:
        """A local variable is still alive here."""
        self.nodes.append(Node(uses=[tensor.storage for tensor in tensors]))

    def next_product(self) -> bool:
        """Whether the next product with a weight is one that is kept: of these every second is run again."""
        self.products += 1
        return self.products % 2 == 1

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
        """Say of each operator which tensors nobody reads after it, but what the block hands on."""
        last: dict[Storage, Node] = {}
        for node in self.nodes:
            for storage in node.uses:
                last[storage] = node
        passed = self.output.storage if self.output is not None else None
        for storage, node in last.items():
            if storage is not passed:
                node.last_use_of = (*node.last_use_of, storage)
