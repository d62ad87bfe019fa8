"""Operators that CUDA makes of other kernels than an unknown device: softmax, norms, attention."""

import functools
import math
from typing import Any

import torch

from vramtui.estimators.torch_facts.releases import release_of
from vramtui.estimators.torch_facts.sdpa_backend import AttentionCall, SdpaBackend, backend_order, can_use

_OPS: Any = torch.ops.aten
_WHOLE_ON_CUDA = ("silu_backward", "mish_backward", "native_channel_shuffle", "_fused_rms_norm")


def install(capability: tuple[int, int]) -> "torch.library.Library":
    """Keep operators whole and steer attention on the stand-in device; keep the returned library.

    The kernels of whole ones are never run: the mode above answers first. That they exist keeps torch from decomposing.
    """

    def never(*_args: Any, **_kwargs: Any) -> Any:
        raise AssertionError("reached a kernel of the simulated device")

    library = torch.library.Library("aten", "IMPL")
    for name in _WHOLE_ON_CUDA:
        library.impl(name, never, "PrivateUse1")
    for key in ("PrivateUse1", "AutogradPrivateUse1"):
        for name, kernel in {
            "softmax.int": _read_by(_OPS._softmax),
            "log_softmax.int": _read_by(_OPS._log_softmax),
            "group_norm": _group_norm,
            "one_hot": _one_hot,
            "scaled_dot_product_attention": functools.partial(_attend, capability),
        }.items():
            library.impl(name, kernel, key)
    return library


@functools.cache
def find_maker(func: Any) -> Any:
    """Find the key whose kernel makes an operator of others (linear of addmm), which arrives whole in inference mode,
    or for a tensor made in it.

    It is the device's where attention is steered, or else that of all devices; None for any other operator.
    """
    known, name = torch._C._dispatch_has_kernel_for_dispatch_key, func.name()
    if func.namespace != "aten" or not known(name, "CompositeImplicitAutograd"):
        return None
    keys = torch._C.DispatchKey
    return keys.PrivateUse1 if known(name, "PrivateUse1") else keys.CompositeImplicitAutograd


def _read_by(kernel: Any) -> Any:
    """The kernel reads half precision and writes fp32 where that is asked for (ATen/native/SoftMax.cpp, 2.13)."""

    def run(tensor: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> Any:
        if tensor.dtype is torch.float16 and dtype is torch.float32:
            return kernel(tensor, dim, True)
        return kernel(tensor if dtype is None else tensor.to(dtype), dim, False)

    return run


def _group_norm(
    tensor: torch.Tensor, groups: int, weight: Any = None, bias: Any = None, epsilon: float = 1e-5, _cudnn: bool = True
) -> Any:
    """CUDA's kernel takes a copy of a channels-last input (ATen/native/group_norm.cpp, 2.13), kept for backward."""
    batch, channels = tensor.shape[:2]
    weight = None if weight is None else weight.contiguous()
    bias = None if bias is None else bias.contiguous()
    places = tensor.numel() // (batch * channels) if batch * channels else 0
    contiguous = tensor.contiguous()
    return _OPS.native_group_norm(contiguous, weight, bias, batch, channels, places, groups, epsilon)[0]


def _one_hot(classes: torch.Tensor, number: int = -1) -> Any:
    """CUDA lays ones into zeros, and fake tensors would compare with each class (ATen/native/Onehot.cpp, 2.13)."""
    if classes.dtype is not torch.int64:
        raise RuntimeError("one_hot is only applicable to index tensor of type LongTensor.")
    if not classes.numel() and number <= 0:
        raise RuntimeError("Can not infer total number of classes from empty tensor.")
    if number == -1:
        number = int(classes.max().item()) + 1
    elif number < 1:
        raise RuntimeError("num_classes should be positive")
    if not classes.numel():
        return classes.new_empty((*classes.shape, number))
    return classes.new_zeros((*classes.shape, number)).scatter_(-1, classes.unsqueeze(-1), 1)


_HALF = (torch.float16, torch.bfloat16)
_TYPES = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}
_MASK_ALIGNMENT = 8


def choose(
    tensors: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None],
    capability: tuple[int, int],
    *,
    dropout: float,
    causal: bool,
    grouped: bool,
) -> SdpaBackend:
    """The kernel CUDA would take for query, key, value and mask, of those that are allowed.

    Raises:
        RuntimeError: none is, in torch's words.
    """
    query, key, value, mask = tensors
    flags = torch._C
    allowed = {
        "cudnn": flags._get_cudnn_sdp_enabled,
        "flash": flags._get_flash_sdp_enabled,
        "efficient": flags._get_mem_efficient_sdp_enabled,
        "math": flags._get_math_sdp_enabled,
    }
    asked = AttentionCall(
        dtype=_TYPES.get(query.dtype, "other") if query.dtype == key.dtype == value.dtype else "mixed",
        query=tuple(query.shape),
        key=tuple(key.shape),
        value=tuple(value.shape),
        masked=mask is not None,
        trained_mask=mask is not None and mask.requires_grad,
        dropout=float(dropout),
        causal=causal,
        grouped=grouped,
        training=_trains(query, key, value),
        deterministic=torch.are_deterministic_algorithms_enabled(),
        release=release_of(torch.__version__),
    )
    strided = any(t.stride(-1) != 1 and t.shape[-1] != 1 for t in (query, key, value))
    for backend in backend_order(capability):
        fits = backend == "math" or not strided
        if fits and allowed[backend]() and can_use(backend, asked, capability):
            return backend
    raise RuntimeError("No available kernel. Aborting execution.")


