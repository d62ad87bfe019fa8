"""bitsandbytes' Adam, AdamW and Lion where it is not installed: optimizers with the states of the real ones.

From optim/optimizer.py of bitsandbytes 0.50.2 (`init_state` and `get_state_buffer` of Optimizer2State and
Optimizer1State): of 8 bits a state is a byte a number and an fp32 scale for each block of 256, and each of the states
has one map of 256 fp32 numbers on the card; tensors below 4096 numbers stay in fp32. A paged state of 100,000 numbers
and more is managed memory, outside PyTorch's allocator. The kernels write into what they are given. Nothing else of
the package is here: whatever asks for it is told how to install it.
"""

import functools
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import torch

NOTE = (
    "bitsandbytes is not installed here: its optimizers are traced by the states that bitsandbytes 0.50 keeps, without "
    "what paged ones hold outside PyTorch's allocator"
)
_SMALLEST_8BIT = 4096
_SMALLEST_PAGED = 100_000
_BLOCK = 256


class BlockwiseOptimizer(torch.optim.Optimizer):
    """States of one kind of optimizer.

    Attributes:
        states: how many states a number has.
        bits: of a state, where the code does not say (`optim_bits`).
        paged: whether large states are managed memory.
    """

    states = 2
    bits = 32
    paged = False

    def __init__(self, params: Iterable[Any], lr: float = 1e-3, *_args: Any, **options: Any) -> None:
        self._bits = int(options.pop("optim_bits", self.bits))
        self._smallest = int(options.pop("min_8bit_size", _SMALLEST_8BIT))
        self._paged = bool(options.pop("is_paged", self.paged))
        self._maps: list[torch.Tensor] = []
        super().__init__(params, {"lr": lr, **options})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Make the states of each parameter that has a gradient for the first time."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, self.state[parameter])
        return loss

    def _update(self, parameter: torch.Tensor, state: dict[str, Any]) -> None:
        if not state:
            self._begin(parameter, state)
        state["step"] += 1
        assert parameter.grad is not None
        parameter.grad = parameter.grad.contiguous()

    def _begin(self, parameter: torch.Tensor, state: dict[str, Any]) -> None:
        state["step"] = 0
        eight = self._bits == 8 and parameter.numel() >= self._smallest
        names = range(1, self.states + 1)
        if eight and not self._maps:
            self._maps = [torch.zeros(_BLOCK, device=parameter.device) for _ in names]
        managed = self._paged and parameter.numel() >= _SMALLEST_PAGED
        place = torch.device("cpu") if managed else parameter.device
        for name in names:
            kind = torch.uint8 if eight else torch.float32
            state[f"state{name}"] = torch.zeros_like(parameter, dtype=kind, device=place)
        for name in names if eight else ():
            state[f"absmax{name}"] = torch.zeros(-(-parameter.numel() // _BLOCK), device=parameter.device)


@functools.cache
def _kinds() -> dict[str, Any]:
    """The optimizers by the names that the package gives them."""
    kinds: dict[str, Any] = {}
    for name, states in (("Adam", 2), ("AdamW", 2), ("Lion", 1)):
        for paged in (False, True):
            for suffix, bits in (("", 32), ("8bit", 8), ("32bit", 32)):
                full = f"{'Paged' if paged else ''}{name}{suffix}"
                kinds[full] = type(full, (BlockwiseOptimizer,), {"states": states, "bits": bits, "paged": paged})
    return kinds


def _missing(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise ModuleNotFoundError(f"No module named 'bitsandbytes' with {name}", name="bitsandbytes")


def names_of(module: str) -> dict[str, Any] | None:
    """What stands in a module of the package; None for one that is not here."""
    if module == "bitsandbytes.optim":
        return {**_kinds(), "__getattr__": _missing}
    if module != "bitsandbytes":
        return None
    optim = ModuleType("bitsandbytes.optim")
    vars(optim).update(_kinds(), __getattr__=_missing)
    return {"optim": optim, "__version__": "0.50.2", "__getattr__": _missing}
