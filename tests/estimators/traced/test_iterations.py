"""L-BFGS, whose steps end where the loss falls no more."""

from pathlib import Path

import pytest

from tests.estimators.traced.test_scripts import traced

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("warm_children")]

SCRIPT = """
    import sys, torch
    rows, search = int(sys.argv[1]), sys.argv[2] or None
    net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Tanh(), torch.nn.Linear(256, 1)).cuda()
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=8, history_size=10, line_search_fn=search)
    x, y = torch.randn(rows, 64, device="cuda"), torch.randn(rows, 1, device="cuda")
    def closure():
        optimizer.zero_grad()
        loss = (net(x) - y).square().mean()
        loss.backward()
        return loss
    for _ in range(3):
        optimizer.step(closure)
    assert optimizer.param_groups[0]["tolerance_change"] == 1e-9
"""


# The real PyTorch 2.13 CUDA build on a stubbed driver, an A100, whose L-BFGS was told that the loss falls each time.
@pytest.mark.parametrize(("rows", "peak"), [(200, 19_492_864), (5_000, 36_418_560)])
def test_a_step_goes_on_and_keeps_its_pairs(tmp_path: Path, rows: int, peak: int) -> None:
    result = traced(tmp_path, SCRIPT, None, str(rows), "")
    assert result.peak_allocated == peak
    assert any(note.startswith("L-BFGS is taken to go on for all 8 iterations") for note in result.warnings)


def test_a_line_search_ends(tmp_path: Path) -> None:
    assert traced(tmp_path, SCRIPT, None, "200", "strong_wolfe").peak_allocated > 18_000_000
