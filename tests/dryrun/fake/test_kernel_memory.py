"""Kernels take what they take on a card: sorts, windows, reductions, layouts other than rows, plain gradients."""

import json
from pathlib import Path

import pytest

from tests.warm_traces import WARM
from vramtui.core.estimate.devices import card
from vramtui.dryrun.result import TraceRequest

pytestmark = pytest.mark.torch
GOLDEN = Path(__file__).parents[2] / "golden"
BEGIN = """
import json, sys, torch
import torch.nn.functional as F
torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.1)  # so that passes without a new peak end nothing
peaks = {}
def zeros(*shape, dtype=torch.float32):
    return torch.zeros(*shape, dtype=dtype, device="cuda")
def run(name, call, *tensors):
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    out = call(*tensors)
    peaks[name] = torch.cuda.max_memory_allocated() - before
    out = out[0] if isinstance(out, tuple) else out
    if isinstance(out, torch.Tensor) and out.requires_grad:
        grad = torch.zeros(out.shape, device="cuda")
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        out.backward(grad)
        peaks[f"backward of {name}"] = torch.cuda.max_memory_allocated() - before
"""
REDUCTIONS = """
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
for count in (1, 1000, 30_000, 31_000, 1_000_003):
    run(f"randperm {count}", lambda: torch.randperm(count, device="cuda"))
run("multinomial", torch.multinomial, x + 1, 9, True)
run("cdist of many", torch.cdist, zeros(300, 640), zeros(200, 640).isinf().float())
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
for mode in ("sum", "max"):
    run(f"bags, {mode}", lambda: F.embedding_bag(of_rows, zeros(4000, 64).requires_grad_(), mode=mode))
for name, part in parts.items():
    run(f"backward of {name}", lambda: part(zeros(4000, 64).requires_grad_()).sum().backward())
"""
LAYOUTS = """
last, last3 = torch.channels_last, torch.channels_last_3d
layouts = {
    "rows": zeros(4, 12, 40, 50),
    "last": zeros(4, 12, 40, 50).contiguous(memory_format=last),
    "a part": zeros(4, 30, 40, 50)[:, 6:18],
    "a part of last": zeros(4, 30, 40, 50).contiguous(memory_format=last)[:, 6:18],
    "cubes": zeros(2, 6, 10, 12, 14),
    "cubes last": zeros(2, 6, 10, 12, 14).contiguous(memory_format=last3),
    "a part of cubes": zeros(2, 12, 10, 12, 14)[:, 3:9],
    "lines": zeros(4, 12, 60),
    "a part of lines": zeros(4, 30, 60)[:, 6:18],
}
classes = zeros(4, 40, 50, dtype=torch.long)
images = {
    "avg_pool2d": lambda x: F.avg_pool2d(x, 2),
    "max_pool2d": lambda x: F.max_pool2d(x, 2),
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, 5),
    "adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(x, 5),
    "unfold": lambda x: F.unfold(x, 3, padding=1),
    "fold": lambda x: F.fold(F.unfold(x, 2), (40, 50), 2),
    "reflect": lambda x: F.pad(x, (2, 2, 2, 2), mode="reflect"),
    "cumsum": lambda x: x.cumsum(1),
    "topk": lambda x: x.topk(3, 1),
    "median": lambda x: x.median(1),
    "kthvalue": lambda x: x.kthvalue(2, 1),
    "mode": lambda x: x.detach().mode(1),
    "softmax": lambda x: x.softmax(1),
    "log_softmax": lambda x: x.log_softmax(1),
    "half softmax": lambda x: x.detach().half().softmax(1, dtype=torch.float32),
    "cross entropy": lambda x: F.cross_entropy(x, classes),
    "with logits": lambda x: F.binary_cross_entropy_with_logits(x, x.detach()),
    "with logits, each": lambda x: F.binary_cross_entropy_with_logits(x, x.detach(), reduction="none"),
    "with logits, weighted": lambda x: F.binary_cross_entropy_with_logits(x, x.detach(), weight=zeros(50)),
    "bucketize": lambda x: torch.bucketize(x.detach(), zeros(5)),
    "cdist": lambda x: torch.cdist(x.flatten(2), x.flatten(2)),
    "pdist": lambda x: F.pdist(x.flatten(1)),
}
modes = {3: ("nearest", "nearest-exact", "linear"), 4: ("nearest", "nearest-exact", "bilinear", "bicubic"),
         5: ("nearest", "nearest-exact", "trilinear")}
run("one_hot", lambda: F.one_hot(classes, 12))
run("cdist by ones", lambda: torch.cdist(zeros(30, 20).requires_grad_(), zeros(50, 20), p=1))
for name, laid in layouts.items():
    x = laid.detach().requires_grad_()
    for mode in modes[x.dim()]:
        run(f"{mode} of {name}", lambda: F.interpolate(x, scale_factor=2, mode=mode))
        small = F.interpolate(laid, scale_factor=0.5, mode=mode).detach().requires_grad_()
        larger = F.interpolate(small, scale_factor=2, mode=mode)
        def back(grad=larger.detach().copy_(laid) if name == "rows" else laid):
            larger.backward(grad)
        run(f"{mode} with a gradient of {name}", back)
    if x.dim() == 4:
        for mode in ("bilinear", "bicubic"):
            run(f"{mode} smoothly of {name}", lambda: F.interpolate(x, size=(20, 25), mode=mode, antialias=True))
        for kind, call in images.items():
            run(f"{kind} of {name}", lambda: call(x))
        def back(out=x.softmax(1)):
            out.backward(laid)
        run(f"softmax with a gradient of {name}", back)
    x = small = larger = None
"""
CASES = [("reductions", REDUCTIONS, name) for name in ("H200", "A100", "T4")] + [("layouts", LAYOUTS, "H200")]


@pytest.mark.parametrize(("kept", "script", "name"), CASES)
def test_kernels_take_what_they_take_on_a_card(tmp_path: Path, kept: str, script: str, name: str) -> None:
    """The real PyTorch 2.13 CUDA build on a stubbed driver; bytes beyond what stood there before the call.

    Layouts are alike as an H200 and as a T4.
    """
    peaks = json.loads((GOLDEN / f"{kept}.json").read_text(encoding="utf-8"))
    true = peaks.get(name, peaks)
    check = f"wrong = {{name: (peaks[name], one) for name, one in {true}.items() if peaks[name] != one}}"
    path = tmp_path / "script.py"
    path.write_text(f"{BEGIN}{script}{check}\nassert not wrong, wrong", encoding="utf-8")
    WARM.trace(TraceRequest(path=str(path), device=card(name)))
