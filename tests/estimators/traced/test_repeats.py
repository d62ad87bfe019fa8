"""Calls of modules without gradients that repeat: run from a record, to the byte as if each were run."""

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.warm_traces import WARM
from vramtui.core.estimate.devices import card
from vramtui.estimators.traced.process.results import TraceRequest, TraceResult

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]

# Each block is called as often as there are in a row; RULE is a line that may take the records away.
HEAD = """
import json, math, sys
import torch
from torch import nn
from torch.nn import functional as F
from vramtui.estimators.traced.repeats.calls import RepeatedCalls
plain, again = torch.nn.Module.__call__, RepeatedCalls._again
seen = {}
def counted(self, record, module, *rest):
    seen[type(module).__name__] = seen.get(type(module).__name__, 0) + 1
    return again(self, record, module, *rest)
RepeatedCalls._again = counted
RULE
"""
PURE = """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(256), nn.Linear(256, 768), nn.Linear(256, 256)
        self.mlp = nn.ModuleDict({"up": nn.Linear(256, 1024), "down": nn.Linear(1024, 256)})
        m = self.mlp
        self.mlpf = lambda x: m.down(F.gelu(m.up(x)))
        self.heads = 4
    def forward(self, x, scale=1.0):
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        q, k, v = (t.reshape(*t.shape[:2], self.heads, -1).transpose(1, 2) for t in (q, k, v))
        scores = (q @ k.transpose(-2, -1)) * (scale / math.sqrt(k.size(-1)))
        x = x + self.out((F.softmax(scores, -1) @ v).transpose(1, 2).reshape(x.shape))
        return x + self.mlpf(x), scores[..., :1]
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(6))
    def forward(self, x):
        for block in self.blocks:
            x, kept = block(x)
        return x, kept
net = Net().cuda().eval()
with torch.no_grad():
    for length in (8, 9, 300, 300):
        out = net(torch.randn(2, length, 256, device="cuda"))
    net.blocks[2].heads = 8
    out = net(torch.randn(2, 300, 256, device="cuda"))
    net.blocks[3].half().float()
    net.blocks[4] = nn.Identity()
    net.blocks[4].forward = lambda x: (x + 1, x)
    out = net(torch.randn(2, 300, 256, device="cuda"))
print("seen", json.dumps(seen), file=sys.stderr)
"""
# What no record may stand for; each is called several times with tensors alike.
OTHERS = """
class Counts(nn.Module):
    calls = 0
    def forward(self, x):
        self.calls += 1
        return x * 2 if self.calls % 3 else (x * 2).float().double() + x
class Keeps(nn.Module):
    def __init__(self):
        super().__init__()
        self.kept = []
    def forward(self, x):
        self.kept.append(x + 1)
        return x * len(self.kept)
class Writes(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("steps", torch.zeros(4, dtype=torch.long))
    def forward(self, x):
        self.steps.add_(1)
        return x + 1
class Reads(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))
    def forward(self, x):
        return torch.cat([x] * (1 + int(self.steps.item())))
class Follows(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
    def forward(self, x):
        return torch.cat([x] * (self.config.times * TIMES))
class Differentiates(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(512, 512)
    def forward(self, x):
        with torch.enable_grad():
            y = x.detach().requires_grad_()
            out = torch.tanh(self.inner(y))
            return torch.autograd.grad(out[:, 0].sum(), y)[0].contiguous()
class Config:
    times = 1
    def __init__(self):
        self.times = 2
TIMES = 1
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.config = Config()
        kinds = [Counts(), Keeps(), Writes(), Reads(), Follows(self.config), nn.Linear(512, 512), nn.Dropout(0.5)]
        kinds.append(Differentiates())
        self.parts = nn.ModuleList(kinds)
    def forward(self, x):
        return [part(x) for part in self.parts]
net, hooked = Model().cuda(), []
x = torch.randn(64, 512, device="cuda")
with torch.no_grad():
    for step in range(12):
        out = net(x)
        if step == 3:
            net.config.times = 3
            net.parts[3].steps.fill_(2)
        if step == 6:
            TIMES = 2
            net.parts[5].register_forward_hook(lambda _m, _i, y: hooked.append(y + 1))
        if step == 9:
            net.eval()
            torch._C._cuda_clearCublasWorkspaces()
assert net.parts[0].calls == 12 and len(net.parts[1].kept) == 12 and net.parts[2].steps.tolist() == [12] * 4
assert len(hooked) == 5 and out[4].shape[0] == 64 * 6 and out[3].shape[0] == 64 * 3 and out[6] is x
print("seen", json.dumps(seen), file=sys.stderr)
"""
# Outermost modules, as games are played by before there is a step; memory is taken by what is read of each result.
GAMES = """
class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(17, 256), nn.Tanh(), nn.Linear(256, 256))
        self.head, self.value = nn.Linear(256, 6), nn.Linear(256, 1)
    def forward(self, x):
        h = torch.relu(self.body(x))
        return torch.log_softmax(self.head(h), -1), self.value(h), self.head(h).argmax(-1)
class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 8)
        nn.init.constant_(self.head.weight, 0.5)
    def forward(self, x):
        return self.head(x[:, :4])
class Draws(nn.Module):
    def forward(self, x):
        return torch.relu(x), torch.rand(3).numel()
class Count(nn.Module):
    calls = 0
    def forward(self, x):
        self.calls += 1
        return x * 2
class Above(nn.Module):
    def __init__(self):
        super().__init__()
        self.below = Count()
    def forward(self, x):
        return self.below(x) + 1
class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mask", torch.zeros(17, dtype=torch.bool))
    def forward(self, x):
        return torch.softmax(torch.relu(x.sin() + x).masked_fill(self.mask, -math.inf), -1)
class Chooses(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mask", torch.zeros(17, dtype=torch.bool))
    def forward(self, x):
        return x[:, self.mask]
torch.manual_seed(0)
nets = [Policy(), Small(), Draws(), Above(), Masked(), Chooses()]
kept = []
for net in nets:
    net.cuda().eval()
def play(rounds):
    for i in range(rounds):
        x = torch.tensor([float(i)] * 17).cuda().view(1, -1)
        with torch.no_grad():
            for net in nets:
                out = net(x)
                for part in out if isinstance(out, tuple) else (out,):
                    if isinstance(part, torch.Tensor):
                        read = int(sum(1000 * abs(n) for n in part.cpu().numpy().ravel() if math.isfinite(n)))
                        kept.append(torch.empty(1 + read % 65536, device="cuda"))
        for late in nets[4:]:
            late.mask[i % 17] = i % 3 > 0
        kept.append(torch.empty(1 + int(1000 * torch.rand(1)), device="cuda"))
optimizer = torch.optim.Adam(nets[0].parameters())
play(40)
nets[0](torch.randn(8, 17, device="cuda"))[0].sum().backward()
optimizer.step()
play(3)
assert nets[3].below.calls == 43
print("seen", json.dumps(seen), file=sys.stderr)
"""
NEVER = "torch.nn.Module.__call__ = torch.nn.Module._wrapped_call_impl"


