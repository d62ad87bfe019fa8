"""Matrix products: the workspace of their handle, and copies of matrices that BLAS cannot read in place."""

import functools
import threading
from typing import Any

import torch
from torch.jit import _builtins

from vramtui.dryrun.fake.accounting.memory import StorageEntry
from vramtui.dryrun.fake.device.patches import Patches
from vramtui.dryrun.fake.kernels import after, kernel

_in_linear = threading.local()


def steer(patches: Patches) -> None:
    """Note whether a thread is in `F.linear`, which PyTorch does differently for fake tensors."""
    plain = torch.nn.functional.linear

    @functools.wraps(plain)
    def linear(*args: Any, **kwargs: Any) -> torch.Tensor:
        before, _in_linear.value = getattr(_in_linear, "value", False), True
        try:
            return plain(*args, **kwargs)
        finally:
            _in_linear.value = before

    _builtins._register_builtin(linear, "aten::linear")  # what torch.jit.script takes it for
    patches.set(torch.nn.functional, "linear", linear)


def is_dense(tensor: torch.Tensor) -> bool:
    """Return whether the elements fill one piece of memory without gaps or overlap, in any order of the dimensions."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True


def _readable(matrix: torch.Tensor) -> bool:
    """Return whether gemm can read a [rows, columns] matrix in place (`prepare_matrix_for_cublas`)."""
    rows, columns = matrix.shape
    down, across = matrix.stride()
    return is_dense(matrix) or (down == 1 and across >= max(1, rows)) or (across == 1 and down >= max(1, columns))


def _batch_readable(batch: torch.Tensor) -> bool:
    """Return whether cuBLAS reads [batch, rows, columns] in place (`prepare_batch_matrix_for_cublas`)."""
    _, rows, columns = batch.shape
    _, down, across = batch.stride()
    return (
        (down == 1 and across >= max(1, rows))
        or (across == 1 and down >= max(1, columns))
        or (batch.is_contiguous() and bool(down) and bool(across))
    )


def _copies(call: Any, *matrices: torch.Tensor) -> list[StorageEntry]:
    kinds = [matrix.dtype for matrix in matrices]
    if kinds[0] is not kinds[1]:  # which PyTorch's shapes take (ATen/native/cuda/Blas.cpp, 2.13)
        raise RuntimeError(f"expected m1 and m2 to have the same dtype, but got: {kinds[0]} != {kinds[1]}")
    ok = _readable if matrices[0].dim() == 2 else _batch_readable
    return [call.scratch(matrix.nbytes) for matrix in matrices if not ok(matrix)]


@after("mm", "bmm")
def product(call: Any, _out: Any) -> None:
    left, right = call.args[:2]
    if left.numel() and right.numel():
        _copies(call, left, right)
        call.memory.device.workspaces.cublas()


@after("addmm", "baddbmm", "addmm.dtype", "baddbmm.dtype")
def product_and_sum(call: Any, _out: Any) -> None:
    bias, left, right = call.args[:3]
    if left.numel() and right.numel():
        _copies(call, left, right)
        fused = call.func is torch.ops.aten.addmm.default and bias.dim() == 1 and bias.is_contiguous()
        workspaces = call.memory.device.workspaces
        (workspaces.cublaslt if fused else workspaces.cublas)()


@after("addmm_", "baddbmm_", "addmv", "mv", "dot", "vdot", "_addmm_activation")
def handle_only(call: Any, _out: Any) -> None:
    call.memory.device.workspaces.cublas()


@kernel("add.Tensor")
def plus_bias(call: Any) -> Any:
    """`F.linear` adds its bias in place to a product in one piece, but not for subclasses (ATen/native/Linear.cpp)."""
    product, bias = call.args[:2]
    if not (
        isinstance(bias, torch.Tensor) and bias.dim() == 1 and product.dim() > 2 and getattr(_in_linear, "value", False)
    ):
        return call.run()
    if product.dtype is not bias.dtype or not product.is_contiguous() or product.shape[-1] != bias.shape[0]:
        return call.run()
    return torch.ops.aten.alias.default(product)
