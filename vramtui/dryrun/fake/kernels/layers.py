"""Matrix products, losses, softmax, dropout and normalisation layers."""

import functools
import threading
from math import prod
from typing import Any

import torch
from torch.jit import _builtins

from vramtui.dryrun.fake.accounting.memory import SimulatedMemory
from vramtui.dryrun.fake.device.patches import Patches, holding
from vramtui.dryrun.fake.kernels import after, kernel, works_in
from vramtui.dryrun.fake.kernels.copies import form_of
from vramtui.dryrun.fake.kernels.reductions import partial


class _Adding(threading.local):
    into = ""


_adding = _Adding()


# This thread is in a composite that adds in place to a product or to scores, but for subclasses of tensors.
adding = functools.partial(holding, _adding, "into")


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
    workspaces = call.memory.workspaces
    (workspaces.cublaslt if fused else workspaces.cublas)()


@after("addmm_", "baddbmm_", "addmv", "mv", "dot", "vdot", "_addmm_activation")
def handle_only(call: Any, _out: Any) -> None:
    call.memory.workspaces.cublas()


@kernel("add.Tensor")
def plus(call: Any) -> Any:
    """`F.linear` adds a bias to a product in one piece (ATen/native/Linear.cpp), attention out of products its mask to
    the scores (ATen/native/transformers/attention.cpp).
    """
    product, bias = call.args[:2]
    is_bias = _adding.into == "product" and isinstance(bias, torch.Tensor) and bias.dim() == 1 and product.dim() > 2
    is_alike = is_bias and product.dtype is bias.dtype and product.shape[-1] == bias.shape[0]
    if _adding.into == "scores" or (is_alike and product.is_contiguous()):
        return torch.ops.aten.alias.default(product)
    return call.run()


@kernel("mse_loss_backward", "smooth_l1_loss_backward", "huber_loss_backward", "glu_backward")
def in_one_piece(call: Any) -> Any:
    """The gradient of a channels-last input is none (ATen/native/Loss.cpp and GatedLinearUnit.cpp)."""
    out = call.untracked()
    return call.take(out if out.is_contiguous() else torch.ops.aten.new_empty.default(out, out.shape))


@kernel("native_dropout")
def dropout(call: Any) -> Any:
    out, mask = call.untracked()
    call.take((mask, out))  # the mask of bytes first (`dropout_cuda`)
    return out, mask


@works_in("_softmax_backward_data")
def softmax_backward(call: Any) -> list[int]:
    """The kernel is handed grad * output in one piece (`softmax_backward_cuda_out`, `host_softmax_backward`)."""
    grad, output = call.args[:2]
    is_plain = grad.is_contiguous() or torch.ops.aten.mul.Tensor(grad, output).is_contiguous()
    return [grad.numel() * torch.promote_types(grad.dtype, output.dtype).itemsize] * (1 if is_plain else 2)


