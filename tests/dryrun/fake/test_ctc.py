"""CTC loss: lengths wherever they lie, the kernel's own tables, and cuDNN's workspace said to be unknown."""

import textwrap
from pathlib import Path

import pytest

from tests.warm_traces import WARM
from vramtui.core.estimate.devices import card
from vramtui.dryrun.result import DryRun, TraceRequest

pytestmark = pytest.mark.torch
TIME, BATCH, CLASSES, LONGEST = 50, 4, 32, 10
CODE = f"""
import torch
def run(targets, steps, lengths, **how):
    logits = torch.randn({TIME}, {BATCH}, {CLASSES}, device="cuda", requires_grad=True)
    loss = torch.nn.CTCLoss(**how)(logits.log_softmax(-1), targets, steps, lengths)
    assert loss.shape == ({BATCH},) if how.get("reduction") == "none" else loss.shape == ()
    loss.sum().backward()
    assert logits.grad.shape == logits.shape
steps, lengths = torch.full(({BATCH},), {TIME}), torch.tensor([3, {LONGEST}, 5, 7])
padded = torch.randint(1, {CLASSES}, ({BATCH}, 16))
def on_the_cpu(): run(padded.cuda(), steps, lengths)
def on_the_card(): run(padded.cuda(), steps.cuda(), lengths.cuda(), reduction="sum", zero_infinity=True)
def in_a_row(): run(torch.ones(25, dtype=torch.int32), tuple(steps.tolist()), (3, 10, 5, 7), reduction="none")
"""


def traced(folder: Path, function: str) -> DryRun:
    path = folder / "job.py"
    path.write_text(textwrap.dedent(CODE), encoding="utf-8")
    return WARM.trace(TraceRequest(path=str(path), function=function, device=card("H200")))


@pytest.mark.parametrize("function", ["on_the_cpu", "on_the_card", "in_a_row"])
def test_lengths_may_lie_anywhere(tmp_path: Path, function: str) -> None:
    result = traced(tmp_path, function)
    sizes = [held.bytes for held in result.largest]
    # One number for each step, and for each symbol of the longest target with a blank before, between and after.
    table = -(-BATCH * TIME * (2 * LONGEST + 1) * 4 // 512) * 512
    assert sizes.count(table) == 2, "alpha, and beta in the backward pass"
    assert [("cuDNN" in warning) for warning in result.warnings] == ([True] if function == "in_a_row" else [])
