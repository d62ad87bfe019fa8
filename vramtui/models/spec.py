"""A model's modules as one frozen value, which the counts of weights and cache are made from, and the kinds of modules.

Shapes are written as torch has them: a linear layer's weight is (out, in), its bias (out).
"""

from collections.abc import Iterable
from math import prod
from typing import ClassVar, Literal, TypeVar

import msgspec

from vramtui.core.schema.models import ENCODER_TENSORS, INPUT_CONVOLUTIONS, LayerCache, NormStyle, TensorGroup

Kind = Literal["attention", "conv", "embedding", "linear", "mla", "mlp", "moe", "norm", "recurrent"]


class Parameter(msgspec.Struct, frozen=True):
    """`count` tensors of one shape. `module` is the last part of the module's name; `layer` whether it is a block's.

    `bits` of a number, where a file keeps it in a type of its own whatever the precision.
    """

    module: str
    shape: tuple[int, ...]
    count: int = 1
    layer: bool = False
    bits: int | None = None

    @property
    def numel(self) -> int:
        return prod(self.shape)


class Module(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a model.

    Attributes:
        name: the last part of its name, as Hugging Face has it; of what holds others, none.
        repeat: how often it stands there.
    """

    kind: ClassVar[Kind]
    name: str = ""
    repeat: int = 1

    def parts(self) -> tuple["Module", ...]:
        return ()

    def adapted(self) -> "Module":
        """The part that gets adapters: all of it."""
        return self

    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of a module's own tensors; those of its parts are not among them."""
        return ()

    def cache_parts(self) -> tuple[int, ...]:
        """Numbers of a token in each tensor that it keeps of a sequence."""
        return ()


Part = TypeVar("Part", bound=Module)
# Whether it is a norm's, its module's name, its shape, and how many of them there are.
Row = tuple[bool, str, tuple[int, ...], int]


class RepeatedBlock(msgspec.Struct, frozen=True, kw_only=True):
    """Layers alike, which stand from `start` to before `stop`: all of these, or where `every` is given each `every`-th
    of the model's (`nth`), or those between. `name` tells sorts of them apart where there are several.
    """

    name: str = ""
    modules: tuple[Module, ...]
    start: int
    stop: int
    every: int | None = None
    nth: bool = False
    window: int | None = None

    def part(self, kind: type[Part]) -> Part:
        return next(module for module in self.modules if isinstance(module, kind))

    def module(self, name: str, kind: type[Part]) -> Part:
        return next(module for module in self.modules if isinstance(module, kind) and module.name == name)

    def count(self, first: int, stop: int) -> int:
        """How many of them stand from the layer `first` to before `stop`."""
        first, stop = max(first, self.start), min(stop, self.stop)
        if stop <= first or self.every is None:
            return max(stop - first, 0)
        nth = stop // self.every - first // self.every
        return nth if self.nth else stop - first - nth


class ModelSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A model: what stands before its blocks, the blocks, and what stands behind them.

    Attributes:
        before: embeddings.
        blocks: each sort of them.
        after: the last norm and the output layer.
        layers: how many blocks there are of all sorts.
        listed: every tensor, where they are known one by one; the modules above are then those of the model whose
            operators are nearest.
        listed_caches: what layers keep of a sequence, where that is known one by one.
    """

    before: tuple[Module, ...]
    blocks: tuple[RepeatedBlock, ...]
    after: tuple[Module, ...]
    layers: int
    listed: tuple[TensorGroup, ...] = ()
    listed_caches: tuple[LayerCache, ...] = ()

    @property
    def reads_images_or_sound(self) -> bool:
        """Return whether it is an encoder of images or of sound: no layer keeps anything of a sequence."""
        return not self.listed_caches and any(group.name in INPUT_CONVOLUTIONS for group in self.listed)

    @property
    def is_encoder(self) -> bool:
        """Return whether the listed tensors are those of an encoder of text, images or sound."""
        return self.reads_images_or_sound or any(group.name in ENCODER_TENSORS for group in self.listed)

    def module(self, name: str, kind: type[Part]) -> Part:
        """The module of a name before the blocks or behind them, which is of that kind."""
        outside = (*self.before, *self.after)
        return next(module for module in outside if isinstance(module, kind) and module.name == name)

    def tensors(self) -> tuple[Parameter, ...]:
        """Every parameter tensor; tied embeddings stand once."""
        if self.listed:
            return tuple(map(_parameter, self.listed))
        return (*self.tensors_before(), *self.tensors_after(), *self.block_tensors(0, self.layers))

    def parameters(self) -> int:
        """Numbers in all of them, as model cards count them."""
        return sum(tensor.numel * tensor.count for tensor in self.tensors())

    def tensors_before(self) -> tuple[Parameter, ...]:
        """Those of embeddings, and of towers for images or sound."""
        if self.listed:
            return tuple(_parameter(group) for group in self.listed if _stands_before(group))
        return _joined(((row, 1) for row in _rows_of(self.before)), layer=False)

    def tensors_after(self) -> tuple[Parameter, ...]:
        """Those of the last norm and of the output layer."""
        if self.listed:
            outside = (group for group in self.listed if group.place == "outside")
            return tuple(_parameter(group) for group in outside if not _stands_before(group))
        return _joined(((row, 1) for row in _rows_of(self.after)), layer=False)

    def block_tensors(self, first: int, stop: int) -> tuple[Parameter, ...]:
        """Those of the blocks from `first` to before `stop`, norms last; `count` is over all of these blocks.

        Of listed tensors that only some blocks have it is their part, rounded up.
        """
        if self.listed:
            groups = (group for group in self.listed if group.place == "layers")
            shares = [(_parameter(group), -(-group.count * (stop - first) // self.layers)) for group in groups]
            return tuple(msgspec.structs.replace(tensor, count=count) for tensor, count in shares if count)
        rows = ((row, block.count(first, stop)) for block in self.blocks for row in _rows_of(block.modules))
        return _joined(rows, layer=True)

    def caches(self, first: int = 0, stop: int | None = None) -> tuple[LayerCache, ...]:
        """Caches of the blocks from `first` to before `stop`; those without a window come first."""
        stop = self.layers if stop is None else stop
        if self.listed_caches:
            parts = [(kind, -(-kind.layers * (stop - first) // self.layers)) for kind in self.listed_caches]
            kinds = [msgspec.structs.replace(kind, layers=layers) for kind, layers in parts if layers]
            return tuple(sorted(kinds, key=lambda kind: kind.window is not None))
        return self.caches_by_kind(first, stop)

    def caches_by_kind(self, first: int, stop: int) -> tuple[LayerCache, ...]:
        """The caches of layers `first` to `stop` by the modules only, the model's own list left aside."""
        counts: dict[tuple[int, int | None], int] = {}
        for block in self.blocks:
            key = sum(sum(module.cache_parts()) for module in block.modules), block.window
            counts[key] = counts.get(key, 0) + block.count(first, stop)
        ordered = sorted(counts.items(), key=lambda item: item[0][1] is not None)
        return tuple(
            LayerCache(layers=layers, per_token=numbers, window=window)
            for (numbers, window), layers in ordered
            if layers
        )


def _rows_of(modules: Iterable[Module], times: int = 1) -> list[Row]:
    """The tensors of modules and of what they are made of."""
    rows: list[Row] = []
    for module in modules:
        count = times * module.repeat
        rows += [(module.kind == "norm", module.name, shape, count) for shape in module.shapes()]
        rows += _rows_of(module.parts(), count)
    return rows


def _joined(rows: Iterable[tuple[Row, int]], *, layer: bool) -> tuple[Parameter, ...]:
    """The tensors of rows that stand so often: alike ones together, in blocks norms behind the rest."""
    counts: dict[tuple[bool, str, tuple[int, ...]], int] = {}
    for (is_norm, name, shape, count), times in rows:
        key = is_norm and layer, name, shape
        counts[key] = counts.get(key, 0) + count * times
    ordered = sorted(counts.items(), key=lambda item: item[0][0])
    return tuple(Parameter(name, shape, count, layer) for (_, name, shape), count in ordered if count)


def _stands_before(group: TensorGroup) -> bool:
    return group.place == "tower" or (group.place == "outside" and group.name.startswith("embed"))


def _parameter(group: TensorGroup) -> Parameter:
    layer = group.place != "outside" and not group.name.rpartition(".")[2].startswith("conv_")
    return Parameter(group.name, group.shape, group.count, layer, group.bits)


Shapes = tuple[tuple[int, ...], ...]


class ConvModule(Module, frozen=True, kw_only=True):
    """Filters (out, in, k, ...) of `kernel`, one number for each dimension of an image, and a bias (out)."""

    kind: ClassVar[Kind] = "conv"
    out_channels: int
    in_channels: int
    kernel: tuple[int, ...]
    bias: bool = True

    def shapes(self) -> Shapes:
        weight = self.out_channels, self.in_channels, *self.kernel
        return (weight, (self.out_channels,)) if self.bias else (weight,)


class EmbeddingModule(Module, frozen=True, kw_only=True):
    """A table of vectors for words or positions; `batched` if it is added to a batch as it is."""

    kind: ClassVar[Kind] = "embedding"
    rows: int
    width: int
    batched: bool = False

    def shapes(self) -> Shapes:
        return ((1, self.rows, self.width) if self.batched else (self.rows, self.width),)


class NormModule(Module, frozen=True, kw_only=True):
    """A norm over `size` numbers: a weight, and a bias if it is a layer norm."""

    kind: ClassVar[Kind] = "norm"
    size: int
    style: NormStyle = "rmsnorm"

    def shapes(self) -> Shapes:
        return ((self.size,),) * (2 if self.style == "layernorm" else 1)


class LinearModule(Module, frozen=True, kw_only=True):
    """One matrix, and its bias.

    Attributes:
        copies: so many in one tensor (copies, out, in), as experts are kept.
        tied: the matrix is the embedding's, and counted there.
    """

    kind: ClassVar[Kind] = "linear"
    out_features: int
    in_features: int
    bias: bool = False
    copies: int | None = None
    tied: bool = False

    @property
    def weight(self) -> tuple[int, ...]:
        matrix = self.out_features, self.in_features
        return matrix if self.copies is None else (self.copies, *matrix)

    def shapes(self) -> Shapes:
        weight = () if self.tied else (self.weight,)
        return (*weight, (self.out_features,)) if self.bias else weight


def linear_parts(module: Module) -> dict[str, LinearModule]:
    """The linear layers that a module is made of, by name."""
    return {part.name: part for part in module.parts() if isinstance(part, LinearModule)}


class AttentionModule(Module, frozen=True, kw_only=True):
    """Multi-head attention (MHA), with fewer key/value heads (GQA) or one (MQA).

    `name` stands before its layers' names, as of one that looks at an encoder.

    Attributes:
        fused: queries, keys and values are made in one product.
        key_bias: of the keys' projection, if it is not as `bias`.
        qk_norm: norms over heads of queries and keys.
    """

    kind: ClassVar[Kind] = "attention"
    cache_source: ClassVar[str] = "Shazeer 2019 (arXiv 1911.02150); Ainslie et al. 2023 (arXiv 2305.13245)"
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    fused: bool = False
    bias: bool = False
    key_bias: bool | None = None
    output_bias: bool = False
    qk_norm: bool = False

    def parts(self) -> tuple[Module, ...]:
        queries, keys, d = self.heads * self.head_dim, self.kv_heads * self.head_dim, self.hidden
        of_keys = self.bias if self.key_bias is None else self.key_bias
        sizes = [("q_proj", queries, d, self.bias), ("k_proj", keys, d, of_keys), ("v_proj", keys, d, self.bias)]
        if self.fused:
            sizes = [("qkv_proj", queries + 2 * keys, d, self.bias)]
        sizes.append(("o_proj", d, queries, self.output_bias))
        norms = (NormModule(name="qk_norm", size=self.head_dim, repeat=2),) if self.qk_norm else ()
        return (*_linears(self.name, sizes), *norms)

    @property
    def key_dim(self) -> int:
        return self.head_dim

    value_dim = rotary_dim = key_dim

    def cache_parts(self) -> tuple[int, int]:
        return self.kv_heads * self.head_dim, self.kv_heads * self.head_dim

    def cache_words(self) -> str:
        return f"2 x {self.kv_heads} heads x {self.head_dim}"


class MlaModule(Module, frozen=True, kw_only=True):
    """Multi-head latent attention: queries, keys and values through low ranks (DeepSeek-V2, arXiv 2405.04434).

    Queries are not compressed if `q_rank` is None. `plain_dim` is a head's width without positions, `rotary_dim` with.
    """

    kind: ClassVar[Kind] = "mla"
    cache_source: ClassVar[str] = "DeepSeek-V2 (arXiv 2405.04434), section 2.1: keys and values compressed together"
    hidden: int
    heads: int
    q_rank: int | None
    kv_rank: int
    plain_dim: int
    rotary_dim: int
    value_dim: int
    bias: bool = False
    output_bias: bool = False
    norm: NormStyle = "rmsnorm"

    def parts(self) -> tuple[Module, ...]:
        d, queries = self.hidden, self.heads * (self.plain_dim + self.rotary_dim)
        unpacked = self.heads * (self.plain_dim + self.value_dim)
        sizes = [("q_proj", queries, d, self.bias)]
        if self.q_rank:
            sizes = [("q_a_proj", self.q_rank, d, self.bias), ("q_b_proj", queries, self.q_rank, False)]
        sizes += [
            ("kv_a_proj_with_mqa", self.kv_rank + self.rotary_dim, d, self.bias),
            ("kv_b_proj", unpacked, self.kv_rank, False),
            ("o_proj", d, self.heads * self.value_dim, self.output_bias),
        ]
        norms = (NormModule(name="a_norm", size=rank, style=self.norm) for rank in (self.q_rank, self.kv_rank) if rank)
        return (*_linears("", sizes), *norms)

    @property
    def kv_heads(self) -> int:
        """Heads of keys and values once they are unpacked: as many as heads."""
        return self.heads

    @property
    def key_dim(self) -> int:
        return self.plain_dim + self.rotary_dim

    def cache_parts(self) -> tuple[int, int]:
        """The latent, and the keys' rotary part, which all heads share."""
        return self.kv_rank, self.rotary_dim

    def cache_words(self) -> str:
        return f"({self.kv_rank} latent + {self.rotary_dim} rotary)"


class MlpModule(Module, frozen=True, kw_only=True):
    """An MLP of `width`; `name` stands before its layers' names, as of a shared expert."""

    kind: ClassVar[Kind] = "mlp"
    hidden: int
    width: int
    gated: bool = True
    bias: bool = False

    def parts(self) -> tuple[LinearModule, ...]:
        wide = ("gate_proj", "up_proj") if self.gated else ("up_proj",)
        sizes = [(name, self.width, self.hidden, self.bias) for name in wide]
        return _linears(self.name, [*sizes, ("down_proj", self.hidden, self.width, self.bias)])


class MoeModule(Module, frozen=True, kw_only=True):
    """A mixture of experts of `width`: each token is sent to `per_token`, and to one of `shared` for all if not 0."""

    kind: ClassVar[Kind] = "moe"
    hidden: int
    experts: int
    per_token: int
    width: int
    gated: bool = True
    router_bias: bool = False
    shared: int = 0
    shared_gate: bool = False

    def parts(self) -> tuple[Module, ...]:
        """Router, all experts in two tensors, shared expert and its gate."""
        d, wide = self.hidden, 2 * self.width if self.gated else self.width
        parts: list[Module] = [
            LinearModule(name="router", out_features=self.experts, in_features=d, bias=self.router_bias),
            LinearModule(name="experts_gate_up_proj", out_features=wide, in_features=d, copies=self.experts),
            LinearModule(name="experts_down_proj", out_features=d, in_features=self.width, copies=self.experts),
        ]
        if self.shared:
            parts.append(self.shared_expert())
        if self.shared_gate:
            parts.append(LinearModule(name="shared_gate", out_features=1, in_features=d))
        return tuple(parts)

    def shared_expert(self) -> MlpModule:
        return MlpModule(name="shared_", hidden=self.hidden, width=self.shared, gated=self.gated)

    def adapted(self) -> MlpModule:
        """One of the experts, by its layers: peft gives none of them adapters."""
        return MlpModule(hidden=self.hidden, width=self.width, gated=self.gated)


class RecurrentModule(Module, frozen=True, kw_only=True):
    """A stack of recurrent layers as torch.nn.LSTM, GRU and RNN keep them, each read in so many `directions`.

    `output` is `hidden`, or the width of an LSTM's projection.
    """

    kind: ClassVar[Kind] = "recurrent"
    gates: int
    inputs: int
    hidden: int
    output: int
    layers: int = 1
    directions: int = 1
    bias: bool = True

    def direction(self, layer: int) -> Shapes:
        """The shapes of one direction of a layer: the input's weight, the state's, two biases, a projection."""
        rows, width = self.gates * self.hidden, self.inputs if layer == 0 else self.output * self.directions
        return (
            (rows, width),
            (rows, self.output),
            *(((rows,),) * 2 if self.bias else ()),
            *(((self.output, self.hidden),) if self.output != self.hidden else ()),
        )

    def shapes(self) -> Shapes:
        return tuple(
            shape for layer in range(self.layers) for shape in self.direction(layer) for _ in range(self.directions)
        )


def _linears(prefix: str, sizes: list[tuple[str, int, int, bool]]) -> tuple[LinearModule, ...]:
    return tuple(
        LinearModule(name=prefix + name, out_features=rows, in_features=columns, bias=bias)
        for name, rows, columns, bias in sizes
    )


def linear(name: str, inner: int, outer: int, *, bias: bool = True, tied: bool = False) -> LinearModule:
    return LinearModule(name=name, out_features=outer, in_features=inner, bias=bias, tied=tied)


def conv(name: str, inner: int, outer: int, side: int = 3, *, bias: bool = True) -> ConvModule:
    return ConvModule(name=name, out_channels=outer, in_channels=inner, kernel=(side, side), bias=bias)


def layer_norm(name: str, size: int, repeat: int = 1) -> NormModule:
    return NormModule(name=name, size=size, style="layernorm", repeat=repeat)
