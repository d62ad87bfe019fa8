from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from vramtui.core.base import toml
from vramtui.presets.toml_text import key_lines

TEXT = '''\
# a comment with [brackets] = "and" 'quotes'
name = "a # no comment" # a comment
"quoted key" = 'b = c'
a.b . "c" = [ # in the list
  1, [2,
  3], { x = 1, "y z" = [4] },
]
text = """
[no.table]
key = "no key"
""""
raw = \'\'\'
[no.table]\'\'\'

  [ table . sub ]
key=1979-05-27T07:32:00Z
[[array]]
key = 1
[[array]]
key = 2
[array.part]
key = {}
[[array.deep]]
key = -0.5e3
'''


def test_every_form_of_key_and_none_of_an_empty_text() -> None:
    assert toml.loads(TEXT)["text"].startswith("[no.table]")
    assert key_lines(TEXT) == {
        ("name",): 2,
        ("quoted key",): 3,
        ("a",): 4,
        ("a", "b"): 4,
        ("a", "b", "c"): 4,
        ("a", "b", "c", 0): 5,
        ("a", "b", "c", 1): 5,
        ("a", "b", "c", 1, 0): 5,
        ("a", "b", "c", 1, 1): 6,
        ("a", "b", "c", 2): 6,
        ("a", "b", "c", 2, "x"): 6,
        ("a", "b", "c", 2, "y z"): 6,
        ("a", "b", "c", 2, "y z", 0): 6,
        ("text",): 8,
        ("raw",): 12,
        ("table",): 15,
        ("table", "sub"): 15,
        ("table", "sub", "key"): 16,
        ("array",): 17,
        ("array", 0): 17,
        ("array", 0, "key"): 18,
        ("array", 1): 19,
        ("array", 1, "key"): 20,
        ("array", 1, "part"): 21,
        ("array", 1, "part", "key"): 22,
        ("array", 1, "deep"): 23,
        ("array", 1, "deep", 0): 23,
        ("array", 1, "deep", 0, "key"): 24,
    }
    assert key_lines("") == {}
    assert key_lines("# only a comment") == {}


NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=4)
VALUES = st.recursive(
    st.one_of(st.integers(0, 9), st.booleans(), NAMES),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=8,
)


def _written(value: Any) -> str:
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ",\n".join(map(_written, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_written(key)} = {_written(part)}" for key, part in value.items()) + "}"
    return str(value)


def _keys(value: Any, key: tuple[str | int, ...]) -> set[tuple[str | int, ...]]:
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return {key} | {found for name, part in parts for found in _keys(part, (*key, name))}


@given(st.dictionaries(NAMES, VALUES, max_size=4))
def test_every_key_that_the_reader_finds_has_a_line(tables: dict[str, Any]) -> None:
    text = "\n\n".join(f"{_written(key)} = {_written(value)}" for key, value in tables.items())
    read = toml.loads(text)
    assert read == tables
    lines = key_lines(text)
    assert set(lines) == {key for name, value in read.items() for key in _keys(value, (name,))}
    assert all(1 <= line <= text.count("\n") + 1 for line in lines.values())
