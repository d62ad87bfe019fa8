"""Views that were written into: their gradients take what they do in PyTorch 2.13's CUDA build."""

from pathlib import Path

import msgspec
import pytest

from tests.warm_traces import WARM
from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import card
from vramtui.dryrun.result import TraceRequest

pytestmark = pytest.mark.torch
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
