"""What an `assert` asks is told from what a condition asks, by the code that asks. PYTEST_DONT_REWRITE: that would make
conditions of the assertions.
"""

import inspect

import pytest

from vramtui.probe.assertions import is_asserted


class Asked:
    """False everywhere but where an assertion hangs on it, as a computed value on an emulated card."""

    def __bool__(self) -> bool:
        here = inspect.currentframe()
        return here is not None and is_asserted(here.f_back)


def test_what_is_asserted_holds() -> None:
    assert Asked()
    assert Asked(), "with a message"
    assert Asked() and Asked()  # noqa: PT018 - one statement with two questions
    assert [] or Asked()
    assert not Asked()  # false is what has to be here
    with pytest.raises(AssertionError):
        assert Asked() and not 1  # noqa: PT018 - as above, of which the second fails


def test_a_condition_is_not_asserted() -> None:
    taken = [0 if Asked() else 1, not Asked(), bool(Asked() or 0)]
    if Asked():
        raise AssertionError("a condition")
    while Asked():
        raise AssertionError("a loop")
    assert taken == [1, True, False]
    assert list(filter(None, [Asked()])) == []  # nobody's bytecode asks here
