"""Gradients in the order and the memory of a GPU: where they meet, and views that were written into."""

from pathlib import Path

import msgspec
import pytest

from tests.dryrun.fake.test_scripts import traced
from tests.warm_traces import WARM
from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import card
from vramtui.dryrun.result import TraceRequest

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("warm_children")]

# A net whose equation has second derivatives, as in physics-informed training.
EQUATION = """
    import sys, torch
    from torch import nn
    rows = int(sys.argv[1])
    net = nn.Sequential(nn.Linear(2, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 1)).cuda().double()
    optimizer = torch.optim.Adam(net.parameters())
    for _ in range(3):
        x = torch.rand(rows, 2, dtype=torch.float64, device="cuda", requires_grad=True)
        u = net(x)
        du = torch.autograd.grad(u, x, torch.ones_like(u), create_graph=True)[0]
        uxx = torch.autograd.grad(du[:, 0], x, torch.ones_like(du[:, 0]), create_graph=True, retain_graph=True)[0][:, 0]
        loss = (du[:, 1] + u[:, 0] * du[:, 0] - 0.01 * uxx).pow(2).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
"""


def test_nodes_of_autograd_are_numbered_as_without_a_trace(tmp_path: Path) -> None:
    code = "import torch; assert (torch.zeros(1, requires_grad=True, device='cuda') * 1).grad_fn._sequence_nr() == 0"
    traced(tmp_path, code)


# The real PyTorch 2.13 CUDA build on a stubbed driver, an A100, after three steps.
@pytest.mark.parametrize(("rows", "peak"), [(100, 19_747_328), (1_000, 40_072_704), (4_000, 109_721_600)])
def test_a_backward_through_two_backwards_takes_what_it_takes_on_a_card(tmp_path: Path, rows: int, peak: int) -> None:
    assert traced(tmp_path, EQUATION, None, str(rows)).peak_allocated == peak


CODE = """
import torch
from torch.nn import functional as F

def norm_and_relu():
    x = torch.randn(1, 8, 128, 128, device="cuda", requires_grad=True)
    y = F.relu(torch.nn.InstanceNorm2d(8).cuda()(x), inplace=True)
    (F.pad(y, (1, 1, 1, 1), mode="reflect") * 3).sum().backward()

def gradient_that_is_kept():
    x = torch.randn(1, 8, 128, 128, device="cuda", requires_grad=True)
    y = F.leaky_relu(torch.nn.InstanceNorm2d(8).cuda()(x), 0.2, inplace=True)
    y.backward(torch.empty(y.shape, device="cuda"))

def another_view_of_the_base():
    x = torch.randn(256, 512, device="cuda", requires_grad=True)
    b = torch.zeros(2, 256, 512, device="cuda")
    b[0] = x * 2
    (b.view(512, 512) * 3).sum().backward()

def flattened():
    y = (torch.randn(512, 512, device="cuda", requires_grad=True) * 2).view(-1).relu_()
    (y * y).sum().backward()

def transposed():
    y = (torch.randn(512, 512, device="cuda", requires_grad=True) * 2).t().relu_()
    (y * y).sum().backward()

def stepped_between_backward_passes(**options):
    net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).cuda()
    optimizer = torch.optim.Adam(net.parameters(), **options)
    y = net(torch.ones(4, 8, device="cuda"))
    y.sum().backward(retain_graph=True)
    optimizer.step()
    y.mean().backward()

def stepped_by_a_fused_kernel():
    stepped_between_backward_passes(fused=True)
"""


@pytest.mark.parametrize(
    ("function", "peak"),
    [
        ("norm_and_relu", 3_147_776),
        ("gradient_that_is_kept", 3_671_040),
        ("another_view_of_the_base", 4_195_328),
        ("flattened", 6_292_480),
        ("transposed", 6_292_480),
    ],
)
def test_the_peak_of_a_backward_pass(tmp_path: Path, function: str, peak: int) -> None:
    (tmp_path / "views.py").write_text(CODE, encoding="utf-8")
    request = TraceRequest(path=str(tmp_path / "views.py"), function=function, device=card("H200"))
    assert WARM.trace(request).peak_allocated == peak


def test_a_backward_pass_through_weights_that_have_been_stepped_is_refused_as_on_a_card(tmp_path: Path) -> None:
    (tmp_path / "views.py").write_text(CODE, encoding="utf-8")
    request = TraceRequest(
        path=str(tmp_path / "views.py"), function="stepped_between_backward_passes", device=card("H200")
    )
    with pytest.raises(UserError, match="modified by an inplace operation"):
        WARM.trace(request)
    # Fused kernels count no write, so that the same goes through there.
    assert WARM.trace(msgspec.structs.replace(request, function="stepped_by_a_fused_kernel")).peak_allocated > 0
