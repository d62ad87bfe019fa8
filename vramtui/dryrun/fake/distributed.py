"""One rank of a distributed job: its process group sends nothing, its buffers are all there.

Every rank is taken to hold what this one does, so that sizes which ranks tell one another are known.
`DistributedDataParallel` has PyTorch's own Reducer (torch/csrc/distributed/c10d, reducer.cpp, 2.13). What NCCL itself
takes is outside PyTorch's allocator.
"""

import inspect
import os
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
import torch.distributed
import torch.multiprocessing
from torch._subclasses.fake_tensor import FakeTensor

from vramtui.dryrun.fake import LISTS
from vramtui.dryrun.fake.accounting.memory import SimulatedMemory
from vramtui.dryrun.fake.device.device import CUDA_DEVICE
from vramtui.dryrun.fake.device.patches import Patches
from vramtui.dryrun.fake.kernels import kernel
from vramtui.probe.import_hook import when_imported

NOTE = "rank 0 of {} is traced: no other rank exists, and NCCL's own buffers, outside PyTorch's allocator, are left out"
STARTED = (
    "process 0 of the {} that torch.multiprocessing.spawn starts at {} is run, here: the others are taken to be on "
    "cards of their own"
)
dist: Any = torch.distributed  # it does not export all that it holds

if dist.is_available():

    @kernel("_c10d_functional::wait_tensor")
    def wait_tensor(call: Any) -> Any:
        """args: tensor, which is given back as it is; PyTorch's own shapes make another one."""
        return call.args[0]


class _FinishedWork:
    wait = is_completed = is_success = lambda _self, *_args: True


def install(patches: Patches, memory: SimulatedMemory, ranks: int, shapes_only: Callable[[], Any]) -> None:
    def start(fn: Any, args: Any = (), nprocs: int = 1, join: bool = True, *_rest: Any, **_kwargs: Any) -> Any:
        """Run the first process here: a real one would be without a card."""
        memory.warn(STARTED.format(nprocs, memory.user_line()))
        fn(0, *args)
        return None if join else SimpleNamespace(processes=(), join=lambda *_args, **_named: True, pids=list)

    for name in ("spawn", "start_processes"):
        patches.set(torch.multiprocessing, name, start)
    if not dist.is_available():
        return
    if ranks:
        for name, value in LISTS["torchrun"].items():
            os.environ.setdefault(name, value or str(ranks))
    from torch.distributed import distributed_c10d  # noqa: PLC0415 - it is not built everywhere
    from torch.nn.parallel import distributed as ddp  # noqa: PLC0415 - not built everywhere

    plain_init = distributed_c10d.init_process_group

    def init_process_group(*_args: Any, **kwargs: Any) -> None:
        from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: PLC0415 - only distributed code needs it

        size = first_of(ranks, kwargs.get("world_size"), os.environ.get("WORLD_SIZE"))
        memory.warn(NOTE.format(size))
        plain_init(backend="fake", rank=0, world_size=size, store=FakeStore())

    answers: dict[str, Callable[..., Any]] = {
        **dict.fromkeys(LISTS["silent"], lambda *_, async_op=False, **_named: _FinishedWork() if async_op else None),
        **{name: _telling(memory.values, vars(distributed_c10d)[name], *of) for name, of in LISTS["sent"].items()},
        "init_process_group": init_process_group,
        "is_nccl_available": lambda: True,
        "get_backend": lambda *_args, **_kwargs: "nccl",
    }
    holders = [module for key, module in list(sys.modules.items()) if key.startswith("torch.distributed")]
    for name, answer in answers.items():
        before = vars(distributed_c10d)[name]
        for module in holders:  # device_mesh and others have taken the function under its name
            if getattr(module, "__dict__", {}).get(name) is before:
                patches.set(module, name, answer)

    def name_the_card(fsdp: ModuleType) -> None:
        """Let FSDP's `device_id=0` and its current device be the GPU, which PyTorch takes for the device behind it."""
        card = SimpleNamespace(current_device=lambda: CUDA_DEVICE)

        @patches.around(fsdp, "_get_device_from_device_id")
        def device_from_id(plain: Any, device_id: Any, rank: int, device_handle: Any) -> Any:  # noqa: ARG001 - as there
            return plain(torch.device("cuda", device_id) if isinstance(device_id, int) else device_id, rank, card)

        @patches.around(fsdp, "_get_compute_device")
        def compute_device(plain: Any, *args: Any, **kwargs: Any) -> Any:
            return plain(*inspect.signature(plain).bind(*args, **kwargs).args[:-1], card)

    when_imported("torch.distributed.fsdp._init_utils", name_the_card)
    plain_hook = dist._register_comm_hook

    def reduce(_state: object, bucket: Any) -> Any:
        future: Any = torch.futures.Future()
        future.set_result(bucket.buffer())
        if (entry := memory.find(bucket.buffer())) is not None:
            entry.category = "gradients"
        return future

    @patches.around(dist, "Reducer")
    def reducer(plain: Any, *args: Any, **kwargs: Any) -> Any:
        """PyTorch's own, whose buckets come back as they are: an operation that sends nothing gives no result."""
        own = plain(*args, **kwargs)
        plain_hook(own, None, reduce)
        return own

    for name in ("_register_comm_hook", "_register_builtin_comm_hook"):
        patches.set(dist, name, lambda *_args: None)
    patches.set(ddp, "_verify_param_shape_across_processes", lambda *_args, **_kwargs: None)
    try:
        from torch.distributed.tensor import DTensor, _dispatch, _random  # noqa: PLC0415 - not built everywhere
        from torch.distributed.tensor._sharding_prop import ShardingPropagator  # noqa: PLC0415 - not built everywhere
    except ImportError:
        return

    @patches.around(ShardingPropagator, "_propagate_tensor_meta_non_cached")
    def propagate(plain: Any, *args: Any, **kwargs: Any) -> Any:
        """Tell the shape of a DTensor's result by fake tensors of the whole, which take no memory."""
        with shapes_only():
            return plain(*args, **kwargs)

    patches.set(DTensor, "device", property(lambda tensor: tensor._local_tensor.device))
    # Ranks' random numbers are kept in step by an operator that only compilers follow.
    for module in (_dispatch, _random):
        patches.set(module, "is_rng_supported_mesh", lambda device_mesh: False)  # noqa: ARG005 - its name


