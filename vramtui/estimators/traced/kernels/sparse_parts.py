"""What a sparse tensor of the card holds, how many places, and how one is made of parts."""

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch._subclasses.fake_tensor import FakeTensor

_aten: Any = torch.ops.aten
MAKE_COO = _aten._sparse_coo_tensor_with_dims_and_tensors.default
_COLUMNS = {torch.sparse_csr, torch.sparse_bsr}  # their first part counts rows, that of the others columns


def parts_of(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The tensors that hold what a sparse one does, in the order in which they are copied."""
    if tensor.layout is torch.sparse_coo:
        return _aten._indices.default(tensor), _aten._values.default(tensor)
    if tensor.layout in _COLUMNS:
        return _aten.crow_indices.default(tensor), _aten.col_indices.default(tensor), _aten.values.default(tensor)
    return _aten.ccol_indices.default(tensor), _aten.row_indices.default(tensor), _aten.values.default(tensor)


def own_parts(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The fake tensors that a compressed tensor was made of; those that PyTorch gives of any other."""
    return vars(tensor).get("parts") or parts_of(tensor)


def make_coo(
    call: Any, like: torch.Tensor, parts: Sequence[torch.Tensor], *, keeps_places: bool = False
) -> torch.Tensor:
    """A COO tensor of `like`'s shape.

    Args:
        call: what takes the parts' memory.
        like: a COO tensor.
        parts: indices of [dimensions, places] and values of [places, ...].
        keeps_places: the places are those of `like`.
    """
    indices, values = parts
    out: torch.Tensor = MAKE_COO(
        indices.shape[0], values.dim() - 1, like.shape, indices, values,
        dtype=values.dtype, layout=torch.sparse_coo, device=values.device,
    )  # fmt: skip
    call.take(list(parts))
    if keeps_places:
        if like.is_coalesced():
            _aten._coalesced_.default(out, True)
        vars(out)["places"] = distinct_count(like)
    return out


def make_compressed(like: torch.Tensor, parts: Sequence[torch.Tensor], layout: Any, shape: Any) -> torch.Tensor:
    """A fake tensor of a compressed layout.

    Args:
        like: a fake tensor, which tells the mode and the device.
        parts: its counts, numbers and values.
        layout: torch.sparse_csr, or one like it.
        shape: its sizes.
    """
    mode, device = like.fake_mode, like._fake_device  # type: ignore[attr-defined] # of a fake tensor
    with torch._C._DisableTorchDispatch():
        meta = [torch.empty(part.shape, dtype=part.dtype, device="meta") for part in parts]
        counts, numbers, values = meta
        answer = torch.sparse_compressed_tensor(counts, numbers, values, shape, layout=layout, check_invariants=False)
        out: torch.Tensor = FakeTensor(mode, answer, device)
    vars(out)["parts"] = tuple(parts)
    return out


def count_of(tensor: torch.Tensor) -> int:
    """How many places a COO tensor holds, those that stand there twice included."""
    return int(_aten._values.default(tensor).shape[0])


def distinct_count(tensor: torch.Tensor) -> int | None:
    """How many places of a COO tensor differ; None where nobody knows."""
    if tensor.is_coalesced():
        return count_of(tensor)
    return cast("int | None", vars(tensor).get("places"))
