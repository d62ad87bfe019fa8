"""Patterns are found where Python's `re` finds them, in a time in proportion to the text."""

import re
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.properties import examples
from vramtui.core.observation import linear_regex
from vramtui.core.observation.linear_regex import UnsupportedPattern, searcher

leaves = st.sampled_from(
    [
        "a",
        "b",
        "K",
        ".",
        "[ab]",
        "[^a]",
        "[A-c_]",
        r"\d",
        r"\w",
        r"\s",
        r"[^\w-]",
        r"\.",
        "é",
        "1",
        " ",
        r"\b",
        r"\B",
        "^",
        "$",
    ]
)


def _wrapped(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    repeats = st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{,2}", "{2,}", "*?", "+?", ""])
    opened = st.sampled_from(["(?:", "(", "(?=", "(?!", "(?i:", "(?s:"])
    group = st.tuples(opened, st.lists(inner, max_size=3), repeats).map(
        lambda one: f"{one[0]}{''.join(one[1])}){'' if one[0] in ('(?=', '(?!') else one[2]}"
    )
    behind = st.tuples(st.sampled_from(["(?<=", "(?<!"]), st.sampled_from("ab1")).map(lambda one: f"{one[0]}{one[1]})")
    choice = st.tuples(inner, inner).map(lambda one: f"(?:{one[0]}|{one[1]})")
    return st.one_of(group, behind, choice)


patterns = st.tuples(
    st.sampled_from(["", "(?i)", "(?m)", "(?s)", "(?ai)"]),
    st.lists(st.recursive(leaves, _wrapped, max_leaves=6), max_size=4).map("".join),
).map("".join)


@example(pattern="(?ai)\u00e9", texts=["\u00c9"])
@example(pattern="(?ai)k", texts=["\u212a"])
@given(patterns, st.lists(st.text(alphabet="aAbBkK1_ .-\n\u00e9\u00c9", max_size=9), min_size=1, max_size=4))
@examples(250)
def test_it_finds_what_re_finds(pattern: str, texts: list[str]) -> None:
    try:
        wanted = re.compile(pattern)
    except re.error:
        return
    search = searcher(pattern)
    for text in texts:
        if text:  # before Python 3.14 `\\B` is not found in an empty text
            assert search(text) is (wanted.search(text) is not None), (pattern, text)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("(a|a)*b", "python " + "a" * 4000),
        ("(a+)+$", "a" * 4000 + "!"),
        ("(a|aa)+$", "a" * 4000 + "!"),
        ("(?:a?){60}a{60}b", "a" * 4000),
        ("a.*a.*a.*a.*a.*b", "a" * 4000),
        ("python.*train.*lora.*8b", "python" * 200 + "train" * 300 + "lora" * 300),
        ("torchrun.*train.*llama.*lora.*8b", "torchruntrainllamalora" * 186),
        ("(?=.*(a+)+x)(?!.*(b|b)*y)q", "ab" * 2000),
        (r"(\s*\w+\s*)*;", "word " * 800),
    ],
)
def test_hostile_texts_take_no_time(pattern: str, text: str) -> None:
    searcher.cache_clear()
    begun = time.thread_time()
    assert not searcher(pattern)(text)
    assert time.thread_time() - begun < 1


def test_what_needs_more_than_the_budget_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_regex, "BUDGET", 100)
    searcher.cache_clear()
    assert not searcher("a{50}b")("a" * 49 + "ab")
    searcher.cache_clear()


def test_a_flood_of_sets_of_places_is_forgotten_again() -> None:
    """Of `(a|b)*a(a|b){12}` there are 8192 sets."""
    search = searcher("(?:a|b)*a(?:a|b){12}c")
    text = "".join("ab"[number.bit_count() % 2] for number in range(4000))
    assert not search(text)
    assert search("abbabababbababc" * 2) is (re.search("a[ab]{12}c", "abbabababbababc" * 2) is not None)


@pytest.mark.parametrize("pattern", [r"(a)\1", r"(?P<n>a)(?P=n)", "((a{99}){99}){99}", "(?:a{500}){2}"])
def test_what_no_automaton_can_do_is_refused(pattern: str) -> None:
    with pytest.raises(UnsupportedPattern):
        searcher(pattern)
