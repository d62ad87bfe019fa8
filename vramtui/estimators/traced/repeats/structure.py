"""What a module is made of: two modules of one structure do the same with the same tensors."""

import types
import weakref
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

_PLAIN = (
    int,
    float,
    bool,
    complex,
    str,
    bytes,
    type(None),
    torch.dtype,
    torch.layout,
    torch.memory_format,
    torch.device,
)
CALLABLES = (types.FunctionType, types.BuiltinFunctionType, type)
_PARTS = ("_parameters", "_buffers")
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
# Of torch.nn.Module itself, and nothing that a forward pass reads.
_OWN = {
    "_modules", "_non_persistent_buffers_set", "_is_full_backward_hook", "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called", "_forward_pre_hooks_with_kwargs", "_state_dict_hooks", "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks", *_PARTS, *_HOOKS,
}  # fmt: skip
_MOST_LOOKS = 64  # at a module whose attributes change all the time


class UnrecognisableError(Exception):
    """Something is of a kind whose part in a call is not known."""


class ModuleStructure:
    """A module with all that is below it, as it stood when it was looked at.

    Nothing here holds the module itself, so that it ends when the code lets go of it.

    Attributes:
        number: the same for modules of the same classes, settings and children.
        children: the modules below it, in the order of `modules()`.
    """

    def __init__(self, root: torch.nn.Module, numbers: dict[Any, int]) -> None:
        modules = list(root.modules())
        self.children = modules[1:]
        self._places = {id(module): place for place, module in enumerate(modules)}
        self._tensors: list[dict[str, Any]] = []
        self._hooks: list[dict[int, Any]] = []
        self._settings: list[tuple[Any, Any]] = []
        tokens: list[Any] = []
        for module in modules:
            self._look_at(module, tokens)
        self.number = numbers.setdefault(tuple(tokens), len(numbers))

    def place(self, key: int) -> int:
        """Where the module of id `key` stands among them, the root first; -1 where it is none of them."""
        return self._places.get(key, -1)

    def state(self, parts: list[Any]) -> None:
        """Add to `parts` what may have changed since: shapes and types of parameters and buffers.

        Raises:
            UnrecognisableError: a hook was registered, a setting has changed, or a parameter is no plain one.
        """
        if any(self._hooks) or any(now != before for now, before in self._settings):
            raise UnrecognisableError
        for tensors in self._tensors:
            for tensor in tensors.values():
                if tensor is None:
                    parts.append(None)
                else:
                    describe_tensor(tensor, parts)

    def _look_at(self, module: torch.nn.Module, tokens: list[Any]) -> None:
        attributes = module.__dict__
        tokens += (type(module), len(attributes))
        for name, value in attributes.items():
            if name in _OWN:
                continue
            tokens.append(name)
            self._token(value, tokens)
        for name, child in module._modules.items():
            tokens += (name, -1 if child is None else self._places[id(child)])
        for part in _PARTS:
            tokens.append(tuple(attributes[part]))
            self._tensors.append(attributes[part])
        self._hooks += [attributes[name] for name in _HOOKS]
        if any(self._hooks[-len(_HOOKS) :]):
            raise UnrecognisableError

    def _token(self, value: Any, tokens: list[Any]) -> None:
        kind = type(value)
        if kind in _PLAIN:
            tokens += (kind, value)
        elif isinstance(value, tuple):
            tokens += (kind, len(value))
            for item in value:
                self._token(item, tokens)
        elif isinstance(value, torch.nn.Module):
            place = self.place(id(value))
            if place <= 0:  # one from elsewhere; or the root, which would be held here
                raise UnrecognisableError
            tokens += ("module", place)
        elif isinstance(value, types.FunctionType):
            self._function(value, tokens)
        elif isinstance(value, CALLABLES):
            tokens.append(value)
        else:
            tokens.append(frozen(value, self._settings))

    def _function(self, function: types.FunctionType, tokens: list[Any]) -> None:
        tokens.append(function.__code__)
        for cell in function.__closure__ or ():
            self._token(cell.cell_contents, tokens)
        for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            self._token(default, tokens)


def frozen(value: Any, seen: list[tuple[Any, Any]]) -> Any:
    """What stands for an object or container of plain values; into `seen` goes each, with a copy to compare it with.

    Raises:
        UnrecognisableError: it holds something else.
    """
    kind = type(value)
    if kind in _PLAIN:
        return kind, value
    if isinstance(value, type):
        return value
    if isinstance(value, tuple):
        return kind, tuple(frozen(item, seen) for item in value)
    if kind in {list, set}:
        seen.append((value, kind(value)))
        return kind, tuple(frozen(item, seen) for item in value)
    items = value if isinstance(value, dict) else _attributes(value)
    seen.append((items, dict(items)))
    return kind, tuple((name, frozen(item, seen)) for name, item in items.items())


def _attributes(value: Any) -> dict[str, Any]:
    attributes = getattr(value, "__dict__", None)
    if not isinstance(attributes, dict) or any(vars(kind).get("__slots__") for kind in type(value).__mro__):
        raise UnrecognisableError
    return attributes


def describe_tensor(tensor: Any, parts: list[Any]) -> None:
    """Add to `parts` all of a tensor that operators choose by; where it starts counts by its alignment alone.

    Raises:
        UnrecognisableError: it is no strided fake tensor.
    """
    if not isinstance(tensor, FakeTensor) or tensor.constant is not None or tensor.layout is not torch.strided:
        raise UnrecognisableError
    offset = tensor.storage_offset()
    parts += (
        type(tensor), tensor.shape, tensor.stride(), tensor.dtype, tensor._fake_device,
        offset and offset * tensor.element_size() % 512, tensor.is_conj(), tensor.is_neg(), tensor.requires_grad,
    )  # fmt: skip


def _same(old: Any, new: Any) -> bool:
    return type(old) is type(new) and bool(old == new)


class ModuleStructures:
    """The structures of modules, each as long as none of its modules is given another attribute."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._known: dict[int, tuple[Any, ModuleStructure | None]] = {}
        self._roots_of: dict[int, set[int]] = {}
        self._looks: dict[int, int] = {}

    def of(self, module: torch.nn.Module) -> ModuleStructure | None:
        """A module's structure; None where it cannot be described."""
        key = id(module)
        known = self._known.get(key)
        if known is not None:
            return known[1]
        self._looks[key] = looks = self._looks.get(key, 0) + 1
        try:
            structure = None if looks > _MOST_LOOKS else ModuleStructure(module, self._numbers)
        except (UnrecognisableError, ValueError, RecursionError):  # or an empty cell of a closure, or a circle
            structure = None
        self._known[key] = weakref.ref(module, lambda _ref: self._end(key)), structure
        for member in (key, *map(id, structure.children if structure else ())):
            self._roots_of.setdefault(member, set()).add(key)
        return structure

    def changed(self, module: torch.nn.Module, name: str, value: Any) -> None:
        """An attribute of a module is about to be given a value."""
        roots = self._roots_of.get(id(module))
        if roots is None or (type(value) in _PLAIN and _same(module.__dict__.get(name, ModuleStructures), value)):
            return
        for root in tuple(roots):
            self._drop(root)

    def _end(self, root: int) -> None:
        self._looks.pop(root, None)
        self._drop(root)

    def _drop(self, root: int) -> None:
        known = self._known.pop(root, None)
        if known is not None:
            for member in (root, *map(id, known[1].children if known[1] else ())):
                roots = self._roots_of.get(member)
                if roots is not None:
                    roots.discard(root)
                    if not roots:
                        del self._roots_of[member]
