"""What public scripts were found to do that a trace did not follow."""

from pathlib import Path

import pytest

from tests.warm_traces import WARM
from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import card
from vramtui.dryrun.result import DryRun, TraceRequest

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]

# The device mesh makes the process group itself, and a DTensor is asked for its device.
MESH = """
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("dp", "tp"))
net = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)).cuda()
net = parallelize_module(net, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
assert net[0].weight.device.type == "cuda"
net = fully_shard(net, mesh=mesh["dp"])
optimizer = torch.optim.AdamW(net.parameters())
for _ in range(3):
    net(torch.randn(256, 1024, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
ON_THE_CPU = """
import torch
net = torch.nn.Sequential(torch.nn.Linear(300, 300), torch.nn.GELU(), torch.nn.Linear(300, 300))
optimizer = torch.optim.AdamW(net.parameters())
for _ in range(3):
    loss = torch.nn.functional.mse_loss(net(torch.randn(64, 300)), torch.randn(64, 300))
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
"""
# An operator of C++, which has a kernel for the CPU and no shapes.
KERNEL = """
import torch
library = torch.library.Library("ours", "DEF")
library.define("halves(Tensor x, int times) -> (Tensor, Tensor)")
def halves(x, times):
    return x[: x.shape[0] // 2].repeat(times, 1), x.new_zeros(times, dtype=torch.long)
library.impl("halves", halves, KEY)
x = torch.zeros(1000, 256, device="cuda")
out, count = torch.ops.ours.halves(x, 3)
assert out.is_cuda and out.shape == (1500, 256) and count.dtype is torch.int64
"""


def traced(folder: Path, code: str, ranks: int = 0) -> DryRun:
    script = folder / "script.py"
    script.write_text(code, encoding="utf-8")
    return WARM.trace(TraceRequest(path=str(script), device=card("H200"), ranks=ranks))


def test_a_device_mesh_needs_no_process_group_of_the_code(tmp_path: Path) -> None:
    result = traced(tmp_path, MESH, ranks=4)
    weights = sum(row.categories["weights"] for row in result.timeline[-1:])
    # Each of two by two ranks holds a quarter of both matrices; a bias is split by columns alone, or not at all.
    assert weights == 2 * 1024 * 4096 + 4096 + 2048
    assert any("rank 0 of 4" in note for note in result.warnings)


def test_what_runs_on_the_cpu_takes_nothing_of_the_card(tmp_path: Path) -> None:
    assert traced(tmp_path, ON_THE_CPU).peak_allocated == 0


def test_what_is_made_by_a_settings_file_says_which_arguments_it_takes(tmp_path: Path) -> None:
    """As what makes an optimizer or a loader from such a file asks (D-FINE)."""
    code = """
import inspect, torch
from torch.utils.data import DataLoader
for kind, known in ((torch.optim.AdamW, "lr"), (torch.optim.Adagrad, "lr"), (DataLoader, "num_workers")):
    spec = inspect.getfullargspec(kind.__init__)
    assert spec.args[0] == "self" and known in spec.args + spec.kwonlyargs, spec
"""
    traced(tmp_path, code + ON_THE_CPU)


def test_a_list_of_the_cards_tensors_makes_a_tensor(tmp_path: Path) -> None:
    code = """
import torch
made = torch.nn.Linear(8, 8).cuda().weight.detach()
for call in (torch.tensor, torch.as_tensor, torch.asarray):
    assert call([1.0, made[0][0] * 2, torch.zeros_like(made[0][:1])], device="cuda").shape == (3,)
    assert call([[made.sum()], [made.sum() * 2]], device="cuda").shape == (2, 1)
"""
    traced(tmp_path, code + ON_THE_CPU)


def test_a_kernel_for_the_card_alone_is_refused_with_what_would_go_on(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="register_fake"):
        traced(tmp_path, KERNEL.replace("KEY", '"CUDA"'))
