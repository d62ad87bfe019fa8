"""Regular expressions searched in time linear in the text, whatever the pattern: Python's own `re` may need longer
than anybody waits for a pattern such as `(a|a)*b`, or for `python.*train.*lora.*8b` on a command line that somebody
else chose, and holds up every thread meanwhile.

The pattern is read by Python's own parser and run as an automaton: all places of the pattern in which the search may
be are followed at once (Thompson 1968), and each set of them is remembered with where a character leads from it. A
look-around is an automaton of its own, run over the text first, backwards for a look-ahead.
"""

import re
import sys
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
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


if sys.version_info >= (3, 11):
    from re import _constants as sre_constants  # type: ignore[attr-defined]  # Python's own, and has no stubs
    from re import _parser as sre_parse  # type: ignore[attr-defined]  # as above
else:
    import sre_constants
    import sre_parse

LARGEST = 600  # places in a pattern, repetitions written out; bundled presets have 20 to 60
REMEMBERED = 4096  # characters that lead from one set of places to another, for one pattern
BUDGET = 200_000  # places looked at in one search, about a tenth of a second; what is remembered costs nothing

Zero = Callable[[str], list[bool]]  # for each position of a text, its end included, whether an assertion holds there


class UnsupportedPattern(ValueError):
    """The pattern is right but no automaton can be made of it; the message goes on after "KEY is"."""


class BudgetSpent(Exception):
    """A search took more than BUDGET."""


class _Program:
    """Places in a pattern. `tests[i]` consumes a character and goes on at `after[i][0]`; where it is None, the place is
    a fork to all of `after[i]`, free or on the condition that assertion `zeros[i]` holds; no `after` is the end.
    """

    def __init__(self, assertions: list[Zero]) -> None:
        self.tests: list[Test | None] = []
        self.after: list[tuple[int, ...]] = []
        self.zeros: list[int | None] = []
        self.assertions = assertions
        self.begin = self.place()

    def place(self, *after: int, test: Test | None = None, zero: int | None = None) -> int:
        if len(self.after) > LARGEST:
            raise UnsupportedPattern("too large, its repetitions written out")
        self.tests.append(test)
        self.after.append(after)
        self.zeros.append(zero)
        return len(self.after) - 1


class _Compiler:
    """Writes a parsed pattern as a program, last place first; backwards where the text will be read backwards."""

    def __init__(self, program: _Program, *, backwards: bool) -> None:
        self._program = program
        self._backwards = backwards

    def sequence(self, items: Sequence[tuple[Any, Any]], flags: int, then: int) -> int:
        """The place at which `items` begin, after which it goes on at `then`."""
        for op, value in items if self._backwards else reversed(items):
            then = self._item(op, value, flags, then)
        return then

    def _item(self, op: Any, value: Any, flags: int, then: int) -> int:  # noqa: ANN401 - as the parser gives them
        if op in (sre_constants.LITERAL, sre_constants.NOT_LITERAL, sre_constants.ANY, sre_constants.IN):
            return self._program.place(then, test=character_test(op, value, flags))
        if op is sre_constants.BRANCH:
            return self._program.place(*[self.sequence(one, flags, then) for one in value[1]])
        if op is sre_constants.SUBPATTERN:
            _, added, removed, inner = value
            return self.sequence(inner, (flags | added) & ~removed, then)
        if op in (sre_constants.MAX_REPEAT, sre_constants.MIN_REPEAT):
            least, most, inner = value
            return self._repeat(least, most, inner, flags, then)
        self._program.assertions.append(_assertion(op, value, flags))
        return self._program.place(then, zero=len(self._program.assertions) - 1)

    def _repeat(self, least: int, most: int, inner: Sequence[Any], flags: int, then: int) -> int:
        if least > LARGEST:
            raise UnsupportedPattern("too large, its repetitions written out")
        if most is sre_constants.MAXREPEAT:
            fork = self._program.place()
            self._program.after[fork] = (self.sequence(inner, flags, fork), then)
            begin = fork
        else:
            begin = then
            for _ in range(most - least):
                begin = self._program.place(self.sequence(inner, flags, begin), then)
        for _ in range(least):
            begin = self.sequence(inner, flags, begin)
        return begin


