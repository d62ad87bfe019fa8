"""`vramtui.dry_run(step, model, optimizer)` names bytes as the trace of a script does."""

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import vramtui
from tests.loaded_once import Module

if TYPE_CHECKING:
    import torch
else:
    torch = Module("torch")

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("warm_children")]

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

UNGUARDED = """
import sys

sys.modules["cloudpickle"] = None
import torch
import vramtui

def step(model):
    model(torch.randn(2, 8, device="cuda")).sum().backward()

vramtui.dry_run(step, torch.nn.Linear(8, 8))
"""


def one_step(model: "torch.nn.Module", optimizer: "torch.optim.Optimizer") -> None:
    x = torch.randn(64, 256, device="cuda")
    model(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def test_categories_are_those_of_the_same_loop_in_a_script(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.Linear(512, 256))
    by_call = vramtui.dry_run(one_step, model, torch.optim.AdamW(model.parameters()))
    path = tmp_path / "loop.py"
    path.write_text(SCRIPT, encoding="utf-8")
    by_script = vramtui.dry_run(str(path), engine="fake")
    weights = 4 * (256 * 512 + 512 + 512 * 256 + 256)
    assert by_call.peak_categories == by_script.peak_categories
    assert by_call.peak_categories["weights"] >= weights
    assert by_call.peak_categories["optimizer"] >= 2 * weights
    assert by_call.peak_categories["inputs"] == 64 * 256 * 4
    assert [(row.phase, row.step) for row in by_call.timeline] == [(row.phase, row.step) for row in by_script.timeline]


def test_functions_of_a_test_are_followed_with_what_they_hold() -> None:
    """By cloudpickle: a closure, and one without a name."""
    pytest.importorskip("cloudpickle", reason="the extra `torch` brings it")
    model, width = torch.nn.Linear(256, 256), 1 << 12

    def step(model: "torch.nn.Module") -> None:
        model(torch.randn(width, 256, device="cuda")).sum().backward()

    traced = vramtui.dry_run(step, model)
    assert traced.peak_categories["inputs"] == width * 256 * 4
    unnamed = vramtui.dry_run(lambda model: model(torch.randn(width, 256, device="cuda")).sum().backward(), model)
    assert unnamed.peak_categories == traced.peak_categories


def test_it_prints_a_few_lines() -> None:
    model = torch.nn.Linear(256, 256)
    traced = vramtui.dry_run(one_step, model, torch.optim.SGD(model.parameters()), gpu="H100")
    first, *lines = str(traced).splitlines()
    assert first.startswith("H100: ")
    assert any(line.split()[0] == "weights" for line in lines)
    assert len(lines) < 12
    assert repr(traced) == f"<DryRun {first}>"


@pytest.mark.parametrize(
    ("from_file", "sentence"),
    [
        (True, 'put what the script does under `if __name__ == "__main__":`'),
        (False, "is not in a file that the process"),
    ],
)
def test_a_script_that_cannot_be_read_again_is_said_so(from_file: bool, sentence: str, tmp_path: Path) -> None:
    """One without a guard, and one that comes by standard input."""
    path = tmp_path / "unguarded.py"
    path.write_text(UNGUARDED, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(path) if from_file else "-"],
        input=UNGUARDED,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert sentence in done.stderr.splitlines()[-1]
