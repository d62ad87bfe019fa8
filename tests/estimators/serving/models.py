from tests.golden_workloads import model as named
from vramtui.core.estimate.devices import Device, card
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.schema.models import TransformerModel
from vramtui.core.schema.workload import Parallel, Run, Workload
from vramtui.estimators.analytic import ANALYTIC

H100 = card("H100")
LLAMA_8B, LLAMA_70B, LLAMA_2_7B, LLAMA_1B, DEEPSEEK_V3, GEMMA_3_27B = map(
    named, ("llama-3.1-8b", "llama-3.1-70b", "llama-2-7b", "llama-3.2-1b", "deepseek-v3", "gemma-3-27b")
)


def serve(model: TransformerModel, run: Run, device: Device = H100, parallel: Parallel | None = None) -> Estimate:
    return ANALYTIC.estimate(Workload(model=model, run=run, parallel=parallel), device)


def size(estimate: Estimate, name: str) -> int:
    return next((part.bytes for part in estimate.parts if part.name == name), 0)
