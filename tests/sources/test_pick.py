"""Which of several ways to this machine's GPUs is taken, and what is said of the others."""

import sys
from types import SimpleNamespace

import pytest

from vramtui.core.base.errors import SourceFailed
from vramtui.core.observation.readings import Problem
from vramtui.core.observation.source import Source
from vramtui.sources.demo import DemoSource
from vramtui.sources.pick import SourceCandidate, pick_source


class Module(SimpleNamespace):
    """A source's module that notes what it is told when it is asked."""

    def __init__(self, error: SourceFailed | None = None) -> None:
        super().__init__()
        self.error = error
        self.told: list[Problem | None] = []

    def open_here(self, because: Problem | None = None) -> Source:
        self.told.append(because)
        if self.error is not None:
            raise self.error
        return DemoSource()

    def open_beside(self) -> Source:
        return self.open_here()


def pick(monkeypatch: pytest.MonkeyPatch, modules: list[Module], programs: tuple[str, ...] = ()) -> Source:
    ways = []
    for at, module in enumerate(modules):
        monkeypatch.setitem(sys.modules, f"vramtui.sources.way_{at}", module)
        ways.append(SourceCandidate(f"Way {at}", f"way_{at}", programs[at] if at < len(programs) else ""))
    return pick_source(tuple(ways))


def test_the_first_that_answers_is_taken_and_no_later_one_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = Module(), Module()
    assert pick(monkeypatch, [first, second]).name == "demo"
    assert (first.told, second.told) == ([None], [])


def test_another_vendors_cards_stand_beside_the_first_that_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    for other, name in ((Module(), "demo+demo"), (Module(SourceFailed("")), "demo")):
        monkeypatch.setitem(sys.modules, "vramtui.sources.other", other)
        monkeypatch.setitem(sys.modules, "vramtui.sources.way_0", Module())
        ways = (SourceCandidate("Way 0", "way_0"), SourceCandidate("Other", "other", stands_beside=True))
        assert pick_source(ways).name == name


def test_a_later_one_is_told_why(monkeypatch: pytest.MonkeyPatch) -> None:
    modules = [Module(SourceFailed("A is out.", "Mend A.")), Module(SourceFailed("B is out.")), Module()]
    pick(monkeypatch, modules)
    assert modules[1].told == [Problem(where="Way 0", message="A is out. Way 1 is used instead.", hint="Mend A.")]
    assert modules[2].told == [
        Problem(where="Way 0", message="A is out. B is out. Way 2 is used instead.", hint="Mend A.")
    ]


@pytest.mark.parametrize(
    ("programs", "hints", "hint"),
    [
        ((), ("Mend A.", "Mend B."), "Mend A."),
        ((), ("", "Mend B."), "Mend B."),
        (("", sys.executable), ("Mend A.", "Mend B."), "Mend B."),
        (("", sys.executable), ("Mend A.", ""), "Mend A."),
        (("", "no-such-program"), ("Mend A.", "Mend B."), "Mend A."),
        ((), ("", ""), ""),
    ],
)
def test_where_none_answers_each_says_why(
    programs: tuple[str, ...], hints: tuple[str, str], hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What there is to do is told by a program that is there, else by the first that knows something."""
    modules = [Module(SourceFailed(f"{name} is out.", said)) for name, said in zip("AB", hints, strict=True)]
    with pytest.raises(SourceFailed) as caught:
        pick(monkeypatch, modules, programs)
    assert (caught.value.message, caught.value.hint) == ("A is out. B is out.", hint)
