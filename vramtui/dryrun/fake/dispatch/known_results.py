"""Results of calls that were seen before: the same operator on tensors of the same shapes, strides, types and devices.

`FakeTensorMode` remembers such calls too, at 80 to 100 microseconds each, and leaves out what works in place or on
lists of tensors; this takes a fifth of that. Only the description of a result is kept, never a tensor.
"""

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

_MOST = 1 << 16  # calls remembered: some 60 MB, and far more than a loop of steps has
_PLAIN = (int, float, bool, complex, str, type(None), torch.dtype, torch.layout, torch.memory_format)
_NEVER: Any = object()
_TAGS = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape, torch.Tag.inplace_view}
# They change the storage or the shape of what they are given, without the tag for it.
_RESHAPED = ("resize", "set_", "as_strided_", "_copy_from", "swap", "lift")
_make_subclass: Any = torch.Tensor._make_subclass  # before a trace puts its own there
_templates: dict[Any, dict[str, Any]] = {}


class _UnknownKindError(Exception):
    """An argument that is no part of a key."""


def fake_of(mode: Any, meta: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A fake tensor over `meta`, which is on "meta": as `FakeTensor(mode, meta, device)`, whose attributes it has.

    Without dispatch, as that.
    """
    if mode.__class__.__module__.startswith("torch."):
        return FakeTensor(mode, meta, device)
    template = _templates.get((id(mode), device))
    if template is None:
        out = FakeTensor(mode, meta, device)
        _templates[id(mode), device] = dict(vars(out))
        return out
    fake: torch.Tensor = _make_subclass(
        FakeTensor, meta, meta.requires_grad, dispatch_device=True, device_for_backend_keys=device
    )
    torch._C._set_warn_deprecated_on_mutable_data_ptr(fake)
    fake.__dict__.update(template)
    return fake


class KnownResults:
    """Answers calls by what the same ones gave before."""

    def __init__(self) -> None:
        self._known: dict[Any, Any] = {}
        self._kinds: dict[int, bool] = {}
        self._mode: Any = None

    def key(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What names this call among all; None where it is none to remember."""
        kind = self._kinds.get(id(func))  # whose hash is a function in Python
        if kind is None:
            kind = self._kinds[id(func)] = _can_be_known(func)
        if not kind:
            return None
        parts: list[Any] = [id(func), torch.get_default_dtype(), torch.is_inference_mode_enabled()]
        try:
            _describe(args, parts)
            for name, value in kwargs.items():
                parts.append(name)
                _describe((value,), parts)
        except _UnknownKindError:
            return None
        return tuple(parts)

    def answer(self, key: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the call gives; NotImplemented where it has not been seen."""
        recipe = self._known.get(key)
        if recipe is None or recipe is _NEVER:
            return NotImplemented
        if recipe[0] == "given":
            return _arguments_at(recipe[1], args, kwargs)
        with torch._C._DisableTorchDispatch():
            return _build_result(recipe, self._mode)

    def remember(self, key: Any, asked: tuple[Any, tuple[Any, ...], dict[str, Any]], out: Any) -> None:
        """Keep what a call (operator, arguments, keywords) gave, where it can be had from its description alone."""
        if len(self._known) >= _MOST:
            self._known.clear()
        if key in self._known:
            return
        func, args, kwargs = asked
        if func._schema.is_mutable:
            recipe = _returned_arguments(func, args, kwargs, out)
        else:
            given = [value for value in _flat((*args, *kwargs.values())) if isinstance(value, torch.Tensor)]
            recipe = _recipe(out, {tensor.untyped_storage()._cdata for tensor in given})
            first = next((value for value in _flat((out,)) if isinstance(value, FakeTensor)), None)
            if first is not None:
                self._mode = first.fake_mode
        self._known[key] = recipe


def _can_be_known(func: Any) -> bool:
    """Whether an operator's result has no storage of its arguments', or is one of them, by its schema."""
    if func.namespace != "aten" or func.is_view or not _TAGS.isdisjoint(func.tags):
        return False
    name = func.overloadpacket.__name__
    if any(part in name for part in _RESHAPED):
        return False
    schema = func._schema
    if not schema.is_mutable:
        return all(one.alias_info is None for one in (*schema.arguments, *schema.returns))
    return "out" not in func._overloadname and all(
        one.alias_info is not None and one.alias_info.is_write for one in schema.returns
    )


def _describe(values: Any, parts: list[Any]) -> None:
    """Add to `parts` what a result's shape can depend on.

    Raises:
        _UnknownKindError: a value is of a kind whose part in the result is not known.
    """
    for value in values:
        kind = type(value)
        if kind is FakeTensor:
            if value.constant is not None or value.layout is not torch.strided:
                raise _UnknownKindError
            parts += (value.shape, value.stride(), value.dtype, value._fake_device, value.is_conj(), value.is_neg())
        elif kind in _PLAIN:
            parts += (kind, value)
        elif kind is list or kind is tuple:
            parts += (kind, len(value))
            _describe(value, parts)
        elif kind is torch.Tensor and value.layout is torch.strided:  # on the host, with values
            parts += (kind, value.shape, value.stride(), value.dtype, value.device, value.is_conj(), value.is_neg())
        elif kind is torch.device:
            parts.append(value)
        else:
            raise _UnknownKindError


def _flat(values: Any) -> list[Any]:
    parts: list[Any] = []
    for value in values:
        if isinstance(value, (list, tuple)):
            parts += _flat(value)
        else:
            parts.append(value)
    return parts


def _recipe(out: Any, seen: set[int]) -> Any:
    """How to make `out` anew; `seen` holds the storages that are not its own."""
    if isinstance(out, (list, tuple)):
        parts = [_recipe(part, seen) for part in out]
        return _NEVER if _NEVER in parts else (type(out), parts)
    if not isinstance(out, torch.Tensor):
        return ("value", out) if type(out) in _PLAIN else _NEVER
    if out.layout is not torch.strided:
        return _NEVER
    storage = out.untyped_storage()
    if (
        type(out) is not FakeTensor
        or out.constant is not None
        or storage._cdata in seen
        or out.storage_offset()
        or out.is_conj()
        or out.is_neg()
    ):
        return _NEVER
    seen.add(storage._cdata)
    with torch._C._DisableTorchDispatch():
        again = torch.empty_strided(out.shape, out.stride(), dtype=out.dtype, device="meta")
    if again.untyped_storage().nbytes() != storage.nbytes():
        return _NEVER
    return "tensor", tuple(out.shape), out.stride(), out.dtype, out._fake_device


def _build_result(recipe: Any, mode: Any) -> Any:
    kind = recipe[0]
    if kind == "tensor":
        _kind, shape, stride, dtype, device = recipe
        return fake_of(mode, torch.empty_strided(shape, stride, dtype=dtype, device="meta"), device)
    if kind == "value":
        return recipe[1]
    return kind(_build_result(part, mode) for part in recipe[1])


def _returned_arguments(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Any:
    """The names of the arguments that an operator in place gives back."""
    if out is None:
        return "given", None
    if not isinstance(out, torch.Tensor):
        return _NEVER
    for i, value in enumerate(args):
        if value is out:
            return "given", i
    for argument in func._schema.arguments:
        if kwargs.get(argument.name) is out:
            return "given", argument.name
    return _NEVER


def _arguments_at(place: int | str | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if place is None:
        return None
    return args[place] if isinstance(place, int) else kwargs[place]
