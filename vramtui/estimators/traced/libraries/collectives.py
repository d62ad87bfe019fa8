"""What collectives leave behind: every rank is taken to hold what this one does, so that sizes which ranks tell one
another are known. Only values are carried, by the mirrors of small tensors; nothing is allocated.

The functions take what those of torch/distributed/distributed_c10d.py take (2.13).
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from vramtui.estimators.traced.dispatch import values
from vramtui.estimators.traced.kernels.registry import kernel

if dist.is_available():

    @kernel("_c10d_functional::wait_tensor")
    def wait_tensor(call: Any) -> Any:
        """args: tensor, which is given back as it is (torch/csrc/distributed/c10d/Functional.cpp, 2.13); PyTorch's own
        shapes make another one.
        """
        return call.args[0]


class FinishedWork:
    """A collective that is done."""

    def wait(self, *_args: Any) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    def is_success(self) -> bool:
        return True


class Collectives:
    """Those that tell values.

    Args:
        book: the storages, by which values are found.
    """

    def __init__(self, book: Any) -> None:
        self._book = book

    def functions(self) -> dict[str, Callable[..., Any]]:
        """Each by its name in `torch.distributed`."""
        into_tensor, from_tensor = self._all_gather_into_tensor, self._reduce_scatter_tensor
        blocking: dict[str, Callable[..., None]] = {
            "all_gather": self._all_gather,
            "all_gather_into_tensor": into_tensor,
            "_all_gather_base": into_tensor,
            "gather": self._gather,
            "scatter": self._scatter,
            "all_reduce": self._all_reduce,
            "reduce": self._reduce,
            "reduce_scatter": self._reduce_scatter,
            "reduce_scatter_tensor": from_tensor,
            "_reduce_scatter_base": from_tensor,
            "all_to_all": self._all_to_all,
            "all_to_all_single": self._all_to_all_single,
        }
        return {name: _done_after(one) for name, one in blocking.items()} | {
            "all_gather_object": _gather_objects,
            "gather_object": _gather_object,
            "scatter_object_list": _scatter_objects,
        }

    def _all_gather(self, tensor_list: list[torch.Tensor], tensor: torch.Tensor, *_rest: Any, **_named: Any) -> None:
        for out in tensor_list:
            self._tell(out, tensor)

    def _all_gather_into_tensor(
        self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, *_rest: Any, **_named: Any
    ) -> None:
        copies = output_tensor.numel() // max(input_tensor.numel(), 1)
        self._tell(output_tensor, input_tensor, lambda value: value.flatten().repeat(copies))

    def _gather(
        self, tensor: torch.Tensor, gather_list: list[torch.Tensor] | None = None, *_: Any, **_named: Any
    ) -> None:
        self._all_gather(gather_list or [], tensor)

    def _scatter(
        self, tensor: torch.Tensor, scatter_list: list[torch.Tensor] | None = None, *_: Any, **_named: Any
    ) -> None:
        if scatter_list:
            self._tell(tensor, scatter_list[0])

    def _all_reduce(self, tensor: torch.Tensor, op: Any = None, group: Any = None, **_named: Any) -> None:
        self._tell(tensor, tensor, _reduction(op, group))

    def _reduce(self, tensor: torch.Tensor, *rest: Any, op: Any = None, group: Any = None, **_named: Any) -> None:
        """The result is on the rank that asked for it; the others' own values are theirs to keep, and are alike."""
        op = rest[1] if op is None and len(rest) > 1 else op
        self._tell(tensor, tensor, _reduction(op, group))

    def _reduce_scatter(
        self,
        output: torch.Tensor,
        input_list: list[torch.Tensor],
        op: Any = None,
        group: Any = None,
        **_: Any,
    ) -> None:
        self._tell(output, input_list[0], _reduction(op, group))

    def _reduce_scatter_tensor(
        self,
        output: torch.Tensor,
        input: torch.Tensor,  # noqa: A002 - torch's name
        op: Any = None,
        group: Any = None,
        **_: Any,
    ) -> None:
        reduce = _reduction(op, group)
        self._tell(output, input, lambda value: reduce(value.flatten()[: output.numel()]))

    def _all_to_all(
        self, output_tensor_list: list[torch.Tensor], input_tensor_list: list[torch.Tensor], *_rest: Any, **_named: Any
    ) -> None:
        for out in output_tensor_list:
            self._tell(out, input_tensor_list[0])

    def _all_to_all_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,  # noqa: A002 - torch's name
        output_split_sizes: Any = None,
        *_: Any,
        **_named: Any,
    ) -> None:
        if output_split_sizes is None and output.numel() == input.numel():
            ranks = dist.get_world_size(_named.get("group"))
            self._tell(output, input, lambda value: value.flatten()[: output.numel() // ranks].repeat(ranks))

    def _tell(
        self,
        out: torch.Tensor,
        source: torch.Tensor,
        change: Callable[[torch.Tensor], torch.Tensor] = lambda value: value,
    ) -> None:
        """Give `out` what `source` holds, changed so; nothing where that is not known."""
        with torch._C._DisableTorchDispatch():
            value = values.certain_value(self._book, source)
            if value is not None:
                values.put(self._book, out, change(value))


def _done_after(function: Callable[..., None]) -> Callable[..., Any]:
    def collective(*args: Any, **kwargs: Any) -> Any:
        is_async = kwargs.pop("async_op", False)
        function(*args, **kwargs)
        return FinishedWork() if is_async else None

    return collective


def _reduction(op: Any, group: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    """What the ranks' equal values come to: sums and products grow, an average, a bound or a bit does not."""
    ranks = dist.get_world_size(group)
    if op is None or op == dist.ReduceOp.SUM:
        return lambda value: value * ranks
    if op == dist.ReduceOp.PRODUCT:
        return lambda value: value**ranks
    return lambda value: value


def _gather_objects(object_list: list[Any], obj: Any, *_rest: Any, **_named: Any) -> None:
    object_list[:] = [obj] * len(object_list)


def _gather_object(obj: Any, object_gather_list: list[Any] | None = None, *_rest: Any, **_named: Any) -> None:
    _gather_objects(object_gather_list if object_gather_list is not None else [], obj)


def _scatter_objects(
    scatter_object_output_list: list[Any], scatter_object_input_list: list[Any] | None = None, *_: Any, **_named: Any
) -> None:
    if scatter_object_input_list:
        scatter_object_output_list[0] = scatter_object_input_list[0]
