"""What is known of numbers on an emulated card is what a card would have, over kinds of operators: of tensors that say
they are on one, and compute by the host.
"""

from __future__ import annotations

from copy import deepcopy
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from vramtui.probe.collectives import send_known
from vramtui.probe.followed_calls import FILLED, FUNCTIONS, MADE, FollowedCalls
from vramtui.probe.host_copies import FILL, MOST, HostCopies

if TYPE_CHECKING:
    from collections.abc import Callable

torch: Any = pytest.importorskip("torch")


@pytest.fixture(name="card")
def follow() -> Any:
    """Functions of `torch` that are followed, of tensors that say they are on a card, and what is known of these."""

    class OnCard(torch.Tensor):  # type: ignore[misc]  # torch is any thing here
        is_cuda = property(lambda _: True)

        def to(self, *arguments: Any) -> Any:
            return self.clone() if arguments == ("cuda",) else super().to(*arguments)

        def __deepcopy__(self, _: Any) -> Any:
            return self.clone()

    def put_on(tensor: Any) -> Any:
        return OnCard._make_subclass(OnCard, tensor)

    def on_card(act: Any) -> Any:
        def make(*arguments: Any, **named: Any) -> Any:
            made = act(*arguments, **named)
            return made if named.get("device") == "cpu" else put_on(made)

        return make

    functions = {name: getattr(torch, name) for name in FUNCTIONS if hasattr(torch, name)}
    for name in MADE + FILLED:
        functions[name] = on_card(getattr(torch, name))
        functions[name].__name__ = name
    reads: Any = SimpleNamespace(know_next=lambda _: None)
    cuda = SimpleNamespace(is_current_stream_capturing=lambda: False)
    compiler = SimpleNamespace(is_compiling=lambda: False)
    followed = SimpleNamespace(Tensor=OnCard, cuda=cuda, compiler=compiler, put_on=put_on, **functions)
    followed.copies = HostCopies(followed, reads)
    FollowedCalls(followed, reads, followed.copies).begin()
    return followed


def sent(card: Any, values: Any) -> Any:
    """What stands on the card and nobody knows."""
    return card.put_on(torch.as_tensor(values).clone())


def known(card: Any, values: Any) -> Any:
    """A tensor on the card with its copy."""
    tensor = sent(card, values)
    card.copies.keep(tensor, torch.as_tensor(values).clone())
    return tensor


def is_known(card: Any, tensor: Any) -> bool:
    """Whether there is a copy; then it is what the card has."""
    copy = card.copies.copy_of(tensor)
    if copy is None:
        return False
    assert type(copy) is torch.Tensor
    assert copy.dtype is tensor.dtype
    assert torch.equal(copy, tensor.as_subclass(torch.Tensor))
    return True


LABELS = [2, 0, 1, 2, 5]
KINDS: dict[str, Callable[[Any, Any], Any]] = {
    "labels of one class each": lambda card, x: card.zeros(5, 6).scatter_(1, x.view(-1, 1), 1.0),
    "a place of a mask": lambda card, x: _set(card.zeros(6, dtype=torch.bool), x, True),
    "a part of what was filled": lambda card, x: _set(card.ones(8), slice(1, 6), x.float()),
    "a row through a view": lambda card, x: _set(card.full((3, 5), 7), 1, x)[1],
    "a view of a view": lambda _, x: x.view(1, 5).T[1:].flatten(),
    "the larger of two": lambda card, x: card.max(x, 1 + x * 0).max(0)[0],
    "pieces put together": lambda card, x: card.cat((x, card.arange(3), card.stack((x, x)).sum(0))),
    "one beside zeros": lambda card, x: card.zeros_like(x) + x,
    "where it is large": lambda card, x: card.where(x > 1, x, card.zeros_like(x)),
    "what is selected": lambda _, x: x[x > 1],
    "a remainder below a bound": lambda _, x: (x.float() % 2 < 1) & (x > 0),
    "in order": lambda _, x: x.sort()[1],
    "what it adds up to": lambda _, x: x.float().mean(),
    "numbers made there": lambda card, _x: card.tensor([1.5, 2.5])[card.arange(2)],
    "as many as they say": lambda card, x: card.arange(x.max() + 1),
    "a model's own": lambda _, x: deepcopy(x),
    "added in place": lambda _, x: x.add_(3),
}


