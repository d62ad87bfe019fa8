"""Operators that CUDA makes of other kernels than an unknown device: softmax, norms, attention; and autocast.

Autocast has CUDA's rules for casts (ATen/autocast_mode.h) and its cache of cast weights.
"""

import functools
import weakref
from typing import Any

import torch

from vramtui.dryrun.fake import LISTS
from vramtui.dryrun.fake.device.device import SIM, is_sim, tensors_of
from vramtui.dryrun.fake.device.patches import Patches
from vramtui.dryrun.fake.kernels import operator_of
from vramtui.dryrun.fake.kernels.attention import attend

_OPS: Any = torch.ops.aten
_WHOLE_ON_CUDA = ("silu_backward", "mish_backward", "native_channel_shuffle", "_fused_rms_norm")
MADE_OF_OTHERS = {operator_of(name) for name in LISTS["made_of_others"]}
_AUTOCAST = "AutocastPrivateUse1"
_FLOAT_NORM = {"norm.Scalar": "norm.ScalarOpt_dtype", "norm.ScalarOpt_dim": "norm.ScalarOpt_dim_dtype"}


def install(patches: Patches, capability: tuple[int, int]) -> None:
    """Keep operators whole, steer attention and cast on the stand-in device.

    The kernels of whole ones are never run: the mode above answers first. That they exist keeps torch from decomposing.
    """

    def never(*_args: Any, **_kwargs: Any) -> Any:
        raise AssertionError("reached a kernel of the simulated device")

    library, fallback = torch.library.Library("aten", "IMPL"), torch.library.Library("_", "IMPL")
    for name in _WHOLE_ON_CUDA:
        library.impl(name, never, "PrivateUse1")
    for name, kernel in {
        "softmax.int": functools.partial(_read_by, _OPS._softmax),
        "log_softmax.int": functools.partial(_read_by, _OPS._log_softmax),
        "group_norm": _group_norm,
        "one_hot": _one_hot,
        "scaled_dot_product_attention": functools.partial(attend, capability),
    }.items():
        for key in ("PrivateUse1", "AutogradPrivateUse1"):
            library.impl(name, kernel, key)
    fallback.fallback(torch.library.fallthrough_kernel, _AUTOCAST)
    _autocast(patches, library)
    patches.callback([library, fallback].clear)  # until then they are kept


@functools.cache
def find_maker(func: Any) -> Any:
    """Find the key whose kernel makes an operator of others (linear of addmm), which arrives whole in inference mode,
    or for a tensor made in it, or always, as it is made below autograd (`MADE_OF_OTHERS`).

    It is the device's where attention is steered, or else that of all devices; None for any other operator.
    """
    known, keys = torch._C._dispatch_has_kernel_for_dispatch_key, torch._C.DispatchKey
    if func in MADE_OF_OTHERS and known(func.name(), "CompositeExplicitAutograd"):
        return keys.CompositeExplicitAutograd
    if func.namespace != "aten" or not known(func.name(), "CompositeImplicitAutograd"):
        return None
    return keys.PrivateUse1 if known(func.name(), "PrivateUse1") else keys.CompositeImplicitAutograd


def _read_by(kernel: Any, tensor: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> Any:
    """The kernel reads half precision and writes fp32 where that is asked for (ATen/native/SoftMax.cpp, 2.13)."""
    if tensor.dtype is torch.float16 and dtype is torch.float32:
        return kernel(tensor, dim, True)
    return kernel(tensor if dtype is None else tensor.to(dtype), dim, False)


def _group_norm(
    tensor: torch.Tensor, groups: int, weight: Any = None, bias: Any = None, epsilon: float = 1e-5, _cudnn: bool = True
) -> Any:
    """CUDA's kernel takes a copy of a channels-last input (ATen/native/group_norm.cpp, 2.13), kept for backward."""
    batch, channels = tensor.shape[:2]
    weight, bias = (None if one is None else one.contiguous() for one in (weight, bias))
    places = tensor.numel() // (batch * channels) if batch * channels else 0
    return _OPS.native_group_norm(tensor.contiguous(), weight, bias, batch, channels, places, groups, epsilon)[0]


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


def _autocast(patches: Patches, library: "torch.library.Library") -> None:
    """Give the stand-in's Autocast key its rules, and let "cuda" switches turn it on."""
    casts: dict[int, tuple[Any, torch.Tensor]] = {}  # of leaf weights, until the outermost autocast ends
    key = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, _AUTOCAST))

    def eligible(tensor: torch.Tensor) -> bool:
        return is_sim(tensor) and tensor.is_floating_point() and tensor.dtype is not torch.float64

    def cast(value: Any, dtype: torch.dtype) -> Any:
        if isinstance(value, (list, tuple)):
            return [cast(one, dtype) for one in value]
        if not isinstance(value, torch.Tensor) or not eligible(value) or value.dtype is dtype:
            return value
        is_kept = (
            dtype is torch.get_autocast_dtype("cuda")
            and value.dtype is torch.float32
            and value.requires_grad
            and value.is_leaf
            and not value._is_view()
            and torch.is_autocast_cache_enabled()
        )
        known = casts.get(id(value)) if is_kept else None
        if known is not None and known[0]() is value:
            return known[1]
        other = value.to(dtype)
        if is_kept:
            casts[id(value)] = (weakref.ref(value), other)
        return other

    def cast_all(operator: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        """Cast every tensor, the last argument first: so C++ evaluates the arguments of a call."""
        with torch._C._ExcludeDispatchKeyGuard(key):
            given = [*args, *kwargs.values()]
            is_float = any(eligible(one) and one.dtype is torch.float32 for one in tensors_of(given))
            is_lower = name in LISTS["lower"] or (name in LISTS["widest"] and not is_float)
            dtype = torch.get_autocast_dtype("cuda") if is_lower else torch.float32
            values = [cast(value, dtype) for value in reversed(given)][::-1]
            return operator(*values[: len(args)], **dict(zip(kwargs, values[len(args) :], strict=True)))

    def float_result(operator: Any, in_float: Any, at: int, *args: Any, **kwargs: Any) -> Any:
        """Ask for the result in float, if no type is asked for; `at` is the place of `dtype`."""
        with torch._C._ExcludeDispatchKeyGuard(key):
            if not eligible(args[0]) or (args[at] if at < len(args) else kwargs.get("dtype")) is not None:
                return operator(*args, **kwargs)
            left_out = [one.default_value for one in operator._schema.arguments[len(args) : at]]
            return in_float(*args[:at], *left_out, **kwargs | {"dtype": torch.float32})

    # Of the operators that CUDA's Autocast key has, the other ones run in float, or give their result in it.
    for _, name in (name.split("::") for name in torch._C._dispatch_get_registrations_for_dispatch_key("AutocastCUDA")):
        if name.startswith("cudnn") or name == "binary_cross_entropy":
            continue
        operator = operator_of(name)
        in_float = operator_of(_FLOAT_NORM.get(name, name))
        arguments = [argument.name for argument in in_float._schema.arguments]
        if "dtype" in arguments:
            rule = functools.partial(float_result, operator, in_float, arguments.index("dtype"))
        else:
            rule = functools.partial(cast_all, operator, name)
        library.impl(name, rule, _AUTOCAST)

    @patches.around(torch, "set_autocast_enabled", "set_autocast_dtype")
    def switch(plain: Any, *args: Any) -> None:
        plain(*args)
        if len(args) == 1 or args[0] == "cuda":
            plain(SIM, args[-1])

    @patches.around(torch, "clear_autocast_cache")
    def clear(plain: Any) -> None:
        plain()
        casts.clear()
