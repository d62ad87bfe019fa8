"""Autocast for the stand-in device: the cast rules of CUDA (ATen/autocast_mode.h) and the cache of cast weights."""

import weakref
from typing import Any

import torch

from vramtui.dryrun.fake.device.device import SIM, is_sim, tensors_of
from vramtui.dryrun.fake.device.patches import Patches

_KEY = "AutocastPrivateUse1"
_LOWER = (
    "_convolution.deprecated", "_convolution", "conv1d", "conv2d", "conv3d", "conv_tbc", "conv_transpose1d",
    "conv_transpose2d.input", "conv_transpose3d.input", "convolution", "prelu", "addmm", "addmv", "addr",
    "matmul", "einsum", "mm", "mv", "linalg_vecdot", "linear", "addbmm", "baddbmm", "bmm", "chain_matmul",
    "linalg_multi_dot", "_thnn_fused_lstm_cell", "_thnn_fused_gru_cell", "lstm_cell", "gru_cell",
    "rnn_tanh_cell", "rnn_relu_cell", "_scaled_dot_product_flash_attention", "scaled_dot_product_attention",
)  # fmt: skip
_FLOAT = (
    "acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p", "reciprocal", "rsqrt",
    "sinh", "tan", "pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar", "softplus", "layer_norm",
    "native_layer_norm", "rms_norm", "group_norm", "frobenius_norm.dim", "nuclear_norm", "nuclear_norm.dim",
    "cosine_similarity", "poisson_nll_loss", "cosine_embedding_loss", "nll_loss", "nll_loss2d",
    "hinge_embedding_loss", "kl_div", "l1_loss", "smooth_l1_loss", "huber_loss", "mse_loss",
    "margin_ranking_loss", "multilabel_margin_loss", "soft_margin_loss", "triplet_margin_loss",
    "multi_margin_loss", "binary_cross_entropy_with_logits", "dist", "pdist", "cdist", "renorm", "logsumexp",
    "upsample_nearest1d", "_upsample_nearest_exact1d", "upsample_nearest2d", "_upsample_nearest_exact2d",
    "upsample_nearest3d", "_upsample_nearest_exact3d", "upsample_linear1d", "upsample_bilinear2d",
    "_upsample_bilinear2d_aa", "upsample_trilinear3d", "upsample_bicubic2d", "_upsample_bicubic2d_aa",
)  # fmt: skip
_FLOAT_RESULT = (
    "prod", "prod.dim_int", "softmax.int", "log_softmax.int", "cumprod", "cumsum", "linalg_vector_norm",
    "linalg_matrix_norm", "linalg_matrix_norm.str_ord", "sum", "sum.dim_IntList",
)  # fmt: skip
_FLOAT_NORM = {"norm.Scalar": "norm.ScalarOpt_dtype", "norm.ScalarOpt_dim": "norm.ScalarOpt_dim_dtype"}
_WIDEST = (
    "addcdiv", "addcmul", "atan2", "bilinear", "cross", "dot", "vdot", "grid_sampler", "index_put", "tensordot",
    "scatter_add",
)  # fmt: skip


