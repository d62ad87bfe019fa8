"""What kernels take for tensors that do not lie in rows, and gradients of plain ones, as the CUDA build does."""

import json
from pathlib import Path

import pytest

from tests.warm_traces import WARM
from vramtui.core.estimate.devices import card
from vramtui.dryrun.result import TraceRequest

pytestmark = pytest.mark.torch
PEAKS = json.loads((Path(__file__).parents[2] / "golden" / "layouts.json").read_text(encoding="utf-8"))
SCRIPT = """
import json, sys, torch
import torch.nn.functional as F
torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.1)  # so that passes without a new peak end nothing
peaks = {}
def zeros(*shape, dtype=torch.float32):
    return torch.zeros(*shape, dtype=dtype, device="cuda")
def run(name, call):
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    out = call()
    peaks[name] = torch.cuda.max_memory_allocated() - before
    out = out[0] if isinstance(out, tuple) else out
    if isinstance(out, torch.Tensor) and out.requires_grad:
        grad = torch.zeros(out.shape, device="cuda")
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        out.backward(grad)
        peaks[f"backward of {name}"] = torch.cuda.max_memory_allocated() - before
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
SAID
"""


def test_kernels_take_what_they_take_on_a_card(tmp_path: Path) -> None:
    """The real PyTorch 2.13 CUDA build on a stubbed driver, alike as an H200 and as a T4; bytes beyond what stood there
    before the call.
    """
    script = tmp_path / "script.py"
    compared = f"wrong = {{name: (peaks[name], true) for name, true in {PEAKS}.items() if peaks[name] != true}}"
    script.write_text(SCRIPT.replace("SAID", f"{compared}\nassert not wrong, wrong"), encoding="utf-8")
    WARM.trace(TraceRequest(path=str(script), device=card("H200")))