def traced(folder: Path, code: str, rule: str) -> TraceResult:
    script = folder / "script.py"
    script.write_text(HEAD.replace("RULE", rule) + code, encoding="utf-8")
    return WARM.trace(TraceRequest(path=str(script), device=card("H200")))


@pytest.mark.parametrize("code", [PURE, OTHERS, GAMES], ids=["pure", "others", "games"])
def test_a_record_allocates_what_the_call_would(code: str, tmp_path: Path) -> None:
    assert traced(tmp_path, code, "") == traced(tmp_path, code, NEVER)


def test_what_is_pure_is_run_from_its_record(tmp_path: Path) -> None:
    told = tmp_path / "told"
    traced(tmp_path, PURE + f"open({str(told)!r}, 'w').write(json.dumps(seen))\n", "")
    # Six blocks a pass: the first is seen, the second recorded, the rest run again; then all six, but for the block
    # that is given more heads, and later the one that is taken out. Of a pass that is recorded itself no part is.
    assert Counter(json.loads(told.read_text())) == Counter(Block=4 + 4 + 4 + 0 + 5 + 4)


def test_what_is_not_is_run_each_time(tmp_path: Path) -> None:
    told = tmp_path / "told"
    traced(tmp_path, OTHERS + f"open({str(told)!r}, 'w').write(json.dumps(seen))\n", "")
    assert set(json.loads(told.read_text())) <= {"Follows", "Linear", "Dropout"}


def test_an_outermost_module_is_run_from_its_record(tmp_path: Path) -> None:
    told = tmp_path / "told"
    traced(tmp_path, GAMES + f"open({str(told)!r}, 'w').write(json.dumps(seen))\n", "")
    seen = json.loads(told.read_text())
    assert seen["Policy"] > 30
    assert seen.keys() <= {"Policy", "Linear"}
