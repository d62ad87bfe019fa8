"""Jobs on a simulated GPU where values decide, by an interpreter with PyTorch's CUDA build, VRAMTUI_CUDA_PYTHON."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.dryrun.fake.test_patches_by_name import SIGNATURES
from tests.tables import rows

if TYPE_CHECKING:
    from pathlib import Path

PYTHON, MIB = os.environ.get("VRAMTUI_CUDA_PYTHON", ""), 1 << 20
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not PYTHON, reason="VRAMTUI_CUDA_PYTHON is not set")]
HEALTHY, GATHERED, KERNEL, SHARED, KILLED = (text for _, text in rows(__file__, "jobs"))
JOBS = {
    "any guards work": "m = x > 0\nif m.any():\n    work(m)\n",
    "a sum guards work": "m = x > 0\nif m.sum() > 0:\n    work(m)\n",
    "a number guards work": "m = x > 0\nif int(m.sum().item()):\n    work(m)\n",
    "all leads past work": "m = x > 0\nif m.all():\n    y = x\nelse:\n    work(m)\n",
    "none leads on": "for _ in range(1):\n    m = x > 0\n    if not m.any():\n        continue\n    work(m)\n",
    "a loop over a mask": "m = x > 0\nwhile m.any():\n    work(m)\n    m = m & (x < 0)\n    break\n",
    "a loop that waits": "m = x > 0\nwhile m.any():\n    y = work(m)\n    m = y[:, 0] > 0\n",
    "a loop that is left": "m = x > 0\nwhile True:\n    if not m.any():\n        break\n    work(m)\n",
    "a loop by a number": "m = x > 0\nwhile m.sum().item() > 0:\n    work(m)\n",
    "each place": "work((x > 0).nonzero()[:, 0])\nfor r in (x[:5] > 0).nonzero():\n    r[0] == 4 or x[:4][r[0]]\n",
    "a mask on the host": "keep = (x > 0).cpu()\nrows = torch.zeros(N << 10, 256)[keep]\nwork(rows)\n",
    "a way in one line": "m = x > 0\ny = work(m) if m.any() else None\n",
    "an error is small enough": "e = x.norm()\nwhile e > 1e-3:\n    work(x)\n    e = e * 0\n",
    "a number ends a loop": "while (x > 0).float().mean().item() > 0.5:\n    y = work(x)\n",
    "a flag ends a loop": "done = False\nwhile not done:\n    y = work(x)\n    done = bool(y.norm() > x.norm())\n",
    "a step is taken": "t, d = torch.zeros(2, device='cuda')\ndef step(t, d):\n    e, n = (x * d).norm(), t\n"
    "    if e <= 1:\n        n, y = t + d, work(x)\n    return n, 1 / e\nwhile t < 1:\n    t, d = step(t, d)\n",
    "numbers on the host": "keep = x.cpu() > 0\nwork(torch.zeros(N << 10, 256)[keep])\n",
    "a mask in NumPy": "keep = (x > 0).cpu().numpy().nonzero()[0]\nwork(torch.zeros(N << 10, 256)[keep])\n",
    "places on the host": "keep = (x > 0).nonzero().cpu()\nwork(torch.zeros(N << 10, 256)[keep[:, 0]])\n",
}
BEFORE = """
import torch
N = {number}
x = torch.randn(N << 10, device="cuda")
def work(m):
    return torch.zeros(m.numel() if m.dim() == 1 else len(m), 256, device="cuda")
