from pathlib import Path
from typing import Any

import pytest

from tests.probe.test_emulated_torch import printed_by
from vramtui.probe.report import ALIKE, ENOUGH, RepeatedPasses


@pytest.mark.parametrize(("sizes", "early", "late"), [
    (lambda _: (100, 300), True, True),  # MiB in use as each pass begins, and the peak so far: evaluation
    (lambda at: (100 + at * 2**-11, 30_000 + at * 2**-11), True, True),  # a list of losses
    (lambda at: (100 + at % 200, 300 + min(at, 199)), False, True),  # a cache, emptied after 200 tokens
    (lambda at: (100, 300 + at // 40), True, False),  # batches that grow every 40 passes
])  # fmt: skip
def test_passes_repeat_while_memory_does_not_grow(sizes: Any, early: bool, late: bool) -> None:
    passes = RepeatedPasses()
    for at in range(1001):
        allocated, peak = (int(one * 2**20) for one in sizes(at))
        passes.begin("Net at eval.py:8", (allocated, peak, peak), float(at))
        assert at != 39 or passes.summary(ALIKE)["repeat"] is early
    assert passes.summary(ENOUGH)["repeat"] is late


JOB = """
import torch
from vramtui.probe.session import ProbeSession
session = type("Session", (ProbeSession,), {"pass_begins": staticmethod(print)})(torch, peak=object())
session._hooks.put_on()
net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
[part(torch.ones(1, 2)) for part in (net, net, net[0])][0].sum().backward()
step, forget = torch.optim.Adam(net.parameters()).step, session._hooks.counts.clear
wrapper = type("Wrapper", (torch.optim.SGD,), {"__init__": lambda self: vars(self).update(optimizer=step.__self__)})()
awaits = [(session._awaits_step(), act())[0] for act in (step, step, forget, forget)]
type("Mock", (torch.optim.SGD,), {"add_param_group": lambda *_: None})([torch.zeros(1)]).step()
print(*map(int, awaits), session._hooks.steps)
"""


@pytest.mark.torch
@pytest.mark.slow
def test_each_outermost_call_is_a_pass_and_what_steps_are_awaited_and_counted(tmp_path: Path) -> None:
    assert printed_by(tmp_path / "job.py", JOB) == [*["Sequential"] * 2, "Linear", "backward", "1 1 0 0 0"]