def _set(tensor: Any, place: Any, value: Any) -> Any:
    tensor[place] = value
    return tensor


@pytest.mark.torch
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_computed_of_known_numbers_is_known(card: Any, kind: str) -> None:
    assert is_known(card, KINDS[kind](card, known(card, LABELS)))


@pytest.mark.torch
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "numbers made there"])
def test_what_is_computed_of_others_is_not(card: Any, kind: str) -> None:
    assert not is_known(card, KINDS[kind](card, sent(card, LABELS)))


@pytest.mark.torch
def test_what_was_only_filled_is_not_believed_by_itself(card: Any) -> None:
    zeros = card.zeros(4)
    assert not is_known(card, zeros)
    assert not is_known(card, zeros + 1)
    assert is_known(card, zeros + known(card, [1.0, 2.0, 3.0, 4.0]))
    zeros.data_ptr()  # a kernel of Triton's asks, and may write there
    assert not hasattr(zeros, FILL)
    assert not is_known(card, zeros + known(card, [1.0, 2.0, 3.0, 4.0]))


@pytest.mark.torch
def test_what_is_written_by_others_is_not_known_any_more(card: Any) -> None:
    whole = known(card, LABELS)
    part = whole[1:3]
    assert is_known(card, part)
    whole.random_()
    assert not is_known(card, whole)
    assert not is_known(card, part)
    whole = known(card, LABELS)
    whole[:2].copy_(sent(card, [7, 8]))  # which nobody knows
    assert not is_known(card, whole)
    whole[:2].copy_(known(card, [7, 8]))
    assert not is_known(card, whole)
    assert is_known(card, known(card, LABELS)[:2].copy_(known(card, [7, 8])))


@pytest.mark.torch
@pytest.mark.parametrize(("numbers", "expected"), [(1, True), (MOST, True), (MOST + 1, False)])
def test_few_numbers_are_followed(card: Any, numbers: int, expected: bool) -> None:
    labels = known(card, torch.arange(numbers, dtype=torch.float16))
    assert is_known(card, labels + 1) is expected


@pytest.mark.torch
def test_truths_of_known_numbers_are_theirs(card: Any) -> None:
    labels = known(card, LABELS)
    assert not labels.equal(known(card, LABELS[::-1]))
    assert labels.equal(known(card, LABELS))
    assert is_known(card, (labels > 0).all())
    assert is_known(card, (labels > 4).any())


@pytest.mark.torch
def test_what_other_ranks_send_is_not_what_was_known(card: Any) -> None:
    """A collective sends what is known, and writes where no version tells of it."""

    class Group:
        """Of two ranks, the other of which has sent nines."""

        def broadcast(self, tensors: list[Any], _options: Any = None) -> list[Any]:
            sent = [tensor.as_subclass(torch.Tensor).tolist() for tensor in tensors]
            for tensor in tensors:
                tensor.as_subclass(torch.Tensor).data.fill_(9)
            return sent

        def send(self, tensors: list[Any]) -> None:
            """Write nothing."""

    card.distributed = SimpleNamespace(is_available=lambda: True, ProcessGroup=Group)
    send_known(card, card.copies)
    rows, filled, other = known(card, [[1, 2], [3, 4]]), card.zeros(2), known(card, [1, 2])
    card.copies.keep(other, torch.tensor([5, 6]))  # what a kernel would have written, and the host reckoned
    assert Group().broadcast([rows[1], other, filled]) == [[3, 4], [5, 6], [0, 0]]
    assert not is_known(card, rows)
    assert not is_known(card, other)
    assert not hasattr(filled, FILL)
    kept = known(card, LABELS)
    Group().send([kept])
    assert is_known(card, kept)


@pytest.mark.torch
def test_scalars_stay_scalars_for_what_asks_for_lengths(card: Any) -> None:
    """Tensors are no sequences for C, though their `__getitem__` is changed."""
    scalar = known(card, 2.0)
    assert torch.tensor([scalar, scalar]).tolist() == [2.0, 2.0]
    assert torch.tensor([[known(card, [1.0, 3.0])[1]]]).tolist() == [[3.0]]