class _Automaton:
    """A program with what it has learned of which set of places leads where."""

    def __init__(self, items: Sequence[tuple[Any, Any]], flags: int, *, backwards: bool = False) -> None:
        self.program = _Program([])
        end = self.program.place()
        begin = _Compiler(self.program, backwards=backwards).sequence(items, flags, end)
        self.program.after[self.program.begin] = (begin,)
        self._end = end
        self._backwards = backwards
        first = items[0] if items else (None, None)
        self._anchored = first == (sre_constants.AT, sre_constants.AT_BEGINNING) and not flags & re.MULTILINE
        self._forget()

    def _forget(self) -> None:
        self._known: dict[frozenset[int], dict[object, tuple[bool, frozenset[int]]]] = {}
        self._count = 0

    def search(self, text: str) -> bool:
        """Whether it is found anywhere in `text`."""
        return self._run(text, None)

    def ends(self, text: str) -> list[bool]:
        """For each position whether a match ends there, or begins there for an automaton that reads backwards."""
        found = [False] * (len(text) + 1)
        self._run(text, found)
        return found[::-1] if self._backwards else found

    def _run(self, text: str, found: list[bool] | None) -> bool:
        flags = self._flags(text)
        if self._backwards:
            text, flags = text[::-1], flags[::-1] if flags is not None else None
        here: frozenset[int] = frozenset()
        known = self._known.setdefault(here, {})
        budget = BUDGET
        for at in range(len(text) + 1):
            character = text[at : at + 1]
            key: object = character if flags is None else (character, flags[at])
            step = known.get(key)
            if step is None:
                budget -= len(self.program.after)
                if budget < 0:
                    raise BudgetSpent
                step = self._step(here, character, flags[at] if flags is not None else ())
                if self._count > REMEMBERED:
                    self._forget()
                    known = self._known.setdefault(here, {})
                self._count += 1
                known[key] = step
            is_end, here = step
            if is_end:
                if found is None:
                    return True
                found[at] = True
            elif self._anchored and not here and found is None:
                return False
            known = self._known.get(here) or self._known.setdefault(here, {})
        return False

    def _flags(self, text: str) -> list[tuple[bool, ...]] | None:
        """Which assertions hold at each position; None where there are no assertions."""
        if not self.program.assertions:
            return None
        columns = [holds(text) for holds in self.program.assertions]
        return [tuple(column[at] for column in columns) for at in range(len(text) + 1)]

    def _step(self, here: frozenset[int], character: str, flags: tuple[bool, ...]) -> tuple[bool, frozenset[int]]:
        """Whether a match ends here, and the places at which the search may be after `character`."""
        program, places, after = self.program, {self.program.begin, *here}, set[int]()
        waiting = list(places)
        while waiting:
            place = waiting.pop()
            test, zero = program.tests[place], program.zeros[place]
            if test is not None:
                if character and test(character):
                    after.add(program.after[place][0])
            elif zero is None or flags[zero]:
                new = [one for one in program.after[place] if one not in places]
                places.update(new)
                waiting += new
        return self._end in places, frozenset(after)


@cache
def searcher(pattern: str) -> Callable[[str], bool]:
    """What tells whether `pattern` is found in a text; a text on which the budget is spent counts as one without it.

    Raises:
        UnsupportedPattern: no automaton can be made of it.
        re.error: it is not a regular expression.
    """
    parsed: Any = sre_parse.parse(pattern)
    automaton = _Automaton(list(parsed), parsed.state.flags)

    def search(text: str) -> bool:
        try:
            return automaton.search(text)
        except BudgetSpent:
            return False

    return search


def _assertion(op: Any, value: Any, flags: int) -> Zero:  # noqa: ANN401 - as the parser gives them
    """What takes no character.

    Raises:
        UnsupportedPattern: it is something else that no automaton can do.
    """
    if op is sre_constants.AT:
        return _at(value, flags)
    if op in (sre_constants.ASSERT, sre_constants.ASSERT_NOT):
        return _look(value, flags, wanted=op is sre_constants.ASSERT)
    if op is getattr(sre_constants, "FAILURE", None):  # `(?!)`
        return lambda text: [False] * (len(text) + 1)
    name = str(op).lower().replace("_", " ")
    raise UnsupportedPattern(f"a pattern with a {'back-reference' if 'groupref' in name else name}")


def _look(value: tuple[int, Sequence[tuple[Any, Any]]], flags: int, *, wanted: bool) -> Zero:
    """A look-around: ahead where the direction is 1."""
    direction, inner = value
    automaton = _Automaton(list(inner), flags, backwards=direction > 0)

    def holds(text: str) -> list[bool]:
        return [one is wanted for one in automaton.ends(text)]

    return holds


def _at(where: Any, flags: int) -> Zero:  # noqa: ANN401 - as the parser gives it
    """An anchor or a word boundary."""
    lines = bool(flags & re.MULTILINE)
    if where is sre_constants.AT_BEGINNING or where is sre_constants.AT_BEGINNING_STRING:
        many = lines and where is sre_constants.AT_BEGINNING
        return lambda text: [at == 0 or (many and text[at - 1] == "\n") for at in range(len(text) + 1)]
    if where is sre_constants.AT_END_STRING:
        return lambda text: [at == len(text) for at in range(len(text) + 1)]
    if where is sre_constants.AT_END:
        return lambda text: [
            at == len(text) or (text[at] == "\n" and (lines or at == len(text) - 1)) for at in range(len(text) + 1)
        ]
    word = category(sre_constants.CATEGORY_WORD, flags)
    wanted = where is sre_constants.AT_BOUNDARY

    def boundary(text: str) -> list[bool]:
        words = [False, *map(word, text), False]
        return [(before is not after) is wanted for before, after in pairwise(words)]

    return boundary