"""


def dry_run(
    folder: Path, code: str, engine: str = "cuda", gpu: str = "RTX4090", ends: int = 0, steps: int = 3
) -> dict[str, Any]:
    (job := folder / "job.py").write_text(code, encoding="utf-8")
    command = [sys.executable, "-m", "vramtui", "dry-run", "--gpu", gpu, "--engine", engine, "--json", PYTHON, str(job)]
    command[4:4] = ["--steps", str(steps)]
    command[4:4] = [] if ends else ["--show-output"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    document = json.loads(ran.stdout)
    assert document["exit_code"] == ran.returncode == ends, ran.stderr
    return {**(document["gpus"][0]["result"] or document["gpus"][0]), "printed": ran.stderr}


@pytest.mark.parametrize("number", [1, 48])
@pytest.mark.parametrize("kind", JOBS)
def test_work_that_an_unknown_mask_guards_is_done_and_bounded(tmp_path: Path, kind: str, number: int) -> None:
    found = dry_run(tmp_path, BEFORE.format(number=number) + JOBS[kind])
    assert (found["peak_allocated"] >= number * MIB, found["bounded"]) == (True, True)
    assert "job.py:" in str(found["warnings"])


@pytest.mark.parametrize("number", [4, 22])
def test_checks_of_numbers_hold_and_are_not_bounded(tmp_path: Path, number: int) -> None:
    found = dry_run(tmp_path, HEALTHY.format(number=number))
    assert (found["peak_allocated"] < 256 * MIB, found["bounded"]) == (True, False)


SIZES = dict(rows(__file__, "sizes"))
OWN = {  # engine fake asks for its shapes, and runs no kernel of Triton's
    "beside a kernel": KERNEL + "n = 7 + {n} + int(a.sum(0, keepdim=True)[0]) // 9\n",
    "in an operator of its own": "@torch.library.custom_op('own::size', mutates_args=())\n"
    "def size(g: torch.Tensor) -> torch.Tensor:\n    return torch.zeros(g.tolist(), device=g.device)\n"
    "n = size(torch.tensor([{n}, 10]).cuda()).sum(0).numel() + {n}\n",
}


@pytest.mark.parametrize("kind", SIZES | OWN)
def test_sizes_of_known_numbers_are_the_host_s(tmp_path: Path, kind: str) -> None:
    found = dry_run(tmp_path, "import torch\n" + (SIZES | OWN)[kind].format(n=3) + "print('n is', n)\n")
    assert ("n is 13" in found["printed"], found["bounded"]) == (True, False)


# An evaluation has looked back at the first step's peak, and the second's is 1 MiB above that.
STATES = """o, x = torch.optim.Adam((m := torch.nn.Linear(512, 512).cuda()).parameters()), torch.ones(8, 512).cuda()
for step in range(4):
    y, extra = m(x).sum(), torch.empty((step == 0) << 18, device="cuda")
    y.backward()
    torch.empty(1 << 28, device="cuda")
    o.step(), [m(x).sum().item() for _ in range(30 * (step == 0))]
