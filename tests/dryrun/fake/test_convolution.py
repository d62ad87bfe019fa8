"""Convolutions in channels-last, beside PyTorch 2.13's own CUDA build on a stubbed driver of an H200."""

from pathlib import Path

import pytest

from vramtui.core.estimate.devices import card
from vramtui.dryrun.fake.run import trace
from vramtui.dryrun.result import TraceRequest

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("warm_children")]
NET = """
import torch, torch.nn as nn, torch.nn.functional as F
class Residual(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c1, self.b1 = nn.Conv2d(c, c, 3, padding=1, bias=False), nn.BatchNorm2d(c)
        self.c2, self.b2 = nn.Conv2d(c, c, 1, bias=False), nn.BatchNorm2d(c)
    def forward(self, x):
        return F.relu(x + self.b2(self.c2(F.relu(self.b1(self.c1(x))))))
amp, dtype, expected = EXPECTED
layers = [nn.Conv2d(3, 64, 3, padding=1), Residual(64), Residual(64), nn.Conv2d(64, 3, 3, padding=1)]
net = nn.Sequential(*layers).cuda().to(memory_format=torch.channels_last).to(dtype)
optimizer = torch.optim.AdamW(net.parameters())
seen = []
for _ in range(2):
    torch.cuda.reset_peak_memory_stats()
    x = torch.randn(8, 3, 64, 64, device="cuda", dtype=dtype).to(memory_format=torch.channels_last)
    with torch.autocast("cuda", dtype=torch.bfloat16, enabled=amp):
        y = net(x)
        loss = F.mse_loss(y, x)
    assert y.is_contiguous(memory_format=torch.channels_last)
    seen += [torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()]
    torch.cuda.reset_peak_memory_stats()
    loss.backward()
    seen += [torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()]
    optimizer.step()
    optimizer.zero_grad()
    del x, y, loss
if seen != expected:
    raise ValueError(seen)
"""
FIGURES = [
    "False, torch.float32, [77034496, 84636672, 1880064, 93819904, 77728768, 85330944, 2574336, 94514176]",
    "True, torch.float32, [39849984, 43058176, 1683456, 47849984, 40544256, 43752448, 2377728, 48544256]",
    "False, torch.bfloat16, [38524928, 42326016, 948224, 46918144, 38877184, 42678272, 1300480, 47270400]",
]


def run(folder: Path, text: str) -> None:
    path = folder / "script.py"
    path.write_text(text, encoding="utf-8")
    trace(TraceRequest(path=str(path), function=None, arguments=(), device=card("H200"), steps=3))


@pytest.mark.parametrize("expected", FIGURES, ids=["fp32", "autocast", "bf16"])
def test_each_pass_in_channels_last_is_equal(tmp_path: Path, expected: str) -> None:
    run(tmp_path, NET.replace("EXPECTED", expected))


# Without a device: images, channels, outputs, side, window, padding; bytes of the input's gradient, else none.
DETERMINISTIC = [(256, 1, 16, 32, 5, 2, 20_978_067), (16, 3, 64, 64, 3, 1, 17_835_155)]
ONE = """
import torch
images, channels, outputs, side, window, padding, expected = ROW
SETTING
x = torch.randn(images, channels, side, side, device="cuda", requires_grad=True)
weight = torch.randn(outputs, channels, window, window, device="cuda")
y = torch.nn.functional.conv2d(x, weight, padding=padding)
given = torch.ones_like(y)
before = torch.cuda.memory_allocated()
torch.cuda.reset_peak_memory_stats()
gradient, = torch.autograd.grad(y, x, given)
taken = torch.cuda.max_memory_allocated() - before - gradient.nbytes
if FOLLOWED and abs(taken - expected) > 2**20 or not FOLLOWED and taken > 2**20:
    raise ValueError(taken)
"""


@pytest.mark.parametrize("row", DETERMINISTIC)
@pytest.mark.parametrize("setting", ["", "backends.cudnn.deterministic = True", "use_deterministic_algorithms(True)"])
def test_kernels_that_are_not_deterministic_are_left_out_where_that_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: tuple[object, ...], setting: str
) -> None:
    monkeypatch.setenv("VRAMTUI_CUDNN_WITHOUT_DEVICE", "1")
    text = ONE.replace("SETTING", f"torch.{setting}" if setting else "").replace("FOLLOWED", str(bool(setting)))
    run(tmp_path, text.replace("ROW", repr(row)))


# A view in channels-last order and a weight that is not: bytes next to gradients of input, weight, bias.
PARTS = {"True, False, False": 13_056, "False, True, False": 0, "False, False, True": 10_601_216}
OF_PARTS = """
import torch
x = torch.randn(50, 207, 10, 16, device="cuda").permute(0, 3, 1, 2)
weight = torch.randn(64, 16, 1, 3, device="cuda")
gradient = torch.empty_like(torch.nn.functional.conv2d(x, weight))
how = [64], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [PART]
before = torch.cuda.memory_allocated()
torch.cuda.reset_peak_memory_stats()
results = [one for one in torch.ops.aten.convolution_backward(gradient, x, weight, *how) if one is not None]
taken = torch.cuda.max_memory_allocated() - before - sum(one.nbytes for one in results)
if abs(taken - EXPECTED) > 1024:
    raise ValueError(taken)
"""


@pytest.mark.parametrize("part", PARTS)
def test_a_weight_is_copied_and_a_bias_summed_in_channels_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    monkeypatch.setenv("VRAMTUI_CUDNN_WITHOUT_DEVICE", "1")
    run(tmp_path, OF_PARTS.replace("PART", part).replace("EXPECTED", str(PARTS[part])))
