from __future__ import annotations

import ctypes
import sys
from math import prod
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.tables import for_each, rows
from vramtui.dryrun.reads import read_places
from vramtui.probe.followed import arguments_written, count_choices
from vramtui.probe.reads import Reads
from vramtui.probe.socket_dir import REPORTS


class Kernels:
    """PyTorch's operators for CUDA: each reads its answer of the card, after a check of one byte."""

    def __init__(self, reads: Reads) -> None:
        self.reads, self.chosen, self.written = reads, dict[str, Any](), list[Any]()

    def call_boxed(self, keys: str, *_: Any, **_named: Any) -> tuple[int, int]:
        assert keys == "keys"
        check, number = ctypes.c_byte(0), ctypes.c_int64(0)
        self.reads.read(ctypes.addressof(check), 1)
        self.reads.read(ctypes.addressof(number), 8)
        return check.value, number.value

    def get_kernel(self, name: str, key: str) -> Kernels:
        assert key == ("SparseCUDA" if name == "aten::_coalesce" else "CUDA")
        if name == "aten::_unique":
            raise RuntimeError(name)
        return self

    def Library(self, owner: str, kind: str) -> Any:  # noqa: N802 - as PyTorch names it
        assert (owner, kind) == ("aten", "IMPL")
        return SimpleNamespace(impl=self.impl)

    def wrote(self, numbers: Any) -> None:
        self.written.append(numbers)

    def impl(self, name: str, act: Any, key: str, *, with_keyset: bool) -> None:
        assert (key, with_keyset) == ("SparseCUDA" if name == "_coalesce" else "CUDA", True)
        self.chosen[name] = act


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernels:
    monkeypatch.setenv(REPORTS, str(tmp_path))
    found = Kernels(Reads(SimpleNamespace(__file__="/site/torch/__init__.py")))
    values: Any = SimpleNamespace(
        value_of=lambda tensor, **_: tensor.copy,
        write=lambda _, numbers, **_named: found.wrote(numbers),
        run_followed=lambda act: act(),
    )
    by_host = {
        name: SimpleNamespace(**{overload: lambda sent, *_, name=name: sent.answers[name]})
        for name, overload in (("nonzero", "default"), ("repeat_interleave", "Tensor"), ("unique_dim", "default"))
    }
    aten = SimpleNamespace(**by_host)
    count_choices(SimpleNamespace(library=found, ops=SimpleNamespace(aten=aten)), found.reads, values)
    return found


def computed(*shape: int, base: Any = None) -> Any:
    given = {"shape": shape, "numel": lambda: prod(shape), "copy": None, "dtype": "torch.int64"}
    return SimpleNamespace(**given, _base=base, is_inference=lambda: False)


def test_all_places_are_taken_where_values_were_computed(kernels: Kernels) -> None:
    places, several = computed(4, 3), computed(5)
    asked: list[Any] = [("nonzero", places), ("unique_dim", places, 1), ("repeat_interleave.Tensor", several)]
    asked.append(("_coalesce", SimpleNamespace(_nnz=lambda: 7)))
    assert [kernels.chosen[name]("keys", *given) for name, *given in asked] == [(1, 12), (1, 3), (1, 5), (1, 7)]
    assert kernels.reads.count == 4  # each is told
    assert kernels.call_boxed("keys") == (0, 0)  # what is read later is not known


@pytest.mark.parametrize(("name", "takes_all"), [("nonzero", True), ("unique_dim", True), ("bincount", False)])
def test_all_places_are_told_as_such(
    kernels: Kernels, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, takes_all: bool
) -> None:
    if name == "bincount":  # whose classes have shares
        monkeypatch.setattr(Kernels, "call_boxed", lambda *_: histogram(4))
    kernels.chosen[name]("keys", computed(4, 3), *(() if name == "nonzero" else (1,)))
    (place,) = (one for one in read_places(tmp_path)[0] if one.decides)  # beside the kernels' own
    assert place.takes_all is takes_all


def test_what_the_host_sent_is_counted_as_it_is(kernels: Kernels) -> None:
    sent = computed(4)
    unique = computed(4, 2), computed(2)
    answers = {"nonzero": computed(3, 1), "repeat_interleave": computed(10), "unique_dim": unique}
    sent.copy = SimpleNamespace(answers=answers)
    asked = (("nonzero",), ("repeat_interleave.Tensor",), ("unique_dim", 1))
    numbers = [kernels.chosen[name]("keys", sent, *more)[1] for name, *more in asked]
    assert (numbers, kernels.reads.count) == ([3, 10, 2], 0)