"""
PARTS = {"kept = torch.nn.Linear(512, 512).cuda()\n": ("weights", 1026 << 10), STATES: ("optimizer", 2052 << 10)}


@pytest.mark.parametrize("job", PARTS)
def test_the_parts_are_those_at_the_peak(tmp_path: Path, job: str) -> None:
    assert dry_run(tmp_path, "import torch\n" + job)["peak_categories"][PARTS[job][0]] == PARTS[job][1]


def test_what_ranks_gather_in_lists_arrives(tmp_path: Path) -> None:
    found = dry_run(tmp_path, GATHERED, gpu="2xH100")
    assert (found["printed"].count("gathered 5 10485760"), found["bounded"]) == (2, False)


GUESSED = {
    "of NumPy": "n = int(numpy.ceil(x.sum().cpu().numpy()).astype(int))\n",
    "another tensor": "t = torch.tensor([x.sum().item(), 3.0])\nn = int(t.max())\n",
    "a list of tensor's": "n = sum((x[:16] * 9).long().tolist()) // 100\n",
    "a whole number": "n = x.abs().sum().long().item() // 100\n",
    "a whole number is compared": "n = 1 << 9 if x.abs().sum().long().item() > 100 else 1\n",
    "the largest": "n = int((64 // x[:64].topk(3)[1].cpu().numpy())[0])\n",
    "a condition": "n = 1\nbest = x.mean().item()\nif best < 0.5 and N > 3:\n    n = 1 << 14\n",
    "the end of one text": "over = (x[:2] > 0) | torch.tensor([True, False]).cuda()\nn = 1 << 14 * (not over.all())\n",
    "two of the host's": "n = 1\nif x.mean().cpu() != x.sum().cpu():\n    n = 1 << 14\n",
    "a logarithm": "n = max(1, int(math.log10(1 / float(x.square().mean())) ** 2 * 100))\n",
    "the best": "n = 1\nfor m in (2, 1 << 14):\n    loss = x.mean().item()\n    if loss < 9 - n:\n        n = m\n",
    "a mask of the host": "n = len(x[(x > 0).cpu()])\n",
    "copies in a list": "n = int(torch.tensor([x[0].cpu(), x[1].cpu()]).max())\n",
    "a buffer": "b = torch.zeros(8)\nb[:4].copy_(x[:4])\nb[4:].fill_(3)\nn = int(b.sum().tolist())\n",
    "a root in an attribute": "class Kept: pass\nkept = Kept()\nkept.v = x.abs().mean().item()\n"
    "def size(): return int(math.sqrt(kept.v))\nn = size()\n",
    "through JSON": "n = int(json.loads(json.dumps({'n': x.abs().sum().item()}))['n'])\n",
    "through a text": "n = int('%.0f' % x.abs().sum().item())\n",
    "a gradient": "h = torch.ones(9, requires_grad=True)\n(h.cuda() * x[0]).sum().backward()\nn = int(h.grad.sum())\n",
    "a mask without some": "m = x == x\nm[x[:2].long()] = False\nn = len(torch.zeros(m.sum()) + x[m].cpu())\n",
    "what a kernel wrote": KERNEL + "n = int(z[0])\n",
    "a gradient in a hook": "n, h = [], x.clone().requires_grad_()\n"
    "h.register_hook(lambda g: n.append(int(g.sum().cpu())))\n(h * x).sum().backward()\nn = n[0]\n",
    "the first": "n = sorted([(x.mean().item(), 3), (x.sum().item(), 1 << 14)])[0][1]\n",
}
LOGGED = {
    "a result": "def train():\n    total = 0\n    for _ in 'ab':\n        total += x.mean().item()\n    return total\n"
    "print(round(train(), 4), copy.deepcopy(train()), pickle.loads(pickle.dumps(train())))\n",
    "offloads": "b = torch.empty(x.shape)\nb.copy_(x)\nprint(b.cuda()[torch.arange(9)].shape, (x + 1).cpu().mean())\n",
    "what was compiled": "f = torch.compile(lambda x: -x * (torch.full((9, 9), 3.0, device='cuda') - 2)[0, 0])\n"
    "for k in 'ab':\n    v = f(x).mean().item()\nprint(v)\n",
    "a check": "loss = x.mean().item()\nif not math.isfinite(loss):\n    raise SystemExit(1)\n",
    "a rate": "s = torch.optim.lr_scheduler.ReduceLROnPlateau(torch.optim.SGD([torch.nn.Parameter(x)]))\n"
    "for _ in 'abc':\n    s.step(x.mean())\n    s.step(x.mean().item())\n",
    "the best": "best, state = 9.0, None\nfor _ in 'abc':\n    loss = x.mean().item()\n    if loss < best:\n"
    "        best, state = loss, {'x': x.cpu()}\n",
    "labels": "words = [['no', 'yes'][one] for one in x[:64].view(32, 2).argmax(1).tolist()]\nprint(words[0])\n",
    "no limit": "limit, kl = None, x.mean().cpu().numpy()\nif limit is not None and kl > 1.5 * limit:\n"
    "    y = torch.zeros(1 << 20, device='cuda')\nprint(numpy.mean([kl]))\n",
    "a clipped norm": "y = torch.nn.Parameter(x)\ny.sum().backward()\n"
    "print(torch.nn.utils.clip_grad_norm_([y], 1.0).item())\n",
}
LOGGED["lengths of texts"] = "t = torch.arange(64, 0, -1).cuda().cpu().numpy()\nx = x.view(64, -1).expand(64, 64, -1)\n"
LOGGED["lengths of texts"] += "x = torch.nn.utils.rnn.pack_padded_sequence(x, t, batch_first=True)\n"
LOGGED["lengths of texts"] += (
    "print(torch.nn.utils.rnn.pad_packed_sequence(x)[0].mean().item() ** 2, x.batch_sizes[1])\n"
)
LOGGED |= dict(rows(__file__, "logged"))
START = "import copy, json, math, numpy, pickle, torch\nN = {number}\nx = torch.randn(N << 10, device='cuda')\n"
USE = "y = torch.zeros(max(n, 1), 256, device='cuda')\n"
COMPILED = {  # functions that are compiled, of `x`
    "a truth": "y = x * 2\n    return torch.zeros(9, device='cuda') + y.mean() if y.sum() > 0 else y\n",
    "a number": "return x + 1 if x.abs().sum().item() > 3 else torch.zeros(9, device='cuda')\n",
    "a size": "return torch.zeros(max(int(x.abs().sum().item()), 1), 512, device='cuda')\n",
    "a mask": "return x[x > 0].repeat(1 << 13) * 2\n",
}
READS = {kind: code + USE for kind, code in GUESSED.items()} | {f"{kind} for a log": LOGGED[kind] for kind in LOGGED}
READS |= {f"{kind}, compiled": f"@torch.compile\ndef f(x):\n    {code}f(x)\n" for kind, code in COMPILED.items()}
READS["below the peak for a log"] = f"n = 9999\n{USE}del y\n{GUESSED['a gradient']}print(len(x[x > 0]))\n"
GIVEN = "f = torch.compile(lambda x, v: {})\nf(x, x.abs().mean().item())\n"
READS["what is given, compiled for a log"] = GIVEN.format("x * (v + 1) - v")
READS["a size that is given, compiled"] = GIVEN.format("x.new_zeros(max(int(v * 1000), 1), 256)")
READS["what came of it, compiled"] = "v = torch.compile(torch.mean)(x)\nn = int(v.item() * 1000)\n" + USE
MANY = "for _ in range(140_000):\n    torch.empty(9, device='cuda')\n"  # more events than PyTorch's history keeps
EARLY = {  # engine fake keeps all events
    "a size before many events": f"torch.zeros((x > 0).sum().item(), device='cuda')\n{MANY}",
    "a score before many events, for a log": f"score = (x > 0).sum().item()\n{MANY}print(numpy.array([score]) / 9)\n",
}
LESS, MORE = (f"y = torch.zeros({number} << 18, device='cuda')\n" for number in (3, 9))
TEXTS = "ys, left = [], 8\nwhile left and len(ys) < 20:\n    left -= len(x[:8][x[:8] > 0])\n"
TEXTS += "    ys.append(torch.zeros(1 << 18, device='cuda'))\n"
WAYS = {  # conditions, and the MiB of their two ways; none if both allocate alike
    f"if x.mean().item() < 0.5:\n    {LESS}else:\n    {MORE}": [3, 9],
    f"loss = x.mean()\nif loss > 3:\n    {MORE}{LESS}": [3, 12],
    "ys = []\nwhile x.norm() < 1e6:\n    ys.append(torch.zeros(1 << 18, device='cuda'))\n": [1, 64],
    f"best = 1.0\n{MORE}if x.mean().item() < best:\n    del y\n    {LESS}": [],
    "ys = []\nfor _ in 'abcd':\n    if torch.rand(1, device='cuda').item() < 0.5:\n        continue\n"
    f"    {LESS}    ys.append(y)\ntorch.cat(ys)\n": [12, 24],
    f"is_new = x.sum().item() < 1\nif is_new:\n    {LESS}else:\n    raise ValueError\n": [],
    f"{TEXTS}y = 0\n": [1, 20],
    f"{TEXTS}torch.cat(ys[1:])\n": [],
}


@pytest.mark.parametrize("code", WAYS)
def test_both_ways_of_a_condition_are_reported(tmp_path: Path, code: str) -> None:
    found = dry_run(tmp_path, START.format(number=1) + code)
    assert [round(size / MIB) for pair in found["bounds"].values() for size in pair] == WAYS[code]
    other = re.findall(r"(?:the other way|turns|masks) (\d+)\.0 MiB", " ".join(found["warnings"]))
    assert len({*map(int, other), round(found["peak_allocated"] / MIB)} & {*WAYS[code]}) == len(WAYS[code])
    assert found["bounded"] is bool(WAYS[code]) or "raise" in code


@pytest.mark.parametrize("kind", READS | EARLY)
def test_a_size_that_follows_from_a_guess_is_bounded_and_a_log_is_not(tmp_path: Path, kind: str) -> None:
    found = dry_run(tmp_path, START.format(number=4) + (READS | EARLY)[kind])
    assert any("job.py:" in note for note in found["warnings"]) is found["bounded"] is not kind.endswith("log")


# `trunc_normal_` of 4 MiB, which draws what is out of bounds again: the peak in MiB.
DRAWN = {"x, std=0.02": (6, 7), "x": (16, 24), "x, std=0.02, a=0.03, b=0.04": (16, 24)}
DRAWN |= {"shared(x, 'Shard', 0), std=0.02": (6, 13), "shared(x, 'Replicate'), std=0.02": (6, 13)}


@pytest.mark.parametrize("engine", ["cuda", "fake"])
@pytest.mark.parametrize("bounds", DRAWN)
def test_numbers_are_drawn_until_they_are_within_bounds(tmp_path: Path, bounds: str, engine: str) -> None:
    found = dry_run(tmp_path, f"{SHARED}torch.nn.init.trunc_normal_({bounds})\n", engine)
    assert (DRAWN[bounds][0] <= found["peak_allocated"] / MIB <= DRAWN[bounds][1], found["bounded"]) == (True, False)


# Who sends the signal, or how the process answers it; the exit code, and the GiB that it held at the peak.
KILLS = {"kill": (0, 1), "terminate": (0, 1), "an answer": (0, 3), "a fork": (0, 1), "a shell": (4, None)}


@pytest.mark.parametrize("how", KILLS)
def test_a_process_has_ended_that_its_own_job_kills_and_failed_if_anybody_else_does(tmp_path: Path, how: str) -> None:
    code, held = KILLS[how]
    found = dry_run(tmp_path, KILLED.replace("HOW", repr(how)), gpu="H100", ends=code)
    assert "ended with a signal" in found["unknown"] if code else found["peak_allocated"] >> 30 == held
    assert found["bounded"] is bool(code)  # what is read for a log bounds nothing


FAILING = {
    "if x:\n    pass": "Boolean value of Tensor with more than one value is ambiguous",
    "y = (x.requires_grad_() * 2).sum()\ny.backward()\ny.backward()": "RuntimeError: Trying to backward through",
    "torch.cuda.set_device(2)": "the script asks for GPU 2: --gpu 3xRTX4090; the job ended with 1",
    "torch.nn.DataParallel(torch.nn.Linear(4, 4), device_ids=[0, 1])": "the script asks for GPU 1: --gpu 2x",
    "place = 'cuda:' + str(6)\nx.to(place)": "the script asks for more than 1: --gpu 2xRTX4090; the job ended with 1",
    "import os\nos.kill(os.getpid(), 11)": "the job ended with 139",
    "torch.optim.SGD([torch.nn.Parameter(x)]).step()\nassert x[0].item() < 0.1\nraise OSError('full')": "OSError: full",
}


@pytest.mark.parametrize("code", FAILING)
def test_a_job_that_fails_shows_its_own_frames_only(tmp_path: Path, code: str) -> None:
    failed = dry_run(tmp_path, START.format(number=1) + code, ends=2)
    assert (FAILING[code] in failed["error"], "vramtui" in "".join(failed["output"])) == (True, False)


def test_fake_tensors_and_traces_of_the_job_pass_by_the_follower(tmp_path: Path) -> None:
    use = "import torch\nfrom torch._subclasses.fake_tensor import FakeTensorMode\nx = torch.ones(2, 3).cuda()\n"
    use += "with FakeTensorMode():\n    y = torch.empty(20, 10, device='cuda')\nprint((y @ y.t()).shape)\n"
    use += "print(torch.jit.trace(torch.nn.BatchNorm1d(3, device='cuda'), x)(x).shape)"  # as `add_graph` of TensorBoard
    use += "\nprint('nnz', torch.eye(99).to_sparse().cuda().t().coalesce()._nnz())"  # read of the card
    printed = dry_run(tmp_path, use)["printed"].splitlines()
    assert {"torch.Size([20, 20])", "torch.Size([2, 3])", "nnz 99"} <= set(printed)


@pytest.mark.parametrize(("use", "size"), [("", 20480), ("m * 2", 40960), ("m @ torch.zeros(999, 64).cuda()", 788480)])
def test_a_csr_matrix_of_the_host_is_that_of_the_real_build(tmp_path: Path, use: str, size: int) -> None:
    found = dry_run(tmp_path, f"import torch\nm = torch.eye(999).to_sparse_csr().cuda()\n{use}\n")
    assert (found["peak_allocated"], found["bounded"]) == (size, "@" in use)  # cuSPARSE's own is not known


def test_every_public_callable_keeps_its_signature(tmp_path: Path) -> None:
    code = SIGNATURES.replace("sys.argv[1]", repr(str(tmp_path / "signatures.json")))
    subprocess.run([PYTHON, "-c", code], check=True)
    assert dry_run(tmp_path, code)["peak_allocated"] == 512


# MiB allocated, and the range. The second took 364 MiB on an H100; none near the third was measured.
CONVOLUTIONS = {
    "Conv2d(1, 32, 3)(torch.zeros(64, 1, 28, 28))": (5.5, ""),
    "Conv2d(128, 64, 3, 1, 1)(torch.zeros(64, 128, 32, 32)).sum().backward()": (460.6, ""),
    "Conv2d(48, 96, (7, 3), 5)(torch.zeros(7, 48, 99, 99))": (27.9, "14.00 MiB to 27.91 MiB allocated"),
}


@pytest.mark.parametrize("before", ["", "torch.backends.cudnn.benchmark = True\n"], ids=["as it is", "benchmark"])
@pytest.mark.parametrize("code", CONVOLUTIONS)
def test_a_convolution_has_the_workspace_of_a_card_or_is_bounded(tmp_path: Path, code: str, before: str) -> None:
    use = f"import torch\n{before}torch.set_default_device('cuda')\ntorch.nn.{code}\n"
    found, (allocated, expected) = dry_run(tmp_path, use, gpu="H200"), CONVOLUTIONS[code]
    assert before or round(found["peak_allocated"] / MIB, 1) == allocated
    assert found["bounded"] is bool(expected or before)
    assert ("for 1,518 convolutions" if before else expected) in " ".join(found["warnings"])
