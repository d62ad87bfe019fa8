"""The words that stand in for what presets once said as a pattern."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramtui.presets.match_words import words_of

LLAMA = ["llama-3-8b", "llama-38b", "llama3-8b", "llama38b"]


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        (r"train\.py.*8b", ([["train.py"], ["8b"]], [])),
        (
            r"(?i)^(?=.*(train|tune))(?=.*llama-?3-?8b)(?!.*(vllm|qlora))",
            ([["train", "tune"], LLAMA], ["vllm", "qlora"]),
        ),
        (r"tiny[-_]?mlp", ([["tiny-mlp", "tiny_mlp", "tinymlp"]], [])),
        ("train|serve", ([["train", "serve"]], [])),
        ("train|serve.*llama", None),
        ("(a+)+b", None),
        (r"(a)\1", None),
        ("(?!.*vllm)", None),
        ("(", None),
        ("(a|b)?" * 40, None),
    ],
)
def test_words(pattern: str, words: tuple[list[list[str]], list[str]] | None) -> None:
    assert words_of(pattern) == words


PIECES = st.lists(st.sampled_from(["ab", "b-?c", "(a|bc)", r"c\.a", "[ab]c", "(a(b)?c|b)"]), min_size=1, max_size=3)


@given(PIECES, st.text("abc.-", max_size=12))
def test_a_text_has_the_words_exactly_where_the_pattern_is_found(pieces: list[str], text: str) -> None:
    pattern = "".join(f"(?=.*{piece})" for piece in pieces)
    words = words_of(pattern)
    assert words is not None
    assert all(any(word in text for word in part) for part in words[0]) == bool(re.search(f"^{pattern}", text))
