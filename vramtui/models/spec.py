"""A model's modules as one frozen value, which the counts of weights and cache are made from.

A kind of module is a class in `kinds/`, in a file of its name, with its sizes as typed fields: a size that is misspelt
is found by the type checker, which a table of names would not give.
"""

from collections.abc import Iterable
from math import prod
from typing import ClassVar, Literal, TypeVar

import msgspec

from vramtui.core.schema.models import ENCODER_TENSORS, INPUT_CONVOLUTIONS, Basis, LayerCache, TensorGroup

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
        """The part that adapters are put beside: all of it."""
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
        """The module of a kind that it has one of."""
        return next(module for module in self.modules if isinstance(module, kind))

    def module(self, name: str, kind: type[Part]) -> Part:
        """The module of a name, which is of that kind."""
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
        basis: how sure all this is.
    """

    before: tuple[Module, ...]
    blocks: tuple[RepeatedBlock, ...]
    after: tuple[Module, ...]
    layers: int
    listed: tuple[TensorGroup, ...] = ()
    listed_caches: tuple[LayerCache, ...] = ()
    basis: Basis = "shapes"

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
