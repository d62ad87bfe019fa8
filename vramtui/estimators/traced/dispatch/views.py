"""Views of fake tensors, made by torch's own meta kernels at once.

`FakeTensorMode` comes to the same by hashing the call for its cache, or where no call was alike (`for row in tensor`)
by an operator written in Python: 0.2 to 3 ms each, where the kernel takes 0.03.
"""

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from vramtui.estimators.traced.dispatch.known_results import fake_of

_UNSAFE = {torch.ops.aten._unsafe_view.default, torch.ops.aten._reshape_alias.default}  # views, by another schema


def quick_view(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a view operator gives for a fake tensor without a constant; NotImplemented for anything else.

    Raises:
        RuntimeError: as the operator itself does, for sizes that do not fit.
    """
    tensor = args[0] if args else None
    if not (func.is_view or func in _UNSAFE) or not isinstance(tensor, FakeTensor) or tensor.constant is not None:
        return NotImplemented
    mode, device = tensor.fake_mode, tensor._fake_device
    before = mode.in_kernel_invocation
    # As torch._subclasses.fake_tensor.in_kernel_invocation_manager does, 2.13.
    with torch._C._DisableTorchDispatch():
        mode.in_kernel_invocation = True
        try:
            with torch._C._PreserveDispatchKeyGuard():
                torch._C._set_meta_in_tls_dispatch_include(True)
                made = func(*args, **kwargs)
        finally:
            mode.in_kernel_invocation = before
        if isinstance(made, torch.Tensor):
            return fake_of(mode, made, device)
        return type(made)(fake_of(mode, part, device) for part in made)
