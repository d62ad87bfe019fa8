from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.loaded_once import Module
from vramtui.dryrun.values import BLANK, DRAWN, LARGE, MOST, Values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.torch
torch: Any = Module("torch")
dispatch: Any = Module("torch.utils._python_dispatch")


def following(bring: Any = None) -> Any:
    class Following(dispatch.TorchDispatchMode):  # type: ignore[misc]  # its methods have no types
        def __init__(self) -> None:
            super().__init__()
            self.values = Values(sys.modules["torch"], lambda tensor: tensor.device.type == "meta", bring)
            self.notes, self.note_size = list[bool](), lambda: None
            self.vary, self.varies = lambda one: one, False

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            named = kwargs or {}
            if str(func) == "aten._to_copy.default" and args[0].device != named.get("device", args[0].device):
                made = torch.empty(args[0].shape, dtype=named.get("dtype") or args[0].dtype, device=named["device"])
                return self.values.follow(func, args, named, lambda: made, self)
            if str(func) == "aten._local_scalar_dense.default" and args[0].device.type == "meta":
                return self.values.follow(func, args, named, lambda: 0, self)
            return self.values.follow(func, args, named, lambda: func(*args, **named), self)

        def note(self, *, takes_all: bool) -> None:
            self.notes.append(takes_all)

        def answer(self, number: Any) -> Any:
            self.note(takes_all=type(number) is int)
            return number

        @contextlib.contextmanager
        def knowing(self) -> Iterator[None]:
            yield

        def load(self, *_: Any) -> None:
            """Write nothing."""

        clear = load

    return Following()


@pytest.fixture(name="mode")
def follow() -> Any:
    with following() as mode:
        yield mode


def sent(numbers: Any) -> Any:
    return torch.tensor(numbers).to("meta")


ARITHMETIC: dict[str, Callable[[Any], Any]] = {
    "pow": lambda x: x**2 + 2**x,
    "sqrt": lambda x: (x.float() ** 2).sum(-1).sqrt(),
    "log": lambda x: x.float().log1p().exp().ceil().long(),
    "norm": lambda x: x.float().norm(),
    "cumsum": lambda x: x.cumsum(-1),
    "sort": lambda x: x.sort(descending=True, dim=-1)[1],
    "comparison": lambda x: (x % 2 == 1) | (x > 3),
    "index": lambda x: x.flatten()[x.flatten().argsort()[:2]],
    "histc": lambda x: x.float().histc(4, 0, 8),
    "scatter": lambda x: torch.zeros(x.numel(), 9, device=x.device).scatter_(1, x.view(-1, 1), 1.0),
    "a part of what was filled": lambda x: _write(torch.zeros(x.numel() + 3, device=x.device), x),
    "a view of a view": lambda x: x.reshape(-1).unsqueeze(0).T[1:].flatten(),
    "an inverse": lambda x: torch.linalg.pinv(x.double().reshape(1, -1)).round(decimals=9),
    "in place": lambda x: x.clone().add_(3).mul_(2),
    "beside zeros": lambda x: torch.zeros_like(x) + x,
}


def _write(target: Any, x: Any) -> Any:
    target[1 : x.numel() + 1] = x.flatten()
    return target


@pytest.mark.parametrize("shape", [(5,), (2, 3), (1,), (3, 2, 2)])
@pytest.mark.parametrize("kind", ARITHMETIC)
def test_arithmetic_on_known_numbers_is_the_operators_own(mode: Any, kind: str, shape: tuple[int, ...]) -> None:
    numbers = torch.arange(torch.Size(shape).numel()).flip(0).reshape(shape) % 7
    answer = ARITHMETIC[kind](numbers.to("meta"))
    value = mode.values.value_of(answer)
    assert value is not None
    assert torch.equal(value, ARITHMETIC[kind](numbers))
    if kind not in ("a part of what was filled", "scatter", "beside zeros"):
        unknown = torch.empty(shape, dtype=torch.long, device="meta")
        assert mode.values.value_of(ARITHMETIC[kind](unknown)) is None


def test_what_is_written_is_not_known_any_more(mode: Any) -> None:
    whole = sent([2, 0, 1])
    part = whole[1:]
    part.add_(1)
    assert mode.values.value_of(whole).tolist() == [2, 1, 2]
    whole[:1].copy_(torch.empty(1, dtype=torch.long, device="meta"))
    assert mode.values.value_of(part) is None
    whole.copy_(torch.tensor([1, 2, 3]))
    assert mode.values.value_of(part).tolist() == [2, 3]
    whole.random_()
    assert mode.values.value_of(whole) is None


@pytest.mark.parametrize("shape", [(7,), (3, 4), (2000, 2000)])
def test_an_unknown_mask_holds_everywhere(mode: Any, shape: tuple[int, ...]) -> None:
    mask = torch.empty(shape, device="meta") > 0.5
    places = torch.Size(shape).numel()
    assert mode.values.value_of(mask) is None
    assert mask.sum().item() == places
    assert (~mask).sum().item() == places
    assert mask.any().item() is (mask.sum() > 0).item() is True
    assert mask.to("cpu").sum().item() == places
    assert torch.zeros(shape)[mask.to("cpu")].shape[0] == places  # a mask that went to the host
    assert mode.notes.count(True) >= 4


@pytest.mark.parametrize("shape", [(7,), (3, 4), (2000, 2000)])
def test_checks_of_numbers_hold_and_are_no_guess(mode: Any, shape: tuple[int, ...]) -> None:
    numbers = torch.empty(shape, device="meta")
    assert not (torch.isnan(numbers) | torch.isinf(numbers)).any().item()
    assert torch.isfinite(numbers).all().item()
    assert mode.notes == []


def test_few_numbers_are_followed_until_their_storages_are_gone(mode: Any) -> None:
    assert mode.values.value_of(torch.arange(MOST, device="meta") + 1) is not None
    assert mode.values.value_of(torch.arange(MOST + 1, device="meta") + 1) is None
    for number in range(4 * 1024):
        sent([number])
    assert len(mode.values.entries) < 3 * 1024
    zeros = torch.zeros(4, device="meta")
    assert mode.values.value_of(zeros + 1).tolist() == [1.0] * 4
    mode.values.epoch += 1
    assert mode.values.value_of(zeros) is None


MADE: dict[str, Callable[[Any], Any]] = {
    "drawn in place": lambda _: torch.empty(LARGE).uniform_(),
    "drawn": lambda _: torch.randn(2, LARGE // 2),
    "of one number": lambda _: torch.ones(LARGE, dtype=torch.bfloat16),
    "like another": lambda x: torch.zeros_like(x),  # noqa: PLW0108 - torch is not loaded yet
    "of another type": lambda x: x.to(torch.bfloat16).clone().mul_(2),
    "scaled": lambda x: x * 0.02,
    "put together": lambda x: torch.cat([x, x]).view(2, -1).T.contiguous(),
    "copied": lambda x: torch.empty(LARGE).copy_(x),
}


@pytest.mark.parametrize("drawn", [0, DRAWN])
@pytest.mark.parametrize("kind", MADE)
def test_large_tensors_of_the_host_are_left_blank_after_many_numbers(kind: str, drawn: int) -> None:
    with following(bring=lambda _: None) as mode:
        mode.values.drawn_on_host = drawn
        made = MADE[kind](torch.empty(LARGE).normal_())
        assert bool(mode.values.is_guess(made) & BLANK) is bool(drawn)
        others = torch.empty(9).normal_(), torch.ones(LARGE, dtype=torch.int8), made.flatten()[:9] * 2, made.sum()
        assert not any(mode.values.is_guess(one) & BLANK for one in others)
