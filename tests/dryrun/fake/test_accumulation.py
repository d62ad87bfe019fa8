"""Where autograd puts gradients that meet, and in which order it goes through a backward of its own."""

from pathlib import Path

import pytest

from tests.dryrun.fake.test_scripts import traced

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
    traced(
        tmp_path,
        """
        import torch
        first = (torch.zeros(1, requires_grad=True, device="cuda") * 1).grad_fn
        assert first._sequence_nr() == 0, first._sequence_nr()
        """,
    )


# The real PyTorch 2.13 CUDA build on a stubbed driver, an A100, after three steps.
@pytest.mark.parametrize(("rows", "peak"), [(100, 19_747_328), (1_000, 40_072_704), (4_000, 109_721_600)])
def test_a_backward_through_two_backwards_takes_what_it_takes_on_a_card(tmp_path: Path, rows: int, peak: int) -> None:
    assert traced(tmp_path, EQUATION, None, str(rows)).peak_allocated == peak
