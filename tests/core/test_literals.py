"""Words that must occur: never one that need not."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.properties import examples
from vramtui.core.observation.matcher import required_words

ATOMS = st.sampled_from(["a", "b", "ab", "B", r"\.", ".", "[ab]", r"\b", r"\w", "é", "K", "^", "$", "{", "-"])
REPEATS = st.sampled_from(["", "", "", "?", "*", "+", "{0,1}", "{2}", "??", "*?", "+?"])
OPENED = st.sampled_from(["(", "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?i:", "(?P<n>"])


def _put(parts: list[tuple[str, str]]) -> str:
    return "".join(atom + (repeat if atom not in ("^", "$", r"\b") else "") for atom, repeat in parts)


PLAIN = st.lists(st.tuples(ATOMS, REPEATS), min_size=1, max_size=5).map(_put)
PATTERNS = st.recursive(
    PLAIN,
    lambda inner: st.one_of(
        st.tuples(OPENED, inner, REPEATS).map(lambda it: f"{it[0]}{it[1]}){it[2]}"),
        st.tuples(inner, inner).map("|".join),
        st.tuples(inner, inner).map("".join),
    ),
    max_leaves=5,
)


@given(PATTERNS, st.booleans(), st.lists(st.text(alphabet="abAB.k-{w ", max_size=8), min_size=1, max_size=8))
@examples(600)
def test_what_is_found_holds_the_words(pattern: str, ignore_case: bool, texts: list[str]) -> None:
    whole = f"(?i){pattern}" if ignore_case else pattern
    try:
        compiled = re.compile(whole)
    except re.error:
        return
    words = required_words(whole)
    for text in texts:
        if compiled.search(text):
            assert all(word in text.lower() for word in words)


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        (r"(?i)^(?=.*(train|tune))(?=.*llama-?3(\.1)?-8b)(?!.*vllm)", ("llama", "-8b")),
        (r"train\.py.*--lora", ("train.py", "--lora")),
        ("train|serve", ()),
        ("(vllm|sglang) serve", (" serve",)),
        ("(?i:GPT)2?", ("gpt",)),
        ("(abc)?d", ()),
        ("(abc)+", ("abc",)),
        ("(?x) a b", ()),
        (r"(a)(?(1)bb|cc)", ()),
        (r"\x41BC", ()),
    ],
)
def test_words(pattern: str, words: tuple[str, ...]) -> None:
    assert required_words(pattern) == words
