"""What ranks tell one another is known where this rank's own values are."""

from pathlib import Path

import pytest

from tests.dryrun.fake.test_scripts import traced
from tests.warm_traces import WARM
from vramtui.core.estimate.devices import card
from vramtui.dryrun.result import ONE_PROCESS, TraceRequest

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("warm_children")]

# As detectors gather what they found on every rank: sizes first, then as many bytes as the largest has.
PICKLED = """
import pickle, sys
import torch
import torch.distributed as dist
dist.init_process_group("nccl")
kept = list(range(int(sys.argv[1])))
stored = torch.ByteStorage.from_buffer(pickle.dumps(kept))
mine = torch.ByteTensor(stored).to("cuda")
size = torch.tensor([mine.numel()], device="cuda")
sizes = [torch.tensor([0], device="cuda") for _ in range(dist.get_world_size())]
dist.all_gather(sizes, size)
sizes = [int(one.item()) for one in sizes]
most = max(sizes)
rows = [torch.empty((most,), dtype=torch.uint8, device="cuda") for _ in sizes]
if size != most:
    mine = torch.cat((mine, torch.empty(size=(most - size,), dtype=torch.uint8, device="cuda")))
dist.all_gather(rows, mine)
told = [pickle.loads(row.cpu().numpy().tobytes()[:size]) for size, row in zip(sizes, rows)]
assert told == [kept] * 8, told
"""
EACH = """
import torch
import torch.distributed as dist
dist.init_process_group("nccl")
def three(where="cuda"):
    return torch.tensor([1, 2, 3], device=where)
def check(tensor, *numbers):
    assert tensor.flatten().tolist() == list(numbers), tensor.tolist()
for where in ("cuda", "cpu"):
    whole, eight = three(where), torch.zeros(24, dtype=torch.long, device=where)
    work = dist.all_reduce(whole, async_op=True)
    assert work.wait()
    check(whole, 8, 16, 24)
    dist.all_reduce(whole, dist.ReduceOp.MAX)
    check(whole, 8, 16, 24)
    dist.reduce(whole, 0)
    check(whole, 64, 128, 192)
    dist.all_gather_into_tensor(eight, three(where))
    check(eight, *[1, 2, 3] * 8)
    dist.reduce_scatter_tensor(out := three(where), eight)
    check(out, 8, 16, 24)
    dist.scatter(out := torch.zeros_like(out), [three(where)] * 8)
    check(out, 1, 2, 3)
    dist.gather(out, found := [torch.zeros_like(out) for _ in range(8)])
    check(found[7], 1, 2, 3)
    dist.all_to_all_single(mixed := torch.zeros_like(eight), torch.arange(24, device=where))
    check(mixed, *[0, 1, 2] * 8)
    dist.broadcast(out, 0)
    check(out, 1, 2, 3)
dist.gather_object({"rank": 0}, told := [None] * 8)
assert told[7] == {"rank": 0}
dist.scatter_object_list(told, [5] + [6] * 7)
assert told[0] == 5
drawn = torch.randn(9, 9, device="cuda").sum()
dist.all_reduce(drawn)
dist.all_gather([torch.empty(1 << 20, device="cuda")], torch.randn(1 << 20, device="cuda"))  # nobody knows these
"""


def follow(folder: Path, text: str, *arguments: str) -> None:
    script = folder / "script.py"
    script.write_text(text, encoding="utf-8")
    WARM.trace(TraceRequest(path=str(script), arguments=arguments, device=card("H200"), ranks=8))


@pytest.mark.parametrize("places", ["1", "65", "1025", "20000"])
def test_pickled_values_come_back_from_every_rank(tmp_path: Path, places: str) -> None:
    follow(tmp_path, PICKLED, places)


def test_each_collective_leaves_what_equal_ranks_would(tmp_path: Path) -> None:
    follow(tmp_path, EACH)


def test_waiting_for_a_collective_takes_no_memory(tmp_path: Path) -> None:
    """DTensor's gathered tensors were held twice: the CUDA build takes 250 MiB less for the FSDP and TP example."""
    follow(
        tmp_path,
        """
import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional
from torch.distributed.device_mesh import init_device_mesh
mesh = init_device_mesh("cuda", (8,))
mine, before = torch.randn(1 << 20, device="cuda"), torch.cuda.memory_allocated()
torch.cuda.reset_peak_memory_stats()
whole = functional.wait_tensor(functional.all_gather_tensor(mine, 0, mesh))
assert whole.shape == (8 << 20,)
assert torch.cuda.max_memory_allocated() - before == 32 << 20, torch.cuda.max_memory_allocated() - before
""",
    )


SPAWNED = """
    import sys
    import torch, torch.distributed as dist, torch.multiprocessing as mp
    from torch.nn.parallel import DistributedDataParallel
    def work(rank, size, width):
        torch.cuda.set_device(rank)
        if size > 1:
            dist.init_process_group("nccl", init_method="tcp://127.0.0.1:2345", rank=rank, world_size=size)
        net = torch.nn.Linear(width, width).cuda(rank)
        net = DistributedDataParallel(net, device_ids=[rank]) if size > 1 else net
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            net(torch.randn(8, width, device=rank)).sum().backward()
            optimizer.step()
    if __name__ == "__main__":
        size = int(sys.argv[1])
        if {join}:
            mp.spawn(work, args=(size, 512), nprocs=size)
        else:
            assert mp.start_processes(work, (size, 512), size, join=False).join()
"""


@pytest.mark.parametrize(("size", "join"), [(1, True), (4, True), (4, False)])
def test_of_processes_that_are_spawned_the_first_is_traced(tmp_path: Path, size: int, join: bool) -> None:
    result = traced(tmp_path, SPAWNED.format(join=join), None, str(size))
    net = 512 * 513 * 4
    assert result.peak_allocated > (3 if size > 1 else 2) * net  # weights, gradients, and their bucket
    assert any(f"process 0 of the {size} that torch.multiprocessing.spawn starts" in note for note in result.warnings)


STARTS = {  # the second also what keeps the state of random numbers, by kernels of CUDA's as the real build has them
    "(one := Process(target=work)).start()\n    one.join()": (True, 0),
    "Pool(1).map(abs, [1])\n    work()": (False, 7 << 19),
}


@pytest.mark.parametrize("start", STARTS)
def test_a_process_that_is_not_followed_is_told_of(tmp_path: Path, start: str) -> None:
    drop = "torch.ops.aten.native_dropout.default, x, 0.5, True)\n    "
    code = "import torch\nfrom multiprocessing import Pool, Process\nfrom torch._prims import rng_prims as rng\n"
    code += f"def work():\n    x = torch.randn(1 << 18, device='cuda')\n    s, y = rng.run_and_save_rng_state({drop}"
    code += f"z = rng.run_with_rng_state(s, {drop}\nif __name__ == '__main__':\n    {start}\n"
    result = traced(tmp_path, code)
    assert (result.bounded, result.peak_allocated) == STARTS[start]
    assert (ONE_PROCESS in str(result.warnings)) is result.bounded
