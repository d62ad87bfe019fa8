"""Random scripts as presets, compared with recorded peaks of PyTorch 2.13's CUDA build on a stubbed driver."""

from functools import cache

import pytest

from tests.recorded.differential_presets import Measured, UnsaidError, job_script, measured, rows, spread, workload_of
from vramtui.core.schema.layer_models import Act, Dropout, Linear, SequentialModel
from vramtui.core.schema.workload import TrainRun


@cache
def found() -> list[Measured]:
    return measured()[0]


def test_every_script_that_a_preset_says_has_its_peaks() -> None:
    assert [_is_said(row["script"]) for row in rows()] == ["job" in row for row in rows()]
    assert len(found()) == sum("job" in row for row in rows()) >= 60


def _is_said(script: str) -> bool:
    try:
        workload_of(script)
    except UnsaidError:
        return False
    return True


def test_analytic_allocated() -> None:
    median, _, worst = spread([row.allocated for row in found()])
    assert median <= 0.002
    assert worst <= 0.03


def test_simulated_reserved() -> None:
    median, most, _ = spread([row.reserved for row in found()])
    assert median <= 0.005
    assert most <= 0.05


SCRIPT = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.l2 = nn.Linear(8, 32, bias=False)

    def forward(self, x):
        x = self.first(x)
        x = F.dropout(x, 0.5)
        x = self.l2(x)
        x = F.tanh(x)
        return x


model = Model().to("cuda", torch.float32)
P = list(model.parameters())
optimizer = torch.optim.AdamW(P, fused=True)
for _ in range(2):
    for _ in range(2):
        x = torch.randn(4, 16, 8, device="cuda", dtype=torch.float32)
        with torch.autocast("cuda", torch.bfloat16, enabled=True):
            x = model(x)
            loss = F.mse_loss(x, torch.zeros_like(x))
        loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
"""


def test_a_script_is_read_as_the_preset_that_says_it() -> None:
    workload = workload_of(SCRIPT)
    layers = (Linear(out_features=8), Dropout(probability=0.5), Linear(out_features=32, bias=False), Act(act="tanh"))
    assert workload.model == SequentialModel(input_shape=(16, 8), layers=layers, loss="mse")
    run = workload.run
    assert isinstance(run, TrainRun)
    assert run.batch_size == 4
    assert run.precision == "bf16-mixed"
    assert (run.optimizer, run.optimizer_implementation) == ("adamw", "fused")
    assert run.gradient_accumulation_steps == 2
    assert "x, y = torch.randn(4, 16, 8, dtype=torch.float32, device='cuda'), " in job_script(SCRIPT)
    assert "torch.zeros(4, 16, 32, dtype=torch.float32, device='cuda')" in job_script(SCRIPT)


def test_what_no_preset_says_is_named() -> None:
    with pytest.raises(UnsaidError, match=r"x\.cumsum"):
        workload_of(SCRIPT.replace("F.tanh(x)", "x.cumsum(1)"))
