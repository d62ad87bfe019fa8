"""The parts that transformers share in writing their tapes: norms, linear layers with adapters, activations.

Shapes: residual stream and norms (b·s, h), a linear layer (b·s, i) to (b·s, o), its weight (o, i); b batch, s tokens,
h hidden, i and o widths of the layer.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Literal

import msgspec

from vramtui.core.schema.models import TransformerModel
from vramtui.core.schema.workload import Checkpointing, CrossEntropy, Lora
from vramtui.estimators.analytic.ops.attention_kernels import Heads
from vramtui.estimators.analytic.ops.operators import Operators
from vramtui.estimators.analytic.sizes.precision import Recipe
from vramtui.estimators.analytic.tape.replay import ADAPTERS, NORMS
from vramtui.estimators.analytic.tape.tape import Tape, Tensor
from vramtui.estimators.torch_facts.cards import CardLimits
from vramtui.models.kinds import AttentionModule, LinearModule

if TYPE_CHECKING:
    from vramtui.models.kinds import MlaModule

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
        lora: adapters beside frozen weights; None trains everything.
        packed: how the weights of linear layers are quantised.
        below: whether this part of the model is frozen.
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
    below: bool = False
    cross_entropy: CrossEntropy = "full"
    selective: Checkpointing = "none"
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
        return self.ops.pointwise(x, f"{kind} of it", saves="output" if kind == "relu" else "input")

    def linear(self, x: Tensor, layer: LinearModule) -> Tensor:
        """A linear layer, with its adapter where it has one."""
        setting, weight = self.setting, layer.weight
        if setting.packed and not setting.trained:
            out = self.ops.packed_linear(x, weight, layer.name, setting.packed)
        else:
            out = self.ops.linear(x, weight, layer.name, bias=layer.bias, trained=setting.trained)
        lora = setting.lora
        if lora is None or setting.below or layer.name not in lora.target_modules:
            return out
        from vramtui.estimators.analytic.ops.lora import Adapter, Target  # noqa: PLC0415 - most jobs have no adapters

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
