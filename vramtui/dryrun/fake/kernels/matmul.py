"""Matrix products: the workspace of their handle, and copies of matrices that BLAS cannot read in place."""

import threading
from typing import Any

import torch
from torch.jit import _builtins

from vramtui.dryrun.fake.device.patches import Patches
from vramtui.dryrun.fake.kernels import after, kernel

_in_linear = threading.local()


def steer(patches: Patches) -> None:
    """Note whether a thread is in `F.linear`, which PyTorch does differently for fake tensors."""

    @patches.around(torch.nn.functional, "linear")
    def linear(plain: Any, *args: Any, **kwargs: Any) -> Any:
        before, _in_linear.value = getattr(_in_linear, "value", False), True
        try:
            return plain(*args, **kwargs)
        finally:
            _in_linear.value = before

    _builtins._register_builtin(torch.nn.functional.linear, "aten::linear")  # what torch.jit.script takes it for


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
    """Return whether gemm reads it in place: [rows, columns] (`prepare_matrix_for_cublas`), or a batch of these
    (`prepare_batch_matrix_for_cublas`).
    """
    rows, columns = matrix.shape[-2:]
    down, across = matrix.stride()[-2:]
    is_whole = is_dense(matrix) if matrix.dim() == 2 else matrix.is_contiguous() and bool(down) and bool(across)
    return is_whole or (down == 1 and across >= max(1, rows)) or (across == 1 and down >= max(1, columns))


@after("mm", "bmm", "addmm", "baddbmm", "addmm.dtype", "baddbmm.dtype")
def product(call: Any, _out: Any) -> None:
    """Matrices that BLAS cannot read are copied; a product with a bias of one row runs in cuBLASLt."""
    bias, left, right = (call.args if "add" in call.func.name() else (None, *call.args))[:3]
    if not left.numel() or not right.numel():
        return
    if left.dtype is not right.dtype:  # which PyTorch's shapes take (ATen/native/cuda/Blas.cpp, 2.13)
        raise RuntimeError(f"expected m1 and m2 to have the same dtype, but got: {left.dtype} != {right.dtype}")
    for matrix in (left, right):
        if not _readable(matrix):
            call.scratch(matrix.nbytes)
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
    is_bias = isinstance(bias, torch.Tensor) and bias.dim() == 1 and product.dim() > 2
    if (
        is_bias
        and getattr(_in_linear, "value", False)
        and product.dtype is bias.dtype
        and product.is_contiguous()
        and product.shape[-1] == bias.shape[0]
    ):
        return torch.ops.aten.alias.default(product)
    return call.run()
