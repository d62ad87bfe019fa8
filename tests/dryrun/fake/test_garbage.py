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


def traced(folder: Path, cycle: str, collect: str) -> DryRun:
    script = folder / "script.py"
    script.write_text(FOLDS.replace("CYCLE", cycle).replace("COLLECT", collect), encoding="utf-8")
    return WARM.trace(TraceRequest(path=str(script), device=card("H200"), steps=100))


@pytest.mark.parametrize(
    ("cycle", "collect", "is_told"),
    [("self.itself = [self]", "", True), ("", "", False), ("self.itself = [self]", "del net; gc.collect()", False)],
)
def test_what_waits_for_pythons_collector_is_told(tmp_path: Path, cycle: str, collect: str, *, is_told: bool) -> None:
    result = traced(tmp_path, cycle, collect)
    assert any(note.startswith("objects in cycles") for note in result.warnings) is is_told
