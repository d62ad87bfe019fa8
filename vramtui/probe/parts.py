"""What the models and optimizers hold: weights, gradients and states in bytes, by device."""

from __future__ import annotations  # Python 3.8, which a job may run under, knows no `dict[str, int]`

from collections.abc import Iterable
from itertools import chain
from typing import TYPE_CHECKING, Any

BLOCK = 512  # the CUDA allocator hands out multiples of this
if TYPE_CHECKING:
    Sizes = dict[str, int]


def weights_of(optimizers: Iterable[Any], modules: Iterable[Any], torch: Any) -> Sizes:
    """Parameters that are trained, and those and the buffers of whole models, frozen ones among them."""
    tensors = (tensor for module in modules for tensor in chain(module.parameters(), module.buffers()))
    return _sizes(torch, chain(_parameters(optimizers), tensors))


def gradients_of(optimizers: Iterable[Any], torch: Any) -> Sizes:
    """The gradients that are there now."""
    return _sizes(torch, (parameter.grad for parameter in _parameters(optimizers)))


def states_of(optimizers: Iterable[Any], torch: Any) -> Sizes:
    """Moments, master copies, step counters: every tensor in the optimizers' states."""
    return _sizes(torch, (leaf for optimizer in optimizers for leaf in _leaves(optimizer.state)))


def _parameters(optimizers: Iterable[Any]) -> Iterable[Any]:
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            yield from group["params"]


def _leaves(tree: Any, depth: int = 4) -> Iterable[Any]:
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, (list, tuple)):
        for branch in tree if depth else ():
            yield from _leaves(branch, depth - 1)
    else:
        yield tree


def _sizes(torch: Any, things: Iterable[Any]) -> Sizes:
    """Bytes of the distinct storages behind those of `things` that are tensors, in whole blocks on a CUDA device."""
    sizes: dict[Any, int] = {}
    seen = set()
    for thing in things:
        if not isinstance(thing, torch.Tensor):
            continue
        tensor = getattr(thing, "_local_tensor", thing)  # a DTensor's own shard
        if tensor.is_meta:
            continue
        device = tensor.device
        storage = tensor.untyped_storage()
        address, size = storage.data_ptr(), storage.nbytes()
        if not size or (device, address) in seen:
            continue
        seen.add((device, address))
        if device.type == "cuda":
            size = -(-size // BLOCK) * BLOCK
        sizes[device] = sizes.get(device, 0) + size
    return {str(device): size for device, size in sizes.items()}
