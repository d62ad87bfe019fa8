"""Sparse tensors on the card: what they hold is their indices and values, and these are ordinary fake tensors.

COO follows ATen/native/sparse/cuda/SparseCUDATensor.cu (`coalesce`: three arrays of a place each, a sort) and
SparseCUDATensorMath.cu (`addmm`: row and column numbers of 32 bits, a copy of the result by columns). How many places
differ is counted where their values are known, as they are on the host; elsewhere all of them are taken to differ, and
the answer says so. CSR and its like keep their parts as they are. The buffer that cuSPARSE asks for is not known.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, UnsupportedOperatorException

from vramtui.core.base.errors import BeyondTraceError
from vramtui.estimators.torch_facts import cub
from vramtui.estimators.traced.device.device import SIM
from vramtui.estimators.traced.dispatch import values
from vramtui.estimators.traced.dispatch.host import is_real
from vramtui.estimators.traced.kernels.registry import kernel
from vramtui.estimators.traced.kernels.sparse_parts import (
    MAKE_COO,
    count_of,
    distinct_count,
    make_compressed,
    make_coo,
    own_parts,
    parts_of,
)

NOTE = "sparse products run without the buffer that cuSPARSE may ask for, which only a card tells"
UNKNOWN = (
    "{} of a sparse tensor{}: a trace follows sparse tensors through products, sums, copies and gradients of "
    "embeddings, but not through this; that is a limit of the trace, not a fault of the code"
)
_aten: Any = torch.ops.aten
_TRANSPOSED = {
    torch.sparse_csr: torch.sparse_csc, torch.sparse_csc: torch.sparse_csr,
    torch.sparse_bsr: torch.sparse_bsc, torch.sparse_bsc: torch.sparse_bsr,
}  # fmt: skip
_INDEX = 8
_INT = 4
_Rule = Callable[[Any], Any]


def is_sparse_call(func: Any, args: Sequence[Any]) -> bool:
    """Whether an operator makes a sparse tensor of parts, or is given one."""
    if func is MAKE_COO:
        return True
    for value in args:
        if isinstance(value, torch.Tensor) and value.layout is not torch.strided:
            return value.layout is not torch.jagged
    return False


def run(call: Any) -> Any:
    """What an operator gives that is given sparse tensors; what it makes is allocated.

    Raises:
        BeyondTraceError: nobody has written down what it takes.
    """
    if _on_host(call):
        with torch._C._DisableTorchDispatch():
            return call.func(*call.args, **call.kwargs)
    call.memory.operator = call.func
    rule = _RULES.get(call.func.overloadpacket.__name__)
    try:
        return _plain(call) if rule is None else rule(call)
    except UnsupportedOperatorException:
        line = call.memory.user_line()
        raise BeyondTraceError(
            UNKNOWN.format(call.func.overloadpacket.__name__, f" at {line}" if line else "")
        ) from None
    finally:
        call.end()


def _on_host(call: Any) -> bool:
    device = call.kwargs.get("device")
    tensors = [value for value in (*call.args, *call.kwargs.values()) if isinstance(value, torch.Tensor)]
    return (device is None or device.type != SIM) and all(map(is_real, tensors))


def _plain(call: Any) -> Any:
    """What fake tensors know themselves: views of parts, counts, shapes."""
    return call.take(call.func(*call.args, **call.kwargs))


def _make(call: Any) -> Any:
    """args: sparse dimensions, dense dimensions, shape, indices, values."""
    out = call.func(*call.args, **call.kwargs)
    indices = values.certain_value(call.memory.book, call.args[3])
    vars(out)["places"] = None if indices is None else _distinct(indices)
    return out


def _filled(dense: torch.Tensor) -> int:
    with torch._C._DisableTorchDispatch():
        return int(dense.count_nonzero())


def _distinct(indices: torch.Tensor) -> int:
    """How many places of [dimensions, places] differ."""
    with torch._C._DisableTorchDispatch():
        return int(torch.unique(indices, dim=1).shape[1]) if indices.numel() else 0


def _coalesce(call: Any) -> Any:
    """args: a COO tensor that is not coalesced."""
    tensor = call.args[0]
    indices, values = parts_of(tensor)
    count = count_of(tensor)
    if count < 2:
        out = _each(call)
        _aten._coalesced_.default(out, True)
        return out
    flat = call.scratch(count * _INDEX)
    order = [call.scratch(count * _INDEX), call.scratch(count * _INDEX)]
    call.drop(call.scratch(cub.merge_sort_pairs(count, _INDEX, _INDEX)))
    places = distinct_count(tensor)
    if places is None:
        places = call.memory.bound(count, call.func)
    sums = values.new_empty((places, *values.shape[1:]))
    call.take(sums)
    rows = indices.shape[0]
    if rows == 1:
        call.drop(flat)
    where = indices.new_empty((rows, places))
    call.take(where)
    call.drop(*order)
    out = make_coo(call, tensor, (where, sums))
    _aten._coalesced_.default(out, True)
    return out


def _each(call: Any) -> Any:
    """An operator that works on values alone, and copies the places: args: a sparse tensor first, or last."""
    tensor = next(one for one in call.args if isinstance(one, torch.Tensor) and one.layout is not torch.strided)
    *places, values = own_parts(tensor)
    places = [part.clone() for part in places]
    args = [values if one is tensor else one for one in call.args]
    answer = call.func(*args, **{key: one for key, one in call.kwargs.items() if key != "memory_format"})
    return _again(call, tensor, (*places, answer))


def _again(call: Any, tensor: torch.Tensor, parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """A tensor of the layout, shape and places of `tensor` over other parts."""
    if tensor.layout is torch.sparse_coo:
        return make_coo(call, tensor, parts, keeps_places=True)
    call.take(list(parts))
    return make_compressed(parts[-1], parts, tensor.layout, tensor.shape)


def _multiply(call: Any) -> Any:
    """args: a sparse tensor and a number, or a tensor of none or of the same shape."""
    other = call.args[1]
    if isinstance(other, torch.Tensor) and other.dim():
        raise UnsupportedOperatorException(call.func)
    return _each(call)


def _clone(call: Any) -> Any:
    """args: a sparse tensor. A gradient of its own autograd keeps; it is copied here only because Python holds it."""
    node: Any = torch._C._current_autograd_node()
    return _detach(call) if node is not None and node.name().endswith("AccumulateGrad") else _each(call)


def _detach(call: Any) -> Any:
    tensor = call.args[0]
    return _again(call, tensor, [part.detach() for part in own_parts(tensor)])


def _to_copy(call: Any) -> Any:
    """args: a sparse tensor; to another device or type."""
    tensor = call.args[0]
    given = {key: value for key, value in call.kwargs.items() if key in ("device", "non_blocking")}
    places: int | None = None
    if isinstance(tensor, FakeTensor):
        parts = own_parts(tensor)
    else:
        with torch._C._DisableTorchDispatch():
            parts = parts_of(tensor)
            if tensor.layout is torch.sparse_coo:
                places = _distinct(parts[0])
    copies = [_aten._to_copy.default(part, **given) for part in parts[:-1]]
    copies.append(_aten._to_copy.default(parts[-1], **given, dtype=call.kwargs.get("dtype")))
    if not isinstance(copies[-1], FakeTensor):
        raise UnsupportedOperatorException(call.func)
    if tensor.layout is not torch.sparse_coo:
        call.take(copies)
        return make_compressed(copies[-1], copies, tensor.layout, tensor.shape)
    out = make_coo(call, tensor, copies)
    vars(out)["places"] = places if places is not None else vars(tensor).get("places")
    if tensor.is_coalesced():
        _aten._coalesced_.default(out, True)
    return out


def _transpose(call: Any) -> Any:
    """args: a matrix. Of COO both parts are copied, and it counts as not coalesced; the others share theirs."""
    tensor = call.args[0]
    if tensor.layout is not torch.sparse_coo:
        shape = tensor.shape[::-1]
        return make_compressed(tensor, own_parts(tensor), _TRANSPOSED[tensor.layout], shape)
    indices, values = parts_of(tensor)
    copies = [indices.clone(), values.clone()]
    call.take(copies)
    call.drop(call.scratch(count_of(tensor) * _INDEX))
    out = make_coo(call, tensor.new_empty(tensor.shape[::-1]), copies)
    vars(out)["places"] = distinct_count(tensor)
    return out


def _product(call: Any) -> Any:
    """args: a sparse matrix, a dense one; or what is added to their product, and then these; or a dense, a COO one."""
    call.memory.warn(NOTE)
    if len(call.args) == 2:
        tensor, dense = call.args
        if tensor.layout is torch.strided and dense.layout is torch.sparse_coo:
            return _multiply_dense_by_sparse(call)
        added = call.scratch(tensor.shape[0] * dense.shape[-1] * dense.element_size())  # zeros to add to
    else:
        (_, tensor, dense), added = call.args[:3], None
    if dense.layout is not torch.strided or tensor.layout is torch.strided:
        raise UnsupportedOperatorException(call.func)
    columns = dense.shape[1] if dense.dim() == 2 else 1
    out = dense.new_empty((tensor.shape[0], columns) if dense.dim() == 2 else (tensor.shape[0],))
    call.take(out)
    if tensor.layout is torch.sparse_coo:
        _multiply_places(call, tensor, dense, out)
    if added is not None:
        call.drop(added)
    return out


def _multiply_dense_by_sparse(call: Any) -> torch.Tensor:
    """args: a dense matrix, a COO one. Both are transposed, and so is what their product gives (SparseTensorMath.cpp,
    `_sparse_mm`; what it allocates up to cuSPARSE was recorded with 2.13's CUDA build).
    """
    dense, tensor = call.args
    zeros = call.scratch(dense.shape[0] * tensor.shape[1] * dense.element_size())
    call.args = (tensor,)
    turned = _transpose(call)
    out: torch.Tensor = dense.new_empty((tensor.shape[1], dense.shape[0]))
    call.take(out)
    _multiply_places(call, turned, dense.t(), out)
    call.drop(zeros)
    return out.t()


def _multiply_places(call: Any, tensor: torch.Tensor, dense: torch.Tensor, out: torch.Tensor) -> None:
    coalesced: Any = None
    if not tensor.is_coalesced():
        before = call.args
        call.args = (tensor,)
        coalesced = _coalesce(call)
        call.args = before
    count = count_of(tensor if coalesced is None else coalesced)
    scratch = [call.scratch((tensor.shape[0] + 1) * _INT)]
    call.drop(call.scratch(count * _INT))
    scratch += [call.scratch(count * _INT), call.scratch(out.numel() * out.element_size())]
    by_columns = dense.dim() == 2 and dense.stride(0) == 1 and dense.stride(1) == dense.shape[0]
    strided = dense.dim() == 2 and dense.stride(1) == 1 and dense.stride(0) != dense.shape[1]
    if not (by_columns or strided or dense.is_contiguous()):
        scratch.append(call.scratch(dense.numel() * dense.element_size()))
    call.drop(*reversed(scratch))


def _add(call: Any) -> Any:
    """args: two sparse tensors, whose places are put behind each other, or a dense one and a sparse one."""
    first, other = call.args[:2]
    in_place = call.func.overloadpacket.__name__ == "add_"
    if first.layout is torch.strided:
        out = first if in_place else torch.empty_like(first)
        call.take(out)
        if not other.is_coalesced() and other.sparse_dim() > 1:
            call.scratch(count_of(other) * _INDEX)
        return out
    if other.layout is not torch.sparse_coo or first.layout is not torch.sparse_coo:
        raise UnsupportedOperatorException(call.func)
    pairs = zip(parts_of(first), parts_of(other), strict=True)
    joined = [torch.cat(pair, dim) for pair, dim in zip(pairs, (1, 0), strict=True)]
    return _into(call, first, joined) if in_place else make_coo(call, first, joined)


def _into(call: Any, target: torch.Tensor, parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """`target`, which holds other places from now on."""
    answer = make_coo(call, target, parts)
    with torch._C._DisableTorchDispatch():
        torch._C._swap_tensor_impl(target, answer)
    vars(target).pop("places", None)
    return target


def _mask(call: Any) -> Any:
    """args: a tensor, the COO tensor whose places are taken out of it."""
    dense, mask = call.args[:2]
    indices, values = parts_of(mask)
    return make_coo(call, mask, (indices.clone(), dense.new_empty(values.shape)), keeps_places=True)


def _dense(call: Any) -> Any:
    """args: a sparse tensor."""
    tensor = call.args[0]
    out = own_parts(tensor)[-1].new_empty(tensor.shape, dtype=call.kwargs.get("dtype"))
    call.take(out)
    return out


def _to_rows(call: Any) -> Any:
    """args: a COO matrix, which becomes a CSR one."""
    tensor = call.args[0]
    if tensor.layout is not torch.sparse_coo:
        raise UnsupportedOperatorException(call.func)
    if not tensor.is_coalesced():
        tensor = _coalesce(call)
    indices, values = parts_of(tensor)
    parts = [indices.new_empty(tensor.shape[0] + 1), indices.new_empty(count_of(tensor)), values.clone()]
    call.take(parts)
    return make_compressed(values, parts, torch.sparse_csr, tensor.shape)


@kernel("_to_sparse", "_to_sparse_csr", "_to_sparse_csc")
def from_dense(call: Any) -> Any:
    """args: a dense tensor, of which the places that are not zero are kept (ATen/native/TensorConversions.cpp)."""
    dense = call.args[0]
    known = values.certain_value(call.memory.book, dense)
    places = call.memory.bound(dense.numel(), call.func) if known is None else _filled(known)
    call.scratch(dense.dim() * places * _INDEX)
    taken = dense.new_empty(places)
    name = call.func.overloadpacket.__name__
    if call.kwargs.get("layout") not in (None, torch.sparse_coo):
        raise UnsupportedOperatorException(call.func)
    if name == "_to_sparse":
        out = make_coo(call, dense, (dense.new_empty((dense.dim(), places), dtype=torch.int64), taken))
        _aten._coalesced_.default(out, True)
        return out
    layout, counted = (torch.sparse_csr, 0) if name.endswith("csr") else (torch.sparse_csc, 1)
    parts = [dense.new_empty(size, dtype=torch.int64) for size in (dense.shape[counted] + 1, places)] + [taken]
    call.take(parts)
    return make_compressed(taken, parts, layout, dense.shape)


def _part(place: int) -> _Rule:
    """The rule of what gives one part of a compressed tensor."""

    def rule(call: Any) -> Any:
        tensor = call.args[0]
        return _plain(call) if tensor.layout is torch.sparse_coo else own_parts(tensor)[place].detach()

    return rule


_RULES: dict[str, _Rule] = {
    "_sparse_coo_tensor_with_dims_and_tensors": _make,
    "_coalesce": _coalesce,
    "clone": _clone,
    **dict.fromkeys(("neg", "sqrt", "abs", "pow", "relu", "square", "isnan", "isfinite"), _each),
    **dict.fromkeys(("mul", "div"), _multiply),
    **dict.fromkeys(("detach", "alias"), _detach),
    "_to_copy": _to_copy,
    **dict.fromkeys(("t", "transpose"), _transpose),
    **dict.fromkeys(("mm", "addmm", "mv", "_sparse_addmm"), _product),
    **dict.fromkeys(("add", "add_"), _add),
    "sparse_mask": _mask,
    "_to_dense": _dense,
    "_to_sparse_csr": _to_rows,
    **dict.fromkeys(("crow_indices", "ccol_indices"), _part(0)),
    **dict.fromkeys(("col_indices", "row_indices"), _part(1)),
    "values": _part(-1),
}
