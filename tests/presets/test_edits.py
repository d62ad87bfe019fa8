"""One value is put or taken, in whatever way of writing TOML a person chose, and nothing else is changed."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.properties import examples
from vramtui.core.base import toml
from vramtui.presets.toml.edits import one_value, put_value, quoted, readable, take_value


def _put(text: str, key: str, value: str) -> str:
    return put_value(text, tuple(key.split(".")), value)


def _take(text: str, key: str) -> str:
    return take_value(text, tuple(key.split(".")))


@pytest.mark.parametrize(
    ("before", "key", "value", "after"),
    [
        ("a = 1 # one", "a", "2", "a = 2 # one"),
        ("a=1", "b", "2", "a=1\nb=2"),
        ("  a = 1\n# end\n", "b", "2", "  a = 1\n  b = 2\n# end\n"),
        ("a = [ # x\n 1,\n]\n", "a", "[2]", "a = [2]\n"),
        ('a = """\nx"""# y', "a", '"z"', 'a = "z"# y'),
        ("[run]\nlora.rank = 1\n[x]\n", "run.lora.dropout", "0.5", "[run]\nlora.rank = 1\nlora.dropout = 0.5\n[x]\n"),
        ("run.lora.rank = 1", "run.lora.dropout", "0.5", "run.lora.rank = 1\nrun.lora.dropout = 0.5"),
        ("run.kind = 1", "run.lora.rank", "2", "run.kind = 1\nrun.lora.rank = 2"),
        ("run = { kind = 1 }", "run.lora.rank", "2", "run = { kind = 1, lora.rank = 2 }"),
        ("run = {}", "run.kind", "1", "run = { kind = 1 }"),
        ("[run]\nlora = { rank = 1 } # c", "run.lora.rank", "2", "[run]\nlora = { rank = 2 } # c"),
        ("[run] # c\n\n[x]\n", "run.a", "1", "[run] # c\na = 1\n\n[x]\n"),
        ("[run.lora]\nrank = 1\n", "run.a", "1", "[run.lora]\nrank = 1\n\n[run]\na = 1\n"),
        ("# c\n[run]\na = 1\n", "name", '"x"', '# c\nname = "x"\n[run]\na = 1\n'),
        ("", "name", '"x"', 'name = "x"\n'),
        ("", "run.a", "1", "[run]\na = 1\n"),
        ("[model]\nb = 1\n[match]\nc = 1\n", "run.a", "1", "[model]\nb = 1\n\n[run]\na = 1\n\n[match]\nc = 1\n"),
        ("[match]\nc = 1", "measured.a", "1", "[match]\nc = 1\n\n[measured]\na = 1\n"),
        ("x = 1\n[match]\nc = 1\n", "model.a", "1", "x = 1\n\n[model]\na = 1\n\n[match]\nc = 1\n"),
        ("[run]\na = 1\n[run.lora]\nb = 1\n", "run.c", "1", "[run]\na = 1\nc = 1\n[run.lora]\nb = 1\n"),
        ("run = 1\n", "run.a", "1", "run = 1\n"),
    ],
)
def test_put(before: str, key: str, value: str, after: str) -> None:
    assert _put(before, key, value) == after


@pytest.mark.parametrize(
    ("before", "key", "after"),
    [
        ("a = 1 # one\nb = 2\n", "a", "b = 2\n"),
        ("a = [\n1,\n] # x\nb = 2\n", "a", "b = 2\n"),
        ("run = { a = 1, b = 2, c = 3 }", "run.a", "run = { b = 2, c = 3 }"),
        ("run = { a = 1, b = 2, c = 3 }", "run.b", "run = { a = 1, c = 3 }"),
        ("run = { a = 1, b = 2, c = 3 }", "run.c", "run = { a = 1, b = 2 }"),
        ("run = { a = 1 }", "run.a", "run = {  }"),
        ("run = { a = 1 }\nb = 1", "run", "b = 1"),
        ("[run]\na = 1\n\n[run.lora]\nb = 1\n\n[x]\nc = 1\n", "run.lora", "[run]\na = 1\n\n[x]\nc = 1\n"),
        ("[run]\na = 1\n\n[run.lora]\nb = 1\n", "run.lora", "[run]\na = 1\n"),
        ("[run]\nlora.rank = 1\nlora.b = 1\na = 1\n", "run.lora", "[run]\na = 1\n"),
        ("a = 1\n", "b", "a = 1\n"),
        ("a = 1\n", "a", ""),
        ("a = 1", "a", ""),
    ],
)
def test_take(before: str, key: str, after: str) -> None:
    assert _take(before, key) == after


@pytest.mark.parametrize(
    ("raw", "one"),
    [("1", True), ("[1,\n2]", True), ("'#'", True), ("1 # x", False), ("1\nb = 2", False), ("", False), ("x", False)],
)
def test_one_value(raw: str, one: bool) -> None:
    assert one_value(raw) == one


@given(st.text(st.characters(exclude_categories=["Cs"])), st.sampled_from(["", "''", '""']))
def test_any_text_can_be_quoted(value: str, like: str) -> None:
    assert toml.loads(f"v = {quoted(value, like)}") == {"v": value}


def test_what_can_be_read_keeps_its_places() -> None:
    text = "a = 1\nb = = 2\r\n[x\nc = 3 # é\n"
    seen = readable(text)
    assert len(seen.text) == len(text)
    assert seen.tables == {"a": 1, "c": 3}


UNFINISHED = ["b = [1,", "b = [", 'b = """', "b = '''x", "b = {", "b = { c = [", 'b = "', "[b", "[[b", "b", "b =", "]"]


@pytest.mark.parametrize("line", UNFINISHED)
def test_a_statement_that_is_not_finished_takes_nothing_else_with_it(line: str) -> None:
    text = f"a = 1\n[t]\nx = [1,\n 2]\n{line}\nc = 3\n\n[u]\nd = [\n 4,\n]\ne = 'f'\n"
    assert readable(text.replace("\n", "\r\n")).tables == readable(text).tables
    seen = readable(text)
    assert seen.tables == {"a": 1, "t": {"x": [1, 2], "c": 3}, "u": {"d": [4], "e": "f"}}


def test_a_text_that_is_all_wrong_is_given_up() -> None:
    assert readable("=\n" * 20_000).tables == {}


LEAVES = st.sampled_from(["1", "'a'", '"b # ]"', "[ 1, # one\n  2 ]", "2.5", "true"])
NAMES = st.sampled_from(["a", "b", "kind", "lora"])
SPACES = st.sampled_from([" = ", "=", "  =\t"])
ENDS = st.sampled_from(["\n", "  # note\n", "\n\n", "\r\n"])


@st.composite
def documents(draw: st.DrawFn) -> str:
    """TOML with tables, dotted keys and inline tables as people mix them."""
    text = draw(st.sampled_from(["", "# first\n", "\n"]))
    for table in draw(st.lists(st.sampled_from(["", "run", "model", "run.lora", "x"]), unique=True, max_size=4)):
        text += f"[{table}]\n" if table else ""
        for name in draw(st.lists(NAMES, unique=True, max_size=3)):
            value = draw(LEAVES)
            written = draw(st.sampled_from([value, f"{{ a = {value.replace(chr(10), ' ').replace('# one', '')} }}"]))
            dots = draw(st.sampled_from(["", ".deep"]))
            text += draw(st.sampled_from(["", "  "])) + name + dots + draw(SPACES) + written + draw(ENDS)
    try:
        toml.loads(text)
    except ValueError:
        return "[run]\na = 1\n"
    return text


KEYS = st.sampled_from(
    ["name", "run.kind", "run.a", "run.lora.rank", "x.b", "model.kind", "run.lora.deep", "run.b.deep"]
)


def _set(tables: Any, key: list[str], value: object) -> bool:
    for part in key[:-1]:
        if not isinstance(tables, dict):
            return False
        tables = tables.setdefault(part, {})
    if not isinstance(tables, dict) or isinstance(tables.get(key[-1]), dict):
        return False
    tables[key[-1]] = value
    return True


@examples(200)
@given(documents(), KEYS)
def test_only_the_value_that_was_put_is_another(text: str, key: str) -> None:
    expected = copy.deepcopy(toml.loads(text))
    if not _set(expected, key.split("."), 77):
        return
    after = _put(text, key, "77")
    assert toml.loads(after) == expected
    assert (after.count("# note"), after.count("# first")) == (text.count("# note"), text.count("# first"))
    assert _put(after, key, "77") == after


@examples(200)
@given(documents(), st.data())
def test_only_the_value_that_was_taken_is_gone(text: str, data: st.DataObject) -> None:
    tables: Any = toml.loads(text)
    if not tables:
        return
    keys: list[tuple[str, ...]] = [
        (name, part) for name, table in tables.items() if isinstance(table, dict) for part in table
    ]
    keys += [(name,) for name in tables]
    key = data.draw(st.sampled_from(sorted(keys)))
    expected: Any = copy.deepcopy(tables)
    table = expected
    for part in key[:-1]:
        table = table[part]
    del table[key[-1]]
    after: Any = toml.loads(take_value(text, key))
    emptied = {name: table for name, table in expected.items() if table != {}}
    assert {name: table for name, table in after.items() if table != {}} == emptied
