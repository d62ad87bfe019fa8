"""What sorts, rolled windows and reductions take beside their results, as the real CUDA build does."""

import json
from pathlib import Path

import pytest

from tests.warm_traces import WARM
from vramtui.core.estimate.devices import card
from vramtui.dryrun.result import TraceRequest

pytestmark = pytest.mark.torch
PEAKS = json.loads((Path(__file__).parents[2] / "golden" / "reductions.json").read_text(encoding="utf-8"))
SCRIPT = """
import json, sys, torch
peaks = {}
def run(name, call, *tensors):
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    call(*tensors)
    peaks[name] = torch.cuda.max_memory_allocated() - before
def zeros(*shape, dtype=torch.float32):
    return torch.zeros(*shape, dtype=dtype, device="cuda")
rows = ((4, 100), (8, 2000), (5000,), (50_257,), (8, 5000), (8, 50_257), (127, 5000), (128, 5000), (2, 1_000_003))
for shape in rows:
    run(f"sort {shape}", torch.sort, zeros(shape))
for dtype in (torch.int64, torch.float64):
    for count in (4097, 200_000, 1_000_003):
        run(f"sort {dtype} {count}", torch.sort, zeros(count, dtype=dtype))
table = zeros(1000, 4)
for count in (100, 2304, 2305, 4865, 1_000_003):
    places, rows = zeros(count, dtype=torch.long), zeros(count, 4)
    run(f"index_put {count}", lambda: table.index_put_((places,), rows, accumulate=True))
x, images = zeros(100, 1000), zeros(10, 20, 30, 40)
run("logsumexp 1", torch.logsumexp, x, 1)
run("logsumexp 0", torch.logsumexp, x, 0)
run("logsumexp of all", torch.logsumexp, x, (0, 1))
run("logsumexp of half", torch.logsumexp, x.half(), 1)
run("roll of windows", lambda: torch.roll(images, (-1, -1), (1, 2)))
run("roll of three", lambda: torch.roll(images, (1, 1, 1), (0, 1, 2)))
run("roll of all", lambda: torch.roll(images, 1))
run("dist", torch.dist, x, x)
run("dist to a column", torch.dist, x, zeros(100, 1))
places, of_rows = zeros(900, dtype=torch.long), zeros(900, 64, dtype=torch.long)
parts = {
    "index": lambda table: table[places],
    "index_select": lambda table: table.index_select(0, places),
    "gather": lambda table: table.gather(0, of_rows),
    "take_along_dim": lambda table: torch.take_along_dim(table, of_rows, 0),
    "take": lambda table: table.take(of_rows),
    "max": lambda table: table.max(1).values,
    "topk": lambda table: table.topk(8).values,
    "sort": lambda table: table.sort().values,
    "cummax": lambda table: table.cummax(0).values,
}
for name, part in parts.items():
    run(f"backward of {name}", lambda: part(zeros(4000, 64).requires_grad_()).sum().backward())
SAID
"""


@pytest.mark.parametrize("name", ["H200", "A100", "T4"])
def test_kernels_take_what_they_take_on_a_card(tmp_path: Path, name: str) -> None:
    """The real PyTorch 2.13 CUDA build on a stubbed driver; bytes beyond what stood there before the call."""
    script = tmp_path / "script.py"
    compared = f"wrong = {{name: (peaks[name], true) for name, true in {PEAKS[name]}.items() if peaks[name] != true}}"
    script.write_text(SCRIPT.replace("SAID", f"{compared}\nassert not wrong, wrong"), encoding="utf-8")
    WARM.trace(TraceRequest(path=str(script), device=card(name)))
