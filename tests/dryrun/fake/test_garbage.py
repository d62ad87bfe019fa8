"""Memory of the card that Python's collector gives back, and when that is told."""

from pathlib import Path

import pytest

from tests.warm_traces import WARM
from vramtui.core.estimate.devices import card
from vramtui.dryrun.result import DryRun, TraceRequest

pytestmark = pytest.mark.torch

# Twelve models one after the other, each of which refers to itself.
FOLDS = """
import gc, torch
class Net(torch.nn.Linear):
    def __init__(self):
        super().__init__(1024, 1024)
        CYCLE
for fold in range(12):
    net = Net().cuda()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    net(torch.zeros(1, 1024, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    objects = [[] for _ in range(20_000)]
    COLLECT
"""


# As RecBole counts a model's operations: a deep copy in a cycle, and then few objects or many before training.
COPIED = """
import copy, torch
class Wrapper(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model
        model.register_forward_hook(self.count)
    def count(self, *_):
        pass
net = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.Linear(1024, 1024)).cuda()
with torch.no_grad():
    Wrapper(copy.deepcopy(net)).model(torch.zeros(1, 1024, device="cuda"))
data = [[] for _ in range(OBJECTS)]
optimizer = torch.optim.Adam(net.parameters())
for step in range(3):
    net(torch.ones(64, 1024, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def traced(folder: Path, text: str) -> DryRun:
    script = folder / "script.py"
    script.write_text(text, encoding="utf-8")
    return WARM.trace(TraceRequest(path=str(script), device=card("H200"), steps=100))


@pytest.mark.parametrize(
    ("cycle", "collect", "is_told"),
    [("self.itself = [self]", "", True), ("", "", False), ("self.itself = [self]", "del net; gc.collect()", False)],
)
def test_what_waits_for_pythons_collector_is_told(tmp_path: Path, cycle: str, collect: str, *, is_told: bool) -> None:
    result = traced(tmp_path, FOLDS.replace("CYCLE", cycle).replace("COLLECT", collect))
    assert any(note.startswith("objects in cycles") for note in result.warnings) is is_told


@pytest.mark.parametrize("objects", ["0", "300_000"])
def test_a_deep_copy_in_a_cycle_is_gone_before_the_first_step(tmp_path: Path, objects: str) -> None:
    """The peaks are those of the real PyTorch 2.13 CUDA build on a stubbed driver."""
    result = traced(tmp_path, COPIED.replace("OBJECTS", objects))
    assert (result.peak_allocated, result.peak_reserved) == (109_092_864, 111_149_056)
