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

    def next_product(self) -> bool:
        """Return whether the next product with a weight is kept: every second is run again."""
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
        """Note for each operator which tensors are not read after it, except what the block hands on."""
        last: dict[Storage, Node] = {}
        for node in self.nodes:
            for storage in node.uses:
                last[storage] = node
        passed = self.output.storage if self.output is not None else None
        for storage, node in last.items():
            if storage is not passed:
                node.last_use_of = (*node.last_use_of, storage)
