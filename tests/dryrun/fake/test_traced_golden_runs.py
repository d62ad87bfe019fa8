"""The tracer beside PyTorch's own figures, equal to the byte at the end of every phase."""

from pathlib import Path

import pytest

from tests.recorded.golden_runs import FIGURES, GOLDEN, recorded, request_for
from tests.warm_traces import WARM
from vramtui.core.estimate.devices import Device, card
from vramtui.dryrun.fake.run import trace
from vramtui.dryrun.result import DryRun, TraceRequest
from vramtui.estimators.torch_facts.cards import cuda_context_bytes

pytestmark = pytest.mark.torch
RUNS = (
    "a100/linear_fp32_sgd",
    "a100/gpt_124m_sdpa_bf16amp_adamw",
    "h200/gpt_tiny_eager_bf16amp_adamw_ckpt",
    "h200/gpt_tiny_eager_fp32_adamw",
    "h200/gpt_tiny_sdpa_bf16amp_adamw_ckpt",
    "h200/gpt_tiny_sdpa_fp32_adamw",
    "h200/layernorm_fp32_sgd",
    "h200/linear_fp32_sgd",
    "h200/manualnorm_fp32_sgd",
    "h200/mlp_accum4_adamw",
    "h200/mlp_bf16amp_adamw",
    "h200/mlp_fp32_adamw_fused",
    "h200/mlp_fp32_adamw_loop",
    "h200/resnet50_native_fp32_momentum",
)


@pytest.fixture(scope="module")
def traces() -> dict[str, DryRun]:
    requests = [request_for(name, folder) for folder, name in (run.split("/") for run in RUNS)]
    return dict(zip(RUNS, map(WARM.trace, requests), strict=True))


@pytest.mark.parametrize("run", RUNS)
def test_every_phase_is_equal(traces: dict[str, DryRun], run: str) -> None:
    true = recorded(GOLDEN / f"{run}.json")
    mine = traces[run].timeline
    assert [(row.phase, row.step, *(getattr(row, figure) for figure in FIGURES)) for row in mine] == [
        (row["phase"], row["step"], *(row[figure] for figure in FIGURES)) for row in true
    ]


BIG = """
import torch
model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(8)]).cuda()
out = model(torch.randn(65536, 1024, device="cuda"))
out.sum().backward()
"""


@pytest.mark.usefixtures("warm_children")
def test_running_out_of_memory_in_backward_is_told(tmp_path: Path) -> None:
    file = tmp_path / "big.py"
    file.write_text(BIG)
    h200 = card("H200")
    small = Device(
        name="H200", capability=h200.capability, total_memory=2_600_000_000 + cuda_context_bytes(h200.capability)
    )
    result = trace(TraceRequest(path=str(file), device=small), timeout=240)
    assert result.out_of_memory is not None
    assert result.out_of_memory.startswith("out of memory in backward")
    assert result.timeline[-1].phase == "backward"
