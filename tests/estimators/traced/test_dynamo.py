"""PyTorch's compiler is imported where a job asks for it, and there as it would have been without a trace."""

from pathlib import Path

import pytest

from tests.estimators.traced.test_scripts import traced

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("warm_children")]

TRAINING = """
    import sys, torch
    from torch.utils.checkpoint import checkpoint

    def was_run():
        return "torch._dynamo.eval_frame" in sys.modules

    {before}
    net = torch.nn.Linear(64, 64).cuda()
    optimizer = torch.optim.AdamW(net.parameters())
    for step in range(3):
        loss = checkpoint(net, torch.randn(8, 64).cuda(), use_reentrant=False).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        {inside}
        assert was_run() == {is_run}, sys.modules["torch._dynamo"]
"""
ASKED = (
    "import torch._dynamo.eval_frame as part; assert part is sys.modules['torch._dynamo'].eval_frame",
    "from torch._dynamo import OptimizedModule; assert OptimizedModule is torch._dynamo.eval_frame.OptimizedModule",
    "torch._dynamo.mark_dynamic(torch.ones(2), 0)",
    "assert torch._dynamo.source.LocalSource('x').name",
    "from torch._dynamo.source import LocalSource, AttrSource; assert AttrSource(LocalSource('x'), 'y').name",
    "assert hasattr(torch.compiler.disable(torch.nn.Linear(1, 1)), 'forward')",
)
LEFT_ALONE = (
    "import torch._dynamo; torch._dynamo.config.suppress_errors = True",
    "assert torch.compiler.disable(was_run) is was_run",
    "assert torch.compiler.disable(recursive=False)(net.forward) == net.forward",
    "torch._dynamo.graph_break(); torch._dynamo.reset()",
)


@pytest.mark.parametrize("line", LEFT_ALONE)
def test_plain_training_does_not_import_it(tmp_path: Path, line: str) -> None:
    plain = traced(tmp_path, TRAINING.format(before="", inside="", is_run=False))
    assert traced(tmp_path, TRAINING.format(before="", inside=line, is_run=False)).timeline == plain.timeline


@pytest.mark.parametrize("line", ASKED)
def test_whoever_asks_more_of_it_gets_the_whole_and_the_same_memory(tmp_path: Path, line: str) -> None:
    plain = traced(tmp_path, TRAINING.format(before="", inside="", is_run=False))
    assert traced(tmp_path, TRAINING.format(before="", inside=line, is_run=True)).timeline == plain.timeline
    assert traced(tmp_path, TRAINING.format(before=line, inside="", is_run=True)).timeline == plain.timeline
