"""A model of transformers on the meta device, each size of its tensors with its expression."""

import math
import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
warnings.filterwarnings("ignore")

import numpy  # noqa: E402, ICN001 - named as what it stands in for
import torch  # noqa: E402 - after what transformers reads when it is loaded
from torch.overrides import TorchFunctionMode  # noqa: E402 - as the first
from transformers import PreTrainedConfig, PreTrainedModel  # noqa: E402 - as the first

from benchmarks.shapes.symbols import STAND_INS, Size, Sizes, last_loop, symbol, text_of  # noqa: E402 - as the first

FACTORIES = {torch.empty, torch.zeros, torch.ones, torch.rand, torch.randn, torch.full, torch.normal}
Dims = tuple[str | None, ...]


class Built:
    """What building a model gave.

    Attributes:
        shapes: of each tensor by its name.
        dims: the expression of each of its sizes; None where it was lost.
        counts: how often each list of modules repeats, as an expression.
        lengths: the same as a number.
        parts: the class of each part that is a model of its own, and the path of its config.
    """

    def __init__(self) -> None:
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.dims: dict[str, Dims] = {}
        self.counts: dict[str, str] = {}
        self.lengths: dict[str, int] = {}
        self.parts: dict[str, tuple[PreTrainedModel, str]] = {}


