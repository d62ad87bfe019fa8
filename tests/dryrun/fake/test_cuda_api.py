"""What code does with a card beside operators: each answers as on a card, in one trace."""

from pathlib import Path

import pytest

from tests.dryrun.fake.test_scripts import traced
from vramtui.core.base.errors import UserError

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("warm_children")]
FACTS = """
import torch
facts = torch.cuda.get_device_properties(0)
assert facts.uuid is not None and facts.total_memory == torch.cuda.mem_get_info()[1]
assert torch.cuda.current_blas_handle() == 0 and torch.cuda.is_tf32_supported() and torch.cuda.device_memory_used() > 0
assert torch.cuda.default_generators[0].initial_seed() >= 0
generator = torch.Generator(device="cuda").manual_seed(2)
assert generator.device.type == "cuda" and torch.Generator().device.type == "cpu"
assert torch.randn(3, generator=generator, device="cuda").is_cuda
assert torch.cuda.CUDAGraph | None and torch.cuda.MemPool | None  # as annotations of libraries have them
stream = torch.cuda.Stream(priority=torch.cuda.Stream.priority_range()[1])
assert torch.cuda.ExternalStream(stream.cuda_stream) and torch.Stream(device="cuda")
with torch.cuda.nvtx.range("a"), torch.autograd.profiler.emit_nvtx():
    torch.cuda.nvtx.range_end(torch.cuda.nvtx.range_start("b"))
kept = torch.zeros(1024, device="cuda")
kept.record_stream(stream)
with torch.profiler.profile(record_shapes=True, profile_memory=True) as seen:
    torch.nn.Linear(8, 8).cuda()(torch.randn(2, 8, device="cuda"))
seen.key_averages(group_by_input_shape=True).table(row_limit=2)
"""
SUBCLASSES = """
import torch

class Image(torch.Tensor):
    pass

class Logged(torch.Tensor):
    calls = []
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        cls.calls.append(function)
        return super().__torch_function__(function, types, args, kwargs or {})

for kind in (Image, Logged):
    plain = torch.randn(4, 8, device="cuda", requires_grad=True)
    image = plain.as_subclass(kind)
    assert isinstance(image, kind) and isinstance(image * 2, kind) and isinstance(image[0], kind)
    assert isinstance(torch.stack([image, image]), kind) and image.is_cuda and image.shape == (4, 8)
    back = image.as_subclass(torch.Tensor)
    assert not isinstance(back, kind) and not isinstance(plain, kind)
    (image * image).sum().backward()
    assert plain.grad.shape == (4, 8)
assert Logged.calls
"""
PADDED = """
import torch
layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
net = torch.nn.TransformerEncoder(layer, 2).cuda().eval()
padding = torch.tensor([[False, False, True], [False, False, False]], device="cuda")
with torch.no_grad():
    assert net(torch.randn(2, 3, 8, device="cuda"), src_key_padding_mask=padding).shape == (2, 3, 8)
"""
OPERATORS = """
import torch
dense = torch.eye(4, device="cuda")
a, b = torch.randn(5, 3, device="cuda"), torch.randn(5, 2, device="cuda")
solution, residuals, rank, values = torch.linalg.lstsq(a, b)
assert solution.shape == (3, 2) and residuals.shape == (2,) and rank.shape == values.shape == (0,)
scale, zero = torch.tensor(0.1, device="cuda"), torch.tensor(0, dtype=torch.int32, device="cuda")
assert torch.fake_quantize_per_tensor_affine(dense, scale, zero, -128, 127).shape == (4, 4)
lazy = torch.nn.Sequential(torch.nn.LazyLinear(4), torch.nn.LazyBatchNorm1d()).cuda().half().float().to(torch.float32)
assert lazy(dense).dtype is torch.float32
"""


@pytest.mark.parametrize("script", [FACTS, SUBCLASSES, PADDED, OPERATORS], ids=str.__len__)
def test_what_stands_beside_operators_answers_as_on_a_card(tmp_path: Path, script: str) -> None:
    assert traced(tmp_path, script).peak_allocated > 0


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("torch.cuda.CUDAGraph()", "torch.cuda.CUDAGraph"),
        ("torch.eye(4, device='cuda').to_sparse()", "torch.ops.aten._to_sparse.default"),
        ("torch.jit.trace(torch.nn.ReLU(), torch.zeros(1, device='cuda'))", "torch.jit.trace"),
        ("torch.eye(4).to_sparse().cuda() @ torch.eye(4, device='cuda')", ""),
    ],
)
def test_what_fake_tensors_cannot_follow_is_one_sentence(tmp_path: Path, line: str, name: str) -> None:
    with pytest.raises(UserError) as told:
        traced(tmp_path, f"import torch\n{line}\n")
    sentence = str(told.value)
    assert sentence.startswith(name)
    assert "script.py:2" in sentence
    assert "needs PyTorch's CUDA build" in sentence