@works_in("_safe_softmax")
def safe_softmax(call: Any) -> list[int]:
    """Rows that are masked throughout come out as zeros: what is masked, which rows are, and a zero."""
    tensor, dim = call.args[:2]
    return [tensor.numel(), tensor.numel() // max(tensor.shape[dim], 1), tensor.element_size()]


_NUMBER = 8  # bytes enough for a scalar of any type; a block is 512


def _whole(call: Any, out: torch.Tensor) -> int:
    return int(torch.broadcast_shapes(call.args[0].shape, call.args[1].shape).numel()) * out.element_size()


@kernel("mse_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss", "binary_cross_entropy",
        "binary_cross_entropy_with_logits")  # fmt: skip
def loss(call: Any) -> Any:
    """The unreduced loss is whole until its mean is taken (ATen/native/Loss.cpp, native/cuda/Loss.cu).

    MSE and smooth L1 write it into a second tensor and resize the result to a number, BCE and soft margin resize the
    unreduced loss itself and copy the mean into it, the others make a tensor that goes with its mean. With logits the
    logarithm of the sigmoid is there too, and the target's weights while it is weighted.
    """
    name, out = call.func.overloadpacket.__name__, call.untracked()
    whole = _whole(call, out)
    if name == "binary_cross_entropy_with_logits":
        call.scratch(whole)
        if (weights := call.argument("pos_weight")) is not None:
            call.drop(*call.scratch(weights.nbytes, whole))  # less one, and those of the target
    if not call.argument("reduction"):
        return call.take(out)
    if name in {"huber_loss", "binary_cross_entropy_with_logits"}:
        call.scratch(whole)
        call.take(out)
    else:
        out.untyped_storage().resize_(whole)
        call.take(out)
        call.scratch(whole if name in {"mse_loss", "smooth_l1_loss"} else _NUMBER)
    partial(call, call.args[0], None, out)
    return out


@kernel("soft_margin_loss_backward")
def soft_margin_backward(call: Any) -> Any:
    """exp(-target * input) takes three tensors; the last stays until the gradient is made (Loss.cpp)."""
    whole = _whole(call, call.args[1])
    negated, product, _exponent = call.scratch(whole, whole, whole)
    call.drop(negated, product)
    return call.run()


CUDNN_NOTE = (
    "CTC loss over targets in one row of 32-bit integers may run in cuDNN, whose workspace is not known; the plain "
    "kernel's is counted"
)


@kernel("_ctc_loss", "_ctc_loss.Tensor")
def ctc_loss(call: Any) -> Any:
    """args: log probabilities [time, batch, classes], targets, their lengths (`ctc_loss_gpu_template`)."""
    probabilities, targets, _, lengths = call.args[:4]
    time, batch = probabilities.shape[:2]
    call.scratch(*[batch * _NUMBER] * 3)
    longest = max(lengths, default=0) if isinstance(lengths, (list, tuple)) else targets.shape[-1]
    alpha = call.take(probabilities.new_empty((batch, time, 2 * longest + 1)))
    return call.take(probabilities.new_empty((batch,))), alpha


@kernel("_ctc_loss_backward", "_ctc_loss_backward.Tensor")
def ctc_loss_backward(call: Any) -> Any:
    """args: grad, log probabilities, targets, their lengths, loss, alpha."""
    probabilities, alpha = call.args[1], call.args[6]
    call.scratch(*[probabilities.shape[1] * _NUMBER] * 3, alpha.nbytes)
    return call.take(torch.ops.aten.empty_like.default(probabilities))


_FLOAT = 4
_MANY_ROWS, _ROWS_PER_BLOCK = 64 * 1024, 32


@kernel("native_layer_norm", "_fused_rms_norm", "native_layer_norm_backward", "_fused_rms_norm_backward")
def row_norm(call: Any) -> Any:
    """args: input, normalized shape, ..., or grad, input, normalized shape, ... (layer_norm_kernel.cu).

    Over very many short rows the gradients of a layer norm's weight and bias are summed in two passes.
    """
    is_backward = call.func.name().endswith("backward")
    tensor = call.args[is_backward]
    call.copy(tensor)
    out = call.run()
    if not is_backward:
        return out
    call.copy(call.args[0])
    width = prod(call.args[2])
    rows, sm_count = tensor.numel() // max(width, 1), call.memory.limits.multiprocessors
    weight = None if "rms" in call.func.name() else call.argument("weight")
    if weight is not None and rows > _MANY_ROWS and width // 32 < sm_count // 2:
        blocks = -(-rows // _ROWS_PER_BLOCK)
        for grad in (grad for grad in out[1:] if grad is not None):
            call.scratch(blocks * width * grad.element_size())
            sums = torch.ops.aten.empty.memory_format([blocks, width], dtype=grad.dtype, device=grad.device)
            partial(call, sums, (0,), grad.view(-1))
    return out


@works_in("native_group_norm")
def group_norm(call: Any) -> list[int]:
    """Scale and shift are fused per channel first."""
    weight, bias, batch, channels, pixels = call.args[1:6]
    return [batch * channels * _FLOAT] * (2 if pixels != 1 and (weight is not None or bias is not None) else 0)


@works_in("native_group_norm_backward")
def group_norm_backward(call: Any) -> list[int]:
    weight, batch, channels, pixels, groups, mask = call.args[4:10]
    of_channels, of_groups = 2 + (bool(mask[0]) and weight is not None), 2 * bool(mask[0])
    return [batch * size * _FLOAT for size in ([channels] * of_channels + [groups] * of_groups) * (pixels != 1)]


def steer(patches: Patches, memory: SimulatedMemory) -> None:
    """Let layers go the way that they go on CUDA."""

    @patches.around(torch.nn.functional, "linear")
    def linear(plain: Any, *args: Any, **kwargs: Any) -> Any:
        with adding("product"):
            return plain(*args, **kwargs)

    _builtins._register_builtin(torch.nn.functional.linear, "aten::linear")  # what torch.jit.script takes it for

    @patches.around(torch, "ctc_loss")
    def ctc_loss(
        plain: Any, log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, *rest: Any, **how: Any
    ) -> Any:
        """Take lengths as numbers; those that follow from data are as long as they can be."""
        if log_probs.device.type == "cpu":
            return plain(log_probs, targets, input_lengths, target_lengths, *rest, **how)
        if not (rest[0] if rest else how.get("blank", 0)) and targets.dim() == 1 and targets.dtype is torch.int32:
            memory.warn(CUDNN_NOTE)
        batch = log_probs.shape[1] if log_probs.dim() > 2 else 1
        longest = targets.shape[-1] if targets.dim() == 2 else targets.numel() // max(batch, 1)
        both = []
        for lengths, most in ((input_lengths, log_probs.shape[0]), (target_lengths, longest)):
            known = memory.values.value_of(lengths.flatten()) if isinstance(lengths, torch.Tensor) else lengths
            both.append([most] * batch if known is None else [int(length) for length in known])
        return plain(log_probs, targets, *both, *rest, **how)

    @patches.around(torch, "batch_norm")
    def batch_norm(plain: Any, tensor: Any, *rest: Any, **kwargs: Any) -> Any:
        """Copy an input that is not in one piece, and its gradient, as cuDNN does (`_batch_norm_impl_index`)."""
        if kwargs:
            return plain(tensor, *rest, **kwargs)
        weight, bias, mean, variance, training, _, epsilon, enabled = rest
        if not (  # `_select_batch_norm_backend`
            tensor.is_cuda
            and weight is not None
            and bias is not None
            and torch.bfloat16 not in (tensor.dtype, weight.dtype)
            and (tensor.dtype is not torch.float16 or weight.dtype is torch.float32)
            and (mean is None) is (variance is None)
            and (training or mean is not None)
            and tensor.dim() >= 3
            and tensor.shape[0] <= (880_801 if training else 65_535)
            and epsilon >= 1e-5
            and enabled
        ):
            return plain(tensor, *rest)
        form = torch.contiguous_format if tensor.is_contiguous() else form_of(tensor)
        if not tensor.is_contiguous(memory_format=form):
            form = torch.contiguous_format
        answer = plain(tensor.contiguous(memory_format=form), *rest)
        if answer.requires_grad:
            answer.register_hook(lambda grad: grad.contiguous(memory_format=form))
        return answer

    _builtins._register_builtin(torch.batch_norm, "aten::batch_norm")  # what torch.jit.script takes it for
