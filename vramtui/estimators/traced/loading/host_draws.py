"""The host's random numbers that weights without values leave undrawn: what is drawn after them follows the seed.

A script seeds torch, makes a model on the CPU and shuffles its data: which samples meet in a batch hangs on how many
numbers the model's weights took of the same generator. Large weights are fake tensors and take none, so that they are
counted here, and drawn when a tensor with values draws next.

How many 32-bit numbers a kernel takes was asked of PyTorch 2.13's CPU build, by the state in which it leaves the
generator, at 1,030 to 5,001 elements (tests/estimators/traced/test_values_of_the_host.py asks it again): one for an
element, two where the element has 64 bits, two where the kernel draws doubles; a normal distribution draws its last
16 elements anew where their number is no multiple of 16 (ATen/native/cpu/DistributionTemplates.h, `normal_fill`).
"""

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from vramtui.estimators.traced.kernels.registry import by_operator

MOST = 1 << 26
"""Numbers that are drawn for weights: 0.2 s. Of larger models the order of the data is another than in the job."""
_BLOCK = 1 << 22
_LANES = 16
_aten: Any = torch.ops.aten
_NORMAL = {_aten.normal_, _aten.normal, _aten.randn, _aten.randn_like}
_DRAW = {_aten.uniform_, _aten.rand, _aten.rand_like, _aten.exponential_, _aten.bernoulli_, _aten.bernoulli} | _NORMAL
_DOUBLES = {_aten.exponential_.default, _aten.bernoulli_.float}


class HostDraws:
    """Numbers that the host's generator owes."""

    def __init__(self) -> None:
        self._owed = 0
        self._state: torch.Tensor | None = None

    def note(self, func: Any, kwargs: dict[str, Any], out: Any) -> None:
        """Count what the operator would have drawn of the host's default generator for `out`."""
        if not _draws(func) or kwargs.get("generator") is not None:
            return
        if not isinstance(out, FakeTensor) or out._fake_device.type != "cpu":
            return
        with torch._C._DisableTorchDispatch():
            state = torch.default_generator.get_state()
            if self._state is None or not torch.equal(state, self._state):  # seeded since
                self._owed, self._state = 0, state
        self._owed += numbers_drawn(func, out.numel(), out.element_size())

    def pay(self, func: Any, kwargs: dict[str, Any]) -> None:
        """Draw what is owed before an operator that draws for a tensor with values; no dispatch mode may be on."""
        if self._state is None or torch.Tag.nondeterministic_seeded not in func.tags or kwargs.get("generator"):
            return
        owed, before = self._owed, self._state
        self._owed, self._state = 0, None
        if owed > MOST or not torch.equal(torch.default_generator.get_state(), before):
            return
        for start in range(0, owed, _BLOCK):
            torch.empty(min(_BLOCK, owed - start), dtype=torch.int32).random_()


@by_operator
def _draws(func: Any) -> bool:
    return func.overloadpacket in _DRAW


def numbers_drawn(operator: Any, elements: int, itemsize: int) -> int:
    """Numbers of 32 bits that a kernel takes of the generator.

    Args:
        operator: an overload of one of `_DRAW`.
        elements: of the tensor, more than `_LANES`.
        itemsize: bytes of one.
    """
    again = _LANES if operator.overloadpacket in _NORMAL and elements % _LANES else 0
    return (elements + again) * (2 if itemsize > torch.float32.itemsize or operator in _DOUBLES else 1)