class _Marks(TorchFunctionMode):
    """Writes on each tensor of which expressions it was made."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out: Any = func(*args, **(kwargs or {}))
        if not torch.is_tensor(out) or hasattr(out, "sizes_of_it"):
            return out
        marked: Any = out
        if func in FACTORIES:
            first = (kwargs or {}).get("size", args[0] if args else ())
            sizes = first if isinstance(first, (tuple, list)) else [one for one in args if isinstance(one, int)]
            if len(sizes) == out.dim():
                marked.sizes_of_it = tuple(text_of(one) if isinstance(one, Size) else None for one in sizes)
            return out
        like = next((one for one in args if isinstance(one, torch.Tensor) and hasattr(one, "sizes_of_it")), None)
        if like is not None and like.shape == out.shape:
            marked.sizes_of_it = like.sizes_of_it
        return out


def _labels(config: Any) -> int | None:
    """Stands in for the property of the same name."""
    count = None if config.id2label is None else len(config.id2label)
    where = vars(config).get("_where")
    return count if count is None or where is None else Size(count, f"{where}num_labels")


# What fills tensors, of which there is nothing to fill here.
_FILLS = [name for name in vars(torch.nn.init) if name.endswith("_") and not name.startswith("_")]


def _unfilled(tensor: Any, *_rest: Any, **_options: Any) -> Any:
    return tensor


@contextmanager
def _without_filling() -> Iterator[None]:
    kept = {name: getattr(torch.nn.init, name) for name in _FILLS}
    for name in _FILLS:
        setattr(torch.nn.init, name, _unfilled)
    try:
        yield
    finally:
        for name, fill in kept.items():
            setattr(torch.nn.init, name, fill)


class _Legacy(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, torch.Tensor)

    def __call__(cls, *sizes: Any) -> Any:
        return torch.tensor(sizes[0], device="cpu") if sizes and not isinstance(sizes[0], int) else torch.empty(*sizes)


class _LegacyTensor(metaclass=_Legacy):
    """Stands in for `torch.Tensor` and `torch.FloatTensor`, which make a tensor past every function that is told of."""


class _Torch:
    """Stands in for `torch` in the code of a model."""

    Tensor = FloatTensor = _LegacyTensor

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


class _Numpy:
    """Stands in for NumPy in the code of a model."""

    @staticmethod
    def prod(values: Any, *rest: Any, **options: Any) -> Any:
        """The product, with its expression where the numbers have one."""
        return math.prod(values) if isinstance(values, Sizes) else numpy.prod(values, *rest, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(numpy, name)


_TORCH, _NUMPY = _Torch(), _Numpy()
# Experts by name in a dict of modules, which are as many alike ones as those of a list.
EXPERT = re.compile(r"\.expert_(?=\d+(\.|$))")


@contextmanager
def _stand_ins() -> Iterator[None]:
    """Has the code of models count with what remembers where its numbers came from."""
    touched = [vars(one) for name, one in list(sys.modules.items()) if name.startswith("transformers.models.")]
    libraries = (("torch", torch, _TORCH), ("np", numpy, _NUMPY))
    used = [(names, *one) for names in touched for one in libraries if names.get(one[0]) is one[1]]
    for names in touched:
        names.update(STAND_INS)
    for names, name, _library, instead in used:
        names[name] = instead
    try:
        yield
    finally:
        for names in touched:
            for name in STAND_INS:
                names.pop(name, None)
        for names, name, library, _instead in used:
            names[name] = library


@contextmanager
def _tracing() -> Iterator[None]:
    parameter, modules, chain = torch.nn.Parameter.__new__, torch.nn.ModuleList.__init__, torch.nn.Sequential.__init__

    def marked(cls: Any, data: Any = None, requires_grad: bool = True) -> Any:
        made = parameter(cls, data, requires_grad)
        if hasattr(data, "sizes_of_it"):
            made.sizes_of_it = data.sizes_of_it
        return made

    def repeated(self: Any, items: Any = None) -> None:
        modules(self, items)
        if items is not None and last_loop and last_loop[0][1] == len(self) > 0:
            self.count_of_it = last_loop[0][0]
            last_loop.clear()

    def chained(self: Any, *items: Any) -> None:
        chain(self, *items)
        if last_loop and last_loop[0][1] == len(self) > 0 and len({type(one) for one in self}) == 1:
            self.count_of_it = last_loop[0][0]
            last_loop.clear()

    torch.nn.Parameter.__new__ = staticmethod(marked)  # type: ignore[method-assign] # put back behind it
    torch.nn.ModuleList.__init__ = repeated  # type: ignore[assignment, method-assign] # put back behind it
    torch.nn.Sequential.__init__ = chained  # type: ignore[assignment, method-assign] # put back behind it
    labels = PreTrainedConfig.num_labels
    PreTrainedConfig.num_labels = labels.getter(_labels)  # put back behind it
    try:
        with _stand_ins():
            yield
    finally:
        PreTrainedConfig.num_labels = labels  # put back behind it
        torch.nn.Parameter.__new__ = parameter  # type: ignore[method-assign] # put back behind it
        torch.nn.ModuleList.__init__ = modules  # type: ignore[method-assign] # put back behind it
        torch.nn.Sequential.__init__ = chain  # type: ignore[method-assign] # put back behind it


def mark(config: PreTrainedConfig, path: str = "") -> None:
    """Puts symbols in the place of the numbers of a config and of its parts."""
    values = vars(config)
    values["_where"] = path
    for key, value in list(values.items()):
        if isinstance(value, PreTrainedConfig):
            mark(value, f"{path}{key}.")
        elif (
            isinstance(value, (list, tuple))
            and value
            and not key.startswith("_")
            and all(isinstance(one, (int, float, list, tuple, str)) for one in value)
        ):
            values[key] = Sizes(list(value), path + key)
        elif isinstance(value, (int, float)) and not key.startswith("_"):
            values[key] = symbol(value, path + key)


def parts_of(config: PreTrainedConfig, path: str = "") -> dict[int, str]:
    """The path of each part of a config by its identity."""
    found = {id(config): path}
    for key, value in vars(config).items():
        if isinstance(value, PreTrainedConfig):
            found |= {one: where for one, where in parts_of(value, f"{path}{key}.").items() if one not in found}
    return found


def build(cls: type, config: PreTrainedConfig, *, traced: bool = True) -> Built:
    """The model of that class and config."""
    if traced:
        mark(config)
    last_loop.clear()
    with _without_filling(), torch.device("meta"):
        if traced:
            with _tracing(), _Marks():
                model = cls(config)
        else:
            model = cls(config)
    model.tie_weights()
    built = Built()
    for own_name, tensor in model.named_parameters():
        name = EXPERT.sub(".", own_name)
        built.shapes[name] = tuple(map(int, tensor.shape))
        dims = getattr(tensor, "sizes_of_it", None)
        built.dims[name] = dims if dims is not None and len(dims) == tensor.dim() else (None,) * tensor.dim()
    where = parts_of(config)
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.ModuleDict):
            experts = sum(bool(EXPERT.match(f".{key}")) for key in module)
            built.lengths |= {name: experts} if experts else {}
        if isinstance(module, (torch.nn.ModuleList, torch.nn.Sequential)):
            built.lengths[name] = len(module)
            if hasattr(module, "count_of_it"):
                built.counts[name] = str(module.count_of_it)
        elif name and isinstance(module, PreTrainedModel) and id(module.config) in where:
            built.parts[name] = (module, where[id(module.config)])
    return built
