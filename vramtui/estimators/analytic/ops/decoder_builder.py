"""The parts that transformers share in writing their tapes: norms, linear layers with adapters (LoRA, and DoRA with a
magnitude for each row, as peft has them), activations, MLPs, mixtures of experts, and the loss as PyTorch computes it.

Shapes: residual stream and norms (b·s, h), a linear layer (b·s, i) to (b·s, o), its weight (o, i), adapters A (r, i)
and B (o, r), an MLP's width f; a router's scores (b·s, x) over x experts, k for each token; logits
(b·s, v), loss (1); b batch, s tokens, h hidden, i and o widths of the layer, r rank, v vocabulary.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Literal

import msgspec

from vramtui.core.schema.models import TransformerModel
from vramtui.core.schema.workload import Checkpointing, CrossEntropy, Lora
from vramtui.estimators.analytic.ops.attention_kernels import Heads
from vramtui.estimators.analytic.ops.operators import Operators, column_sum_scratch
from vramtui.estimators.analytic.sizes.precision import Recipe
from vramtui.estimators.analytic.tape.tape import ADAPTERS, MLP, NORMS, Tape, Tensor, recompute_workspace
from vramtui.estimators.torch_facts.allocator_sizes import rounded
from vramtui.estimators.torch_facts.cards import CardLimits
from vramtui.models.spec import AttentionModule, LinearModule, MlpModule, linear_parts

if TYPE_CHECKING:
    from vramtui.models.spec import MlaModule, MoeModule


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """The frozen layer: its name, its weight of (outer, inner) numbers, and how they are kept.

    Attributes:
        unpacked: bytes of a number of the weight once it is unpacked; `packed` says that it is quantised.
        itemsize: bytes of a number of the adapter.
    """

    module: str
    inner: int
    outer: int
    bias: bool
    unpacked: int
    packed: bool
    itemsize: int


class Adapter:
    def __init__(self, ops: Operators, lora: Lora, target: Target) -> None:
        self.ops, self.lora, self.target = ops, lora, target
        self.tape: Tape = ops.tape

    def add_branch(self, x: Tensor, out: Tensor) -> Tensor:
        """`out`, the layer's answer to `x`, with the adapter's, in the type it had."""
        ops, module, given = self.ops, self.target.module, x
        x = ops.cast(x, self.target.itemsize, f"{module} adapter's input")
        dropped = ops.dropout(x, self.lora.dropout, f"{module} adapter's dropout")
        added = (
            self._directed(dropped, out)
            if self.lora.use_dora
            else ops.unsaved(self._product(dropped), f"{module} adapter, scaled")
        )
        total = ops.add(out, added, f"{module} with adapter")
        self.tape.touch(given, x)
        return ops.cast(total, out.itemsize, f"{module} with adapter")

    def _product(self, x: Tensor) -> Tensor:
        target, rank = self.target, self.lora.rank
        low = self.ops.linear(x, (rank, target.inner), f"{target.module} lora_A")
        return self.ops.linear(low, (target.outer, rank), f"{target.module} lora_B")

    def _directed(self, x: Tensor, out: Tensor) -> Tensor:
        """DoRA: (m / norm - 1) times the base's answer plus m / norm times the adapter's, m one number for each row.

        The norm is that of the weight with its adapter multiplied out; it gets no gradient, but what it is made of
        stands to the end (peft, tuners/lora/dora.py, DoraLinearLayer.forward).
        """
        ops, tape, target = self.ops, self.tape, self.target
        itemsize, outer, module = target.itemsize, target.outer, target.module
        stands, weight = self._merged()
        norm = tape.new(outer, itemsize, f"{module} norm of each row", tracked=False)
        by = tape.new(outer, itemsize, f"{module} magnitude over norm", tracked=True)
        tape.record([], [by], saved_outputs=[norm], grad_bytes=rounded(outer * itemsize))
        high = self._product(x)
        # The layer's answer without its bias; made anew if the adapter's input had numbers dropped.
        base = out
        if self.lora.dropout:
            x, cast = (ops.autocast_input(t, f"{module} dropped, cast") for t in (x, weight))
            base = tape.new(out.numel, x.itemsize, f"{module} of what was not dropped", tracked=x.tracked)
            tape.record([x, cast], [base], saves=[cast], flows=[(x, True)], gemm=True)
        elif target.bias:
            base = ops.unsaved(out, f"{module} without bias")
        less = tape.new(outer, itemsize, f"{module} magnitude over norm, less 1", tracked=True)
        tape.record([by], [less], flows=[(by, False)])
        first = self._by_row(base, less, f"{module}, scaled")
        second = ops.unsaved(
            self._by_row(high, by, f"{module} adapter, with magnitude"), f"{module} adapter, with magnitude and scaled"
        )
        total = ops.add(first, second, f"{module} adapter with magnitude")
        tape.touch(*stands, weight, base, high, by)
        return total

    def _merged(self) -> tuple[list[Tensor], Tensor]:
        """Multiply A and B out by sending an identity matrix through them, and add the weight to take its norms.

        Returns:
            What stands until the adapter's answer does, and the weight in the adapter's type.
        """
        tape, target = self.tape, self.target
        numel, multiplied = target.inner * target.outer, self.ops.autocast or target.itemsize
        eye = self._transient(target.inner**2, target.itemsize, "identity")
        taken = eye if multiplied == target.itemsize else self._transient(target.inner**2, multiplied, "identity, cast")
        low = self._transient(target.inner * self.lora.rank, multiplied, "A alone")
        tape.touch(eye)
        adapter = self._transient(numel, multiplied, "adapter multiplied out")
        if multiplied != target.itemsize:
            narrow, adapter = adapter, self._transient(numel, target.itemsize, "adapter multiplied out, cast")
            tape.touch(narrow)
        # The frozen weight in the adapter's type; itself, which is there already, if it is of that type.
        unpacked = target.unpacked == target.itemsize
        if target.packed:
            weight = narrow = self._transient(numel, target.unpacked, "weight, unpacked")
            if not unpacked:
                weight = self._transient(numel, target.itemsize, "weight in the adapter's type")
                tape.touch(narrow)
        elif unpacked:
            weight = Tape().enter(numel, target.itemsize, tracked=False)
        else:
            weight = self._transient(numel, target.itemsize, "weight in the adapter's type")
        scaled = self._transient(numel, target.itemsize, "adapter multiplied out, scaled")
        merged = self._transient(numel, target.itemsize, "weight with adapter")
        tape.touch(scaled)
        tape.touch(merged)
        return [taken, low, adapter], weight

    def _transient(self, numel: int, itemsize: int, label: str) -> Tensor:
        out = self.tape.new(numel, itemsize, f"{self.target.module} {label}", tracked=False)
        self.tape.record([], [out], gemm=label == "A alone")
        return out

    def _by_row(self, x: Tensor, by: Tensor, label: str) -> Tensor:
        """Times one number for each row of the weight, in the adapter's type; each saves the other.

        Both gradients are as large as the answer before they are summed or cast.
        """
        out = self.tape.new(x.numel, by.itemsize, label, tracked=True)
        full = rounded(out.numel * out.itemsize)
        whole = 2 * full - rounded(x.numel * x.itemsize) if x.tracked else full
        sums = column_sum_scratch(x.numel // by.numel, by.numel, self.ops.card)
        self.tape.record(
            [x, by],
            [out],
            saves=[x, by] if x.tracked else [x],
            flows=[(x, True), (by, True)],
            backward_workspace=whole + sums,
        )
        return out


# A norm whose output is added to the residual stream shares its gradient, which Liger leaves alone (Gemma 2 and 3).
FOUR_NORMS = 4
Kernel = Literal["eager", "flash", "efficient", "math"]


class Cache(msgspec.Struct, frozen=True, kw_only=True):
    """A KV cache before a pass.

    Attributes:
        past: tokens in it.
        itemsize: bytes of a number.
        bits: of a number, where the cache is quantised and unpacked for every pass.
        fixed: tokens it was made for at once; None if it grows.
    """

    past: int = 0
    itemsize: int = 2
    bits: float | None = None
    fixed: int | None = None

    def keys(self, sequence: int) -> int:
        """Tokens that `sequence` new ones look at."""
        return sequence + self.past if self.fixed is None else max(self.fixed, sequence)


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """How one pass runs.

    Attributes:
        release: of PyTorch.
        batch: sequences; `sequence` tokens in each.
        eager: whether attention is spelt out; if not, `kernel` is the one that runs, `masked` where it gets a mask.
        lora: adapters of frozen weights; None trains everything.
        packed: how the weights of linear layers are quantised.
        dequantized: whether those of a layer's experts are dequantized all at once while it runs.
        below: whether this part of the model is frozen.
        reentrant: whether blocks that run again have no graph the first time.
        liger: whether norms, gated MLPs, rotary positions and the loss are Liger's kernels.
        cache: what stands in the KV cache already; None when the model is trained.
    """

    recipe: Recipe
    card: CardLimits
    release: tuple[int, int]
    batch: int
    sequence: int
    eager: bool
    kernel: Kernel = "flash"
    masked: bool = False
    lora: Lora | None = None
    packed: str | None = None
    dequantized: bool = False
    below: bool = False
    cross_entropy: CrossEntropy = "full"
    selective: Checkpointing = "none"
    reentrant: bool = False
    liger: bool = False
    cache: Cache | None = None

    @property
    def training(self) -> bool:
        return self.cache is None

    @property
    def trained(self) -> bool:
        return self.training and self.lora is None and not self.below

    @property
    def tokens(self) -> int:
        return self.batch * self.sequence

    @property
    def parameter(self) -> int:
        return self.recipe.weights if self.trained else self.recipe.frozen


class Writer:
    def __init__(self, model: TransformerModel, setting: Setting, group: str) -> None:
        self.model = model
        self.setting = setting
        self.plain = model.implementation == "plain"
        self.tape = Tape(group, selective=setting.selective == "selective-ops")
        self.ops = Operators(self.tape, setting.recipe, setting.card, setting.parameter, setting.release)

    def enter(self, *, tracked: bool = True) -> Tensor:
        """The residual stream from the block before."""
        wide = self.setting.tokens * self.model.hidden_size
        return self.tape.enter(wide, self.setting.recipe.stream, tracked=tracked and self.setting.training)

    def norm(self, x: Tensor, label: str, size: int | None = None) -> Tensor:
        """The model's kind of norm over the last `size` numbers."""
        self.tape.group = NORMS
        write: Callable[..., Tensor] = self.ops.layer_norm
        if self.setting.liger and self.model.norm != "layernorm":
            write = partial(self.ops.liger_rms_norm, in_place=self.model.norms_per_layer != FOUR_NORMS)
        elif self.model.norm == "rmsnorm":
            write = self.ops.fused_rms_norm if self.plain else self.ops.rms_norm
        elif self.model.norm == "gemma_rmsnorm":
            write = partial(self.ops.rms_norm, weight_in_fp32=True)
        return write(x, size or self.model.hidden_size, label, trained=self.setting.trained)

    def dropout(self, x: Tensor, label: str) -> Tensor:
        return self.ops.dropout(x, self.model.hidden_dropout if self.setting.training else 0.0, label)

    def heads(self, module: "AttentionModule | MlaModule", *, capped: bool = False) -> Heads:
        """The sizes of an attention's scores in this pass; `capped` where they are squeezed."""
        setting = self.setting
        return Heads(
            batch=setting.batch,
            queries=setting.sequence,
            keys=setting.cache.keys(setting.sequence) if setting.cache else setting.sequence,
            heads=module.heads,
            kv_heads=module.kv_heads,
            head_dim=module.key_dim,
            value_dim=module.value_dim,
            dropout=self.model.attention_dropout if setting.training else 0.0,
            capped=capped,
        )

    def activation(self, x: Tensor) -> Tensor:
        kind = self.model.hidden_act
        if kind == "gelu_new" and not self.plain:
            return self.ops.gelu_new(x)
        y = self.ops.pointwise(x, f"{kind} of it", saves="output" if kind.startswith("relu") else "input")
        if kind != "relu2":
            return y
        # A power, which autocast raises to fp32 (transformers 5.23, activations.py, ReLUSquaredActivation).
        y = y if self.ops.autocast is None else self.ops.cast(y, 4, "relu in fp32")
        return self.ops.pointwise(y, "relu, squared", backward_workspace=2 * rounded(y.numel * y.itemsize))

    def linear(self, x: Tensor, layer: LinearModule) -> Tensor:
        """A linear layer, with its adapter where it has one."""
        setting, weight = self.setting, layer.weight
        if setting.packed and not setting.trained:
            whole, outside = setting.dequantized and layer.copies is not None, not setting.reentrant
            out = self.ops.packed_linear(x, weight, layer.name, setting.packed, outside=outside, whole=whole)
        else:
            out = self.ops.linear(x, weight, layer.name, bias=layer.bias, trained=setting.trained)
        lora = setting.lora
        if lora is None or setting.below or layer.name not in lora.target_modules:
            return out
        target = Target(
            module=layer.name,
            inner=layer.in_features,
            outer=layer.out_features,
            bias=layer.bias,
            unpacked=setting.recipe.compute if setting.packed else setting.recipe.frozen,
            packed=setting.packed is not None,
            itemsize=setting.recipe.weights,
        )
        ops, group, self.tape.group = self.ops, self.tape.group, ADAPTERS
        own, ops.parameter = ops.parameter, target.itemsize
        total = Adapter(ops, lora, target).add_branch(x, out)
        ops.parameter, self.tape.group = own, group
        return total


