"""Sparse tensors on the card. Expected peaks are those of PyTorch 2.13's CUDA build on a driver that is emulated."""

from pathlib import Path

import pytest

from tests.warm_traces import WARM
from vramtui.core.estimate.devices import card
from vramtui.estimators.traced.process.results import TraceRequest

pytestmark = pytest.mark.torch
GRADIENTS = """
import torch
if WHICH == "bag":
    table = torch.nn.EmbeddingBag(10000, 64, mode="sum", sparse=True).cuda()
    ends = torch.arange(0, 512, 8)
else:
    table = torch.nn.Embedding(10000, 64, sparse=True).cuda()
optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
for _ in range(3):
    rows = torch.randint(0, 10000, (512,)).cuda()
    made = table(rows, ends.cuda()) if WHICH == "bag" else table(rows)
    optimizer.zero_grad()
    made.square().mean().backward()
    optimizer.step()
"""
SUMS = """
import torch
from torch import nn
matrix = torch.sparse_coo_tensor(torch.randint(0, 300, (2, 900)), torch.randn(900), (300, 300)).cuda()
table = nn.Embedding(3000, 32, sparse=True).cuda()
bag = nn.EmbeddingBag(2000, 32, sparse=True).cuda()
head = nn.Linear(32, 3000).cuda()
optimizer = torch.optim.SGD([*table.parameters(), *bag.parameters(), *head.parameters()], lr=0.1)
for _ in range(3):
    rows = torch.randint(0, 2000, (64, 10)).cuda()
    optimizer.zero_grad()
    for _micro in range(2):
        head(table(rows).mean(1) + bag(rows)).logsumexp(1).sum().backward()
    twice = matrix * 2.0
    added = twice + matrix
    turned = added.t()
    dense = turned.to_dense()
    both = torch.ones(300, 300, device="cuda") + added
    optimizer.step()
"""
COALESCED = """
import torch
places = torch.zeros(2, 1_000_000, dtype=torch.long)
matrix = torch.sparse_coo_tensor(places, torch.randn(1_000_000), (1000, 1000)).cuda()
matrix.coalesce()
"""
# How many places differ is known on the host; products and compressed layouts have no truth without a card.
FORMS = """
import torch
matrix = torch.sparse_coo_tensor([[0, 0, 1], [2, 2, 0]], [1.0, 2.0, 3.0], (4, 3)).cuda()
assert matrix.is_sparse and matrix.is_cuda and not matrix.is_coalesced() and matrix._nnz() == 3
held = matrix.coalesce()
assert held.is_coalesced() and held._nnz() == 2 and held.values().shape == (2,) and held.indices().shape == (2, 2)
before = torch.cuda.memory_allocated()
rows = held.to_sparse_csr()
assert rows.layout is torch.sparse_csr and rows.crow_indices().shape == (5,) and rows.values().shape == (2,)
assert torch.cuda.memory_allocated() == before + 3 * 512
blocks = torch.rand(8, 8).to_sparse_bsr((2, 2)).cuda()
made = torch.sparse_csr_tensor([0, 1, 2], [0, 1], [1.0, 2.0], (2, 2)).cuda()
for one, size in ((matrix, 4), (held, 4), (rows, 4), (blocks, 8), (made, 2)):
    weight = torch.randn(one.shape[1], 5, device="cuda", requires_grad=True)
    out = torch.sparse.mm(one, weight) + one @ weight
    assert out.shape == (size, 5)
    if one.layout is torch.sparse_coo:
        out.sum().backward()
        assert weight.grad.shape == weight.shape
for rows, columns in ((1, 1), (40, 30), (3000, 7000)):
    places = torch.stack([torch.arange(900) % rows, torch.arange(900) % columns])
    matrix = torch.sparse_coo_tensor(places, torch.ones(900), (rows, columns)).coalesce().cuda()
    weight = torch.ones(5, rows, device="cuda", requires_grad=True)
    out = weight @ matrix
    assert out.shape == (5, columns) and out.stride() == (1, 5)
    out.sum().backward()
    assert weight.grad.shape == weight.shape
    first, values, last = torch.svd_lowrank(matrix, q=1)
    assert (first.shape, values.shape, last.shape) == ((rows, 1), (1,), (columns, 1))
table = torch.nn.Embedding(100, 8, sparse=True).cuda()
optimizer = torch.optim.SparseAdam(table.parameters())
for _ in range(2):
    optimizer.zero_grad()
    table(torch.tensor([1, 1, 2]).cuda()).sum().backward()
    assert table.weight.grad.is_sparse and table.weight.grad.coalesce()._nnz() == 2
    optimizer.step()
"""
UNKNOWN = """
import torch
torch.sparse.softmax(torch.ones(4, 4).to_sparse().cuda(), dim=1)
"""


def answer(folder: Path, text: str) -> tuple[str, int, int]:
    """The error, the peak allocated and the peak reserved of a traced script."""
    path = folder / "script.py"
    path.write_text(text, encoding="utf-8")
    line = WARM.answer(TraceRequest(path=str(path), device=card("H200")))
    if line.result is None:
        return line.error or "", 0, 0
    assert not line.result.bounded
    return "", line.result.peak_allocated, line.result.peak_reserved


@pytest.mark.parametrize(
    ("text", "allocated", "reserved"),
    [
        pytest.param("WHICH = 'bag'" + GRADIENTS, 2_737_152, 23_068_672, id="EmbeddingBag"),
        pytest.param("WHICH = 'table'" + GRADIENTS, 3_220_480, 23_068_672, id="Embedding"),
        pytest.param(SUMS, 72_630_784, 75_497_472, id="sums"),
        pytest.param(COALESCED, 62_525_952, 77_594_624, id="coalesce"),
    ],
)
def test_peaks_are_those_of_a_card(tmp_path: Path, text: str, allocated: int, reserved: int) -> None:
    assert answer(tmp_path, text) == ("", allocated, reserved)


def test_layouts_products_and_sparse_gradients_are_what_they_are_on_a_card(tmp_path: Path) -> None:
    assert not answer(tmp_path, FORMS)[0]


def test_what_is_not_followed_is_a_limit_of_the_trace(tmp_path: Path) -> None:
    said = answer(tmp_path, UNKNOWN)[0]
    assert said.startswith("_sparse_softmax of a sparse tensor at ")
    assert "a limit of the trace" in said
