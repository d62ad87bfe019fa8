"""Conditions that guard a way out, and assertions. PYTEST_DONT_REWRITE: pytest would make conditions of assertions."""

import inspect
from pathlib import Path

import pytest

from vramtui.probe.guards import asserted, healthy_answer


class Asked:
    """A truth that reads as `self.read` where nothing is guarded."""

    def __init__(self, read: bool = False) -> None:
        self.read = read
        self.guard: tuple[bool, bool] | None = None

    def __bool__(self) -> bool:
        here = inspect.currentframe()
        assert here.f_back is not None
        self.guard = healthy_answer(here.f_back)
        return self.read if self.guard is None else self.guard[0]


def raises_if(asked: Asked) -> str:
    if asked:
        raise ValueError("of a broken job")
    return "went on"


def raises_if_not(asked: Asked, other: bool = True) -> str:
    if (
        other and not asked  # over several lines
    ):
        message = "of a broken job"
        raise ValueError(message)
    return "went on" if bool(asked) else "nowhere"


def returns_early(asked: Asked) -> str:
    if asked:
        return "left"
    asked.read = not asked.read
    return "went on"


def ends_a_loop(asked: Asked) -> int:
    count = 0
    for _ in range(3):
        if asked:
            break
        if not asked:
            continue
        count += 1
    return count


def leaves_a_while(asked: Asked) -> int:
    count = 0
    while True:
        count += 1
        for _ in range(2):
            if asked:
                return -1
        if not asked:
            return count


def tries_again(asked: Asked) -> int:
    for count in range(3):
        if asked:
            return count
    raise ValueError


def fails_at_its_end(asked: Asked) -> str:
    if asked:
        return "well"
    message = "not well"
    raise ValueError(message)


def chooses(asked: Asked) -> str:
    if asked:
        return "one way"
    return "the other"


def takes_one_of_two(asked: Asked) -> list[str]:
    taken = []
    if asked:
        taken.append("one way")
    else:
        taken.append("the other")
    if Asked() or asked:
        return taken
    taken.append("further")
    return taken


def turns_while(asked: Asked) -> int:
    turns = 0
    while asked:
        turns += 1
        if turns == 9:
            return turns
    return turns


def turns_while_not(asked: Asked) -> int:
    turns = 0
    while not asked:
        turns += 1
        asked.read = True
    return turns


def turns_while_both(asked: Asked) -> int:
    turns = 0
    while turns < 5 and (
        asked  # over several lines
    ):
        for _ in range(2):
            turns += 1
    return turns


def turns_within(asked: Asked) -> int:
    turns = 0
    for _ in range(3):
        while asked and asked:
            turns += 1
    return turns


def test_a_loop_has_its_first_turn_and_a_choice_is_answered_by_what_it_reads() -> None:
    assert turns_while(Asked(False)) == 1
    assert turns_while(Asked(True)) == 9
    assert turns_while_not(Asked(False)) == turns_while_not(Asked(True)) == 1
    assert turns_while_both(Asked(False)) == 2
    assert turns_within(Asked(False)) == 3
    for read in (False, True):
        asked = Asked(read)
        assert chooses(asked) == ("one way" if read else "the other")
        assert takes_one_of_two(asked) == (["one way"] if read else ["the other", "further"])
        assert asked.guard is None


def test_a_way_out_is_not_taken() -> None:
    for read in (False, True):
        asked = Asked(read)
        assert raises_if(asked) == "went on"
        assert asked.guard == (False, True)
        assert raises_if_not(asked) == ("went on" if read else "nowhere")
        assert returns_early(asked) == "went on"
        assert asked.guard == (False, False)  # no error: a guess
        assert ends_a_loop(asked) == 3  # true for one condition, false for the other
    assert leaves_a_while(Asked(False)) == 1  # nothing else ends it
    assert tries_again(Asked(True)) == 0
    assert fails_at_its_end(Asked(True)) == "well"


def test_code_in_one_line_and_code_without_its_source(tmp_path: Path) -> None:
    code = "if asked: raise ValueError\n"
    (file := tmp_path / "job.py").write_text(code)
    for path, guard in ((str(file), (False, True)), ("<string>", None)):
        asked = Asked()
        exec(compile(code, path, "exec"), {"asked": asked})  # noqa: S102 - it is above
        assert asked.guard == guard


class Asserted(int):
    """Not zero, or zero, everywhere but where an assertion hangs on it, as a computed value on an emulated card."""

    def __bool__(self) -> bool:
        truth = asserted(inspect.currentframe().f_back)
        return self != 0 if truth is None else bool(truth)


def test_what_is_asserted_holds_and_a_condition_is_not_asserted() -> None:
    assert Asserted()
    assert Asserted(), "with a message"
    assert Asserted() and Asserted()  # noqa: PT018 - one statement with two questions
    assert [] or Asserted()
    assert not Asserted(1)  # false is what has to be here
    with pytest.raises(AssertionError):
        assert Asserted() and not 1  # noqa: PT018 - as above, of which the second fails
    taken = [0 if Asserted() else 1, not Asserted(), bool(Asserted() or 0)]
    if Asserted():
        raise AssertionError("a condition")
    while Asserted():
        raise AssertionError("a loop")
    assert taken == [1, True, False]
    assert list(filter(None, [Asserted()])) == []  # nobody's bytecode asks here