ROUTING, EXPERTS = "activations: routing", "activations: experts"


def record_mlp(writer: Writer, module: MlpModule, x: Tensor) -> Tensor:
    """Up and down with an activation between, or gated (SwiGLU, GeGLU)."""
    writer.tape.group = MLP
    layers = linear_parts(module)
    if not module.gated:
        y = writer.activation(writer.linear(x, layers["up_proj"]))
    elif writer.setting.liger:
        gate = writer.linear(x, layers["gate_proj"])
        y = writer.ops.liger_gated(gate, writer.linear(x, layers["up_proj"]), "gate x up")
    else:
        gate = writer.activation(writer.linear(x, layers["gate_proj"]))
        y = writer.ops.multiply(gate, writer.linear(x, layers["up_proj"]), "gate x up")
    return writer.linear(y, layers["down_proj"])


def record_moe(writer: Writer, module: "MoeModule", x: Tensor) -> Tensor:
    """Each token's copies go through `per_token` experts, as one grouped product over all of them."""
    tape, ops, d = writer.tape, writer.ops, module.hidden
    copies = x.numel // d * module.per_token
    tape.group = ROUTING
    logits = ops.linear(x, (module.experts, d), "router", trained=writer.setting.trained)
    chances = ops.pointwise(ops.cast(logits, 4, "router logits in fp32"), "router softmax", saves="output")
    weights = tape.new(copies, x.itemsize, "routing weights", tracked=chances.tracked)
    where = tape.new(copies, 8, "routing indices", tracked=False)
    tape.record([chances], [weights], saved_outputs=[where], flows=[(chances, True)], workspace=rounded(copies * 4))
    tape.group = EXPERTS
    layers = linear_parts(module)
    y = writer.linear(ops.unsaved(x, "tokens for their experts", copies * d), layers["experts_gate_up_proj"])
    if module.gated:
        gate, up = ops.split(y, *[y.numel // 2] * 2)
        y = ops.multiply(writer.activation(gate), up, "gate x up of experts")
    else:
        y = writer.activation(y)
    y = writer.linear(y, layers["experts_down_proj"])
    y = ops.multiply(y, weights, "experts' answers, weighted")
    out = ops.unsaved(y, "experts' sum", x.numel)
    tape.touch(weights, where)
    if not module.shared:
        return out
    layers = linear_parts(module.shared_expert())
    chance = writer.activation(writer.linear(x, layers["shared_gate_proj"])) if module.gated else None
    y = writer.linear(x, layers["shared_up_proj"])
    y = ops.multiply(chance, y, "gate x up, shared") if chance is not None else writer.activation(y)
    y = writer.linear(y, layers["shared_down_proj"])
    if module.shared_gate:
        chance = ops.linear(x, (1, module.hidden), "shared_gate", trained=writer.setting.trained)
        y = ops.multiply(y, ops.pointwise(chance, "shared gate", saves="output"), "shared expert, gated")
    return ops.add(out, y, "experts and shared expert")


CHUNKS = 8
AMPERE = (8, 0)


def output_and_loss(writer: "Writer", x: Tensor) -> None:
    """The output layer and cross entropy over the vocabulary, in the way the job asks for."""
    if writer.setting.liger or writer.setting.cross_entropy == "fused":
        _fused(writer, x)
    elif writer.setting.cross_entropy == "chunked-logits":
        logits, loss = _logits(writer, writer.ops, x), writer.tape.new(1, 4, "loss", tracked=True)
        writer.tape.record([logits], [loss], saves=[logits], flows=[(logits, True)])
    elif writer.setting.cross_entropy.startswith("chunked"):
        # In chunks of tokens (as torchtune's, 8 of them), each made again in the backward pass or saved.
        tape, model = writer.tape, writer.model
        rows = -(-x.numel // model.hidden_size // CHUNKS)
        inner = Tape(tape.group)
        piece = inner.enter(rows * model.hidden_size, x.itemsize, tracked=x.tracked)
        ops = writer.ops.for_tape(inner)
        cross_entropy(ops, _logits(writer, ops, piece), upcast=not writer.plain)
        inner.close(None)
        forward_workspace, back = recompute_workspace(inner, input_grad_bytes=piece.storage.size)
        weight = (
            rounded(model.vocab_size * model.hidden_size * writer.setting.parameter) if writer.setting.trained else 0
        )
        loss, chunk_logits = tape.new(1, 4, "loss", tracked=True), []
        if writer.setting.cross_entropy == "chunked-output":
            # A compiled loss answers with the gradient in the logits' own type.
            chunk_logits = [
                tape.new(x.numel // model.hidden_size * model.vocab_size, x.itemsize, "logits", tracked=False)
            ]
            forward_workspace, back = 0, rounded(rows * model.vocab_size * x.itemsize)
        tape.record(
            [x],
            [loss],
            saves=[x],
            saved_outputs=chunk_logits,
            flows=[(x, True)],
            grad_bytes=weight,
            workspace=forward_workspace,
            backward_workspace=max(back, 0) + weight,
            gemm=True,
        )
    else:
        upcast, in_output = not writer.plain, writer.setting.cross_entropy == "full-fp32"
        cross_entropy(writer.ops, _logits(writer, writer.ops, x), upcast=upcast, in_output=in_output)


def _logits(writer: "Writer", ops: Operators, x: Tensor) -> Tensor:
    model = writer.model
    shape = model.vocab_size, model.hidden_size
    logits = ops.linear(x, shape, "output layer", bias=model.lm_head_bias, trained=writer.setting.trained)
    if model.final_logit_softcapping is None:
        return logits
    logits = ops.unsaved(logits, "logits, divided")
    logits = ops.pointwise(logits, "logits, squeezed", saves="output")
    return ops.unsaved(logits, "logits, squeezed and scaled")


def _fused(writer: "Writer", x: Tensor) -> None:
    """Liger's fused linear cross entropy (arXiv 2410.10989): the gradients of input and weight are made in the forward
    pass, chunk by chunk, over the logits themselves; as many chunks as the vocabulary is wider than the model
    (liger-kernel 0.8.5, ops/fused_linear_cross_entropy.py).

    Input and weight of one type are multiplied into the same buffer for every chunk. Otherwise autocast casts a
    chunk's input and the weight, which it does again for each, since `weight.t()` is a view; the untransposed weight's
    cast is kept in its cache if the weight is trained (autocast_mode.cpp, `cached_cast`, PyTorch 2.13). The weight's
    gradient is added up in place except in fp32, and before Ampere, where a whole one is made for each chunk.
    """
    tape, model, setting, trained = writer.tape, writer.model, writer.setting, writer.setting.trained
    tokens, numel = x.numel // model.hidden_size, model.vocab_size * model.hidden_size
    rows = min(1 << (-(-tokens // -(-model.vocab_size // model.hidden_size)) - 1).bit_length(), tokens)
    grads, grad_bytes = [tape.new(x.numel, x.itemsize, "gradient of the output layer's input", tracked=False)], 0
    if trained:
        grads.append(tape.new(numel, setting.parameter, "gradient of the output layer", tracked=False))
        grad_bytes = grads[-1].storage.size
    itemsize = x.itemsize if writer.ops.autocast is None else writer.ops.autocast
    pieces: tuple[int, ...] = (rounded(rows * model.vocab_size * itemsize),)
    if x.itemsize != setting.parameter or itemsize != x.itemsize:
        cast = rounded(numel * itemsize) if setting.parameter != itemsize else 0
        rows_cast = rounded(rows * model.hidden_size * itemsize) if x.itemsize != itemsize else 0
        pieces = (*[cast] * (2 if trained else 1), rows_cast, *pieces)
    elif trained and itemsize == 4:
        pieces += (rounded(numel * 4),)
    elif trained and setting.card.capability < AMPERE:
        pieces += (rounded(numel * itemsize), rounded(numel * 4))
    tape.record(
        [x],
        [tape.new(1, 4, "loss", tracked=True)],
        saved_outputs=grads,
        flows=[(x, True)],
        grad_bytes=grad_bytes,
        scratch_blocks=pieces,
        gemm=True,
        grads_in_forward=True,
    )


def cross_entropy(ops: Operators, logits: Tensor, *, upcast: bool, in_output: bool = False) -> None:
    """Write torch's cross_entropy: log_softmax saves its output, nll_loss the log-probabilities it reads.

    transformers computes it on `logits.float()` and holds the logits until the step has its loss. Otherwise
    log_softmax stays in the logits' type, and autocast raises only nll_loss to fp32. The output may have fp32 ones.
    """
    tape = ops.tape
    x = ops.cast(logits, 4, "logits in fp32") if upcast and not in_output else logits
    if in_output:
        x = tape.new(logits.numel, 4, "logits in fp32", tracked=logits.tracked)
        tape.record([logits], [x], saves=[x], flows=[(logits, True)], kernel=True)
    probabilities = ops.pointwise(x, "log-probabilities", saves="output")
    if ops.autocast is not None:
        probabilities = ops.cast(probabilities, 4, "log-probabilities in fp32")
    loss = tape.new(1, probabilities.itemsize, "loss", tracked=True)
    tape.record([probabilities], [loss], saves=[probabilities], flows=[(probabilities, True)])
    tape.touch(logits, x, loss)


def class_loss(ops: Operators, x: Tensor, loss: str) -> int:
    """Torch's losses over a model's output: cross entropy over classes, mean squares, or a plain sum.

    A sum's gradient is one number seen from everywhere; autocast raises the others to fp32.

    Returns:
        Bytes that the loss holds until the next step's takes its place, besides one block: `mse_loss` makes it whole
        and shrinks it to a number, whose storage stays (TORCH_META_FUNC(mse_loss), ATen/native/Loss.cpp, 2.13); the
        kernel writes into a second one.
    """
    tape = ops.tape
    if loss == "cross_entropy":
        cross_entropy(ops, x, upcast=False)
        return 0
    if loss == "mse" and ops.autocast is not None:
        x = ops.cast(x, 4, "output in fp32")
    value = tape.new(1, x.itemsize, "loss", tracked=True)
    saved_bytes = 0
    if loss == "mse":
        unreduced = tape.new(x.numel, x.itemsize, "loss before it is a mean", tracked=False)
        tape.record([x], [unreduced], workspace=unreduced.storage.size)
        saved_bytes = unreduced.storage.size
    tape.record([x], [value], saves=[x] if saved_bytes else [], flows=[(x, bool(saved_bytes))])
    tape.touch(x, value)
    return saved_bytes
