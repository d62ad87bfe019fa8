"""The cases of `operators_sweep.py`: each does the same on "cpu" and on "cuda", and gives back what came of it.

PyTorch's own databases of what it can do stand in `torch.testing._internal` (2.13): `op_db` of
`common_methods_invocations.py`, `module_db` of `common_modules.py`, `optim_db` of `common_optimizers.py`.
"""

import importlib
import inspect
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map

MOST_SAMPLES = 12  # of one entry
_DTYPES = (torch.float32, torch.complex64, torch.int64, torch.bool, torch.float16, torch.bfloat16)


@dataclass
class Case:
    """One thing to do.

    Attributes:
        name: the entry of its database.
        run: does it on a device, "cpu" or "cuda", and gives back its results.
    """

    name: str
    run: Callable[[str], Any]


def moved(value: Any, device: str, *, guessed: bool = False) -> Any:
    """The same inputs on another device; their fractions without known values where `guessed`."""

    def move(one: Any) -> Any:
        if isinstance(one, torch.Tensor):
            there = one.detach().clone().to(device)
            if guessed and device == "cuda" and there.layout is torch.strided and there.dtype.is_floating_point:
                there = torch.randn_like(there) if there.dtype.itemsize > 1 else there
            return there.requires_grad_(one.requires_grad)
        if isinstance(one, torch.device) and one.type == "cpu":
            return torch.device(device)
        return device if isinstance(one, str) and one == "cpu" else one

    return tree_map(move, value)


def differentiate(results: Any, inputs: Any) -> list[Any]:
    """Gradients of all `inputs` that ask for one."""
    outs = [one for one in tree_flatten(results)[0] if isinstance(one, torch.Tensor) and one.requires_grad]
    leaves = [one for one in tree_flatten(inputs)[0] if isinstance(one, torch.Tensor) and one.requires_grad]
    if not outs or not leaves:
        return []
    return list(torch.autograd.grad(outs, leaves, [torch.ones_like(out) for out in outs], allow_unused=True))


def operators(dtype: torch.dtype | None, *, guessed: bool) -> Iterator[Case]:
    """`op_db`: the first samples of each, forward and backward."""
    from torch.testing._internal.common_methods_invocations import op_db  # noqa: PLC0415 - takes seconds

    for op in op_db:
        kinds = [dtype] if dtype else _DTYPES
        kind = next((one for one in kinds if one in op.dtypes and one in (op.dtypesIfCUDA or op.dtypes)), None)
        if kind is None:
            continue
        differentiable = op.supports_autograd and (kind.is_floating_point or kind.is_complex)
        name = f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name
        torch.manual_seed(0)
        for sample in itertools.islice(op.sample_inputs("cpu", kind, requires_grad=differentiable), MOST_SAMPLES):
            yield Case(name, _sample(op, (sample.input, sample.args, sample.kwargs), guessed=guessed))


def _sample(op: Callable[..., Any], given: Any, *, guessed: bool) -> Callable[[str], Any]:
    def run(device: str) -> Any:
        first, args, kwargs = inputs = moved(given, device, guessed=guessed)
        torch.manual_seed(0)
        results = op(first, *args, **kwargs)
        return results, differentiate(results, inputs)

    return run


def errors(_dtype: torch.dtype | None, *, guessed: bool) -> Iterator[Case]:
    """What `op_db` says is refused."""
    from torch.testing._internal.common_methods_invocations import op_db  # noqa: PLC0415 - takes seconds

    for op in op_db:
        if op.error_inputs_func is not None:
            for error in op.error_inputs("cpu"):
                sample = error.sample_input
                yield Case(op.name, _sample(op, (sample.input, sample.args, sample.kwargs), guessed=guessed))


def modules(dtype: torch.dtype | None, *, guessed: bool) -> Iterator[Case]:
    """`module_db`, in training: parameters' gradients too."""
    from torch.testing._internal.common_modules import module_db  # noqa: PLC0415 - takes seconds

    for module in module_db:
        kind = dtype or torch.float32
        if kind not in module.dtypes:
            continue
        torch.manual_seed(0)
        samples = module.module_inputs_func(module, device="cpu", dtype=kind, requires_grad=True, training=True)
        for sample in samples[:MOST_SAMPLES]:
            yield Case(module.name, _module(module.module_cls, sample, kind, guessed=guessed))


def _module(kind: type[torch.nn.Module], sample: Any, dtype: torch.dtype, *, guessed: bool) -> Callable[[str], Any]:
    def run(device: str) -> Any:
        given = sample.constructor_input
        torch.manual_seed(0)
        module = kind(*given.args, **given.kwargs).to(device, dtype)
        inputs = moved((sample.forward_input.args, sample.forward_input.kwargs), device, guessed=guessed)
        results = module(*inputs[0], **inputs[1])
        return results, differentiate(results, (inputs, list(module.parameters())))

    return run


def optimizers(_dtype: torch.dtype | None, *, guessed: bool) -> Iterator[Case]:
    """`optim_db`, each by every implementation that it has: two steps, its state, and loading that again."""
    from torch.testing._internal.common_optimizers import optim_db  # noqa: PLC0415 - takes seconds

    del guessed
    optimizer: Any
    for optimizer in optim_db:
        for given in optimizer.optim_inputs_func(device="cpu"):
            for way in ("", *optimizer.supported_impls):
                kwargs = given.kwargs | ({way: True} if way else {})
                yield Case(optimizer.optim_cls.__name__, _optimizer(optimizer, kwargs))


def _optimizer(info: Any, kwargs: dict[str, Any]) -> Callable[[str], Any]:
    def run(device: str) -> Any:
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1, bias=False)).to(device)
        sparse = torch.nn.Embedding(4, 8, sparse=True).to(device)
        given = sparse.parameters() if info.only_supports_sparse_grads else net.parameters()
        if info.optim_cls.__name__ == "Muon":
            given = (one for one in net.parameters() if one.dim() == 2)
        optimizer = info.optim_cls(given, **moved(kwargs, device))

        def lose() -> torch.Tensor:
            optimizer.zero_grad()
            loss: torch.Tensor = net(sparse(torch.tensor([0, 2], device=device))).sum()
            loss.backward()
            return loss

        for _ in range(2):
            optimizer.step(lose)
        state = optimizer.state_dict()
        optimizer.load_state_dict(state)
        optimizer.step(lose)
        return [value for one in state["state"].values() for value in one.values()]

    return run


def snippets(_dtype: torch.dtype | None, *, guessed: bool) -> Iterator[Case]:
    """What people write beside operators: every function of `operators_snippets.py`."""
    module = importlib.import_module("benchmarks.operators_snippets")
    del guessed
    for name, function in inspect.getmembers(module, inspect.isfunction):
        if function.__module__ == module.__name__ and not name.startswith("_"):
            yield Case(name, function)


DATABASES: dict[str, Callable[..., Iterator[Case]]] = {
    "operators": operators,
    "errors": errors,
    "modules": modules,
    "optimizers": optimizers,
    "snippets": snippets,
}