def install(patches: Patches) -> "torch.library.Library":
    """Give the stand-in's Autocast key its rules, and let "cuda" switches turn it on; keep the returned library."""
    casts: dict[int, tuple[Any, torch.Tensor]] = {}  # of leaf weights, until the outermost autocast ends
    key = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, _KEY))
    everything = torch.library.Library("_", "IMPL")
    everything.fallback(torch.library.fallthrough_kernel, _KEY)
    rules = torch.library.Library("aten", "IMPL")

    def eligible(tensor: torch.Tensor) -> bool:
        return is_sim(tensor) and tensor.is_floating_point() and tensor.dtype is not torch.float64

    def cast(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        if not eligible(tensor) or tensor.dtype is dtype:
            return tensor
        is_kept = (
            dtype is torch.get_autocast_dtype("cuda")
            and tensor.dtype is torch.float32
            and tensor.requires_grad
            and tensor.is_leaf
            and not tensor._is_view()
            and torch.is_autocast_cache_enabled()
        )
        known = casts.get(id(tensor)) if is_kept else None
        if known is not None and known[0]() is tensor:
            return known[1]
        other = tensor.to(dtype)
        if is_kept:
            casts[id(tensor)] = (weakref.ref(tensor), other)
        return other

    def cast_all(args: Any, kwargs: Any, dtype: torch.dtype) -> Any:
        """Cast every tensor, the last argument first: so C++ evaluates the arguments of a call."""

        def cast_one(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                return cast(value, dtype)
            if isinstance(value, (list, tuple)) and any(isinstance(item, torch.Tensor) for item in value):
                return [cast_one(item) for item in value]
            return value

        values = [cast_one(value) for value in reversed([*args, *kwargs.values()])][::-1]
        return values[: len(args)], dict(zip(kwargs, values[len(args) :], strict=True))

    def lower(operator: Any, args: Any, kwargs: Any) -> Any:
        return operator, *cast_all(args, kwargs, torch.get_autocast_dtype("cuda"))

    def in_float(operator: Any, args: Any, kwargs: Any) -> Any:
        return operator, *cast_all(args, kwargs, torch.float32)

    def widest(operator: Any, args: Any, kwargs: Any) -> Any:
        is_float = any(eligible(one) and one.dtype is torch.float32 for one in tensors_of((*args, *kwargs.values())))
        return operator, *cast_all(args, kwargs, torch.float32 if is_float else torch.get_autocast_dtype("cuda"))

    def float_result(operator: Any, args: Any, kwargs: Any) -> Any:
        if eligible(args[0]):
            at = [argument.name for argument in operator._schema.arguments].index("dtype")
            if at < len(args):
                args = (*args[:at], args[at] if args[at] is not None else torch.float32, *args[at + 1 :])
            elif kwargs.get("dtype") is None:
                kwargs = {**kwargs, "dtype": torch.float32}
        return operator, args, kwargs

    def norm(operator: Any, args: Any, kwargs: Any) -> Any:
        """A norm is computed in float by another overload."""
        given = (*args, 2) if len(args) < 2 else args
        if not eligible(args[0]):
            return operator, given, kwargs
        return operator_of(_FLOAT_NORM[str(operator).removeprefix("aten.")]), given, kwargs | {"dtype": torch.float32}

    def operator_of(name: str) -> Any:
        packet, _, overload = name.partition(".")
        return getattr(getattr(torch.ops.aten, packet), overload or "default")

    def without_autocast(operator: Any, rule: Any) -> Any:
        def run(*args: Any, **kwargs: Any) -> Any:
            with torch._C._ExcludeDispatchKeyGuard(key):
                called, given, named = rule(operator, args, kwargs)
                return called(*given, **named)

        return run

    for names, rule in ((_LOWER, lower), (_FLOAT, in_float), (_FLOAT_RESULT, float_result), (_WIDEST, widest),
                        (_FLOAT_NORM, norm)):  # fmt: skip
        for name in names:
            rules.impl(name, without_autocast(operator_of(name), rule), _KEY)
    rules._sim_fallback = everything  # type: ignore[attr-defined] # kept alive as long as the rules are

    enable, set_dtype, clear = torch.set_autocast_enabled, torch.set_autocast_dtype, torch.clear_autocast_cache

    def set_autocast_enabled(*args: Any) -> None:
        enable(*args)
        if len(args) == 1 or args[0] == "cuda":
            enable(SIM, args[-1])

    def set_autocast_dtype(device_type: str, dtype: torch.dtype) -> None:
        set_dtype(device_type, dtype)
        if device_type == "cuda":
            set_dtype(SIM, dtype)

    def clear_autocast_cache() -> None:
        clear()
        casts.clear()

    for function in (set_autocast_enabled, set_autocast_dtype, clear_autocast_cache):
        patches.set(torch, function.__name__, function)
    return rules
