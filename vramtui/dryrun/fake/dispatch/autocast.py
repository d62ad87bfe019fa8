"""Autocast for the stand-in device: the cast rules of CUDA (ATen/autocast_mode.h) and the cache of cast weights."""

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from vramtui.dryrun.fake.device.device import SIM, is_sim
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

Cast = Callable[[torch.Tensor], torch.Tensor]


class _WeightCache:
    """Casts of leaf weights are kept until the outermost autocast ends."""

    def __init__(self) -> None:
        self._casts: dict[int, tuple[Any, torch.Tensor]] = {}

    def cast(self, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        if not _eligible(tensor) or tensor.dtype is dtype:
            return tensor
        cacheable = (
            dtype is torch.get_autocast_dtype("cuda")
            and tensor.dtype is torch.float32
            and tensor.requires_grad
            and tensor.is_leaf
            and not tensor._is_view()
            and torch.is_autocast_cache_enabled()
        )
        if not cacheable:
            return tensor.to(dtype)
        cached = self._casts.get(id(tensor))
        if cached is not None and cached[0]() is tensor:
            return cached[1]
        cast = tensor.to(dtype)
        self._casts[id(tensor)] = (weakref.ref(tensor), cast)
        return cast

    def clear(self) -> None:
        self._casts.clear()


def install(patches: Patches) -> "torch.library.Library":
    """Give the stand-in's Autocast key its rules, and let "cuda" switches turn it on; keep the returned library."""
    cache = _WeightCache()
    everything = torch.library.Library("_", "IMPL")
    everything.fallback(torch.library.fallthrough_kernel, _KEY)
    rules = torch.library.Library("aten", "IMPL")
    for names, rule in (
        (_LOWER, _lower_rule),
        (_FLOAT, _float_rule),
        (_FLOAT_RESULT, _float_result_rule),
        (_WIDEST, _widest_rule),
    ):
        for name in names:
            rules.impl(name, _without_autocast(_operator(name), rule, cache), _KEY)
    for name, longer in _FLOAT_NORM.items():
        rules.impl(name, _without_autocast(_operator(name), partial(_norm_rule, _operator(longer)), cache), _KEY)
    _follow_switches(patches, cache)
    rules._sim_fallback = everything  # type: ignore[attr-defined] # kept alive as long as the rules are
    return rules


def _follow_switches(patches: Patches, cache: _WeightCache) -> None:
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
        cache.clear()

    patches.set(torch, "set_autocast_enabled", set_autocast_enabled)
    patches.set(torch, "set_autocast_dtype", set_autocast_dtype)
    patches.set(torch, "clear_autocast_cache", clear_autocast_cache)


def _operator(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def _eligible(tensor: torch.Tensor) -> bool:
    return is_sim(tensor) and tensor.is_floating_point() and tensor.dtype is not torch.float64


def _cast_one(value: Any, cast: Cast) -> Any:
    if isinstance(value, torch.Tensor):
        return cast(value)
    if isinstance(value, (list, tuple)) and any(isinstance(item, torch.Tensor) for item in value):
        return [_cast_one(item, cast) for item in value]
    return value


def _without_autocast(operator: Any, rule: Any, cache: _WeightCache) -> Any:
    key = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, _KEY))

    def run(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(key):
            called = rule(operator, args, kwargs, cache)
            return called[2](*called[0], **called[1]) if len(called) > 2 else operator(*called[0], **called[1])

    return run


def _lower_rule(_operator: Any, args: Any, kwargs: Any, cache: _WeightCache) -> Any:
    return _cast_call(args, kwargs, lambda t: cache.cast(t, torch.get_autocast_dtype("cuda")))


def _float_rule(_operator: Any, args: Any, kwargs: Any, cache: _WeightCache) -> Any:
    return _cast_call(args, kwargs, lambda t: cache.cast(t, torch.float32))


def _widest_rule(_operator: Any, args: Any, kwargs: Any, cache: _WeightCache) -> Any:
    dtypes: list[torch.dtype] = []

    def look(tensor: torch.Tensor) -> torch.Tensor:
        if _eligible(tensor):
            dtypes.append(tensor.dtype)
        return tensor

    _cast_call(args, kwargs, look)
    widest = torch.float32 if torch.float32 in dtypes else torch.get_autocast_dtype("cuda")
    return _cast_call(args, kwargs, lambda t: cache.cast(t, widest))


def _float_result_rule(operator: Any, args: Any, kwargs: Any, _cache: _WeightCache) -> Any:
    if _eligible(args[0]):
        names = [argument.name for argument in operator._schema.arguments]
        at = names.index("dtype")
        if at < len(args):
            args = (*args[:at], args[at] if args[at] is not None else torch.float32, *args[at + 1 :])
        elif kwargs.get("dtype") is None:
            kwargs = {**kwargs, "dtype": torch.float32}
    return args, kwargs


def _cast_call(args: Any, kwargs: Any, cast: Cast) -> Any:
    """Cast every tensor, the last argument first: so C++ evaluates the arguments of a call."""
    cast_last_first = [_cast_one(value, cast) for value in reversed([*args, *kwargs.values()])]
    values = cast_last_first[::-1]
    return values[: len(args)], dict(zip(kwargs, values[len(args) :], strict=True))


def _norm_rule(longer: Any, operator: Any, args: Any, kwargs: Any, _cache: _WeightCache) -> Any:
    """A norm is computed in float by another overload."""
    given = (*args, 2) if len(args) < 2 else args
    return (given, kwargs | {"dtype": torch.float32}, longer) if _eligible(args[0]) else (given, kwargs, operator)
