"""`SummaryWriter.add_graph`, of PyTorch's own writer over a TensorBoard that is not there."""

from pathlib import Path

import pytest

from tests.estimators.traced.test_scripts import traced

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("warm_children")]

WRITER = """
    import importlib.abc, importlib.machinery, sys, types
    from unittest.mock import MagicMock
    class Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
        def find_spec(self, name, path, target=None):
            if name.split(".")[0] in ("tensorboard", "google"):
                return importlib.machinery.ModuleSpec(name, self, is_package=True)
        def create_module(self, spec):
            return types.ModuleType(spec.name)
        def exec_module(self, module):
            module.__version__ = "2.21.0"
            module.__getattr__ = lambda name: MagicMock() if not name.startswith("__") else module.missing
    sys.meta_path.insert(0, Absent())
    import torch
    from torch.utils.tensorboard import SummaryWriter
    width = int(sys.argv[1])
    net = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.Dropout()).cuda()
    x = torch.randn(2, width, device="cuda")
    writer = SummaryWriter("runs")
    {graph}
    assert net.training
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(3):
        loss = net(x).sum()
        loss.backward()
        optimizer.step()
        writer.add_scalar("loss", loss, step)
"""
GRAPHS = (
    "writer.add_graph(net, x)",
    "writer.add_graph(net, (x,))",
    "writer.add_graph(net, input_to_model=[x])",
    "writer.add_graph(torch.jit.trace(net, x), [])",
    "writer.add_graph(torch.jit.trace(net, x, strict=False))",
)


@pytest.mark.parametrize("width", [1, 65, 1_025])
def test_a_graph_runs_the_model_once_and_leaves_it_as_it_was(tmp_path: Path, width: int) -> None:
    plain = traced(tmp_path, WRITER.format(graph=""), None, str(width))
    for graph in GRAPHS:
        result = traced(tmp_path, WRITER.format(graph=graph), None, str(width))
        assert result.peak_allocated == plain.peak_allocated
        assert any("no graph is written" in note for note in result.warnings)


SAVES = """
    import sys, torch
    class Net(torch.nn.Sequential):
        {own}
        def forward(self, x):
            {read}
            return super().forward(x)
    width = int(sys.argv[1])
    net = Net(torch.nn.Linear(width, width)).cuda()
    x = torch.randn(2, width, device="cuda")
    {graph}
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(3):
        net(x).sum().backward()
        optimizer.step()
"""


@pytest.mark.parametrize("width", [1, 65, 1_025])
@pytest.mark.parametrize(
    ("own", "read"), [("save = [0]", "assert 0 in self.save"), ("def save(self): return 0", "assert self.save() == 0")]
)
def test_a_model_that_was_traced_keeps_a_save_of_its_own(tmp_path: Path, own: str, read: str, width: int) -> None:
    plain, after = (
        traced(tmp_path, SAVES.format(own=own, read=read, graph=graph), None, str(width))
        for graph in ("", "torch.jit.trace(net, x, strict=False)")
    )
    assert after.peak_allocated == plain.peak_allocated
