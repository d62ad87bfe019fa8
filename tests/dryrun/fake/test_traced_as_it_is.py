"""Code as people have it: workers, samplers, printed losses, checkpoints, `torch.cuda`, compilers, masks."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.warm_traces import WARM
from vramtui.core.estimate.devices import card
from vramtui.dryrun.fake.run import trace
from vramtui.dryrun.result import ChildLine, DryRun, TraceRequest

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]

LOADER = """
import torch
from torch.utils.data import DataLoader, Dataset

class Samples(Dataset):
    def __len__(self):
        return 1_281_167
    def __getitem__(self, i):
        seen.add(i)
        return torch.randn(3, 32, 32), i % 10

seen = set()
net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3072, 10)).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
loader = DataLoader(Samples(), 8, shuffle=True, num_workers=4, pin_memory=True, persistent_workers=True, timeout=9)
for step, (x, y) in enumerate(loader):
    assert len(seen) > 7 * step and max(seen) > 65_536, sorted(seen)[:3]
    loss = torch.nn.functional.cross_entropy(net(x.cuda(non_blocking=True)), y.cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
# The real PyTorch 2.13 CUDA build on a stubbed driver, H200, after three steps of LOADER.
LOADER_PEAKS = (67_457_024, 69_206_016)

NUMBERS = """
import copy, io, math, pickle, torch
net = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    loss = torch.nn.functional.mse_loss(net(torch.randn(400, 64, device="cuda")), torch.randn(400, 64, device="cuda"))
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    assert loss.item() > 0
    print(f"{loss:.4f}", "{:.3f}".format(loss), round(loss.item(), 3), math.log(loss), 1 / loss.item(), "%.3f" % loss)
    assert "device='cuda:0'" in repr(loss) and "Fake" not in str(loss)
    assert loss.cpu().numpy().shape == () and len(net.weight.tolist()) == 64 and float(loss) == loss.tolist()
    assert net.weight.detach().cpu().numpy().sum() == 64 * 64
    assert pickle.loads(pickle.dumps(net.state_dict()))["weight"].device.type == "cuda"
    assert pickle.loads(pickle.dumps(torch.arange(4.0))).tolist() == [0, 1, 2, 3]
    torch.zeros(5000).share_memory_(); copy.deepcopy(torch.tensor(0.0)); torch.zeros(3).untyped_storage().cpu()
    assert copy.deepcopy(net).weight.is_cuda
    torch.save(net.state_dict(), io.BytesIO())
"""

API = """
import os
os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
import torch
from torch import cuda
device = torch.device("cuda")
for name in ("current_stream", "default_stream", "memory_allocated", "max_memory_reserved", "get_device_name",
             "get_device_capability", "get_device_properties", "synchronize", "reset_peak_memory_stats",
             "mem_get_info", "reset_accumulated_memory_stats", "utilization", "get_rng_state"):
    getattr(cuda, name)(device=device)
small = torch.zeros(1000, device="cuda")
assert cuda.memory_reserved() == 2 << 20
square = torch.zeros(64, 64, device="cuda")
before = cuda.memory_allocated()
square @ square
assert cuda.memory_allocated() - before == 4096 * 8 * 1024
torch._C._cuda_clearCublasWorkspaces()
assert cuda.memory_allocated() == before
stats = cuda.memory_stats(device=device)
assert stats["allocated_bytes.small_pool.current"] == stats["allocated_bytes.all.current"] == before
for key in ("active.all.current", "inactive_split_bytes.all.peak", "segment.large_pool.freed", "num_ooms",
            "requested_bytes.all.current", "num_sync_all_streams", "oversize_segments.current", "max_split_size"):
    stats[key]
assert "PyTorch CUDA memory summary" in cuda.memory_summary(device=device, abbreviated=True)
assert sum(part["allocated_size"] for part in cuda.memory_snapshot()) == before
assert torch.zeros(8).pin_memory().cuda().is_cuda and torch.zeros(4, pin_memory=True).shape == (4,)
assert isinstance(cuda.FloatTensor([1, 2]), cuda.FloatTensor) and cuda.LongTensor(2, 3).shape == (2, 3)
halves = torch.zeros(3).type(cuda.HalfTensor)
assert halves.is_cuda and halves.type() == "torch.cuda.HalfTensor" and halves.type("torch.cuda.LongTensor").is_cuda
assert torch.zeros(3).type(torch.float64).dtype is torch.float64 and torch.zeros(3).type() == "torch.FloatTensor"
small.data_ptr(), small.untyped_storage().data_ptr()
with cuda.nvtx.range("name"), cuda.profiler.profile(), torch.autograd.profiler.profile(use_cuda=True):
    small + 1
activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
with torch.profiler.profile(activities=activities, profile_memory=True) as profiler:
    small + 1
profiler.key_averages().table(sort_by="cuda_time_total")
torch.set_default_tensor_type(cuda.FloatTensor)
assert torch.zeros(3).is_cuda
torch.set_default_tensor_type(torch.FloatTensor)
assert not torch.zeros(3).is_cuda
"""

PEAKS = """
import torch
net = torch.nn.Linear(256, 256).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
big = torch.zeros(64 << 20, device="cuda")
del big
net(torch.randn(64, 256, device="cuda")).sum().backward()
optimizer.step()
optimizer.zero_grad()
assert torch.cuda.max_memory_allocated() == 268_698_624, torch.cuda.max_memory_allocated()
torch.cuda.reset_peak_memory_stats()
assert torch.cuda.max_memory_allocated() == torch.cuda.memory_allocated()
"""

SHAPES = """
import torch
x = torch.randn(64, 10, device="cuda")
y = torch.randint(0, 10, (64,)).cuda().view(64) + (x[:, 0] > 9)
mask = x[:, 0] > 0
assert x[mask].shape == (64, 10) and torch.nonzero(mask).shape == (64, 1)
assert torch.where(mask)[0].shape == (64,) and torch.unique(y).shape == (64,)
assert torch.bincount(y, minlength=10).shape == (10,)
x[mask] = 0.0
x[torch.arange(64) > 60]
lstm = torch.nn.LSTM(10, 16, batch_first=True).cuda()
padded, lengths = torch.randn(4, 9, 10, device="cuda"), torch.tensor([9, 7, 5, 2])
packed = torch.nn.utils.rnn.pack_padded_sequence(padded, lengths, batch_first=True)
assert packed.data.shape == (23, 10)
out, _ = torch.nn.utils.rnn.pad_packed_sequence(lstm(packed)[0], batch_first=True)
assert out.shape == (4, 9, 16)
out.sum().backward()
"""

COMPILED = """
import torch
net = torch.compile(torch.nn.Linear(64, 64).cuda(), mode="max-autotune")
net.compile()
@torch.compile(fullgraph=True)
def double(x):
    return x * 2
double(net(torch.randn(64, 64, device="cuda"))).sum().backward()
assert net._orig_mod.weight is net.weight
"""


BY_HAND = """
import torch
net = torch.nn.Linear(64, 64).cuda()
for step in range(10 ** 9):
    net.zero_grad()
    net(torch.randn(8 if step < 20 else 64, 64, device="cuda")).sum().backward()
    with torch.no_grad():
        for p in net.parameters():
            p.add_(p.grad, alpha=-0.1)
"""

WITHOUT_MODULES = """
import torch
weights = torch.zeros(256, 256, device="cuda", requires_grad=True)
for step in range(10 ** 9):
    weights.exp().backward(torch.ones_like(weights))
"""

LOSSES = """
import torch
x, y = (torch.randn(1000, 1000, device="cuda", requires_grad=first) for first in (True, False))
seen = []
def note():
    seen.append((torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()))
    torch.cuda.reset_peak_memory_stats()
loss = torch.nn.functional.soft_margin_loss(x, y)
note()
loss.backward()
note()
del loss
loss = torch.nn.functional.soft_margin_loss(x, y, reduction="none")
note()
# The real PyTorch 2.13 CUDA build on a stubbed driver.
assert seen == [(12000768, 12002304), (16001024, 24972288), (16001024, 16001024)], seen
with torch.inference_mode():
    measured = torch.nn.Linear(4, 4, device="cuda")(torch.randn(2, 4, device="cuda")).mean()
assert float(f"{measured:.2f}") == round(measured.item(), 2) and not measured.isnan().item()
"""

SAVED = """
import sys, transformers
sizes = dict(num_hidden_layers=2, hidden_size=128, num_attention_heads=2, intermediate_size=256, vocab_size=1000)
transformers.BertForSequenceClassification(transformers.BertConfig(**sizes)).save_pretrained(FOLDER)
"""
PRETRAINED = """
import sys, torch, transformers
model = transformers.BertForSequenceClassification.from_pretrained(sys.argv[1], dtype=torch.float32)
model.to("cuda").to("cuda").cuda()
assert all(isinstance(p, torch.nn.Parameter) and p.is_cuda for p in model.parameters())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for _ in range(2):
    ids = torch.randint(0, 1000, (4, 64)).cuda()
    model(input_ids=ids, labels=torch.zeros(4, dtype=torch.long).cuda()).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
half = transformers.BertModel.from_pretrained(sys.argv[1], dtype=torch.bfloat16).to("cuda")
half(torch.zeros(1, 8, dtype=torch.long, device="cuda")).last_hidden_state.sum().backward()
assert next(half.parameters()).dtype is torch.bfloat16
"""

DATA_PARALLEL = """
import os, torch
import torch.distributed as dist
os.environ.update(RANK="0", LOCAL_RANK="0", MASTER_ADDR="localhost", MASTER_PORT="29500")
dist.init_process_group("nccl")
assert (dist.get_rank(), dist.get_world_size()) == (0, 8)
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
net = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 1024)).cuda()
weights = torch.cuda.memory_allocated()
net = torch.nn.parallel.DistributedDataParallel(net, device_ids=[0], gradient_as_bucket_view=AS_VIEW)
buckets = torch.cuda.memory_allocated() - weights
assert buckets == weights == torch.cuda.memory_allocated() / 2, buckets
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(3):
    loss = net(torch.randn(64, 1024, device="cuda")).sum()
    loss.backward()
    del loss
    held = sum(p.grad.untyped_storage().nbytes() for p in net.parameters())
    optimizer.step()
    dist.all_reduce(torch.zeros(1, device="cuda"), op=dist.ReduceOp.SUM)
    dist.barrier()
    # two workspaces of cuBLAS; the gradients are the buckets, or stand beside them
    extra = torch.cuda.memory_allocated() - weights - buckets - (64 << 20)
    assert extra // (1 << 20) == (0 if AS_VIEW else held // (1 << 20)), (step, extra)
    optimizer.zero_grad()
dist.destroy_process_group()
"""


THREADS = """
import sys, threading, torch
from concurrent.futures import ThreadPoolExecutor
sys.setswitchinterval(1e-6)
def load(size):
    made = [torch.zeros(size, 64).to("cuda") for _ in range(20)]
    assert all(tensor.device.type == "cuda" for tensor in made)
    return sum(tensor.nbytes for tensor in made)
# a thread ends while the first one is within the fake mode a second time
mode = torch.zeros(0, device="cuda").fake_mode
may_end = threading.Event()
thread = threading.Thread(target=may_end.wait)
thread.start()
with mode:
    may_end.set()
    thread.join()
assert torch.tensor([1.0, 2.0], device="cuda").is_cuda
with ThreadPoolExecutor(4) as pool:
    sizes = list(pool.map(load, range(64, 96)))
assert sum(sizes) == sum(20 * size * 256 for size in range(64, 96))
weight = torch.nn.Linear(64, 64).cuda().weight
made = type(weight)(torch.zeros(64, 64), requires_grad=False).to("cuda")
assert isinstance(type(weight)(torch.zeros(64, 64)), torch.nn.Parameter) and made.is_cuda and not made.requires_grad
"""

VIEWS = """
import io, numpy, os, torch
import torch.utils._python_dispatch
from torch._subclasses.fake_tensor import FakeTensor
cpu = torch.empty(4, 6, 8, device="meta")
card = torch.randn(4, 6, 8, device="cuda", requires_grad=True)
for form in (
    lambda x: x.transpose(0, 1), lambda x: x[1:, ::2], lambda x: x.select(2, 3), lambda x: x.diagonal(),
    lambda x: x.unsqueeze(1).expand(-1, 5, -1, -1), lambda x: x.view(24, 8).t(), lambda x: x.unfold(2, 3, 2),
    lambda x: x.as_strided((2, 3), (8, 1), 5), lambda x: x.split([1, 3])[1], lambda x: x.unbind(1)[4],
    lambda x: x.detach(), lambda x: x.permute(2, 0, 1)[..., None].squeeze(-1),
):
    made, expected = form(card), form(cpu)
    assert (made.shape, made.stride()) == (expected.shape, expected.stride())
    assert made.storage_offset() == expected.storage_offset()
    assert made.device == card.device and made.untyped_storage()._cdata == card.untyped_storage()._cdata
    assert isinstance(made, FakeTensor) and made.requires_grad is (made.grad_fn is not None)
(card.transpose(0, 1).reshape(6, -1).chunk(2, 1)[0][:, ::2] * 2).sum().backward()
assert card.grad.shape == card.shape
written = torch.zeros(10, device="cuda")
written[2:4] = 1
assert written._version == 1 and written[2].item() == 1 and written[4].item() == 0
try:
    card.view(7)
except RuntimeError as error:
    assert "invalid for input of size 192" in str(error)
saved = {"net": torch.nn.Linear(4, 4).cuda().state_dict(), "step": torch.tensor(3)}
torch.save(saved, "saved.pt")
again = torch.load("saved.pt")
assert again["net"]["weight"].is_cuda and again["step"].item() == 3 and not os.path.exists("saved.pt")
assert not torch.load("saved.pt", map_location="cpu")["net"]["weight"].is_cuda
buffer = io.BytesIO()
torch.save(saved, buffer)
assert torch.load(io.BytesIO(buffer.getvalue()))["net"]["bias"].is_cuda
data = torch.from_numpy(numpy.ones((3000, 100), dtype="float32")) / 2
place = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data.pt")
torch.save({"x": data, "y": torch.arange(5)}, place)
with torch.utils._python_dispatch._disable_current_modes():
    assert torch.load(place)["x"].sum().item() == 150_000
os.remove(place)
assert torch.cuda.device_count() == 4
"""

CUSTOM = """
import torch
@torch.library.custom_op("mine::halved", mutates_args=())
def halved(x: torch.Tensor) -> torch.Tensor:
    raise AssertionError("it is not run")
halved.register_fake(lambda x: x.new_empty(x.shape[0] // 2, *x.shape[1:]))
halved.register_autograd(lambda ctx, grad: torch.cat([grad, grad]))
weight = torch.ones(1 << 20, device="cuda", requires_grad=True)
made = halved(weight)
assert torch.cuda.memory_allocated() == 6 << 20 and made.shape == (1 << 19,)
made.sum().backward()
@torch.library.custom_op("mine::fill", mutates_args=("out",))
def fill(x: torch.Tensor, out: torch.Tensor) -> None:
    raise AssertionError("it is not run")
fill(weight.detach(), made.detach())
kernels = torch.library.Library("mine_too", "DEF")
kernels.define("made(Tensor x) -> Tensor")
plain = weight.detach()
"""

# What bitsandbytes and Liger do: parameters of a class of their own, `.data` set anew under a gradient, a tensor of a
# number in autograd's thread.
OF_LIBRARIES = """
import torch
class Quantized(torch.nn.Parameter):
    def __new__(cls, data=None, requires_grad=False):
        made = torch.Tensor._make_subclass(cls, data, requires_grad)
        made.data = data
        return made
    def to(self, *args, **kwargs):
        if self.is_cuda:
            return super().to(*args, **kwargs)
        self.data = self.data.to("cuda").half()
        return self
module = torch.nn.Module()
module.weight = Quantized(torch.zeros(64, 64))
module.to("cuda")
assert isinstance(module.weight, Quantized) and isinstance(module.weight, torch.nn.Parameter)
assert module.weight.is_cuda and (module.weight * 2).dtype is torch.float16
assert isinstance(Quantized(torch.zeros(4, device="cuda")), Quantized)
assert isinstance(type(module.weight)(torch.zeros(4, device="cuda")), Quantized)
class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return (x * 2).sum()
    @staticmethod
    def backward(ctx, grad):
        assert torch.equal(grad, torch.tensor(1.0, device=grad.device)) in (True, False)
        return grad.expand(64, 64) * torch.tensor([2.0], device="cuda")
plain = torch.nn.Linear(64, 64).cuda().weight
Double.apply(plain).backward()
plain.data = plain.data.contiguous()
assert plain.grad.shape == (64, 64)
"""


SHARDED = """
import os, torch
from torch.distributed.fsdp import fully_shard
torch.distributed.init_process_group("nccl", device_id=torch.device("cuda", int(os.environ["LOCAL_RANK"])))
with torch.device("meta"):
    net = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(4)))
for layer in net:
    fully_shard(layer)
fully_shard(net)
net.to_empty(device="cuda")
torch.nn.init.normal_(net[0].weight)
optimizer = torch.optim.AdamW(net.parameters())
for _ in range(2):
    net(torch.randn(512, 1024, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
# The real PyTorch 2.13 CUDA build on a stubbed driver, H200, rank 0 of 8 over torch's fake process group.
SHARDED_PEAKS = (101_211_648, 144_703_488)

CONVOLUTION = """
import torch
net = torch.nn.Conv2d(3, 8, 3).cuda()
net(torch.randn(4, 3, 32, 32, device="cuda")).sum().backward()
"""

KERNEL = "import torch.utils.cpp_extension as c\nc.load_inline('mine', '')\n"
SCRIPTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "loader": ("", LOADER, {}),
    "numbers": ("", NUMBERS, {}),
    "torch.cuda": ("", API, {}),
    "peaks": ("", PEAKS, {}),
    "losses": ("", LOSSES, {}),
    "all places": ("", SHAPES, {}),
    "compiled": ("", COMPILED, {}),
    "by hand": ("", BY_HAND, {}),
    "without modules": ("", WITHOUT_MODULES, {}),
    "pretrained": (SAVED, PRETRAINED, {}),
    "convolution": ("import torch; torch.__version__ = '2.15.0+cu130'", CONVOLUTION, {}),
    "custom": ("", CUSTOM, {}),
    "unknown": ("", CUSTOM + "torch.ops.mine_too.made(plain)", {}),
    "without a fake": ("", CUSTOM.replace("halved.register_fake", "str"), {}),
    "views": ("", VIEWS, {"ranks": 4}),
    "threads": ("", THREADS, {}),
    "of libraries": ("", OF_LIBRARIES, {}),
    "kernel": ("", KERNEL, {}),
    "sharded": ("", SHARDED, {"ranks": 8}),
    "rank": ("", DATA_PARALLEL.replace("AS_VIEW", "False"), {"ranks": 8}),
    "rank, views": ("", DATA_PARALLEL.replace("AS_VIEW", "True"), {"ranks": 8}),
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ChildLine]:
    folder = tmp_path_factory.mktemp("as_it_is")
    model = str(folder / "model")
    found: dict[str, ChildLine] = {}
    for number, (name, (before, text, settings)) in enumerate(SCRIPTS.items()):
        path = folder / f"{number}" / "script.py"
        path.parent.mkdir()
        path.write_text(text, encoding="utf-8")
        request = TraceRequest(path=str(path), arguments=(model,), device=card("H200"), **settings)
        found[name] = WARM.answer(request, before.replace("FOLDER", repr(model)))
    return found


def result_of(answers: dict[str, ChildLine], name: str) -> DryRun:
    line = answers[name]
    if line.error and line.error.startswith("ModuleNotFoundError: No module named 'transformers'"):
        pytest.skip("transformers is not installed")
    assert line.result is not None, line.error
    return line.result


def says(text: str) -> Callable[[DryRun], bool]:
    return lambda result: any(text in note for note in result.warnings)


def peaks(*bytes_: int) -> Callable[[DryRun], bool]:
    return lambda result: (result.peak_allocated, result.peak_reserved)[: len(bytes_)] == bytes_


@pytest.mark.parametrize(
    ("name", "holds"),
    [
        *((name, bool) for name in ("numbers", "torch.cuda", "peaks", "losses", "threads", "of libraries")),
        ("loader", peaks(*LOADER_PEAKS)),
        ("loader", lambda result: result.unseen == 0),
        ("all places", lambda result: result.bounded),
        ("all places", lambda result: any("index at" in one and "script.py:6" in one for one in result.warnings)),
        ("all places", lambda result: not says("script.py:10")(result)),
        ("compiled", lambda result: result.bounded and str(result.warnings).count("runs as eager code") == 3),
        ("by hand", says("the last 17 in the same memory: the job was ended there")),
        # the later passes, of eight times the batch, are still in it
        ("by hand", lambda result: result.peak_allocated > (64 << 20) + 64 * 64 * 4 * 2),
        # weights, their gradient, the new one, the result and its gradient, as PyTorch 2.13's CUDA build has them
        ("without modules", peaks(5 * 256 * 256 * 4)),
        ("pretrained", lambda result: result.peak_allocated > 64 << 20),
        # the largest difference that was measured
        ("convolution", lambda result: result.unseen == int(0.32 * result.peak_reserved) > 0),
        ("convolution", says("cuDNN chooses")),
        ("custom", lambda result: result.peak_allocated > 6 << 20),
        ("views", lambda result: not result.bounded),
        ("rank", says("rank 0 of 8")),
        ("rank, views", says("rank 0 of 8")),
        # FSDP2 frees the weights that it gathers by emptying their storages; states of the optimizer are DTensors too
        ("sharded", peaks(*SHARDED_PEAKS)),
    ],
)
def test_what_a_script_holds_and_is_told(
    answers: dict[str, ChildLine], name: str, holds: Callable[[DryRun], bool]
) -> None:
    result = result_of(answers, name)
    assert holds(result), result


UNKNOWN = r"{} at .*script\.py:\d+ is not an operator of PyTorch.* torch.library.register_fake, or use --engine cuda$"


@pytest.mark.parametrize(("name", "said"), [
    ("kernel", r".*load_inline at .*script\.py:2 cannot be followed .* needs PyTorch's CUDA build"),
    ("unknown", UNKNOWN.format("mine_too.made.default")),
    ("without a fake", UNKNOWN.format("mine::halved")),
])  # fmt: skip
def test_kernels_of_the_codes_own_are_refused_with_what_goes_on(answers: Any, name: str, said: str) -> None:
    assert answers[name].beyond_trace
    assert re.match(said, answers[name].error or ""), answers[name].error


def test_no_module_comes_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    for name in ("msgspec", "runpy", "torch"):
        (tmp_path / "here" / f"{name}.py").write_text("raise SystemExit('from the current folder')", encoding="utf-8")
    monkeypatch.chdir(tmp_path / "here")
    path = tmp_path / "script.py"
    path.write_text("import torch\nx = torch.zeros(1, device='cuda')", encoding="utf-8")
    assert trace(TraceRequest(path=str(path), device=card("H200")), timeout=240).peak_allocated == 512


def test_the_example_of_the_docs_takes_what_it_took_on_a_gpu() -> None:
    root = Path(__file__).parents[3]
    found = WARM.trace(TraceRequest(path=str(root / "docs/train.py"), device=card("RTX4090")))
    assert (found.peak_allocated, found.peak_reserved) == (15_938_679_296, 19_658_702_848)