def test_checks_of_computed_arguments_hold_and_a_number_that_is_known_already_is_left_alone(kernels: Kernels) -> None:
    assert kernels.chosen["normal.Tensor_Tensor"]("keys", computed(4), computed(4)) == (1, 0)
    assert (kernels.reads.count, kernels.reads.known_next) == (0, None)
    with kernels.reads.know_next([7]):
        assert kernels.chosen["nonzero"]("keys", computed(4)) == (1, 7)
        assert kernels.reads.known_next is not None


def test_operators_that_a_release_lacks_keep_their_own_answers(kernels: Kernels) -> None:
    assert "_unique" not in kernels.chosen
    assert "torchvision" not in sys.modules or "nms" not in kernels.chosen
    older: Any = SimpleNamespace(library=SimpleNamespace())
    count_choices(older, kernels.reads, older)


def test_a_class_has_its_share(kernels: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, compared, reduced = computed(16, 2, 8), computed(16, 2), computed(16)
    for name, answer in (("one_hot", whole), ("eq.Scalar", compared), ("any.dim", reduced)):
        monkeypatch.setattr(Kernels, "call_boxed", lambda *_, answer=answer: answer)
        kernels.chosen[name]("keys", compared, 0)
    monkeypatch.undo()
    count = kernels.chosen["nonzero"]
    assert count("keys", computed(2, 16, base=whole))[1] == 4
    assert [count("keys", one)[1] for one in (compared, reduced)] == [32, 16]
    monkeypatch.setattr(Kernels, "call_boxed", lambda *_: compared)
    kernels.chosen["eq.Scalar"]("keys", compared, 3)
    monkeypatch.undo()
    assert count("keys", compared)[1] == 1


def histogram(classes: int, *, is_weighted: bool = False) -> Any:
    answer = computed(classes)
    answer.is_floating_point = lambda: is_weighted
    answer.new_tensor = lambda numbers, **_: numbers
    return answer


@pytest.mark.parametrize("name", ["bincount", "histc"])
@pytest.mark.parametrize(
    ("tokens", "counts"), [(12, [3, 3, 3, 3]), (14, [4, 4, 3, 3]), (3, [1, 1, 1, 0]), (7, [7]), (0, [0, 0])]
)
def test_each_class_of_computed_ones_has_its_share_of_them(
    kernels: Kernels, monkeypatch: pytest.MonkeyPatch, name: str, tokens: int, counts: list[int]
) -> None:
    monkeypatch.setattr(Kernels, "call_boxed", lambda *_: histogram(len(counts)))
    kernels.chosen[name]("keys", computed(tokens), None, len(counts))
    assert (kernels.written, kernels.reads.count) == ([counts], 1)  # which is a guess


def test_weights_are_no_classes(kernels: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Kernels, "call_boxed", lambda *_: histogram(4, is_weighted=True))
    kernels.chosen["bincount"]("keys", computed(12), "weights")
    monkeypatch.setattr(Kernels, "call_boxed", lambda *_: histogram(0))
    kernels.chosen["bincount"]("keys", computed(0))
    assert (kernels.written, kernels.reads.count) == ([], 0)


def test_classes_that_the_host_sent_are_counted_as_they_are(kernels: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    sent = torch.tensor([0, 1, 1, 5])
    sent.copy = sent
    asked: list[Any] = []

    def count(*_: Any) -> Any:
        smallest, largest = ctypes.c_int64(9), ctypes.c_int64(9)
        for number in (smallest, largest):
            kernels.reads.read(ctypes.addressof(number), 8)
        asked.append((smallest.value, largest.value))
        return torch.zeros(7, dtype=torch.int64)

    monkeypatch.setattr(Kernels, "call_boxed", count)
    kernels.chosen["bincount"]("keys", sent, None, 7)
    kernels.chosen["histc"]("keys", sent, 7, 0, 6)
    written = [numbers.tolist() for numbers in kernels.written]
    assert (asked, written, kernels.reads.count) == ([(0, 5)] * 2, [[1, 2, 0, 0, 0, 1, 0]] * 2, 0)


@for_each(rows(__file__, "kernels"))
def test_a_kernel_tells_what_it_writes_into(code: str, names: list[str]) -> None:
    assert sorted(arguments_written(code) or ()) == names