def _telling(values: Any, plain: Any, source_name: str, out_name: str) -> Callable[..., Any]:
    """A collective that gives the tensors or objects of its output what this rank's input holds, as far as known."""
    signature = inspect.signature(plain)

    def value_for(one: torch.Tensor, value: torch.Tensor, given: dict[str, Any]) -> torch.Tensor | None:
        op, ranks = given.get("op"), dist.get_world_size(given.get("group"))
        if "op" in signature.parameters and op in {None, dist.ReduceOp.SUM}:
            value = value * ranks
        elif op == dist.ReduceOp.PRODUCT:
            value = value**ranks
        if "input_split_sizes" in signature.parameters:
            if given.get("output_split_sizes") is not None or one.numel() != value.numel():
                return None
            value = value.flatten()[: one.numel() // ranks]  # each rank sends its first part here
        value = value.flatten().repeat(-(-one.numel() // max(value.numel(), 1)))[: one.numel()]
        return value.reshape(one.shape).to(one.dtype)

    def tell(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        source, out = given.get(source_name), given.get(out_name)
        first = source[0] if isinstance(source, (list, tuple)) and source and source_name != "obj" else source
        outs: list[Any] = out if isinstance(out, list) else [] if out is None else [out]
        for at, one in enumerate(outs):
            if not isinstance(one, torch.Tensor):
                outs[at] = first
            elif isinstance(first, torch.Tensor):
                with torch._C._DisableTorchDispatch():
                    known = values.value_of(first)
                    if known is not None and (value := value_for(one, known, given)) is not None:
                        values.put(one, value) if isinstance(one, FakeTensor) else one.detach().copy_(value)
        return _FinishedWork() if given.get("async_op") else None

    return tell


def first_of(*numbers: Any) -> int:
    return next((int(one) for one in numbers if one is not None and int(one) > 0), 1)