def _trains(*tensors: torch.Tensor) -> bool:
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def _attend(
    capability: tuple[int, int],
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Run attention on the kernel CUDA would take; tensors are [batch, heads, length, head dim]."""
    mask, training = attn_mask, _trains(query, key, value)
    tensors = (query, key, value, mask)
    backend = choose(tensors, capability, dropout=dropout_p, causal=is_causal, grouped=enable_gqa)
    if backend == "cudnn":
        if mask is not None and mask.dtype is torch.bool:  # finite numbers: `convert_boolean_attn_mask_cudnn`
            mask = torch.where(mask.logical_not(), -65504.0, torch.zeros((), dtype=query.dtype))
        return _OPS._scaled_dot_product_cudnn_attention.default(
            query, key, value, mask, training, dropout_p, is_causal, False, scale=scale
        )[0]
    if backend == "flash":
        width = query.shape[-1]
        if padding := -width % 8:
            query, key, value = (torch.nn.functional.pad(t, (0, padding)) for t in (query, key, value))
        out = _OPS._scaled_dot_product_flash_attention.default(
            query, key, value, dropout_p, is_causal, False, scale=1 / math.sqrt(width) if scale is None else scale
        )[0]
        return out[..., :width] if padding else out
    mask = _additive(mask, query.dtype)
    if backend == "math":
        return _attend_by_products((query, key, value, mask), dropout_p, scale, causal=is_causal, grouped=enable_gqa)
    if mask is not None:
        # The kernel reads the mask in pieces of 8 elements: other strides are padded and cut back to a view.
        if mask.stride(-1) != 1 or any(stride % _MASK_ALIGNMENT for stride in mask.stride()[:-1]):
            width = mask.shape[-1]
            mask = torch.nn.functional.pad(mask, (0, _MASK_ALIGNMENT - width % _MASK_ALIGNMENT))[..., :width]
        mask = mask.expand(*query.shape[:3], key.shape[2])
    return _OPS._scaled_dot_product_efficient_attention.default(
        query, key, value, mask, training, dropout_p, is_causal, scale=scale
    )[0]


def _additive(mask: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor | None:
    """A boolean mask as one of zeros and minus infinity, as `convert_boolean_attn_mask` makes it."""
    if mask is None or mask.dtype is not torch.bool:
        return mask
    taken, left_out = (torch.full((), value, dtype=dtype, device=mask.device) for value in (0.0, -math.inf))
    return torch.where(mask, taken, left_out)


def _attend_by_products(
    tensors: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None],
    dropout: float,
    scale: float | None,
    *,
    causal: bool,
    grouped: bool,
) -> Any:
    """Attention out of plain operators, halves in float unless allowed otherwise."""
    given, key, value, mask = tensors
    query = given
    if query.dtype in _HALF and not torch._C._get_math_sdp_allow_fp16_bf16_reduction():
        query, key, value = query.float(), key.float(), value.float()
    scale = scale if scale is not None else 1 / math.sqrt(query.shape[-1])
    root = math.sqrt(abs(scale))
    scaled = query * (root if scale >= 0 else -root)  # as well as the query, which C++ holds to the end
    if causal:
        sizes = query.shape[-2], key.shape[-2]
        mask = _additive(torch.ones(sizes, dtype=torch.bool, device=query.device).tril(), scaled.dtype)
    keys, values = key, value  # as well as the repeated ones, which C++ holds to the end
    if grouped and key.shape[-3] != query.shape[-3]:
        keys, values = (t.repeat_interleave(query.shape[-3] // t.shape[-3], -3) for t in (key, value))
    weights = torch.matmul(scaled, keys.transpose(-2, -1) * root)  # the scores first, gone when the weights are there
    if mask is not None:
        weights.add_(mask)
    weights = _OPS._safe_softmax.default(weights, -1)
    if dropout:
        weights = torch.dropout(weights, dropout, train=True)
    # The weights are a second result (`_scaled_dot_product_attention_math`), which C++ makes before the first.
    second = weights.to(given.dtype)
    out = torch.matmul(weights, values).to(given.dtype)
    del second
    return out
