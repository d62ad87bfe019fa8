"""`vramtui.trace(step, model, optimizer)` names bytes as the trace of a script does."""

from pathlib import Path

import torch

import vramtui

SCRIPT = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.Linear(512, 256)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    x = torch.randn(64, 256, device="cuda")
    model(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def one_step(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    x = torch.randn(64, 256, device="cuda")
    model(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def test_categories_are_those_of_the_same_loop_in_a_script(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.Linear(512, 256))
    by_call = vramtui.trace(one_step, model, torch.optim.AdamW(model.parameters()))
    path = tmp_path / "loop.py"
    path.write_text(SCRIPT, encoding="utf-8")
    by_script = vramtui.trace(str(path))
    weights = 4 * (256 * 512 + 512 + 512 * 256 + 256)
    assert by_call.peak_categories == by_script.peak_categories
    assert by_call.peak_categories["weights"] >= weights
    assert by_call.peak_categories["optimizer"] >= 2 * weights
    assert by_call.peak_categories["inputs"] == 64 * 256 * 4
    assert [(row.phase, row.step) for row in by_call.timeline] == [(row.phase, row.step) for row in by_script.timeline]
