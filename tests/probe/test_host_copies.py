"""What is known of masks that the host sent to an emulated card, without PyTorch: its tensors are lists here."""

from __future__ import annotations

import ctypes
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vramtui.probe.followed_calls import COMPUTED, SELECTED, SENT, WRITTEN, FollowedCalls
from vramtui.probe.host_copies import HostCopies
from vramtui.probe.reads import FOLDER, Reads


class Node:
    """A node of a backward pass with its two hooks."""

    def register_prehook(self, hook: Any) -> None:
        self.before = hook

    def register_hook(self, hook: Any) -> None:
        self.after = hook


class Tensor:
    """Whole numbers, on the card or not; what is computed there is zeros, and the driver tells who reads it."""

    reads: Reads
    requires_grad = False
    _base = None
    is_floating_point = is_complex = is_inference = lambda _: False

    def __init__(self, values: list[int], *, is_cuda: bool = False, dtype: str = "torch.int64") -> None:
        self.values, self.is_cuda, self.dtype, self._version = values, is_cuda, dtype, 0
        self.grad_fn, self.data = Node(), self

    @property
    def shape(self) -> tuple[int]:
        return (len(self.values),)

    def numel(self) -> int:
        return len(self.values)

    def clone(self) -> Tensor:
        return Tensor(list(self.values), is_cuda=self.is_cuda, dtype=self.dtype)

    def to(self, where: str) -> Tensor:
        made = self.clone()
        if where.startswith("torch."):
            made.dtype = where
        else:
            made.is_cuda = where == "cuda"
        return made

    def cuda(self) -> Tensor:
        return self.to("cuda")

    def cpu(self) -> Tensor:
        return self.to("cpu")

    def tolist(self) -> list[int]:
        return self.values

    def abs(self) -> Tensor:
        return Tensor([abs(one) for one in self.values])

    def max(self) -> Tensor:
        return Tensor([max(self.values)])

    def zero_(self) -> Tensor:
        self.values = [0] * len(self.values)
        return self

    def copy_(self, other: Tensor) -> None:
        self.values = list(other.values)
        self._version += 1

    def __int__(self) -> int:
        return self.values[0]

    def sum(self) -> Tensor:
        return Tensor([0 if self.is_cuda else sum(self.values)], is_cuda=self.is_cuda)

    def __gt__(self, other: int) -> Tensor:
        truths = [0 if self.is_cuda else int(one > other) for one in self.values]
        return Tensor(truths, is_cuda=self.is_cuda, dtype="torch.bool")

    def __getitem__(self, mask: Tensor) -> Tensor:
        return Tensor([0] * self.places(mask), is_cuda=self.is_cuda)

    def __setitem__(self, mask: Tensor, value: int) -> None:
        self.values = [value] * self.places(mask)

    def places(self, mask: Tensor) -> int:
        if not self.is_cuda:
            return sum(mask.values)
        number = ctypes.c_int64(0)
        self.reads.read(ctypes.addressof(number), 8)
        return number.value


@pytest.fixture(name="reads")
def follow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Reads:
    """Those of a process in which what is sent is followed, of the tensors above."""
    monkeypatch.setenv(FOLDER, str(tmp_path))
    for name in (*SENT, *SELECTED, *COMPUTED, *WRITTEN, "tolist"):
        monkeypatch.setattr(Tensor, name, getattr(Tensor, name, None) or (lambda *_: None), raising=False)
    reads = Reads(SimpleNamespace(__file__="/nowhere/torch/__init__.py"))
    monkeypatch.setattr(Tensor, "reads", reads, raising=False)
    cuda = SimpleNamespace(is_current_stream_capturing=lambda: False)
    compiler = SimpleNamespace(is_compiling=lambda: False)
    torch = SimpleNamespace(Tensor=Tensor, compiler=compiler, cuda=cuda)
    FollowedCalls(torch, reads, HostCopies(torch, reads)).begin()
    return reads


def test_a_mask_that_the_host_sent_selects_and_counts_as_on_a_card(reads: Reads) -> None:
    mask, weights = Tensor([1, 0, 1, 1], dtype="torch.bool").cuda(), Tensor([0] * 4, is_cuda=True)
    assert weights[mask].numel() == int(mask.sum()) == 3
    assert reads.count == 0  # nothing that was guessed
    weights[mask] = 7
    assert weights.values == [7] * 3


def test_what_is_compared_of_it_is_known_too(reads: Reads) -> None:
    labels = Tensor([5, 0, 9, 1]).cuda()
    assert labels[labels > 4].numel() == int((labels > 4).sum()) == 2
    assert (labels > 4).tolist() == [1, 0, 1, 0]
    assert reads.count == 0


def test_the_backward_pass_selects_the_same_places(reads: Reads) -> None:
    mask = Tensor([1, 1, 0], dtype="torch.bool").to("cuda")
    node: Any = Tensor([0] * 3, is_cuda=True)[mask].grad_fn
    node.before(None)
    assert Tensor([], is_cuda=True).places(mask) == 2
    node.after(None, None)
    assert Tensor([], is_cuda=True).places(mask) == 0
    assert reads.count == 1


def test_a_mask_that_was_computed_or_written_to_is_not_known(reads: Reads) -> None:
    computed, written = (Tensor([1, 1], is_cuda=True, dtype="torch.bool"), Tensor([1, 1], dtype="torch.bool").cuda())
    written.copy_(Tensor([1, 0], is_cuda=True))
    for mask in (computed, written):
        assert Tensor([0] * 2, is_cuda=True)[mask].numel() == int(mask.sum()) == 0
    assert reads.count == 2
