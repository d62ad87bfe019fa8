"""Whether a character is one that a piece of a regular expression stands for, as Python's parser gives the piece."""

import re
import sys
from collections.abc import Callable
from typing import Any

if sys.version_info >= (3, 11):
    from re import _constants as sre_constants  # type: ignore[attr-defined]  # Python's own, and has no stubs
else:
    import sre_constants

Test = Callable[[str], bool]


def character_test(op: Any, value: Any, flags: int) -> Test:  # noqa: ANN401 - as the parser gives them
    """What tells whether a character is the one that LITERAL, NOT_LITERAL, ANY or IN stands for."""
    if op is sre_constants.ANY:
        return (lambda _: True) if flags & re.DOTALL else (lambda character: character != "\n")
    if op is sre_constants.IN:
        negated = value[0][0] is sre_constants.NEGATE
        test = _any_of([_set_item(kind, one, flags) for kind, one in value[negated:]])
    else:
        negated, literal = op is sre_constants.NOT_LITERAL, chr(value)

        def test(character: str) -> bool:
            return character == literal

    if flags & re.IGNORECASE:
        test = _in_any_case(test, ascii_only=bool(flags & re.ASCII))
    return (lambda character: not test(character)) if negated else test


def _any_of(tests: list[Test]) -> Test:
    return lambda character: any(test(character) for test in tests)


def _in_any_case(test: Test, *, ascii_only: bool) -> Test:
    """`ascii_only`: as with `(?a)`, letters beyond ASCII have one case, their own."""

    def folded(character: str) -> bool:
        if ascii_only and not character.isascii():
            return test(character)
        return test(character) or test(character.lower()) or test(character.upper())

    return folded


def _set_item(op: Any, value: Any, flags: int) -> Test:  # noqa: ANN401 - as the parser gives them
    if op is sre_constants.LITERAL:
        literal = chr(value)
        return lambda character: character == literal
    if op is sre_constants.RANGE:
        first, last = map(chr, value)
        return lambda character: len(character) == 1 and first <= character <= last
    return category(value, flags)


_CATEGORIES: dict[Any, str] = {
    sre_constants.CATEGORY_DIGIT: r"\d",
    sre_constants.CATEGORY_NOT_DIGIT: r"\D",
    sre_constants.CATEGORY_SPACE: r"\s",
    sre_constants.CATEGORY_NOT_SPACE: r"\S",
    sre_constants.CATEGORY_WORD: r"\w",
    sre_constants.CATEGORY_NOT_WORD: r"\W",
}


def category(name: Any, flags: int) -> Test:  # noqa: ANN401 - as the parser gives it
    """What tells whether a character is a digit, a space, a letter of a word, or none."""
    one = re.compile(_CATEGORIES[name], flags & re.ASCII).fullmatch
    return lambda character: one(character) is not None
